//! Number of messages of each destination in each state, written as differences that are folded now and then: all
//! transactions would wait for each other on a sum that each kept up to date.

use firstwrite_core::outbox::Tallies;

use super::super::flight::{Flight, Value};

/// Adds the statements that write the differences down.
pub(super) fn put_all(flight: &mut Flight, tallies: &Tallies) {
    for (destination, tally, count) in tallies.differences() {
        put(flight, destination, tally.as_str(), count);
    }
}

/// Adds the statement that writes one difference down.
pub(super) fn put(flight: &mut Flight, destination: &str, kind: &str, delta: i64) {
    flight.add(
        "INSERT INTO firstwrite_tallies (destination, kind, delta) VALUES (?, ?, ?)",
        &[Value::Text(destination), Value::Text(kind), Value::Int(delta)],
    );
}
