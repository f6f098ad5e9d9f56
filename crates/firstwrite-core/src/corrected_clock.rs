//! A host's clock, corrected by what a service says of the time in whole seconds.
//!
//! A host whose clock agrees with the service's to the second keeps its own; otherwise the clock is corrected by
//! as little as makes it agree. So two hosts differ by about a second and the time an answer takes, however wrong
//! their own clocks are.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::host_clock::Clock;
use crate::{Timestamp, lock};

/// The store's clock: the host's, with a correction.
pub struct CorrectedClock {
    source: Clock,
    /// `None` if the source is a test's, which is right by definition.
    bounds: Option<Mutex<Option<Bounds>>>,
    offset: AtomicI64,
}

/// Bounds of the service's lead over this host, in milliseconds, as of `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    low: i64,
    high: i64,
    at: i64,
}

/// A clock that is not watched runs wrong by less than this part of the time.
const DRIFT_PART: i64 = 1000;

/// Offset, in milliseconds, from which a correction is logged.
const NOTED_FROM: i64 = 1000;

impl CorrectedClock {
    /// Makes the clock of a host that reads `source`.
    pub fn new(source: Clock) -> Self {
        Self { source, bounds: Some(Mutex::default()), offset: AtomicI64::new(0) }
    }

    /// Makes a clock that is right by definition: a test's.
    pub fn exact(source: Clock) -> Self {
        Self { bounds: None, ..Self::new(source) }
    }

    /// Reads the host's own clock.
    pub fn host(&self) -> Timestamp {
        (self.source)()
    }

    /// Returns the time. A correction may take it back: the alternative, standing still until the truth has caught up with a
    /// clock that was ahead, would hold every lease.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.host().as_millis().saturating_add(self.offset()))
    }

    /// Returns the milliseconds by which this host's own clock is corrected.
    pub fn offset(&self) -> i64 {
        self.offset.load(Ordering::Relaxed)
    }

    /// Learns from `date`, which the service wrote, in whole seconds, between two readings of the host's
    /// clock. Returns the milliseconds of a correction from which on people should know.
    pub fn learn(&self, date: i64, asked: Timestamp, answered: Timestamp) -> Option<i64> {
        let newer = Bounds::new(date.saturating_mul(1000), asked.as_millis(), answered.as_millis());
        let mut bounds = lock(self.bounds.as_ref()?);
        let known = bounds.map_or(newer, |before: Bounds| before.and(newer));
        *bounds = Some(known);
        let before = self.offset.swap(known.offset(), Ordering::Relaxed);
        let is_news = known.offset().abs() >= NOTED_FROM && before.abs() < NOTED_FROM;
        is_news.then_some(known.offset())
    }
}

impl Bounds {
    fn new(date: i64, asked: i64, answered: i64) -> Self {
        // Written within the second that it names, after it was asked for and before it was read.
        let (low, high) = (date.saturating_sub(answered), date.saturating_add(999 - asked));
        Self { low, high: high.max(low), at: answered }
    }

    /// Intersects both bounds. If they contradict each other, one of the clocks was set, and the newer one
    /// counts.
    fn and(self, newer: Self) -> Self {
        let drift = newer.at.saturating_sub(self.at).max(0) / DRIFT_PART;
        let low = newer.low.max(self.low.saturating_sub(drift));
        let high = newer.high.min(self.high.saturating_add(drift));
        if low > high { newer } else { Self { low, high, at: newer.at } }
    }

    /// The smallest correction that agrees with the service.
    fn offset(self) -> i64 {
        0.clamp(self.low, self.high)
    }
}

impl fmt::Debug for CorrectedClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CorrectedClock({:+} ms)", self.offset())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn clock(reading: &Arc<AtomicI64>) -> CorrectedClock {
        let reading = Arc::clone(reading);
        CorrectedClock::new(Arc::new(move || {
            Timestamp::from_millis(reading.load(Ordering::Relaxed))
        }))
    }

    fn hear(clock: &CorrectedClock, date: i64, asked: i64, answered: i64) {
        clock.learn(date, Timestamp::from_millis(asked), Timestamp::from_millis(answered));
    }

    #[test]
    fn a_host_that_agrees_keeps_its_own_clock() {
        let reading = Arc::new(AtomicI64::new(100_400));
        let clock = clock(&reading);
        hear(&clock, 100, 100_390, 100_400);
        assert_eq!(clock.now(), Timestamp::from_millis(100_400));
    }

    #[test]
    fn a_host_that_is_wrong_is_moved_to_within_a_second() {
        for (wrong_by, date) in [(-60_000, 100), (60_000, 100), (-3_600_000, 4000)] {
            let truth = date * 1000 + 500;
            let reading = Arc::new(AtomicI64::new(truth + wrong_by));
            let clock = clock(&reading);
            hear(&clock, date, truth + wrong_by - 10, truth + wrong_by);
            let off = clock.now().as_millis() - truth;
            assert!(off.abs() <= 1010, "{off} ms off with a clock wrong by {wrong_by}");
        }
    }

    #[test]
    fn answers_around_the_turn_of_a_second_narrow_it_down() {
        // The service is 5000 ms ahead; its second turns between the two answers.
        let clock = clock(&Arc::new(AtomicI64::new(0)));
        hear(&clock, 104, 99_980, 99_990);
        hear(&clock, 105, 100_000, 100_010);
        let known = clock.bounds.as_ref().unwrap().lock().unwrap().unwrap();
        assert!(known.low >= 4_990 && known.high <= 5_020, "{known:?}");
    }

    #[test]
    fn a_clock_that_was_set_is_believed_no_longer_than_its_contradiction() {
        let clock = clock(&Arc::new(AtomicI64::new(0)));
        hear(&clock, 100, 100_000, 100_010);
        hear(&clock, 101, 500_000, 500_010);
        assert!((-399_010..=-398_000).contains(&clock.offset()), "{}", clock.offset());
    }
}
