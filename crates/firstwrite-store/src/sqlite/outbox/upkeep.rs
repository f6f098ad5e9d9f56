//! Periodic upkeep: deletes messages that were delivered or consumed long ago, in small steps.
//!
//! As with records there is no index by time: messages are numbered in the order of their writing, so a cursor walks
//! the numbers and starts again at the first message that is too young.

use std::time::Duration;

use firstwrite_core::Timestamp;
use firstwrite_core::outbox::MessageNumber;
use rusqlite::{Row, params};

use super::super::driver_error::Failure;
use super::super::session::Session;

/// Maximum number of messages deleted in one step: all commits wait while it runs.
const DELETED_MAX: usize = 500;

/// Maximum number of messages looked at in one step.
const LOOKED_AT_MAX: i64 = 2000;

const DOING: &str = "keeping messages up";

/// Messages in the order of their writing, with what tells when they ended.
const AGED: &str = "SELECT m.message, m.created_at, p.message IS NOT NULL,
            coalesce((SELECT max(d.at) FROM firstwrite_deliveries d WHERE d.message = m.message),
                     m.created_at)
     FROM firstwrite_messages m
     LEFT JOIN firstwrite_pending p ON p.message = m.message
     WHERE m.message > ?1 ORDER BY m.message LIMIT ?2";

/// Facts that decide whether a message is deleted.
struct Aged {
    created_at: i64,
    is_pending: bool,
    ended_at: i64,
}

impl Session {
    /// See [`firstwrite_core::outbox::Outbox::upkeep`]. Counts need no folding here.
    pub(super) fn upkeep(&self, kept_for: Duration, limit: usize) -> Result<usize, Failure> {
        let now = self.now();
        let limit = limit.min(DELETED_MAX);
        let keep_up = || {
            self.release_forgotten(now)?;
            let counted_now = self.clock.counted_now();
            self.forget_consumed(limit, counted_now)?;
            self.delete_ended(kept_for, limit, counted_now)
        };
        keep_up().map_err(Failure::batch(DOING))
    }

    /// Makes messages due that wait for one that is gone. There should be none: the command that removes a message
    /// also releases its successor.
    fn release_forgotten(&self, now: Timestamp) -> rusqlite::Result<()> {
        let sql = "SELECT o.oldest FROM (SELECT min(message) AS oldest FROM firstwrite_pending
                                         WHERE ordering_key IS NOT NULL
                                         GROUP BY destination, ordering_key) o
                   JOIN firstwrite_pending p ON p.message = o.oldest
                   WHERE p.state = 0 AND p.due_at IS NULL LIMIT ?1";
        let forgotten = self
            .connection
            .prepare_cached(sql)?
            .query_map([LOOKED_AT_MAX], |row| row.get(0).map(MessageNumber))?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        for number in forgotten {
            tracing::warn!(message = number.0, "a message waited for one that is gone");
            self.release(number, now)?;
        }
        Ok(())
    }

    fn delete_ended(
        &self,
        kept_for: Duration,
        limit: usize,
        now: Timestamp,
    ) -> rusqlite::Result<usize> {
        let is_over = |since: i64| Timestamp::from_millis(since).plus(kept_for) <= now;
        let (mut due, mut cursor, mut looked_at) = (Vec::new(), self.upkeep_after.get(), 0);
        {
            let mut query = self.connection.prepare_cached(AGED)?;
            let mut rows = query.query(params![cursor, LOOKED_AT_MAX])?;
            let mut is_at_end = false;
            while due.len() < limit {
                let Some(row) = rows.next()? else {
                    is_at_end = looked_at < LOOKED_AT_MAX;
                    break;
                };
                looked_at += 1;
                let number = row.get(0)?;
                let aged = match Aged::read(row) {
                    Ok(aged) => aged,
                    Err(error) => {
                        // One damaged row must not keep the others for ever.
                        tracing::warn!(message = number, %error, "a message cannot be deleted");
                        cursor = number;
                        continue;
                    }
                };
                if !is_over(aged.created_at) {
                    is_at_end = true;
                    break;
                }
                cursor = number;
                if !aged.is_pending && is_over(aged.ended_at) {
                    due.push(number);
                }
            }
            self.upkeep_after.set(if is_at_end { 0 } else { cursor });
        }
        for number in &due {
            for sql in [
                "DELETE FROM firstwrite_deliveries WHERE message = ?1",
                "DELETE FROM firstwrite_messages WHERE message = ?1",
            ] {
                self.connection.prepare_cached(sql)?.execute([number])?;
            }
        }
        Ok(due.len())
    }
}

impl Aged {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { created_at: row.get(1)?, is_pending: row.get(2)?, ended_at: row.get(3)? })
    }
}
