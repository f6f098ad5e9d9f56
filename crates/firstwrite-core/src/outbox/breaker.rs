//! Circuit breaker of a destination: when it opens, and when the destination is tried again.
//!
//! All workers share the breaker's state, which is stored; each worker keeps its own record of recent
//! results. An open breaker costs time but never uses up a delivery of a message: workers claim nothing for
//! the destination until a trial is due, and then one message at a time.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Timestamp;

/// Limit on claims for a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// As much as is wanted.
    Open,
    /// One message, to see whether the destination is back.
    Trial,
    /// Nothing.
    Closed,
}

impl Gate {
    /// Returns the gate of a destination that is not paused and whose breaker is open until `open_until`.
    pub fn of(open_until: Option<Timestamp>, now: Timestamp) -> Self {
        match open_until {
            None => Self::Open,
            Some(until) if now < until => Self::Closed,
            Some(_) => Self::Trial,
        }
    }
}

/// Recent delivery results of a destination, as one worker saw them.
#[derive(Clone, Debug, Default)]
pub struct FailureWindow {
    recent: VecDeque<bool>,
    failures_in_a_row: usize,
}

impl FailureWindow {
    /// Few enough that an outage is noticed before many messages have met it, many enough that one
    /// bad message among others is not taken for an outage.
    pub const FAILURES_IN_A_ROW: usize = 5;
    /// With mixed results, half of this many must have failed.
    pub const RECENT_MAX: usize = 20;
    /// The first time a destination is left alone; doubles while it stays out of order.
    pub const OPEN_FIRST: Duration = Duration::from_secs(5);
    /// A trial is one message: cheap enough to be made this often for days.
    pub const OPEN_MAX: Duration = Duration::from_mins(1);

    /// Notes how a delivery ended: whether the destination was there and did its part. `true` if it is
    /// to be left alone from now on.
    pub fn note(&mut self, was_there: bool) -> bool {
        self.failures_in_a_row = if was_there { 0 } else { self.failures_in_a_row + 1 };
        if self.recent.len() == Self::RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(was_there);
        let failures = self.recent.iter().filter(|was_there| !**was_there).count();
        let mostly_failed =
            self.recent.len() == Self::RECENT_MAX && failures * 2 >= Self::RECENT_MAX;
        !was_there && (self.failures_in_a_row >= Self::FAILURES_IN_A_ROW || mostly_failed)
    }

    /// Forgets everything: the destination was left alone, or is back.
    pub fn clear(&mut self) {
        self.recent.clear();
        self.failures_in_a_row = 0;
    }

    /// Returns how long the breaker stays open when it opens for the `opening_count`th time in a row,
    /// counted from 1. `random` is a new random number from 0 to 1.
    pub fn open_for(opening_count: u32, random: f64) -> Duration {
        let doubled = Self::OPEN_FIRST
            .saturating_mul(2u32.saturating_pow(opening_count.saturating_sub(1)))
            .min(Self::OPEN_MAX);
        // Not less than half: full jitter would sometimes not leave it alone at all.
        doubled.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_failures_opens_and_one_success_begins_a_new_row() {
        let mut seen = FailureWindow::default();
        assert!(!(0..4).any(|_| seen.note(false)));
        assert!(!seen.note(true));
        assert!(!(0..4).any(|_| seen.note(false)));
        assert!(seen.note(false));
    }

    #[test]
    fn half_of_the_recent_ones_failing_opens_too() {
        let mut seen = FailureWindow::default();
        let opened = (0..30).position(|turn| seen.note(turn % 2 == 0));
        assert_eq!(opened, Some(19));
    }

    #[test]
    fn one_bad_message_among_good_ones_opens_nothing() {
        let mut seen = FailureWindow::default();
        assert!(!(0..200).any(|turn| seen.note(turn % 3 != 0)));
    }

    #[test]
    fn the_longer_it_is_out_of_order_the_longer_it_is_left_alone() {
        let seconds = |count| FailureWindow::open_for(count, 1.0).as_secs();
        assert_eq!([1, 2, 3, 4, 5, 40].map(seconds), [5, 10, 20, 40, 60, 60]);
        assert_eq!(FailureWindow::open_for(1, 0.0), FailureWindow::OPEN_FIRST / 2);
    }
}
