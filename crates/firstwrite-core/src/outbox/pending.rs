//! A message that is not settled, as stores hold it that read its row, change it in memory and write it back.
//!
//! [`Standing`] says what a claim and a move make of it. A row has one time from which the message can be
//! claimed: when it is due, or when its claim runs out; none while another message under its ordering key goes
//! first, or while no time makes it due.

use std::time::Duration;

use super::{
    Becomes, ClaimedMessage, MessageContent, MessageNumber, MessageState, MessageView, MoveGuard,
    Problem, Receipt, Standing, rested_at,
};
use crate::{Fence, Message, RecordId, Tenant, Timestamp};

/// The row of a message that is not settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Number of the message.
    pub number: MessageNumber,
    /// The record with which it was written.
    pub id: RecordId,
    /// The destination.
    pub destination: String,
    /// The key under which messages leave in order.
    pub ordering_key: Option<String>,
    /// The part that claims and moves change.
    pub standing: Standing,
    /// False where no time makes it due.
    pub has_time: bool,
    /// Status of the last problem.
    pub status: Option<u16>,
    /// Text of the last problem.
    pub problem: Option<String>,
}

/// Parts of a message that a claim reads beyond its row.
#[derive(Debug)]
pub struct Parts {
    /// The tenant.
    pub tenant: Tenant,
    /// The key that the destination gets.
    pub derived_key: String,
    /// Time at which it was written.
    pub created_at: Timestamp,
    /// Payload and answers.
    pub content: MessageContent,
    /// The first receipt, if there is one.
    pub receipt: Option<Receipt>,
}

impl Pending {
    /// Makes the row of a message that was just written.
    pub fn new(number: MessageNumber, message: &Message, due_at: Option<Timestamp>) -> Self {
        Self {
            number,
            id: message.record(),
            destination: message.destination().to_owned(),
            ordering_key: message.ordering_key().map(str::to_owned),
            standing: Standing::new(Timestamp::EPOCH),
            has_time: true,
            status: None,
            problem: None,
        }
        .due(due_at)
    }

    /// The row with `due_at` as the time from which the message can be claimed.
    #[must_use]
    pub fn due(mut self, due_at: Option<Timestamp>) -> Self {
        self.has_time = due_at.is_some();
        let due_at = due_at.unwrap_or(Timestamp::EPOCH);
        (self.standing.due_at, self.standing.lease_until) = (due_at, due_at);
        self
    }

    /// Returns the time from which the message can be claimed.
    pub fn due_at(&self) -> Option<Timestamp> {
        let due_at = match self.state() {
            MessageState::Waiting => self.standing.due_at,
            MessageState::Sending => self.standing.lease_until,
            MessageState::Unknown
            | MessageState::Dead
            | MessageState::Delivered
            | MessageState::Refused
            | MessageState::Dropped => return None,
        };
        self.has_time.then_some(due_at)
    }

    /// Returns true while it waits for another message under its ordering key.
    pub fn is_put_aside(&self) -> bool {
        self.state() == MessageState::Waiting && !self.has_time
    }

    /// Returns the state.
    pub fn state(&self) -> MessageState {
        self.standing.state
    }

    /// Returns the fence of the last claim; zero before the first.
    pub fn fence(&self) -> Fence {
        self.standing.worn()
    }

    /// The view of the message, with the columns of this row.
    #[must_use]
    pub fn shown_in(self, view: MessageView) -> MessageView {
        MessageView {
            state: self.state(),
            fence: self.fence(),
            due_at: self.due_at().filter(|_| self.state() == MessageState::Waiting),
            maybe_sent_at: self.standing.maybe_sent_at,
            handled_at: self.standing.claimed_at,
            status: self.status,
            problem: self.problem,
            ..view
        }
    }

    /// Returns true if a move under `guard` is allowed at `now`.
    pub fn is_under(&self, guard: MoveGuard, now: Timestamp) -> bool {
        self.standing.holds(guard, now)
    }

    /// The row after a claim.
    #[must_use]
    pub fn claimed(&self, nonce: u64, now: Timestamp, lease_for: Duration) -> Self {
        let mut claimed = Self { has_time: true, ..self.clone() };
        claimed.standing.claim(nonce, now, now.plus(lease_for));
        claimed
    }

    /// The message of this row, which was claimed at `claimed_at`, as its carrier gets it.
    pub fn carried(
        &self,
        parts: Parts,
        (is_trial, claimed_at): (bool, Timestamp),
    ) -> ClaimedMessage {
        ClaimedMessage {
            number: self.number,
            fence: self.fence(),
            record: self.id,
            tenant: parts.tenant,
            derived_key: parts.derived_key,
            destination: self.destination.clone(),
            content_type: parts.content.content_type,
            payload: parts.content.payload,
            ordering_key: self.ordering_key.clone(),
            created_at: parts.created_at,
            delivery_count: self.standing.delivery_count,
            lapse_count: self.standing.lapse_count,
            is_trial,
            maybe_sent_at: self.standing.maybe_sent_at,
            receipt: parts.receipt,
            answers: parts.content.answers,
            claimed_at,
            status: self.status,
            problem: self.problem.clone(),
        }
    }

    /// The row after a move that leaves the message pending, as if no predecessor stood in its way. One that is put
    /// aside and only marked stays aside, and gets its rest when it is released.
    #[must_use]
    pub fn moved(&self, becomes: &Becomes, now: Timestamp) -> Self {
        let mut moved = self.clone();
        moved.has_time |= !matches!(becomes, Becomes::MaybeSent(_));
        moved.standing.take(becomes, now);
        if let Some(Problem { status, text }) = becomes.problem() {
            (moved.status, moved.problem) = (*status, Some(text.clone()));
        }
        moved
    }

    /// Time before which it is not claimed again, if it is in doubt.
    pub fn rested_at(&self) -> Option<Timestamp> {
        rested_at(self.standing.maybe_sent_at, self.standing.claimed_at)
    }
}

#[cfg(test)]
mod tests;
