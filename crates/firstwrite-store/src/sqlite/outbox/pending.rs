//! The narrow row of a message that is neither delivered nor dropped: read whole, changed in memory,
//! written whole. Nothing else writes to the file, so nothing moves in between.

use firstwrite_core::outbox::MessageNumber;
use firstwrite_core::{Fence, RecordId, StoreError, Timestamp};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params};

use super::super::driver_error::{corrupt, definite};
use super::super::rows::{blob, column, integer, text};
use super::super::session::Session;
pub(super) use crate::pending::{NEVER_CLAIMED, Pending, pending_state, state_number};

/// The columns that [`pending`] reads, of the table by the name `p`.
pub(super) const COLUMNS: &str =
    "p.message, p.id, p.destination, p.ordering_key, p.state, p.due_at,
     p.fence, p.claimed_at, p.delivery_count, p.lapse_count, p.maybe_sent_at, p.status, p.problem";

/// Reads [`COLUMNS`], the first of which is column `first`.
pub(super) fn pending(row: &Row<'_>, first: usize) -> Result<Pending, StoreError> {
    let id = blob(row, first + 1)?.try_into().map(RecordId::from_bytes);
    Ok(Pending {
        number: MessageNumber(integer(row, first)?),
        id: id.map_err(|_length| corrupt("a record id has 16 bytes"))?,
        destination: text(row, first + 2)?.to_owned(),
        ordering_key: optional_text(row, first + 3)?,
        state: pending_state(integer(row, first + 4)?)
            .ok_or_else(|| corrupt("an unknown state of a message"))?,
        due_at: optional_time(row, first + 5)?,
        fence: fence(row, first + 6)?,
        claimed_at: optional_time(row, first + 7)?,
        delivery_count: count(row, first + 8)?,
        lapse_count: count(row, first + 9)?,
        maybe_sent_at: optional_time(row, first + 10)?,
        status: status(row, first + 11)?,
        problem: optional_text(row, first + 12)?,
    })
}

/// The row of one message, if it is still pending.
pub(super) fn find(
    connection: &Connection,
    number: MessageNumber,
) -> Result<Option<Pending>, StoreError> {
    let failed = definite("reading a message");
    let sql = format!("SELECT {COLUMNS} FROM firstwrite_pending p WHERE p.message = ?1");
    let mut query = connection.prepare_cached(&sql).map_err(&failed)?;
    let mut rows = query.query([number.0]).map_err(&failed)?;
    rows.next().map_err(&failed)?.map(|row| pending(row, 0)).transpose()
}

impl Session {
    pub(super) fn insert_pending(&self, pending: &Pending) -> rusqlite::Result<()> {
        let sql = "INSERT INTO firstwrite_pending (message, id, destination, ordering_key, state,
                       due_at, fence, delivery_count, lapse_count)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        self.connection
            .prepare_cached(sql)?
            .execute(params![
                pending.number.0,
                pending.id.as_bytes(),
                pending.destination,
                pending.ordering_key,
                state_number(pending.state),
                pending.due_at.map(Timestamp::as_millis),
                pending.fence.as_u64().cast_signed(),
                pending.delivery_count,
                pending.lapse_count,
            ])
            .map(drop)
    }

    pub(super) fn update_pending(&self, pending: &Pending) -> rusqlite::Result<()> {
        let sql = "UPDATE firstwrite_pending
                   SET state = ?2, due_at = ?3, fence = ?4, claimed_at = ?5, delivery_count = ?6,
                       lapse_count = ?7, maybe_sent_at = ?8, status = ?9, problem = ?10
                   WHERE message = ?1";
        self.connection
            .prepare_cached(sql)?
            .execute(params![
                pending.number.0,
                state_number(pending.state),
                pending.due_at.map(Timestamp::as_millis),
                pending.fence.as_u64().cast_signed(),
                pending.claimed_at.map(Timestamp::as_millis),
                pending.delivery_count,
                pending.lapse_count,
                pending.maybe_sent_at.map(Timestamp::as_millis),
                pending.status,
                pending.problem,
            ])
            .map(drop)
    }

    pub(super) fn delete_pending(&self, number: MessageNumber) -> rusqlite::Result<()> {
        let sql = "DELETE FROM firstwrite_pending WHERE message = ?1";
        self.connection.prepare_cached(sql)?.execute([number.0]).map(drop)
    }
}

pub(super) fn fence(row: &Row<'_>, index: usize) -> Result<Fence, StoreError> {
    integer(row, index).map(|number| Fence::from_u64(number.cast_unsigned()))
}

pub(super) fn optional_text(row: &Row<'_>, index: usize) -> Result<Option<String>, StoreError> {
    if is_null(row, index)? { Ok(None) } else { text(row, index).map(|text| Some(text.to_owned())) }
}

pub(super) fn optional_time(row: &Row<'_>, index: usize) -> Result<Option<Timestamp>, StoreError> {
    if is_null(row, index)? {
        return Ok(None);
    }
    integer(row, index).map(|millis| Some(Timestamp::from_millis(millis)))
}

pub(super) fn status(row: &Row<'_>, index: usize) -> Result<Option<u16>, StoreError> {
    if is_null(row, index)? {
        return Ok(None);
    }
    let status = u16::try_from(integer(row, index)?);
    status.map(Some).map_err(|_range| corrupt("a status has at most five digits"))
}

pub(super) fn count(row: &Row<'_>, index: usize) -> Result<u32, StoreError> {
    u32::try_from(integer(row, index)?).map_err(|_range| corrupt("a count out of range"))
}

pub(super) fn is_null(row: &Row<'_>, index: usize) -> Result<bool, StoreError> {
    column(row, index).map(|value| value == ValueRef::Null)
}
