//! Number of messages of each destination in each state, written as differences that are folded now and then: all
//! transactions would wait for each other on a sum that each kept up to date.

use firstwrite_core::outbox::Tallies;

use super::super::pipeline::{Pipeline, Value};

/// Adds the statements that write the differences down.
pub(super) fn put_all(pipeline: &mut Pipeline, tallies: &Tallies) {
    for (destination, tally, count) in tallies.differences() {
        put(pipeline, destination, tally.as_str(), count);
    }
}

/// Adds the statement that writes one difference down.
pub(super) fn put(pipeline: &mut Pipeline, destination: &str, kind: &str, delta: i64) {
    pipeline.add(
        "INSERT INTO firstwrite_tallies (destination, kind, delta) VALUES (?, ?, ?)",
        &[Value::Text(destination), Value::Text(kind), Value::Int(delta)],
    );
}
