//! Enqueues messages.

use firstwrite_core::outbox::{Tallies, Tally};
use firstwrite_core::{Message, StoreError};

use super::super::driver_error::unsupported;
use super::super::pipeline::{NOW, Pipeline, Value};
use super::tallies;
use crate::encoding::encode_answers;

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
    tallies::put_all(pipeline, &counted);
}
