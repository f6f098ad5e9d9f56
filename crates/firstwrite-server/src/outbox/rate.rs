//! Rates: a count per unit of time.

use std::str::FromStr;
use std::time::Duration;

/// A count in a unit of time, such as 50 in a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    count: u32,
    unit: Duration,
}

/// More than a store takes; a larger number is a slip.
const COUNT_MAX: u32 = 100_000;

impl Rate {
    /// Returns the time in which `count` of them are due.
    pub(super) fn time_for(self, count: usize) -> Duration {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.unit.saturating_mul(count) / self.count
    }

    /// Returns the number to do at a time: about a quarter of a second's worth, so that a small rate does not
    /// turn into a burst followed by a long pause.
    pub(super) fn batch(self, count_max: usize) -> usize {
        let per_second = f64::from(self.count) / self.unit.as_secs_f64();
        let mut batch = 1;
        while batch < count_max
            && f64::from(u32::try_from(batch).unwrap_or(u32::MAX)) * 4.0 < per_second
        {
            batch += 1;
        }
        batch
    }
}

impl FromStr for Rate {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "a rate is a number and a unit, such as 50/s, 100/m or 1000/h";
        let Some((count, unit)) = text.split_once('/') else { return Err(EXPECTED) };
        let unit = match unit {
            "s" => Duration::from_secs(1),
            "m" => Duration::from_mins(1),
            "h" => Duration::from_hours(1),
            _ => return Err(EXPECTED),
        };
        let count = count.parse().ok().filter(|count| (1..=COUNT_MAX).contains(count));
        count.map(|count| Self { count, unit }).ok_or(EXPECTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_read_or_refused() {
        let rate: Rate = "50/s".parse().unwrap();
        assert_eq!(rate.time_for(100), Duration::from_secs(2));
        assert_eq!("30/m".parse::<Rate>().unwrap().time_for(1), Duration::from_secs(2));
        for wrong in ["", "50", "0/s", "-1/s", "50/d", "100001/s", "1.5/s", "/s"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_batch_is_a_quarter_of_a_second() {
        let batch = |text: &str| text.parse::<Rate>().unwrap().batch(500);
        assert_eq!(batch("50/s"), 13);
        assert_eq!(batch("1/s"), 1);
        assert_eq!(batch("5/h"), 1);
        assert_eq!(batch("100000/s"), 500);
    }
}
