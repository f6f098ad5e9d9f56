//! Amounts of money, by exact decimal value.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use crate::fingerprint::canonical_number;

/// An amount as it was written. Two are equal if their values are: `12`, `12.00` and `1.2e1`.
///
/// It is never a float, so that no two amounts that differ are taken for equal.
#[derive(Clone)]
pub struct Amount {
    /// The original text, for people.
    text: Box<str>,
    /// The digits that count, with a sign.
    digits: Box<str>,
    /// The power of ten that they are multiplied by.
    power: i64,
}

/// A text that is not an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AmountError;

impl Amount {
    /// More digits than any amount of money has in any currency.
    pub const CHARACTERS_MAX: usize = 64;

    /// Reads a decimal number as JSON writes it: `1200`, `-12.50`, `1e3`.
    pub fn parse(text: &str) -> Result<Self, AmountError> {
        if text.len() > Self::CHARACTERS_MAX {
            return Err(AmountError);
        }
        let canonical = canonical_number(text).ok_or(AmountError)?;
        let (digits, power) = canonical.split_once('e').unwrap_or((&canonical, "0"));
        let Ok(power) = power.parse() else { return Err(AmountError) };
        Ok(Self { text: text.into(), digits: digits.into(), power })
    }

    /// The same multiplied by a power of ten: 2 makes cents of euros, -2 euros of cents.
    #[must_use]
    pub fn shifted(self, power: i32) -> Self {
        // Zero is zero in any unit.
        if power == 0 || &*self.digits == "0" {
            return self;
        }
        let power = self.power.saturating_add(i64::from(power));
        let text = match power {
            0 => self.digits.to_string(),
            1..=18 => format!("{}{}", self.digits, "0".repeat(usize::try_from(power).unwrap_or(0))),
            _ => format!("{}e{power}", self.digits),
        };
        Self { text: text.into(), digits: self.digits, power }
    }
}

impl FromStr for Amount {
    type Err = AmountError;

    fn from_str(text: &str) -> Result<Self, AmountError> {
        Self::parse(text)
    }
}

impl PartialEq for Amount {
    fn eq(&self, other: &Self) -> bool {
        self.digits == other.digits && self.power == other.power
    }
}

impl Eq for Amount {}

impl Hash for Amount {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.digits, self.power).hash(state);
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Amount({self})")
    }
}

impl fmt::Display for AmountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an amount is a decimal number of at most 64 characters, such as 12.50")
    }
}

impl std::error::Error for AmountError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(text: &str) -> Amount {
        text.parse().unwrap()
    }

    #[test]
    fn amounts_are_equal_if_their_values_are() {
        for (one, other) in [("12", "12.00"), ("1200", "1.2e3"), ("0", "-0.0"), ("0.1", "1e-1")] {
            assert_eq!(amount(one), amount(other));
        }
        for (one, other) in [
            ("1", "-1"),
            ("12", "1.2"),
            ("9007199254740993", "9007199254740992"),
            ("0.1", "0.10000000000000001"),
        ] {
            assert_ne!(amount(one), amount(other));
        }
    }

    #[test]
    fn an_amount_is_told_as_it_was_written() {
        assert_eq!(amount("12.00").to_string(), "12.00");
    }

    #[test]
    fn units_are_made_of_each_other() {
        for (from, power, to) in [
            ("12.50", 2, "1250"),
            ("1250", -2, "12.5"),
            ("0", 2, "0"),
            ("-3", 1, "-30"),
            ("7", 0, "7"),
        ] {
            assert_eq!(amount(from).shifted(power), amount(to), "{from}");
        }
        assert_eq!(amount("12.50").shifted(2).to_string(), "1250");
        assert_eq!(amount("12").shifted(2).to_string(), "1200");
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for text in ["", " 1", "1,000.00", "€5", "0x1", "01", "NaN", "1 ", &"1".repeat(65)] {
            assert_eq!(Amount::parse(text), Err(AmountError), "{text}");
        }
    }
}
