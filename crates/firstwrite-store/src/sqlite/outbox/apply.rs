//! Taking moves: checks the guard of each, and writes.

use firstwrite_core::Timestamp;
use firstwrite_core::outbox::{
    Becomes, ClaimStatus, HistoryRow, Kept, MessageState, Move, MoveGuard, PendingDraft, Tallies,
};

use super::super::driver_error::Failure;
use super::super::session::Session;
use super::claim::skip;
use super::pending::{self, Pending};

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
        let pending = match pending::find(&self.connection, step.number) {
            Ok(pending) => pending.filter(|pending| pending.is_under(step.guard, now)),
            Err(error) => {
                skip(step.number.0, error)?;
                None
            }
        };
        if let Some(row) = &step.history {
            let put = || self.put_if_due(row, pending.is_some(), now);
            put().map_err(Failure::batch(DOING))?;
        }
        let Some(pending) = pending else { return Ok(ClaimStatus::Lost) };
        let write = || match &step.becomes {
            Becomes::Pending(draft) => self.put_moved(&pending, step.guard, draft, now),
            Becomes::Settled(_) => {
                self.delete_pending(pending.number)?;
                self.release_successor(&pending, now)
            }
        };
        write().map_err(Failure::batch(DOING))?;
        tallies.moved(&pending.destination, pending.state.tally(), step.tally());
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

    fn put_moved(
        &self,
        pending: &Pending,
        guard: MoveGuard,
        draft: &PendingDraft,
        now: Timestamp,
    ) -> rusqlite::Result<()> {
        let mut moved = pending.moved(draft, now);
        // The message of a current claim is the oldest of its order.
        if let MoveGuard::Idle(_) | MoveGuard::Dead(_) = guard
            && draft.state == MessageState::Waiting
        {
            if let Some(key) = &pending.ordering_key
                && self.oldest_under(&pending.destination, key)? != Some(pending.number)
            {
                moved.due_at = None;
            }
            self.notify();
        }
        self.update_pending(&moved)
    }
}
