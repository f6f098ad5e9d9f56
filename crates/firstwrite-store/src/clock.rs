//! The host's clock, for stores whose backend has none to ask.

use std::sync::Arc;
#[cfg(feature = "dynamodb")]
use std::sync::Mutex;
use std::time::{Instant, SystemTime};

use firstwrite_core::Timestamp;
use firstwrite_core::encoding::as_i64;
use firstwrite_core::host_clock::Clock;
#[cfg(feature = "sqlite")]
use firstwrite_core::host_clock::Stopwatch;

/// The host's clock as it is set, steps and all.
#[cfg(feature = "sqlite")]
pub(crate) fn wall() -> Clock {
    Arc::new(|| Timestamp::from_millis(read_host().0))
}

/// Returns the host's monotonic clock, which cannot be set.
#[cfg(feature = "sqlite")]
pub(crate) fn stopwatch() -> Stopwatch {
    let (_, start) = read_host();
    Arc::new(move || read_host().1.saturating_duration_since(start))
}

/// Returns the host's clock. If it is set back, time continues from there instead of standing still: a
/// frozen clock would hold every lease.
#[cfg(feature = "dynamodb")]
pub(crate) fn host() -> Clock {
    let last: Mutex<Option<(i64, Instant)>> = Mutex::new(None);
    Arc::new(move || {
        let (wall, instant) = read_host();
        let mut last = firstwrite_core::lock(&last);
        let millis = continued(*last, wall, instant);
        *last = Some((millis, instant));
        Timestamp::from_millis(millis)
    })
}

#[cfg(feature = "dynamodb")]
fn continued(last: Option<(i64, Instant)>, wall: i64, instant: Instant) -> i64 {
    let Some((last_millis, last_instant)) = last else { return wall };
    let passed = instant.saturating_duration_since(last_instant).as_millis();
    wall.max(last_millis.saturating_add(as_i64(passed)))
}

#[expect(clippy::disallowed_methods, reason = "for stores whose backend has no clock to ask")]
fn read_host() -> (i64, Instant) {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (as_i64(since_epoch.as_millis()), Instant::now())
}

#[cfg(all(test, feature = "dynamodb"))]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn time_goes_on_after_the_host_was_set_back() {
        let (_, start) = read_host();
        let later = start + Duration::from_millis(50);
        assert_eq!(continued(None, 7000, start), 7000);
        assert_eq!(continued(Some((7000, start)), 1000, later), 7050);
        assert_eq!(continued(Some((7000, start)), 9000, later), 9000);
    }
}
