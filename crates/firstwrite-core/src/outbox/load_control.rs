//! Load control of a destination: how many deliveries are made at once, and when none is made at all.
//!
//! Each worker finds its own concurrency limit: as many deliveries at once as the destination takes without
//! slowing down. The circuit breaker says when the destination is left alone, and when it is tried again. All
//! workers share the breaker's state, which is stored; each worker keeps its own record of recent results. An
//! open breaker costs time but never uses up a delivery of a message: workers claim nothing for the destination
//! until a trial is due, and then one message at a time.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Timestamp;

/// Number of deliveries that one worker makes to one destination at once.
///
/// Doubles with each limit of good deliveries while it is small, then grows by one for each. Shrinks when
/// the destination says that it is overloaded, does not answer in time, or has become much slower than
/// usual.
#[derive(Clone, Debug)]
pub struct ConcurrencyLimit {
    limit: f64,
    limit_max: f64,
    /// Of good deliveries; the usual one follows slowly, the recent one quickly.
    usual: Option<Duration>,
    recent: Option<Duration>,
}

/// Load signal from one delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// The destination answered, after this long.
    Answered(Duration),
    /// The destination said that it is overloaded, or did not answer at all.
    Overloaded,
}

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

/// Recent delivery results of a destination, as one worker saw them.
#[derive(Clone, Debug, Default)]
pub struct FailureWindow {
    recent: VecDeque<bool>,
    failures_in_a_row: usize,
}

impl ConcurrencyLimit {
    /// Slower than usual by this much, and it is not asked for more.
    const SLOW: f64 = 2.0;
    /// Differences below this are the network's.
    const SLOW_FLOOR: Duration = Duration::from_millis(20);

    /// Begins with one delivery at a time.
    pub fn new(limit_max: u32) -> Self {
        Self { limit: 1.0, limit_max: f64::from(limit_max.max(1)), usual: None, recent: None }
    }

    /// Returns the number of deliveries that may be under way.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between one and a u32"
    )]
    pub fn limit(&self) -> u32 {
        self.limit as u32
    }

    /// Learns from a delivery.
    pub fn note(&mut self, load: Load) {
        match load {
            Load::Overloaded => self.limit = (self.limit / 2.0).max(1.0),
            Load::Answered(took) => {
                self.recent = Some(follow(self.recent, took, 0.3));
                self.usual = Some(match self.usual {
                    // Down at once: what it can do is what it does when little is asked of it.
                    Some(usual) if took < usual => follow(Some(usual), took, 0.3),
                    usual @ (Some(_) | None) => follow(usual, took, 0.01),
                });
                if self.is_slow() {
                    self.limit = (self.limit * 0.98).max(1.0);
                } else {
                    // Doubles with each limit of them while it is small, then grows by one.
                    let step = if self.limit < 8.0 { 1.0 } else { 1.0 / self.limit };
                    self.limit = (self.limit + step).min(self.limit_max);
                }
            }
        }
    }

    /// Begins again with one at a time: the destination is back after it was out of order.
    pub fn restart(&mut self) {
        self.limit = 1.0;
        self.recent = self.usual;
    }

    fn is_slow(&self) -> bool {
        let (Some(usual), Some(recent)) = (self.usual, self.recent) else { return false };
        recent > usual.mul_f64(Self::SLOW) + Self::SLOW_FLOOR
    }
}

fn follow(old: Option<Duration>, new: Duration, share: f64) -> Duration {
    old.map_or(new, |old| old.mul_f64(1.0 - share) + new.mul_f64(share))
}

impl Gate {
    /// Returns how many messages a claim may take that asks for `count_max`; `None` for none at all.
    pub fn room(self, count_max: usize) -> Option<usize> {
        match self {
            Self::Closed => None,
            Self::Trial => Some(count_max.min(1)),
            Self::Open => Some(count_max),
        }
    }

    /// Returns the gate of a destination that is not paused and whose breaker is open until `open_until`.
    pub fn of(open_until: Option<Timestamp>, now: Timestamp) -> Self {
        match open_until {
            None => Self::Open,
            Some(until) if now < until => Self::Closed,
            Some(_) => Self::Trial,
        }
    }
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

    fn answered(millis: u64) -> Load {
        Load::Answered(Duration::from_millis(millis))
    }

    fn warmed_up() -> ConcurrencyLimit {
        let mut limit = ConcurrencyLimit::new(32);
        (0..2000).for_each(|_| limit.note(answered(10)));
        limit
    }

    #[test]
    fn it_begins_with_one_and_grows_to_the_declared_limit() {
        assert_eq!(ConcurrencyLimit::new(32).limit(), 1);
        assert_eq!(warmed_up().limit(), 32);
        assert_eq!(ConcurrencyLimit::new(0).limit(), 1);
    }

    #[test]
    fn being_asked_too_much_halves_it_but_never_stops_it() {
        let mut limit = warmed_up();
        limit.note(Load::Overloaded);
        assert_eq!(limit.limit(), 16);
        (0..100).for_each(|_| limit.note(Load::Overloaded));
        assert_eq!(limit.limit(), 1);
    }

    #[test]
    fn a_destination_that_slows_down_is_asked_less() {
        let mut limit = warmed_up();
        (0..60).for_each(|_| limit.note(answered(400)));
        assert!(limit.limit() < 16, "{}", limit.limit());
        (0..4000).for_each(|_| limit.note(answered(10)));
        assert_eq!(limit.limit(), 32);
    }

    #[test]
    fn one_that_was_always_slow_is_not_slowed_down() {
        let mut limit = ConcurrencyLimit::new(32);
        (0..2000).for_each(|_| limit.note(answered(900)));
        assert_eq!(limit.limit(), 32);
    }

    #[test]
    fn after_an_outage_it_begins_with_one() {
        let mut limit = warmed_up();
        limit.restart();
        assert_eq!(limit.limit(), 1);
    }

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
