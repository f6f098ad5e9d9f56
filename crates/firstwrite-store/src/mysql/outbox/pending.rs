//! The narrow row of a message that is neither delivered nor dropped: read under a lock, changed in memory,
//! written back.

use firstwrite_core::outbox::MessageNumber;
use firstwrite_core::{StoreError, Timestamp};
use mysql_async::Row;

use super::super::driver_error::corrupt;
use super::super::pipeline::{Pipeline, Value};
use super::super::rows::{
    bytes_or_null, count, fence, id, instant_or_null, integer, owned_text, owned_text_or_null,
    status,
};
pub(super) use crate::pending::{NEVER_CLAIMED, Pending, pending_state, state_number};

/// The columns that [`pending`] reads, of the table by the name `p`.
macro_rules! pending_columns {
    () => {
        "p.message, p.id, p.destination, p.ordering_key, p.state, p.due_at, p.fence, p.claimed_at, \
         p.delivery_count, p.lapse_count, p.maybe_sent_at, p.status, p.problem"
    };
}
pub(super) use pending_columns;

/// Number of columns in `pending_columns`.
pub(super) const PENDING_COLUMNS: usize = 13;

/// Reads the columns, the first of which is column `first`.
pub(super) fn pending(row: &Row, first: usize) -> Result<Pending, StoreError> {
    Ok(Pending {
        number: MessageNumber(integer(row, first)?),
        id: id(row, first + 1)?,
        destination: owned_text(row, first + 2)?,
        ordering_key: ordering_key(row, first + 3)?,
        state: pending_state(integer(row, first + 4)?)
            .ok_or_else(|| corrupt("an unknown state of a message"))?,
        due_at: instant_or_null(row, first + 5)?,
        fence: fence(row, first + 6)?,
        claimed_at: instant_or_null(row, first + 7)?,
        delivery_count: count(row, first + 8)?,
        lapse_count: count(row, first + 9)?,
        maybe_sent_at: instant_or_null(row, first + 10)?,
        status: status(row, first + 11)?,
        problem: owned_text_or_null(row, first + 12)?,
    })
}

/// An ordering key is kept as bytes, so that none equals another that ends in spaces.
pub(super) fn ordering_key(row: &Row, index: usize) -> Result<Option<String>, StoreError> {
    let Some(bytes) = bytes_or_null(row, index)? else { return Ok(None) };
    let key = String::from_utf8(bytes.to_vec());
    key.map(Some).map_err(|_encoding| corrupt("an ordering key is not UTF-8"))
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
    pipeline.add(
        "UPDATE firstwrite_pending SET state = ?, due_at = ?, fence = ?, claimed_at = ?, \
         delivery_count = ?, lapse_count = ?, maybe_sent_at = ?, status = ?, problem = ? \
         WHERE message = ?",
        &[
            Value::Int(state_number(pending.state)),
            instant(pending.due_at),
            Value::Int(pending.fence.as_u64().cast_signed()),
            instant(pending.claimed_at),
            Value::Int(pending.delivery_count.into()),
            Value::Int(pending.lapse_count.into()),
            instant(pending.maybe_sent_at),
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

/// Adds the statement that makes the oldest message under an ordering key due, if it waits.
pub(super) fn release(pipeline: &mut Pipeline, destination: &str, ordering_key: &str) {
    let (destination, key) = (Value::Text(destination), Value::Bytes(ordering_key.as_bytes()));
    // The inner look is a table of its own: the server does not update what it selects from.
    pipeline.add(
        "UPDATE firstwrite_pending p \
         JOIN (SELECT MIN(message) AS oldest FROM firstwrite_pending \
               WHERE destination = ? AND ordering_key = ?) o ON p.message = o.oldest \
         JOIN firstwrite_messages m ON m.message = p.message \
         SET p.due_at = GREATEST(@firstwrite_now, m.not_before) \
         WHERE p.state = 0 AND p.due_at IS NULL",
        &[destination, key],
    );
}
