//! Frequencies of faults, drawn from a seed so that a run can be repeated.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::error::{ErrorKind, ProviderError};

/// Frequency of an event. In JSON: `"never"`, `"always"`, `{"first": 2}`, `{"every": 3}`, `{"probability": 0.25}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Chance {
    /// Not at all.
    #[default]
    Never,
    /// Every time.
    Always,
    /// The first so many times after the behaviour was set, and then no more.
    First(u32),
    /// Every nth time: the nth, the 2nth, and so on.
    Every(u32),
    /// With this probability, from 0 to 1, by the provider's seed: the nth call of a run draws the
    /// nth number, so calls that are made one after another meet the same luck in every run.
    Probability(f64),
}

/// A chance and how often it was taken.
#[derive(Debug)]
pub(crate) struct Dice {
    chance: Chance,
    taken: u64,
    random: Rng,
}

impl Chance {
    pub(crate) fn check(self, name: &str) -> Result<(), ProviderError> {
        let detail = match self {
            Self::Every(0) => "every: at least 1",
            Self::Probability(share) if !(0.0..=1.0).contains(&share) => "probability: from 0 to 1",
            Self::Never | Self::Always | Self::First(_) | Self::Every(_) | Self::Probability(_) => {
                return Ok(());
            }
        };
        Err(ProviderError::new(ErrorKind::Behaviour, format!("{name}: {detail}")))
    }
}

impl Dice {
    pub(crate) fn new(chance: Chance, random: Rng) -> Self {
        Self { chance, taken: 0, random }
    }

    /// Returns true if the event happens this time.
    pub(crate) fn roll(&mut self) -> bool {
        self.taken += 1;
        match self.chance {
            Chance::Never => false,
            Chance::Always => true,
            Chance::First(count) => self.taken <= u64::from(count),
            Chance::Every(nth) => self.taken.is_multiple_of(u64::from(nth)),
            Chance::Probability(share) => self.random.f64() < share,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rolls(chance: Chance, seed: u64) -> String {
        let mut dice = Dice::new(chance, Rng::with_seed(seed));
        (0..8).map(|_| if dice.roll() { 'x' } else { '.' }).collect()
    }

    #[test]
    fn counted_chances_are_exact() {
        assert_eq!(rolls(Chance::Never, 1), "........");
        assert_eq!(rolls(Chance::Always, 1), "xxxxxxxx");
        assert_eq!(rolls(Chance::First(2), 1), "xx......");
        assert_eq!(rolls(Chance::Every(3), 1), "..x..x..");
        assert_eq!(rolls(Chance::Probability(0.0), 1), "........");
        assert_eq!(rolls(Chance::Probability(1.0), 1), "xxxxxxxx");
    }

    #[test]
    fn a_seed_decides_a_run() {
        let half = Chance::Probability(0.5);
        assert_eq!(rolls(half, 7), rolls(half, 7));
        assert!((0..20).any(|seed| rolls(half, seed) != rolls(half, 7)));
    }

    #[test]
    fn it_is_short_in_json() {
        for (text, chance) in [
            (r#""never""#, Chance::Never),
            (r#"{"first":2}"#, Chance::First(2)),
            (r#"{"every":3}"#, Chance::Every(3)),
            (r#"{"probability":0.25}"#, Chance::Probability(0.25)),
        ] {
            assert_eq!(serde_json::from_str::<Chance>(text).unwrap(), chance);
            assert_eq!(serde_json::to_string(&chance).unwrap(), text);
        }
    }

    #[test]
    fn a_chance_that_makes_no_sense_is_refused() {
        for bad in [Chance::Every(0), Chance::Probability(1.1), Chance::Probability(f64::NAN)] {
            assert!(bad.check("lose_answers").is_err());
        }
    }
}
