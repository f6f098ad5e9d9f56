//! Concurrency limit of a destination: as many deliveries at once as it takes without slowing down.

use std::time::Duration;

/// Number of deliveries that one worker makes to one destination at once.
///
/// Doubles with each round of good deliveries while it is small, then grows by one for each. Shrinks when
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
    pub fn note(&mut self, strain: Load) {
        match strain {
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
                    // Doubles with each round while it is small, then grows by one.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(millis: u64) -> Load {
        Load::Answered(Duration::from_millis(millis))
    }

    fn warmed_up() -> ConcurrencyLimit {
        let mut pace = ConcurrencyLimit::new(32);
        (0..2000).for_each(|_| pace.note(answered(10)));
        pace
    }

    #[test]
    fn it_begins_with_one_and_grows_to_the_declared_limit() {
        assert_eq!(ConcurrencyLimit::new(32).limit(), 1);
        assert_eq!(warmed_up().limit(), 32);
        assert_eq!(ConcurrencyLimit::new(0).limit(), 1);
    }

    #[test]
    fn being_asked_too_much_halves_it_but_never_stops_it() {
        let mut pace = warmed_up();
        pace.note(Load::Overloaded);
        assert_eq!(pace.limit(), 16);
        (0..100).for_each(|_| pace.note(Load::Overloaded));
        assert_eq!(pace.limit(), 1);
    }

    #[test]
    fn a_destination_that_slows_down_is_asked_less() {
        let mut pace = warmed_up();
        (0..60).for_each(|_| pace.note(answered(400)));
        assert!(pace.limit() < 16, "{}", pace.limit());
        (0..4000).for_each(|_| pace.note(answered(10)));
        assert_eq!(pace.limit(), 32);
    }

    #[test]
    fn one_that_was_always_slow_is_not_slowed_down() {
        let mut pace = ConcurrencyLimit::new(32);
        (0..2000).for_each(|_| pace.note(answered(900)));
        assert_eq!(pace.limit(), 32);
    }

    #[test]
    fn after_an_outage_it_begins_with_one() {
        let mut pace = warmed_up();
        pace.restart();
        assert_eq!(pace.limit(), 1);
    }
}
