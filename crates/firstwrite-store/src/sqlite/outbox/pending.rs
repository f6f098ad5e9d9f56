//! The narrow row of a message that is neither delivered nor dropped: read whole, changed in memory,
//! written whole. Nothing else writes to the file, so nothing moves in between.

use firstwrite_core::encoding::encode_answers;
use firstwrite_core::outbox::pending::Pending;
use firstwrite_core::outbox::{MessageNumber, MessageState, Tallies, Tally};
use firstwrite_core::{Message, StoreError, Timestamp};
use rusqlite::{OptionalExtension, params};

use super::super::session::Session;
use super::listing::{MessageRow, select};
use crate::rows::{pending, pending_columns, rest_millis, state_number};

impl Session {
    /// Writes a message with all that belongs to it.
    pub(in super::super) fn enqueue(
        &self,
        message: &Message,
        now: Timestamp,
    ) -> rusqlite::Result<()> {
        let not_before = now.plus(message.delay());
        let number = self.insert_message(message, now, not_before)?;
        let is_blocked = match message.ordering_key() {
            Some(key) => self.oldest_under(message.destination(), key)?.is_some(),
            None => false,
        };
        let due_at = (!is_blocked).then_some(not_before);
        self.insert_pending(&Pending::new(number, message, due_at))?;
        let mut tallies = Tallies::default();
        tallies.add(message.destination(), Tally::Open, 1);
        self.put_tallies(&tallies)?;
        self.notify();
        Ok(())
    }

    fn insert_message(
        &self,
        message: &Message,
        now: Timestamp,
        not_before: Timestamp,
    ) -> rusqlite::Result<MessageNumber> {
        let sql =
            "INSERT INTO firstwrite_messages (id, tenant, derived_key, destination, content_type,
                       payload, ordering_key, not_before, created_at, answers)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
        let number = self.connection.prepare_cached(sql)?.insert(params![
            message.record().as_bytes(),
            self.dictionary.tenant_value(&self.connection, message.tenant())?,
            message.derived_key(),
            message.destination(),
            message.payload_type(),
            &message.payload()[..],
            message.ordering_key(),
            not_before.as_millis(),
            now.as_millis(),
            message.answers().map(encode_answers),
        ])?;
        Ok(MessageNumber(number))
    }

    /// The oldest message under an ordering key that is neither delivered nor dropped.
    pub(super) fn oldest_under(
        &self,
        destination: &str,
        ordering_key: &str,
    ) -> rusqlite::Result<Option<MessageNumber>> {
        let sql = "SELECT message FROM firstwrite_pending
                   WHERE destination = ?1 AND ordering_key = ?2 ORDER BY message LIMIT 1";
        self.connection
            .prepare_cached(sql)?
            .query_row([destination, ordering_key], |row| row.get(0).map(MessageNumber))
            .optional()
    }

    /// Makes the message due that is the oldest under its ordering key now that another is gone.
    pub(super) fn release_successor(&self, gone: &Pending, now: Timestamp) -> rusqlite::Result<()> {
        let Some(key) = &gone.ordering_key else { return Ok(()) };
        match self.oldest_under(&gone.destination, key)? {
            Some(next) => self.release(next, now),
            None => Ok(()),
        }
    }

    /// Makes a message due if it waits for another one; one in doubt has its rest first.
    pub(super) fn release(&self, number: MessageNumber, now: Timestamp) -> rusqlite::Result<()> {
        let sql = "UPDATE firstwrite_pending
                   SET due_at = max(?2, (SELECT not_before FROM firstwrite_messages m
                                         WHERE m.message = firstwrite_pending.message),
                                    CASE WHEN maybe_sent_at IS NULL THEN 0
                                         ELSE COALESCE(claimed_at + ?4, 0) END)
                   WHERE message = ?1 AND state = ?3 AND due_at IS NULL";
        let waiting = state_number(MessageState::Waiting);
        let given = params![number.0, now.as_millis(), waiting, rest_millis()];
        if self.connection.prepare_cached(sql)?.execute(given)? > 0 {
            self.notify();
        }
        Ok(())
    }

    /// The row of one message, if it is still pending.
    pub(super) fn pending(&self, number: MessageNumber) -> Result<Option<Pending>, StoreError> {
        let sql = concat!(
            "SELECT ",
            pending_columns!(),
            " FROM firstwrite_pending p WHERE p.message = ?1"
        );
        let names = (&self.connection, &self.dictionary);
        let read = |row: &MessageRow<'_>| pending(row, 0);
        Ok(select(names, "reading a message", (sql, [number.0]), read)?.pop())
    }

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
                state_number(pending.state()),
                pending.due_at().map(Timestamp::as_millis),
                pending.fence().as_u64().cast_signed(),
                pending.standing.delivery_count,
                pending.standing.lapse_count,
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
                state_number(pending.state()),
                pending.due_at().map(Timestamp::as_millis),
                pending.fence().as_u64().cast_signed(),
                pending.standing.claimed_at.map(Timestamp::as_millis),
                pending.standing.delivery_count,
                pending.standing.lapse_count,
                pending.standing.maybe_sent_at.map(Timestamp::as_millis),
                pending.status,
                pending.problem,
            ])
            .map(drop)
    }

    pub(super) fn delete_pending(&self, number: MessageNumber) -> rusqlite::Result<()> {
        let sql = "DELETE FROM firstwrite_pending WHERE message = ?1";
        self.connection.prepare_cached(sql)?.execute([number.0]).map(drop)
    }

    /// Adds to the numbers of messages of each destination in each state. They are never recounted.
    pub(super) fn put_tallies(&self, tallies: &Tallies) -> rusqlite::Result<()> {
        let sql = "INSERT INTO firstwrite_tallies (destination, state, count) VALUES (?1, ?2, ?3)
                   ON CONFLICT DO UPDATE SET count = count + excluded.count";
        let mut put = self.connection.prepare_cached(sql)?;
        for (destination, tally, count) in tallies.differences() {
            put.execute(params![destination, tally.as_str(), count])?;
        }
        Ok(())
    }
}
