//! A message that is not settled, as it is shared by the stores that read its row, change it and write it back:
//! SQLite, MySQL, DynamoDB.

use std::time::Duration;

use firstwrite_core::outbox::{MessageNumber, MessageState, MessageView, MoveGuard, PendingDraft};
use firstwrite_core::{Fence, RecordId, Timestamp};

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

/// The fence of a message that was never claimed.
pub(crate) const NEVER_CLAIMED: Fence = Fence::from_u64(0);

impl Pending {
    /// The view of the message, with the columns of this row.
    pub(crate) fn shown_in(self, view: MessageView) -> MessageView {
        MessageView {
            state: self.state,
            fence: self.fence,
            due_at: self.due_at.filter(|_| self.state == MessageState::Waiting),
            maybe_sent_at: self.maybe_sent_at,
            claimed_at: self.claimed_at,
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

    /// The row after a move, as if no predecessor stood in its way.
    pub(crate) fn moved(&self, draft: &PendingDraft, now: Timestamp) -> Self {
        let mut moved = self.clone();
        moved.state = draft.state;
        moved.due_at = (draft.state == MessageState::Waiting).then(|| now.plus(draft.due_in));
        moved.fence = draft.fence;
        moved.delivery_count = draft.delivery_count;
        moved.lapse_count = draft.lapse_count;
        moved.maybe_sent_at = draft.maybe_sent_at;
        if let Some(problem) = &draft.problem {
            moved.status = problem.status;
            moved.problem = Some(problem.text.clone());
        }
        moved
    }
}

/// The number of a state in the columns of SQLite and MySQL.
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(crate) fn state_number(state: MessageState) -> i64 {
    match state {
        MessageState::Waiting => 0,
        MessageState::Sending => 1,
        MessageState::Unknown => 2,
        MessageState::Dead => 3,
        MessageState::Delivered => 4,
        MessageState::Refused => 5,
        MessageState::Dropped => 6,
    }
}

/// The state of a pending message that a number stands for.
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(crate) fn pending_state(number: i64) -> Option<MessageState> {
    let state = MessageState::ALL.into_iter().find(|state| state_number(*state) == number);
    state.filter(|state| !state.is_final())
}

/// The state of a settled message, from the ending with which its history ends.
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(crate) fn settled_state(ending: Option<&str>) -> MessageState {
    use firstwrite_core::outbox::PastEnding;

    match ending {
        Some(ending) if ending == PastEnding::Delivered.as_str() => MessageState::Delivered,
        Some(ending) if ending == PastEnding::Refused.as_str() => MessageState::Refused,
        _ => MessageState::Dropped,
    }
}
