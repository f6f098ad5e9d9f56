//! The time to wait before the next attempt.

use std::time::Duration;

use super::time::Timestamp;

/// Longest time that a server is obeyed: whoever waits longer is better asked again.
pub(crate) const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);
/// Cap of the random part: long enough to spread a fleet, short enough that nobody thinks the client dead.
pub(crate) const BACK_OFF_MAX: Duration = Duration::from_secs(30);
/// The random part before the second attempt is below this.
const BACK_OFF_FIRST: Duration = Duration::from_millis(500);

/// The wait that an answer asks for, from its header `Retry-After`, else from the member `retry_after` of a problem
/// document; at most an hour. `None` where neither can be read.
pub fn retry_after(header: Option<&str>, member: Option<u64>, now: Timestamp) -> Option<Duration> {
    let said = header.and_then(|text| read(text.trim(), now));
    said.or(member.map(Duration::from_secs)).map(|wait| wait.min(RETRY_AFTER_MAX))
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

/// The random part of the wait after attempt number `attempt`, which counts from 1. `random` is from 0 up to, but
/// not, 1.
pub fn back_off(attempt: u32, random: f64) -> Duration {
    let doublings = attempt.saturating_sub(1).min(16);
    let cap = BACK_OFF_FIRST.saturating_mul(1 << doublings).min(BACK_OFF_MAX);
    let part = cap.mul_f64(random.clamp(0.0, 1.0));
    // Whole milliseconds, so that clients in other languages wait the same.
    Duration::from_millis(u64::try_from(part.as_millis()).unwrap_or(u64::MAX))
}
