//! Enqueues messages, and releases the next one under an ordering key.

use firstwrite_core::outbox::{MessageNumber, MessageState, Tallies, Tally};
use firstwrite_core::{Message, Timestamp};
use rusqlite::{OptionalExtension, params};

use super::super::session::Session;
use super::pending::{NEVER_CLAIMED, Pending, state_number};
use crate::encoding::encode_answers;

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
        self.insert_pending(&Pending {
            number,
            id: message.record(),
            destination: message.destination().to_owned(),
            ordering_key: message.ordering_key().map(str::to_owned),
            state: MessageState::Waiting,
            due_at: (!is_blocked).then_some(not_before),
            fence: NEVER_CLAIMED,
            claimed_at: None,
            delivery_count: 0,
            lapse_count: 0,
            maybe_sent_at: None,
            status: None,
            problem: None,
        })?;
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

    /// Makes a message due if it waits for another one.
    pub(super) fn release(&self, number: MessageNumber, now: Timestamp) -> rusqlite::Result<()> {
        let sql = "UPDATE firstwrite_pending
                   SET due_at = max(?2, (SELECT not_before FROM firstwrite_messages m
                                         WHERE m.message = firstwrite_pending.message))
                   WHERE message = ?1 AND state = ?3 AND due_at IS NULL";
        let waiting = state_number(MessageState::Waiting);
        let given = params![number.0, now.as_millis(), waiting];
        if self.connection.prepare_cached(sql)?.execute(given)? > 0 {
            self.notify();
        }
        Ok(())
    }
}
