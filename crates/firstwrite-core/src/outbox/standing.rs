//! State of a message between claims, and the steps that change it.
//!
//! The in-memory store, the model of the outbox and the stores that change rows in memory use these functions;
//! PostgreSQL mirrors them in `claim.sql` and `apply.sql`, and the conformance suite holds it to them.

use super::{Becomes, MessageState, MoveGuard};
use crate::{Fence, Timestamp};

/// The part of a message that claims, settlements and operators change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Standing {
    /// State of the message.
    pub state: MessageState,
    /// Time at which it is due, while it waits.
    pub due_at: Timestamp,
    /// Time at which its claim runs out, while it is being sent.
    pub lease_until: Timestamp,
    /// Time of its last claim.
    pub claimed_at: Option<Timestamp>,
    /// The fence of its last claim, or of the last resolution.
    pub fence: Option<Fence>,
    /// Earliest time at which it may have reached the destination, if it may have.
    pub maybe_sent_at: Option<Timestamp>,
    /// Number of deliveries that have counted.
    pub delivery_count: u32,
    /// Number of claims in a row that ran out without a settlement.
    pub lapse_count: u32,
    /// Time at which it was settled, if its state is final.
    pub settled_at: Option<Timestamp>,
}

impl Standing {
    /// A message that was written and is due at `due_at`.
    pub fn new(due_at: Timestamp) -> Self {
        Self {
            state: MessageState::Waiting,
            due_at,
            lease_until: Timestamp::EPOCH,
            claimed_at: None,
            fence: None,
            maybe_sent_at: None,
            delivery_count: 0,
            lapse_count: 0,
            settled_at: None,
        }
    }

    /// Since when it can be claimed, if it can be at `now`.
    pub fn claimable_since(&self, now: Timestamp) -> Option<Timestamp> {
        let since = match self.state {
            MessageState::Waiting => self.due_at,
            MessageState::Sending => self.lease_until,
            MessageState::Unknown
            | MessageState::Dead
            | MessageState::Delivered
            | MessageState::Refused
            | MessageState::Dropped => return None,
        };
        (since <= now).then_some(since)
    }

    /// Takes it under a claim, and returns the claim's fence. A claim that ran out before may have sent
    /// it.
    pub fn claim(&mut self, nonce: u64, now: Timestamp, lease_until: Timestamp) -> Fence {
        if self.state == MessageState::Sending {
            self.lapse_count = self.lapse_count.saturating_add(1);
            self.doubt();
        }
        let fence = self.fence.map_or(Fence::first(nonce), |fence| fence.next(nonce));
        self.fence = Some(fence);
        self.state = MessageState::Sending;
        self.claimed_at = Some(now);
        self.lease_until = lease_until;
        fence
    }

    /// Returns true if a move under `guard` may be made at `now`.
    pub fn holds(&self, guard: MoveGuard, now: Timestamp) -> bool {
        guard.holds(self.state, self.worn(), now < self.lease_until)
    }

    /// Takes a move whose guard holds.
    pub fn take(&mut self, becomes: &Becomes, now: Timestamp) {
        match becomes {
            Becomes::Pending(draft) => {
                self.state = draft.state;
                if draft.state == MessageState::Waiting {
                    self.due_at = now.plus(draft.due_in);
                }
                self.fence = Some(draft.fence);
                self.delivery_count = draft.delivery_count;
                self.lapse_count = draft.lapse_count;
                self.maybe_sent_at = draft.maybe_sent_at;
            }
            Becomes::Settled(state) => {
                self.state = *state;
                self.settled_at = Some(now);
            }
            Becomes::MaybeSent(draft) => {
                let rested_at = now.plus(draft.rest_for);
                self.due_at = self.due_at.max(rested_at);
                if self.state == MessageState::Sending {
                    self.state = MessageState::Waiting;
                }
                self.fence = Some(draft.fence);
                self.claimed_at = Some(now);
                self.maybe_sent_at = Some(draft.maybe_sent_at);
            }
        }
    }

    /// The fence that an operator sees: zero before the first claim.
    pub fn worn(&self) -> Fence {
        self.fence.unwrap_or(Fence::from_u64(0))
    }

    fn doubt(&mut self) {
        self.maybe_sent_at = self.maybe_sent_at.or(self.claimed_at);
    }
}
