//! The host's clock, for stores whose backend has none to ask.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use firstwrite_core::Timestamp;

/// Where a store takes its time from.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A clock that never goes back while the store is open.
pub(crate) struct Steady {
    source: Clock,
    last: AtomicI64,
}

impl Steady {
    pub(crate) fn new(source: Clock) -> Self {
        Self { source, last: AtomicI64::new(i64::MIN) }
    }

    pub(crate) fn now(&self) -> Timestamp {
        let read = (self.source)().as_millis();
        Timestamp::from_millis(self.last.fetch_max(read, Ordering::Relaxed).max(read))
    }
}

impl fmt::Debug for Steady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Steady({})", self.last.load(Ordering::Relaxed))
    }
}

/// The host's clock. When it is set back, time goes on from where it was instead of standing
/// still: a frozen clock would hold every lease.
pub(crate) fn host() -> Clock {
    let last: Mutex<Option<(i64, Instant)>> = Mutex::new(None);
    Arc::new(move || {
        let (wall, instant) = read_host();
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        let millis = continued(*last, wall, instant);
        *last = Some((millis, instant));
        Timestamp::from_millis(millis)
    })
}

fn continued(last: Option<(i64, Instant)>, wall: i64, instant: Instant) -> i64 {
    let Some((last_millis, last_instant)) = last else { return wall };
    let passed = instant.saturating_duration_since(last_instant).as_millis();
    wall.max(last_millis.saturating_add(i64::try_from(passed).unwrap_or(i64::MAX)))
}

#[expect(clippy::disallowed_methods, reason = "for stores whose backend has no clock to ask")]
fn read_host() -> (i64, Instant) {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX), Instant::now())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_clock_that_is_set_back_does_not_take_time_back() {
        let readings = Arc::new(AtomicI64::new(1000));
        let shared = Arc::clone(&readings);
        let source = move || Timestamp::from_millis(shared.load(Ordering::Relaxed));
        let steady = Steady::new(Arc::new(source));
        assert_eq!(steady.now(), Timestamp::from_millis(1000));
        readings.store(400, Ordering::Relaxed);
        assert_eq!(steady.now(), Timestamp::from_millis(1000));
        readings.store(1001, Ordering::Relaxed);
        assert_eq!(steady.now(), Timestamp::from_millis(1001));
    }

    #[test]
    fn time_goes_on_after_the_host_was_set_back() {
        let (_, start) = read_host();
        let later = start + Duration::from_millis(50);
        assert_eq!(continued(None, 7000, start), 7000);
        assert_eq!(continued(Some((7000, start)), 1000, later), 7050);
        assert_eq!(continued(Some((7000, start)), 9000, later), 9000);
    }
}
