//! How many messages of each destination stand where, as differences that are added up now and then: a sum
//! that everybody kept up to date would make everybody wait for everybody.

use super::super::flight::{Flight, Value};
use crate::pending::Tallies;

impl Tallies {
    /// Adds the statements that write the differences down.
    pub(super) fn put(&self, flight: &mut Flight) {
        for (destination, kind, count) in self.differences() {
            put(flight, destination, kind, count);
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
