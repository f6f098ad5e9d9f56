//! The inbox in the same file: one row for each message that was consumed.

use firstwrite_core::encoding::as_i64;
use firstwrite_core::{Consumed, Inbox, StoreError, Timestamp};
use rusqlite::{Connection, params};

use super::SqliteStore;
use super::driver_error::definite;
use super::session::Session;

impl SqliteStore {
    /// Notes in `tx` that a message is consumed: in an [`SqliteTx`](crate::SqliteTx), or in the connection that
    /// [`write`](Self::write) hands out; no other knows the store's time. A message's id is 1 to 512 bytes.
    ///
    /// If `tx` is rolled back, the message was never here.
    pub fn consume(
        inbox: &Inbox,
        message_id: &str,
        tx: &Connection,
    ) -> Result<Consumed, StoreError> {
        let id = inbox.digest(message_id)?;
        let consume = || {
            let now = "SELECT firstwrite_now()";
            let now: i64 = tx.prepare_cached(now)?.query_row([], |row| row.get(0))?;
            let kept_until = inbox.kept_until(Timestamp::from_millis(now));
            let insert = "INSERT INTO firstwrite_inbox (id, consumed_at, kept_until)
                          VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
            let given = params![id, now, kept_until.as_millis()];
            if tx.prepare_cached(insert)?.execute(given)? == 1 {
                return Ok(Consumed::First);
            }
            let select = "SELECT consumed_at FROM firstwrite_inbox WHERE id = ?1";
            let at = tx.prepare_cached(select)?.query_row([id], |row| row.get(0))?;
            Ok(Consumed::Again { at: Timestamp::from_millis(at) })
        };
        consume().map_err(definite("consuming a message"))
    }
}

impl Session {
    /// Forgets up to `limit` messages that were consumed long ago.
    pub(super) fn forget_consumed(&self, limit: usize, now: Timestamp) -> rusqlite::Result<()> {
        let sql = "DELETE FROM firstwrite_inbox WHERE id IN
                       (SELECT id FROM firstwrite_inbox WHERE kept_until <= ?1
                        ORDER BY kept_until LIMIT ?2)";
        let limit = as_i64(limit);
        self.connection.prepare_cached(sql)?.execute(params![now.as_millis(), limit]).map(drop)
    }
}
