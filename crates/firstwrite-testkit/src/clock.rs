//! A clock that a test sets: it stands still until it is told to move.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use firstwrite_core::Timestamp;

/// A clock that stands still until a test moves it. Clones show the same time.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// A round number well away from the epoch, so that subtracting a day is still a valid time.
    pub const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    /// A clock that shows [`ManualClock::START`].
    pub fn new() -> Self {
        Self(Arc::new(AtomicI64::new(Self::START.as_millis())))
    }

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.set(self.now().plus(by));
    }

    /// Sets the clock, also backwards.
    pub fn set(&self, to: Timestamp) {
        self.0.store(to.as_millis(), Ordering::SeqCst);
    }

    /// Returns a function that reads this clock, for a store: `MemoryStore::new(clock.reader())`.
    pub fn reader(&self) -> impl Fn() -> Timestamp + Send + Sync + 'static {
        let clock = self.clone();
        move || clock.now()
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_the_clock_move() {
        let clock = ManualClock::new();
        let read = clock.reader();
        assert_eq!(read(), ManualClock::START);
        clock.advance(Duration::from_millis(3));
        assert_eq!(read().since(ManualClock::START), Duration::from_millis(3));
        clock.set(Timestamp::EPOCH);
        assert_eq!(read(), Timestamp::EPOCH);
    }
}
