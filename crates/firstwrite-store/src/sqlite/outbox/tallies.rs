//! How many messages of each destination stand where: kept with every change, never counted.

use std::collections::BTreeMap;

use rusqlite::params;

use super::super::session::Session;
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

/// What one command changes, a row for each destination and kind.
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
}

impl Session {
    pub(super) fn put_tallies(&self, tallies: &Tallies) -> rusqlite::Result<()> {
        let sql = "INSERT INTO firstwrite_tallies (destination, state, count) VALUES (?1, ?2, ?3)
                   ON CONFLICT DO UPDATE SET count = count + excluded.count";
        let mut put = self.connection.prepare_cached(sql)?;
        for ((destination, kind), count) in tallies.0.iter().filter(|(_, count)| **count != 0) {
            put.execute(params![destination, kind.as_str(), count])?;
        }
        Ok(())
    }
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
