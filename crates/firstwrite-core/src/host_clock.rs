//! The time of a store whose only clock is its host's, which a wrong clock can neither turn back nor use to end a
//! retention early.
//!
//! 1. While the store is open, its time is that of its opening plus what the monotonic clock says has
//!    passed since. A step of the host's clock is logged and changes nothing.
//! 2. The file keeps the latest time it has seen, and what the host's clock showed then. Time never goes
//!    back from there, and goes on from the host's clock if that is ahead.
//! 3. Up to [`DOWNTIME_BELIEVED`] between two lives counts as time that has passed. A longer gap may be a
//!    machine that was off or a clock that was set ahead, and nothing here can tell which: it is a *jump*,
//!    and does not count for the retention of what was written before it, nor for how long ago an attempt
//!    was given up, until an operator confirms it.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::Timestamp;
use crate::encoding::as_i64;

/// Source of a store's time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Measures time that has passed, from a start of its own.
pub type Stopwatch = Arc<dyn Fn() -> Duration + Send + Sync>;

/// A gap between two lives of the store that does not count as elapsed time for earlier records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClockJump {
    /// The store's time after it: earlier records are kept for longer.
    pub at: Timestamp,
    /// Length of the jump, which is not counted as elapsed time.
    pub uncounted: Duration,
}

/// The last time recorded in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenTime {
    /// The latest time of the store.
    pub at: Timestamp,
    /// Time of the host's clock at that moment.
    pub wall: Timestamp,
}

/// The store's time at opening, and the clock jump detected then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// The time.
    pub now: Timestamp,
    /// The jump that is new with this opening.
    pub jump: Option<ClockJump>,
}

/// The clock of an open store.
pub struct StoreClock {
    wall: Clock,
    stopwatch: Stopwatch,
    opened_on: Duration,
    opened_at: Timestamp,
    last: AtomicI64,
    jumps: RwLock<Vec<ClockJump>>,
}

/// Longer than a restart or a reboot takes, and short beside the retention of any outcome.
pub const DOWNTIME_BELIEVED: Duration = Duration::from_mins(5);

/// Largest difference that a time service corrects silently. A larger one is a step.
pub const STEP_MIN: Duration = Duration::from_secs(5);

impl StoreClock {
    /// Makes the clock of a store that was opened at `opened_at`.
    pub fn new(
        wall: Clock,
        stopwatch: Stopwatch,
        opened_at: Timestamp,
        jumps: Vec<ClockJump>,
    ) -> Self {
        let opened_on = stopwatch();
        let last = AtomicI64::new(opened_at.as_millis());
        Self { wall, stopwatch, opened_on, opened_at, last, jumps: RwLock::new(jumps) }
    }

    /// Returns the store's time. It never goes back, even if a test's clock does.
    pub fn now(&self) -> Timestamp {
        let passed = (self.stopwatch)().saturating_sub(self.opened_on);
        let now = self.opened_at.plus(passed).as_millis();
        Timestamp::from_millis(self.last.fetch_max(now, Ordering::Relaxed).max(now))
    }

    /// Returns what is written down of this moment.
    pub fn seen(&self) -> SeenTime {
        SeenTime { at: self.now(), wall: (self.wall)() }
    }

    /// Returns the time from which the retention of a record written at `at` counts, and the age of a doubt
    /// since then, so that no jump is part of it.
    pub fn counted_from(&self, at: Timestamp) -> Timestamp {
        let jumps = self.jumps.read().unwrap_or_else(PoisonError::into_inner);
        let uncounted = jumps.iter().filter(|jump| at < jump.at).map(|jump| jump.uncounted);
        at.plus(uncounted.fold(Duration::ZERO, Duration::saturating_add))
    }

    /// Returns the store's time without any jump: a deadline before it has passed, whenever it was written.
    pub fn counted_now(&self) -> Timestamp {
        let jumps = self.jumps.read().unwrap_or_else(PoisonError::into_inner);
        let uncounted = jumps.iter().map(|jump| jump.uncounted);
        back(self.now(), uncounted.fold(Duration::ZERO, Duration::saturating_add))
    }

    /// Counts every jump as time that has passed.
    pub fn confirm(&self) {
        self.jumps.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl ClockJump {
    /// A jump that was written down.
    pub fn new(at: Timestamp, uncounted: Duration) -> Self {
        Self { at, uncounted }
    }
}

impl SeenTime {
    /// Returns the time of a store that is only read: it follows the writer's.
    pub fn followed(self, wall: Timestamp) -> Timestamp {
        self.at.plus(wall.since(self.wall))
    }

    /// Returns the milliseconds by which the host's clock is ahead of the store's time; negative if it is
    /// behind.
    pub fn wall_ahead(self) -> i64 {
        self.wall.as_millis().saturating_sub(self.at.as_millis())
    }
}

impl fmt::Debug for StoreClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreClock")
            .field("opened_at", &self.opened_at)
            .field("jumps", &self.jumps)
            .finish_non_exhaustive()
    }
}

/// Returns true if a difference of so many milliseconds is a step of a clock.
pub fn is_step(millis: i64) -> bool {
    Duration::from_millis(millis.unsigned_abs()) > STEP_MIN
}

/// Computes the store's time at opening from the time recorded in the file and the host's clock (`wall`).
pub fn resume(seen: Option<SeenTime>, wall: Timestamp) -> Resumed {
    let Some(seen) = seen else { return Resumed { now: wall, jump: None } };
    let now = wall.max(seen.at);
    let downtime = wall.since(seen.wall);
    let believed = if downtime <= DOWNTIME_BELIEVED { downtime } else { Duration::ZERO };
    // A step while the store was open was not followed then and is no more believed now.
    let drift = seen.wall.since(seen.at);
    let believed = believed + if drift <= STEP_MIN { drift } else { Duration::ZERO };
    let uncounted = now.since(seen.at).saturating_sub(believed);
    let jump = (uncounted > STEP_MIN).then_some(ClockJump { at: now, uncounted });
    Resumed { now, jump }
}

fn back(at: Timestamp, by: Duration) -> Timestamp {
    let millis = as_i64(by.as_millis());
    Timestamp::from_millis(at.as_millis().saturating_sub(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// The time at opening and what does not count, in milliseconds, after (store's time, host's clock).
    fn resumed((seen_at, seen_wall): (i64, i64), wall: i64) -> (i64, u128) {
        let Resumed { now, jump } =
            resume(Some(SeenTime { at: at(seen_at), wall: at(seen_wall) }), at(wall));
        assert!(jump.is_none_or(|jump| jump.at == now));
        (now.as_millis(), jump.map_or(0, |jump| jump.uncounted.as_millis()))
    }

    #[test]
    fn a_short_stop_counts_and_a_long_one_does_not() {
        assert_eq!(resume(None, at(7)), Resumed { now: at(7), jump: None });
        assert_eq!(resumed((1000, 1000), 1000), (1000, 0));
        assert_eq!(resumed((1000, 1000), 301_000), (301_000, 0));
        assert_eq!(resumed((1000, 1000), 301_001), (301_001, 300_001));
        assert_eq!(resumed((0, 0), 48 * HOUR), (48 * HOUR, 48 * 3_600_000));
    }

    #[test]
    fn time_never_goes_back() {
        assert_eq!(resumed((2 * HOUR, 2 * HOUR), 1000), (2 * HOUR, 0));
        // Nor does it stay behind for ever: the host's clock has come near, then past it.
        assert_eq!(resumed((2 * HOUR, 1000), 2000), (2 * HOUR, 0));
        assert_eq!(resumed((2 * HOUR, HOUR), 3 * HOUR), (3 * HOUR, 3_600_000));
    }

    #[test]
    fn a_step_while_the_store_was_open_is_not_believed_at_the_next_opening_either() {
        assert_eq!(resumed((1000, 1000 + 240_000), 242_000), (242_000, 240_000));
        // A second or two is what time services correct.
        assert_eq!(resumed((1000, 3000), 4000), (4000, 0));
    }

    #[test]
    fn what_was_written_before_jumps_is_kept_for_longer_by_all_of_them() {
        let jump =
            |millis, seconds| ClockJump { at: at(millis), uncounted: Duration::from_secs(seconds) };
        let clock = StoreClock::new(
            Arc::new(|| at(9_000_000)),
            Arc::new(|| Duration::ZERO),
            at(9_000_000),
            vec![jump(1000, 60), jump(5000, 3600)],
        );
        assert_eq!(clock.counted_from(at(999)), at(999 + 3_660_000));
        assert_eq!(clock.counted_from(at(1000)), at(1000 + 3_600_000));
        assert_eq!(clock.counted_from(at(5000)), at(5000));
        assert_eq!(clock.counted_now(), at(9_000_000 - 3_660_000));
        clock.confirm();
        assert_eq!((clock.counted_from(at(999)), clock.counted_now()), (at(999), clock.now()));
    }
}
