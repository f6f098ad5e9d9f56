//! How many messages of each destination stand where, as differences that are added up now and then: a sum
//! that everybody kept up to date would make everybody wait for everybody.

use std::collections::BTreeMap;

use super::super::flight::{Flight, Value};
use super::pending::Phase;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Waiting or being sent.
    Open,
    Unknown,
    Dead,
    /// Ever.
    Delivered,
}

/// What one step changes.
#[derive(Debug, Default)]
pub(super) struct Tallies(BTreeMap<(String, Kind), i64>);

impl Tallies {
    pub(super) fn add(&mut self, destination: &str, kind: Kind, count: i64) {
        *self.0.entry((destination.to_owned(), kind)).or_default() += count;
    }

    /// A message of `destination` is counted elsewhere now, or nowhere.
    pub(super) fn moved(&mut self, destination: &str, from: Phase, to: Option<Kind>) {
        self.add(destination, from.kind(), -1);
        if let Some(kind) = to {
            self.add(destination, kind, 1);
        }
    }

    /// Adds the statements that write the differences down.
    pub(super) fn put(&self, flight: &mut Flight) {
        for ((destination, kind), count) in self.0.iter().filter(|(_, count)| **count != 0) {
            put(flight, destination, kind.as_str(), *count);
        }
    }
}

/// Adds the statement that writes one difference down.
pub(super) fn put(flight: &mut Flight, destination: &str, kind: &str, delta: i64) {
    flight.add(
        "INSERT INTO firstwrite_tallies (destination, kind, delta) VALUES (?, ?, ?)",
        &[Value::Text(destination), Value::Text(kind), Value::Int(delta)],
    );
}

impl Kind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Unknown => "unknown",
            Self::Dead => "dead",
            Self::Delivered => "delivered",
        }
    }
}

impl Phase {
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::Waiting | Self::Sending => Kind::Open,
            Self::Unknown => Kind::Unknown,
            Self::Dead => Kind::Dead,
        }
    }
}
