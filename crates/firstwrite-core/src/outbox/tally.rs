//! Message counts by destination and state, as the differences that a step makes.

use std::collections::BTreeMap;

use super::MessageState;

/// The counts of a destination in which a message can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tally {
    /// Messages that wait or are being sent.
    Open,
    /// Messages that may have arrived.
    Unknown,
    /// Dead letters.
    Dead,
    /// Messages that ever arrived.
    Delivered,
}

/// Differences of counts, by destination.
#[derive(Debug, Default)]
pub struct Tallies(BTreeMap<(String, Tally), i64>);

impl Tallies {
    /// Adds to one count.
    pub fn add(&mut self, destination: &str, tally: Tally, count: i64) {
        *self.0.entry((destination.to_owned(), tally)).or_default() += count;
    }

    /// Moves a message from one count to another, or to none.
    pub fn moved(&mut self, destination: &str, from: Option<Tally>, to: Option<Tally>) {
        for (tally, count) in [(from, -1), (to, 1)] {
            if let Some(tally) = tally {
                self.add(destination, tally, count);
            }
        }
    }

    /// Adds the differences that `taken` has for a destination.
    pub fn put_back(&mut self, taken: &Self, destination: &str) {
        for ((name, tally), count) in taken.0.iter().filter(|((name, _), _)| name == destination) {
            self.add(name, *tally, *count);
        }
    }

    /// The destinations and counts that differ, and by how much.
    pub fn differences(&self) -> impl Iterator<Item = (&str, Tally, i64)> {
        let differing = self.0.iter().filter(|(_, count)| **count != 0);
        differing.map(|((destination, tally), count)| (&**destination, *tally, *count))
    }
}

impl Tally {
    /// The word used in SQL and listings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Unknown => "unknown",
            Self::Dead => "dead",
            Self::Delivered => "delivered",
        }
    }
}

impl MessageState {
    /// The count in which a message in this state is, if any.
    pub fn tally(self) -> Option<Tally> {
        match self {
            Self::Waiting | Self::Sending => Some(Tally::Open),
            Self::Unknown => Some(Tally::Unknown),
            Self::Dead => Some(Tally::Dead),
            Self::Delivered => Some(Tally::Delivered),
            Self::Refused | Self::Dropped => None,
        }
    }
}
