//! A message that is not settled, as it is shared by the stores that read its row, change it and write it back:
//! SQLite, MySQL, DynamoDB.

#[cfg(any(feature = "sqlite", feature = "_sql"))]
#[cfg_attr(
    not(feature = "sqlite"),
    allow(unused_imports, unused_macros, reason = "each store uses its part")
)]
pub(crate) mod rows;

use std::time::Duration;

#[cfg(feature = "dynamodb")]
use firstwrite_core::outbox::rested_at;
use firstwrite_core::outbox::{
    ClaimedMessage, MaybeSentDraft, MessageContent, MessageNumber, MessageState, MessageView,
    MoveGuard, PendingDraft, Problem, Receipt,
};
use firstwrite_core::{Fence, Message, RecordId, Tenant, Timestamp};

/// The row of a message that is not settled.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) number: MessageNumber,
    pub(crate) id: RecordId,
    pub(crate) destination: String,
    pub(crate) ordering_key: Option<String>,
    pub(crate) state: MessageState,
    /// Time from which it can be claimed: when it is due, or when its claim runs out.
    pub(crate) due_at: Option<Timestamp>,
    /// Fence of the last claim; zero before the first.
    pub(crate) fence: Fence,
    pub(crate) claimed_at: Option<Timestamp>,
    pub(crate) delivery_count: u32,
    pub(crate) lapse_count: u32,
    pub(crate) maybe_sent_at: Option<Timestamp>,
    pub(crate) status: Option<u16>,
    pub(crate) problem: Option<String>,
}

/// Parts of a message that a claim reads beyond its row.
pub(crate) struct Parts {
    pub(crate) tenant: Tenant,
    pub(crate) derived_key: String,
    pub(crate) created_at: Timestamp,
    pub(crate) content: MessageContent,
    pub(crate) receipt: Option<Receipt>,
}

/// The fence of a message that was never claimed.
pub(crate) const NEVER_CLAIMED: Fence = Fence::from_u64(0);

impl Pending {
    /// Makes the row of a message that was just written.
    pub(crate) fn new(number: MessageNumber, message: &Message, due_at: Option<Timestamp>) -> Self {
        Self {
            number,
            id: message.record(),
            destination: message.destination().to_owned(),
            ordering_key: message.ordering_key().map(str::to_owned),
            state: MessageState::Waiting,
            due_at,
            fence: NEVER_CLAIMED,
            claimed_at: None,
            delivery_count: 0,
            lapse_count: 0,
            maybe_sent_at: None,
            status: None,
            problem: None,
        }
    }

    /// The view of the message, with the columns of this row.
    pub(crate) fn shown_in(self, view: MessageView) -> MessageView {
        MessageView {
            state: self.state,
            fence: self.fence,
            due_at: self.due_at.filter(|_| self.state == MessageState::Waiting),
            maybe_sent_at: self.maybe_sent_at,
            handled_at: self.claimed_at,
            status: self.status,
            problem: self.problem,
            ..view
        }
    }

    /// Returns true if a move under `guard` is allowed at `now`.
    pub(crate) fn is_under(&self, guard: MoveGuard, now: Timestamp) -> bool {
        guard.holds(self.state, self.fence, self.due_at > Some(now))
    }

    /// The row after a claim. A claim that ran out before may have sent the message.
    pub(crate) fn claimed(&self, nonce: u64, now: Timestamp, lease_for: Duration) -> Self {
        let mut claimed = self.clone();
        if self.state == MessageState::Sending {
            claimed.maybe_sent_at = self.maybe_sent_at.or(self.claimed_at);
            claimed.lapse_count = self.lapse_count.saturating_add(1);
        }
        let had_claim = self.fence != NEVER_CLAIMED;
        claimed.fence = if had_claim { self.fence.next(nonce) } else { Fence::first(nonce) };
        claimed.state = MessageState::Sending;
        claimed.claimed_at = Some(now);
        claimed.due_at = Some(now.plus(lease_for));
        claimed
    }

    /// The message of this row, which was claimed at `claimed_at`, as its carrier gets it.
    pub(crate) fn carried(
        &self,
        parts: Parts,
        (is_trial, claimed_at): (bool, Timestamp),
    ) -> ClaimedMessage {
        ClaimedMessage {
            number: self.number,
            fence: self.fence,
            record: self.id,
            tenant: parts.tenant,
            derived_key: parts.derived_key,
            destination: self.destination.clone(),
            content_type: parts.content.content_type,
            payload: parts.content.payload,
            ordering_key: self.ordering_key.clone(),
            created_at: parts.created_at,
            delivery_count: self.delivery_count,
            lapse_count: self.lapse_count,
            is_trial,
            maybe_sent_at: self.maybe_sent_at,
            receipt: parts.receipt,
            answers: parts.content.answers,
            claimed_at,
            status: self.status,
            problem: self.problem.clone(),
        }
    }

    /// The row after a move, as if no predecessor stood in its way.
    pub(crate) fn moved(&self, draft: &PendingDraft, now: Timestamp) -> Self {
        let mut moved = self.clone();
        moved.state = draft.state;
        moved.due_at = (draft.state == MessageState::Waiting).then(|| now.plus(draft.due_in));
        moved.fence = draft.fence;
        moved.delivery_count = draft.delivery_count;
        moved.lapse_count = draft.lapse_count;
        moved.maybe_sent_at = draft.maybe_sent_at;
        moved.show(draft.problem.as_ref());
        moved
    }

    /// The row after a move that only says that the message may have been sent. One that is put aside gets its rest
    /// when it is released.
    pub(crate) fn maybe_sent(&self, draft: &MaybeSentDraft, now: Timestamp) -> Self {
        let mut marked = self.clone();
        marked.due_at = self.due_at.map(|due_at| due_at.max(now.plus(draft.rest_for)));
        if self.state == MessageState::Sending {
            marked.state = MessageState::Waiting;
        }
        marked.fence = draft.fence;
        marked.claimed_at = Some(now);
        marked.maybe_sent_at = Some(draft.maybe_sent_at);
        marked.show(draft.problem.as_ref());
        marked
    }

    /// Time before which it is not claimed again, if it is in doubt.
    #[cfg(feature = "dynamodb")]
    pub(crate) fn rested_at(&self) -> Option<Timestamp> {
        rested_at(self.maybe_sent_at, self.claimed_at)
    }

    fn show(&mut self, problem: Option<&Problem>) {
        if let Some(problem) = problem {
            self.status = problem.status;
            self.problem = Some(problem.text.clone());
        }
    }
}
