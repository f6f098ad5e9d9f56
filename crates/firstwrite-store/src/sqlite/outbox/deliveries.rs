//! The history of handing-overs: one row for each claim under which something was sent, and one where an
//! operator said how it ended.

use firstwrite_core::outbox::{HistoryRow, MessageNumber, PastDelivery, Receipt};
use firstwrite_core::{StoreError, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use super::super::driver_error::definite;
use super::super::rows::{integer, text};
use super::super::session::Session;
use super::pending::{fence, optional_text, status};

/// Maximum number of rows that a message's history returns.
const TOLD_MAX: i64 = 100;

impl Session {
    /// Writes a row, if its message is there; see [`HistoryRow`] for two rows of one fence.
    pub(super) fn put_delivery(&self, row: &HistoryRow, now: Timestamp) -> rusqlite::Result<()> {
        let sql =
            "INSERT INTO firstwrite_deliveries (message, fence, at, ending, status, detail, provider_id)
             SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7
             WHERE EXISTS (SELECT 1 FROM firstwrite_messages WHERE message = ?1)
             ON CONFLICT DO UPDATE
                 SET at = excluded.at, ending = excluded.ending, status = excluded.status,
                     detail = excluded.detail, provider_id = excluded.provider_id
                 WHERE excluded.ending = 'delivered' AND ending <> 'delivered'";
        self.connection
            .prepare_cached(sql)?
            .execute(params![
                row.number.0,
                row.fence.as_u64().cast_signed(),
                now.as_millis(),
                row.ending.as_str(),
                row.status,
                row.detail,
                row.provider_id,
            ])
            .map(drop)
    }

    /// Returns the last ending in the history of a message.
    pub(super) fn last_ending(&self, number: MessageNumber) -> rusqlite::Result<Option<String>> {
        let sql = "SELECT ending FROM firstwrite_deliveries WHERE message = ?1
                   ORDER BY fence DESC LIMIT 1";
        self.connection.prepare_cached(sql)?.query_row([number.0], |row| row.get(0)).optional()
    }
}

/// That the message arrived, if that was written down.
pub(super) fn receipt_of(
    connection: &Connection,
    number: MessageNumber,
) -> Result<Option<Receipt>, StoreError> {
    let failed = definite("reading a message's deliveries");
    let sql = "SELECT provider_id FROM firstwrite_deliveries
               WHERE message = ?1 AND ending = 'delivered' ORDER BY fence LIMIT 1";
    let mut query = connection.prepare_cached(sql).map_err(&failed)?;
    let mut rows = query.query([number.0]).map_err(&failed)?;
    let Some(row) = rows.next().map_err(&failed)? else { return Ok(None) };
    Ok(Some(Receipt { provider_id: optional_text(row, 0)? }))
}

/// The last deliveries of a message, the oldest first.
pub(super) fn past_deliveries(
    connection: &Connection,
    number: MessageNumber,
) -> Result<Vec<PastDelivery>, StoreError> {
    let failed = definite("reading a message's deliveries");
    let sql = "SELECT at, fence, ending, status, detail, provider_id FROM firstwrite_deliveries
               WHERE message = ?1 ORDER BY fence DESC LIMIT ?2";
    let mut query = connection.prepare_cached(sql).map_err(&failed)?;
    let mut rows = query.query(params![number.0, TOLD_MAX]).map_err(&failed)?;
    let mut past = Vec::new();
    while let Some(row) = rows.next().map_err(&failed)? {
        past.push(PastDelivery {
            at: Timestamp::from_millis(integer(row, 0)?),
            fence: fence(row, 1)?,
            ending: text(row, 2)?.to_owned(),
            status: status(row, 3)?,
            detail: text(row, 4)?.to_owned(),
            provider_id: optional_text(row, 5)?,
        });
    }
    past.reverse();
    Ok(past)
}
