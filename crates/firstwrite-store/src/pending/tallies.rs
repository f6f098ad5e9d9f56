//! How many messages of each destination stand where, as what one step changes of it.

use std::collections::BTreeMap;

use super::Phase;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Waiting or being sent.
    Open,
    Unknown,
    Dead,
    /// Ever.
    Delivered,
}

/// What one step changes.
#[derive(Debug, Default)]
pub(crate) struct Tallies(BTreeMap<(String, Kind), i64>);

impl Tallies {
    pub(crate) fn add(&mut self, destination: &str, kind: Kind, count: i64) {
        *self.0.entry((destination.to_owned(), kind)).or_default() += count;
    }

    /// A message of `destination` is counted elsewhere now, or nowhere.
    pub(crate) fn moved(&mut self, destination: &str, from: Phase, to: Option<Kind>) {
        self.add(destination, from.kind(), -1);
        if let Some(kind) = to {
            self.add(destination, kind, 1);
        }
    }

    /// Takes back what was taken of a destination.
    #[cfg(feature = "dynamodb")]
    pub(crate) fn put_back(&mut self, taken: &Self, destination: &str) {
        for ((name, kind), count) in taken.0.iter().filter(|((name, _), _)| name == destination) {
            self.add(name, *kind, *count);
        }
    }

    /// What there is to be added to each sum.
    pub(crate) fn differences(&self) -> impl Iterator<Item = (&str, &'static str, i64)> {
        let differing = self.0.iter().filter(|(_, count)| **count != 0);
        differing.map(|((destination, kind), count)| (&**destination, kind.as_str(), *count))
    }
}

impl Kind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Unknown => "unknown",
            Self::Dead => "dead",
            Self::Delivered => "delivered",
        }
    }
}

impl Phase {
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Waiting | Self::Sending => Kind::Open,
            Self::Unknown => Kind::Unknown,
            Self::Dead => Kind::Dead,
        }
    }
}
