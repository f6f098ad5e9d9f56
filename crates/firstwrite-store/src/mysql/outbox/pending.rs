//! The narrow row of a message that is neither delivered nor dropped: written with the message, read under a
//! lock, changed in memory, written back.

use firstwrite_core::encoding::encode_answers;
use firstwrite_core::outbox::pending::Pending;
use firstwrite_core::outbox::{MessageNumber, Tallies, Tally};
use firstwrite_core::{Message, StoreError, Timestamp};

use super::super::driver_error::unsupported;
use super::super::pipeline::{NOW, Pipeline, Value};
use crate::rows::{pending_columns, rest_millis, state_number};

/// Maximum length in bytes of an ordering key that an index can hold.
const ORDERING_KEY_BYTES_MAX: usize = 512;

/// Refuses a message that has no place in the tables.
pub(in crate::mysql) fn check(message: &Message) -> Result<(), StoreError> {
    let fits = message.ordering_key().is_none_or(|key| key.len() <= ORDERING_KEY_BYTES_MAX);
    if fits {
        return Ok(());
    }
    Err(unsupported("enqueuing a message", "an ordering key has at most 512 bytes in this store"))
}

/// Adds the statements that write a message.
pub(in crate::mysql) fn put(pipeline: &mut Pipeline, message: &Message) {
    let answers = message.answers().map(encode_answers);
    let order = message.ordering_key().map_or(Value::Null, |key| Value::Bytes(key.as_bytes()));
    pipeline.add(
        "INSERT INTO firstwrite_messages (id, tenant, derived_key, destination, content_type, \
         payload, ordering_key, not_before, created_at, answers) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        &[
            Value::Bytes(message.record().as_bytes()),
            Value::Text(message.tenant().as_str()),
            Value::Text(message.derived_key()),
            Value::Text(message.destination()),
            Value::Text(message.payload_type()),
            Value::Bytes(message.payload()),
            order,
            Value::After(message.delay()),
            Value::Sql(NOW),
            answers.as_deref().map_or(Value::Null, Value::Bytes),
        ],
    );
    pipeline.add(
        "INSERT INTO firstwrite_pending (message, id, destination, ordering_key, state, due_at, \
         fence, delivery_count, lapse_count) VALUES (LAST_INSERT_ID(), ?, ?, ?, 0, ?, 0, 0, 0)",
        &[
            Value::Bytes(message.record().as_bytes()),
            Value::Text(message.destination()),
            order,
            Value::After(message.delay()),
        ],
    );
}

/// Adds the statements that count messages which were just written.
pub(in crate::mysql) fn put_tallies(pipeline: &mut Pipeline, messages: &[Message]) {
    let mut counted = Tallies::default();
    for message in messages {
        counted.add(message.destination(), Tally::Open, 1);
    }
    put_all_tallies(pipeline, &counted);
}

/// Adds the statements that write down differences of the number of messages of each destination in each state. They
/// are folded now and then: all transactions would wait for each other on a sum that each kept up to date.
pub(super) fn put_all_tallies(pipeline: &mut Pipeline, tallies: &Tallies) {
    for (destination, tally, count) in tallies.differences() {
        put_tally(pipeline, destination, tally.as_str(), count);
    }
}

/// Adds the statement that writes one difference down.
pub(super) fn put_tally(pipeline: &mut Pipeline, destination: &str, kind: &str, delta: i64) {
    pipeline.add(
        "INSERT INTO firstwrite_tallies (destination, kind, delta) VALUES (?, ?, ?)",
        &[Value::Text(destination), Value::Text(kind), Value::Int(delta)],
    );
}

/// Adds a look at one message, which is locked by it.
pub(super) fn lock(pipeline: &mut Pipeline, number: MessageNumber) -> usize {
    let sql = concat!(
        "SELECT ",
        pending_columns!(),
        " FROM firstwrite_pending p WHERE p.message = ? FOR UPDATE"
    );
    pipeline.add(sql, &[Value::Int(number.0)])
}

/// Adds the statement that writes `pending` back.
pub(super) fn update(pipeline: &mut Pipeline, pending: &Pending) {
    let instant = |at: Option<Timestamp>| Value::from(at.map(Timestamp::as_millis));
    let standing = &pending.standing;
    pipeline.add(
        "UPDATE firstwrite_pending SET state = ?, due_at = ?, fence = ?, claimed_at = ?, \
         delivery_count = ?, lapse_count = ?, maybe_sent_at = ?, status = ?, problem = ? \
         WHERE message = ?",
        &[
            Value::Int(state_number(standing.state)),
            instant(pending.due_at()),
            Value::Int(pending.fence().as_u64().cast_signed()),
            instant(standing.claimed_at),
            Value::Int(standing.delivery_count.into()),
            Value::Int(standing.lapse_count.into()),
            instant(standing.maybe_sent_at),
            Value::from(pending.status.map(i64::from)),
            Value::from(pending.problem.as_deref()),
            Value::Int(pending.number.0),
        ],
    );
}

/// Adds the statements that take a message out of what is pending, and let its successor go.
pub(super) fn end(pipeline: &mut Pipeline, pending: &Pending) {
    pipeline
        .add("DELETE FROM firstwrite_pending WHERE message = ?", &[Value::Int(pending.number.0)]);
    if let Some(key) = &pending.ordering_key {
        release(pipeline, &pending.destination, key);
    }
}

/// Adds the statement that makes the oldest message under an ordering key due, if it waits; one in doubt has its rest
/// first.
pub(super) fn release(pipeline: &mut Pipeline, destination: &str, ordering_key: &str) {
    let (destination, key) = (Value::Text(destination), Value::Bytes(ordering_key.as_bytes()));
    // The inner look is a table of its own: the server does not update what it selects from.
    pipeline.add(
        "UPDATE firstwrite_pending p \
         JOIN (SELECT MIN(message) AS oldest FROM firstwrite_pending \
               WHERE destination = ? AND ordering_key = ?) o ON p.message = o.oldest \
         JOIN firstwrite_messages m ON m.message = p.message \
         SET p.due_at = GREATEST(@firstwrite_now, m.not_before, \
             IF(p.maybe_sent_at IS NULL, 0, COALESCE(p.claimed_at + ?, 0))) \
         WHERE p.state = 0 AND p.due_at IS NULL",
        &[destination, key, Value::Int(rest_millis())],
    );
}
