//! Numbers of messages and findings: the time of writing, and behind it a few digits that tell apart what was
//! written in the same millisecond.
//!
//! Each process draws them by itself, so no write waits for a shared counter. Numbers of one process grow; numbers of
//! two processes are in order as far as their clocks agree. If two processes draw the same number, the condition
//! under which a message is written refuses the second.

use std::sync::atomic::{AtomicI64, Ordering};

use firstwrite_core::Timestamp;

/// Gives numbers out.
#[derive(Debug, Default)]
pub(in super::super) struct Numbers {
    last: AtomicI64,
}

/// The first moment of 2025. Counted from there, numbers are below 2⁵³ until the year 2094: programs that read JSON
/// with floating-point numbers keep them whole.
const EPOCH: i64 = 1_735_689_600_000;
const DIGITS: u32 = 12;
const MILLIS_MAX: i64 = (1 << (63 - DIGITS)) - 1;

/// The first number of a millisecond is drawn from the lower half, so that there is room behind it.
const DRAWN_FROM: i64 = 1 << (DIGITS - 1);

/// Maximum step between two numbers of the same millisecond. Steps are drawn at random, so that two processes that
/// collide once do not collide on every following number.
const STEP_MAX: i64 = 8;

impl Numbers {
    /// A number that is greater than all before it.
    pub(in super::super) fn next(&self, now: Timestamp) -> i64 {
        let by_time = first_at(now).saturating_add(fastrand::i64(0..DRAWN_FROM));
        let step = fastrand::i64(1..=STEP_MAX);
        let greater = |last: i64| by_time.max(last.saturating_add(step));
        let before = self
            .last
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(greater(last)));
        greater(before.unwrap_or_default())
    }
}

/// The smallest number that can have been given out at a time or later, by a clock that was never set back.
pub(in super::super) fn first_at(at: Timestamp) -> i64 {
    at.as_millis().saturating_sub(EPOCH).clamp(0, MILLIS_MAX) << DIGITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_grow_and_tell_the_time() {
        let numbers = Numbers::default();
        let at = Timestamp::from_millis(4_102_444_800_000);
        let given: Vec<i64> = (0..100).map(|_| numbers.next(at)).collect();
        assert!(given.is_sorted_by(|before, after| before < after));
        assert!(given[0] >= first_at(at));
        let earlier = Timestamp::from_millis(at.as_millis() - 5000);
        assert!(numbers.next(earlier) > given[99], "a clock that was set back makes none smaller");
        let later = Timestamp::from_millis(at.as_millis() + 5000);
        assert!(numbers.next(later) >= first_at(later));
        assert!(numbers.next(Timestamp::NEVER) > 0);
        let in_2090 = Timestamp::from_millis(3_786_912_000_000);
        assert!(Numbers::default().next(in_2090) < 1 << 53);
    }
}
