//! Sets of HTTP statuses, and what the statuses of a destination mean.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

const FIRST: u16 = 100;
const LAST: u16 = 599;
const WORDS: usize = (LAST - FIRST) as usize / 64 + 1;

/// A set of HTTP statuses, written as `200-299,404`.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Statuses([u64; WORDS]);

/// A text that is not a set of statuses: which part of it, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusesError {
    part: String,
    reason: &'static str,
}

/// Meaning of a status for the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Delivered,
    Retry,
    Refused,
    NotThere,
    Unknown,
}

/// Meaning of each status.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meanings {
    delivered: Statuses,
    retry: Statuses,
    refused: Statuses,
    not_there: Statuses,
}

/// Statuses that the settings give; the rest keep their defaults.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SetMeanings {
    pub(super) delivered: Option<Statuses>,
    pub(super) retry: Option<Statuses>,
    pub(super) refused: Option<Statuses>,
}

impl Statuses {
    /// No status at all.
    pub const NONE: Self = Self([0; WORDS]);

    /// Adds the statuses from the first to the last, both included. What is no status (100 to 599)
    /// is left out.
    #[must_use]
    pub fn with(mut self, range: RangeInclusive<u16>) -> Self {
        for status in range {
            if let Some((word, bit)) = place(status) {
                self.0[word] |= bit;
            }
        }
        self
    }

    /// Returns true if `status` is one of them.
    pub fn contains(&self, status: u16) -> bool {
        place(status).is_some_and(|(word, bit)| self.0[word] & bit != 0)
    }

    fn without(mut self, other: Self) -> Self {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word &= !other;
        }
        self
    }

    fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).any(|(word, other)| word & other != 0)
    }
}

fn place(status: u16) -> Option<(usize, u64)> {
    let index = status.checked_sub(FIRST).filter(|_| status <= LAST)?;
    Some((usize::from(index) / 64, 1 << (index % 64)))
}

/// Returns the statuses that are said before a request is looked at, and mostly by something in front of the
/// destination. Not 303, by which a server sends a client on after it has done the work.
pub(super) fn not_there() -> Statuses {
    let statuses = [300..=302, 304..=399, 401..=401, 403..=405, 407..=407];
    statuses.into_iter().fold(Statuses::NONE, Statuses::with)
}

impl Meanings {
    /// The meanings, or why the settings have none: a status with two of them, one that is no final answer, no
    /// success at all. A status that was set is removed from the defaults: to call 404 a success, the settings need
    /// not repeat all refusals. Only a success must be taken back in so many words.
    pub(super) fn new(set: &SetMeanings) -> Result<Self, &'static str> {
        let delivered = Statuses::NONE.with(200..=299);
        let given: Vec<Statuses> =
            [set.delivered, set.retry, set.refused].into_iter().flatten().collect();
        if given.iter().any(|one| one.meets(&Statuses::NONE.with(100..=199))) {
            return Err("1xx is no final answer; take statuses from 200 on");
        }
        if set.delivered == Some(Statuses::NONE) {
            return Err("success_statuses is empty: no message could ever arrive");
        }
        let stated = [Some(set.delivered.unwrap_or(delivered)), set.retry, set.refused];
        let stated: Vec<Statuses> = stated.into_iter().flatten().collect();
        for (number, one) in stated.iter().enumerate() {
            if stated.iter().skip(number + 1).any(|other| one.meets(other)) {
                return Err(
                    "one status is given two meanings; success_statuses are 200-299 unless set",
                );
            }
        }
        let unless_set = |set: Option<Statuses>, default: Statuses| {
            set.unwrap_or_else(|| given.iter().fold(default, |left, taken| left.without(*taken)))
        };
        // Too early and too many: the two that say "I have not even looked at it".
        let retry = Statuses::NONE.with(425..=425).with(429..=429);
        // 408: how much arrived is not known. 409: another request under the key may be at work.
        let open = Statuses::NONE.with(408..=409);
        let not_there = not_there();
        let refused =
            Statuses::NONE.with(400..=499).without(retry).without(open).without(not_there);
        Ok(Self {
            delivered: unless_set(set.delivered, delivered),
            retry: unless_set(set.retry, retry),
            refused: unless_set(set.refused, refused),
            not_there: unless_set(None, not_there),
        })
    }

    pub(super) fn of(&self, status: u16) -> Meaning {
        if self.delivered.contains(status) {
            Meaning::Delivered
        } else if self.retry.contains(status) {
            Meaning::Retry
        } else if self.refused.contains(status) {
            Meaning::Refused
        } else if self.not_there.contains(status) {
            Meaning::NotThere
        } else {
            Meaning::Unknown
        }
    }
}

impl FromStr for Statuses {
    type Err = StatusesError;

    /// Reads statuses and ranges between commas. The empty text is the empty set.
    fn from_str(text: &str) -> Result<Self, StatusesError> {
        let mut statuses = Self::NONE;
        if text.trim().is_empty() {
            return Ok(statuses);
        }
        for part in text.split(',').map(str::trim) {
            let error = |reason| StatusesError { part: part.to_owned(), reason };
            let number = |digits: &str| {
                let digits = digits.trim();
                let is_number =
                    digits.len() == 3 && digits.bytes().all(|byte| byte.is_ascii_digit());
                let status = if is_number { digits.parse().ok() } else { None };
                status
                    .filter(|status| (FIRST..=LAST).contains(status))
                    .ok_or_else(|| error("a status is a number from 100 to 599"))
            };
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(error("a range begins with its smaller number"));
            }
            statuses = statuses.with(first..=last);
        }
        Ok(statuses)
    }
}

impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut status = FIRST;
        let mut separator = "";
        while status <= LAST {
            if !self.contains(status) {
                status += 1;
                continue;
            }
            let first = status;
            while self.contains(status + 1) {
                status += 1;
            }
            match status - first {
                0 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{status}")?,
            }
            separator = ",";
            status += 1;
        }
        Ok(())
    }
}

impl fmt::Debug for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Statuses({self})")
    }
}

impl fmt::Display for StatusesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}; write statuses as 200-299,404", self.part, self.reason)
    }
}

impl std::error::Error for StatusesError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written_in_its_shortest_form() {
        for (text, form) in [
            ("", ""),
            ("200", "200"),
            ("200-299,404", "200-299,404"),
            (" 404 , 200 - 201,202", "200-202,404"),
            ("100-599", "100-599"),
            ("163,164,227-228", "163-164,227-228"),
        ] {
            let statuses: Statuses = text.parse().unwrap();
            assert_eq!(statuses.to_string(), form);
            assert_eq!(statuses.to_string().parse(), Ok(statuses));
        }
    }

    #[test]
    fn what_is_no_status_is_refused() {
        for text in ["2xx", "99", "600", "+200", "0200", "299-200", "200,", "200-", "-200", "2 00"]
        {
            assert!(text.parse::<Statuses>().is_err(), "{text}");
        }
        assert!(
            !Statuses::NONE.with(0..=99).with(600..=u16::MAX).meets(&"100-599".parse().unwrap())
        );
    }

    fn check(set: &SetMeanings, table: &[(&str, Meaning)]) {
        let meanings = Meanings::new(set).unwrap();
        for (text, meaning) in table {
            let statuses: Statuses = text.parse().unwrap();
            for status in (0..=999).filter(|status| statuses.contains(*status)) {
                assert_eq!(meanings.of(status), *meaning, "{status}");
            }
        }
        assert_eq!(meanings.of(700), Meaning::Unknown);
    }

    #[test]
    fn by_default_only_what_is_certain_is_called_certain() {
        check(
            &SetMeanings::default(),
            &[
                ("200-299", Meaning::Delivered),
                ("400,402,406,410-424,426-428,430-499", Meaning::Refused),
                ("300-302,304-399,401,403-405,407", Meaning::NotThere),
                ("425,429", Meaning::Retry),
                ("100-199,303,408,409,500-599", Meaning::Unknown),
            ],
        );
    }

    #[test]
    fn what_is_set_takes_its_statuses_from_what_is_not() {
        let set = SetMeanings {
            delivered: Some("200,404".parse().unwrap()),
            retry: None,
            refused: Some("409,429".parse().unwrap()),
        };
        check(
            &set,
            &[
                ("200,404", Meaning::Delivered),
                ("409,429", Meaning::Refused),
                ("425", Meaning::Retry),
                ("201-299,400,402,422", Meaning::Unknown),
                ("302,401,403", Meaning::NotThere),
            ],
        );
    }

    #[test]
    fn one_status_has_one_meaning() {
        let both = Some("409".parse().unwrap());
        let set = SetMeanings { retry: both, refused: both, ..SetMeanings::default() };
        assert!(Meanings::new(&set).is_err());
    }
}
