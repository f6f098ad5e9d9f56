//! The time to wait before the next attempt.

use std::time::Duration;

use super::time::Timestamp;

/// Longest time that a server is obeyed: whoever waits longer is better asked again.
pub(crate) const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);
/// Cap of the back-off: long enough to spread a fleet, short enough that nobody thinks the client dead.
pub(crate) const BACK_OFF_MAX: Duration = Duration::from_secs(30);
/// The back-off before the second attempt is below this.
const BACK_OFF_FIRST: Duration = Duration::from_millis(500);
/// Doublings that reach the cap.
const DOUBLINGS_TO_CAP: u32 = 6;

/// The wait that an answer asks for, from its header `Retry-After`, else from the member `retry_after` of a problem
/// document, rounded up to whole seconds; at most an hour. `None` where neither can be read. `now` is the time of the
/// answer by its `Date`, where it has one ([`Reply::date`](crate::transport::Reply::date)), so that a date is a length
/// whatever this clock says.
pub fn retry_after(header: Option<&str>, member: Option<f64>, now: Timestamp) -> Option<Duration> {
    let said = header.and_then(|text| read(text.trim(), now));
    said.or_else(|| member.and_then(whole_seconds)).map(|wait| wait.min(RETRY_AFTER_MAX))
}

/// A finite number from 0 up, as seconds.
fn whole_seconds(number: f64) -> Option<Duration> {
    let is_time = number.is_finite() && number >= 0.0;
    // The cap comes first, so that no number is too large for a length of time.
    is_time.then(|| Duration::from_secs_f64(number.min(RETRY_AFTER_MAX.as_secs_f64()).ceil()))
}

/// Whole seconds, or an HTTP date.
fn read(text: &str, now: Timestamp) -> Option<Duration> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number {
        // A number that does not fit is a very long wait.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    Timestamp::from_http_date(text).map(|date| date.since(now))
}

/// The wait after attempt number `attempt`, which counts from 1: what the answer asked for, and a back-off. `random` is
/// from 0 up to, but not, 1.
///
/// The back-off is drawn from almost the whole range, which spreads a fleet that began at one moment. Once a wait at
/// the cap lies behind, it is drawn from the last eighth, which keeps a spread fleet spread: its clients come back at
/// nearly the same rate over the whole cap, and not faster at first. A time that the server names gathers a fleet
/// again, so beside one it stays wide.
pub fn wait(asked: Duration, attempt: u32, random: f64) -> Duration {
    let doublings = attempt.saturating_sub(1).min(16);
    let ceiling = BACK_OFF_FIRST.saturating_mul(1 << doublings).min(BACK_OFF_MAX);
    let is_narrow = doublings > DOUBLINGS_TO_CAP && asked.is_zero();
    let eighth = ceiling / 8;
    let (floor, range) = if is_narrow { (eighth * 7, eighth) } else { (eighth, eighth * 7) };
    let part = floor + range.mul_f64(random.clamp(0.0, 1.0));
    // Whole milliseconds, so that clients in other languages wait the same.
    asked.saturating_add(Duration::from_millis(u64::try_from(part.as_millis()).unwrap_or(u64::MAX)))
}

/// The time that is left of a wait of so long that ends at `not_before`, for a process that did not see it begin. A
/// clock that was set back makes it no longer than it was.
pub fn wait_left(not_before: Option<Timestamp>, waits_for: Duration, now: Timestamp) -> Duration {
    not_before.map_or(Duration::ZERO, |until| until.since(now).min(waits_for))
}
