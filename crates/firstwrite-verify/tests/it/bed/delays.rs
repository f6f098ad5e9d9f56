//! How long the servers take for what they do, and how one of them lets time pass.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// How long a key stands after the restart that its attempt did not survive.
pub(super) const LEASE: Duration = Duration::from_millis(300);

/// How long answers are kept where nothing else is asked for.
pub(super) const RETENTION: Duration = Duration::from_hours(24);

/// No handler is slower, whatever it is asked to be.
pub(super) const SLOW_MAX: Duration = Duration::from_secs(10);

/// A connection on which nothing comes for so long is given up.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(30);

/// How long the caller may go on sending after the last answer on its connection.
pub(super) const LINGER: Duration = Duration::from_secs(1);

// The widths of the planted gaps are such that they are met on a machine with ten times as much to
// do as it has cores.

/// Between looking and inserting; two of some rivals that are sent together arrive in less.
pub(super) const CHECK_TO_INSERT: Duration = Duration::from_millis(150);

/// Between the answer and its record; a retry that is sent at once arrives in less.
pub(super) const REPLY_TO_RECORD: Duration = Duration::from_millis(1500);

/// Between effect and record, where it is noticed that the caller has hung up.
pub(super) const EFFECT_TO_RECORD: Duration = Duration::from_millis(200);

/// How long a reservation lives that nobody renews.
pub(super) const UNRENEWED: Duration = Duration::from_millis(800);

/// How long a record lives that vanishes early: past a retry that is sent at once, or after a pause.
pub(super) const EARLY: Duration = Duration::from_millis(1200);

/// What another tenant's record costs: well above the noise of loopback, well below what is felt.
pub(super) const OTHERS_KEY: Duration = Duration::from_millis(25);

/// Lets time pass in a server. It is the slowness itself, of a handler or planted; nobody waits for
/// anything by it, and no test may call it.
pub(super) async fn pass(time: Duration) {
    tokio::time::sleep_until(Instant::now() + time).await;
}

/// The date at which something ends that lasts for this long from now.
#[expect(clippy::disallowed_methods, reason = "a server that shares no clock with its caller")]
pub(super) fn date_in(time: Duration) -> String {
    // Whole seconds are cut off, so it is never later than the record is kept.
    httpdate::fmt_http_date(SystemTime::now() + time)
}
