//! Applies moves: checks the guard of each, and writes.

use firstwrite_core::encoding::encode_outcome;
use firstwrite_core::outbox::pending::Pending;
use firstwrite_core::outbox::{
    Becomes, ClaimStatus, HistoryRow, Kept, MessageNumber, MessageState, Move, MoveGuard, Tallies,
};
use firstwrite_core::{Outcome, RecordId, State, StoreError, StoreErrorKind, Timestamp};
use rusqlite::{OptionalExtension, params};

use super::super::driver_error::Failure;
use super::super::rows::{StoredRecord, find};
use super::super::session::Session;
use crate::rows::skip;

pub(super) const DOING: &str = "moving messages";

impl Session {
    /// See [`firstwrite_core::outbox::Outbox::apply`].
    pub(super) fn apply_moves(
        &self,
        receipts: &[HistoryRow],
        moves: &[Move],
    ) -> Result<Vec<ClaimStatus>, Failure> {
        let now = self.now();
        for row in receipts {
            self.put_delivery(row, now).map_err(Failure::batch(DOING))?;
        }
        let mut tallies = Tallies::default();
        let mut held = Vec::with_capacity(moves.len());
        for step in moves {
            held.push(self.apply_one(step, &mut tallies, now)?);
        }
        self.put_tallies(&tallies).map_err(Failure::batch(DOING))?;
        Ok(held)
    }

    fn apply_one(
        &self,
        step: &Move,
        tallies: &mut Tallies,
        now: Timestamp,
    ) -> Result<ClaimStatus, Failure> {
        let pending = match self.pending(step.number) {
            Ok(pending) => pending.filter(|pending| pending.is_under(step.guard, now)),
            Err(error) => {
                skip(step.number.0, error, Failure::Batch)?;
                None
            }
        };
        if let Some(row) = &step.history {
            let put = || self.put_if_due(row, pending.is_some(), now);
            put().map_err(Failure::batch(DOING))?;
        }
        let Some(pending) = pending else { return Ok(ClaimStatus::Lost) };
        let write = || match &step.becomes {
            Becomes::Pending(_) => self.put_moved(&pending, step, now),
            Becomes::Settled(_) => {
                self.delete_pending(pending.number)?;
                self.release_successor(&pending, now)
            }
            Becomes::MaybeSent(_) => self.update_pending(&pending.moved(&step.becomes, now)),
        };
        write().map_err(Failure::batch(DOING))?;
        let state = step.becomes.state().unwrap_or(pending.state());
        tallies.moved(&pending.destination, pending.state().tally(), state.tally());
        if let Some(outcome) = &step.answer {
            self.replace_interim(pending.id, outcome, now)?;
        }
        if let Some(entry) = &step.audit {
            let audit = self.put_audit(pending.id.as_bytes(), entry, now);
            audit.map_err(Failure::batch(DOING))?;
        }
        Ok(ClaimStatus::Current)
    }

    fn put_if_due(&self, row: &HistoryRow, held: bool, now: Timestamp) -> rusqlite::Result<()> {
        let last = match row.kept {
            Kept::IfNew => self.last_ending(row.number)?,
            Kept::WithMove | Kept::Always => None,
        };
        if row.is_due(held, last.as_deref()) { self.put_delivery(row, now) } else { Ok(()) }
    }

    fn put_moved(&self, pending: &Pending, step: &Move, now: Timestamp) -> rusqlite::Result<()> {
        let mut moved = pending.moved(&step.becomes, now);
        // The message of a current claim is the oldest of its order.
        if let MoveGuard::Idle(_) | MoveGuard::Dead(_) = step.guard
            && moved.state() == MessageState::Waiting
        {
            if let Some(key) = &pending.ordering_key
                && self.oldest_under(&pending.destination, key)? != Some(pending.number)
            {
                moved = moved.due(None);
            }
            self.notify();
        }
        self.update_pending(&moved)
    }

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

    /// Writes `outcome` in the place of the interim one that stands under `id`, if one does. Its
    /// retention begins now.
    pub(super) fn replace_interim(
        &self,
        id: RecordId,
        outcome: &Outcome,
        now: Timestamp,
    ) -> Result<(), Failure> {
        let standing = match find(&self.connection, (&self.dictionary, &self.clock), id) {
            Ok(Some(standing)) => standing,
            Ok(None) => return Ok(()),
            // The message is settled all the same: what it did is known, whatever its record says.
            Err(error) => return skip_record(id, error),
        };
        let StoredRecord { number, record } = standing;
        match &record.state {
            State::Completed { outcome, .. } if outcome.is_interim => {}
            State::Completed { .. } | State::Reserved(_) | State::Uncertain { .. } => return Ok(()),
        }
        let sql = "UPDATE firstwrite_records SET outcome = ?2, completed_after = ?3 - created_at
                   WHERE record = ?1";
        let last = Outcome { is_interim: false, ..outcome.clone() };
        self.connection
            .prepare_cached(sql)
            .and_then(|mut update| {
                update.execute(params![number, encode_outcome(&last), now.as_millis()])
            })
            .map(drop)
            .map_err(Failure::batch("answering a record"))
    }
}

/// Goes on without a record that cannot be read. Any other error ends the batch.
fn skip_record(id: RecordId, error: StoreError) -> Result<(), Failure> {
    if error.kind() != StoreErrorKind::Corrupt {
        return Err(Failure::Batch(error));
    }
    tracing::warn!(record = %id, %error, "an interim answer cannot be replaced");
    Ok(())
}
