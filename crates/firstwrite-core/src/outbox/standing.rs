//! How a message stands between claims, and the steps that move it.
//!
//! The store in memory and the model of the outbox take these very steps; the conformance suite holds
//! every other store to them.

use super::{MessageState, Next, Resolution, Sent};
use crate::{Fence, Timestamp};

/// What claims, settlements and operators change of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Standing {
    /// How far it has come.
    pub state: MessageState,
    /// When it is due, while it waits.
    pub due_at: Timestamp,
    /// When its claim runs out, while it is being sent.
    pub lease_until: Timestamp,
    /// When it was last claimed.
    pub claimed_at: Option<Timestamp>,
    /// The fence of its last claim, or of the last resolution.
    pub fence: Option<Fence>,
    /// When it may first have reached the destination, if it may have.
    pub maybe_sent_at: Option<Timestamp>,
    /// How many deliveries have counted.
    pub delivery_count: u32,
    /// How many claims in a row ran out without a word.
    pub lapse_count: u32,
    /// When it was settled, if nothing can become of it any more.
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
            self.lapse_count += 1;
            self.doubt();
        }
        let fence = self.fence.map_or(Fence::first(nonce), |fence| fence.next(nonce));
        self.fence = Some(fence);
        self.state = MessageState::Sending;
        self.claimed_at = Some(now);
        self.lease_until = lease_until;
        fence
    }

    /// Whether the claim with this fence still holds.
    pub fn is_claimed_under(&self, fence: Fence) -> bool {
        self.state == MessageState::Sending && self.fence == Some(fence)
    }

    /// Follows from how its claim ended. Whatever is not delivered or proven absent keeps its doubt.
    pub fn follow(&mut self, next: &Next, now: Timestamp) {
        match next {
            Next::Delivered(_) => self.end(MessageState::Delivered, now),
            Next::Waiting { pause, counts, sent } => {
                self.state = MessageState::Waiting;
                self.due_at = now.plus(*pause);
                self.delivery_count += u32::from(*counts);
                self.lapse_count = 0;
                match sent {
                    Sent::No => self.maybe_sent_at = None,
                    Sent::AsBefore => {}
                    Sent::Maybe => self.doubt(),
                }
            }
            Next::Unknown(_) => {
                self.state = MessageState::Unknown;
                self.doubt();
            }
            Next::Refused => self.end(MessageState::Refused, now),
            Next::Dead(_) => self.state = MessageState::Dead,
        }
    }

    /// Puts a dead letter back, with its doubt. `false` if it is none.
    pub fn redrive(&mut self, now: Timestamp) -> bool {
        if self.state != MessageState::Dead {
            return false;
        }
        self.put_back(now);
        true
    }

    /// Ends its wait on somebody's word, if it is as it was `seen` and no claim holds. Returns the fence
    /// it wears then.
    pub fn resolve(
        &mut self,
        seen: Fence,
        resolution: &Resolution,
        now: Timestamp,
    ) -> Option<Fence> {
        let is_open = match self.state {
            MessageState::Waiting | MessageState::Unknown | MessageState::Dead => true,
            MessageState::Sending => self.lease_until <= now,
            MessageState::Delivered | MessageState::Refused | MessageState::Dropped => false,
        };
        if !is_open || self.worn() != seen {
            return None;
        }
        let fence = seen.next(seen.as_u64());
        self.fence = Some(fence);
        match resolution {
            Resolution::Delivered { .. } => self.end(MessageState::Delivered, now),
            Resolution::NotDelivered => {
                self.put_back(now);
                self.maybe_sent_at = None;
            }
            Resolution::Refused { .. } => self.end(MessageState::Refused, now),
            Resolution::Dropped => self.end(MessageState::Dropped, now),
        }
        Some(fence)
    }

    /// The fence that an operator sees: zero before the first claim.
    pub fn worn(&self) -> Fence {
        self.fence.unwrap_or(Fence::from_u64(0))
    }

    fn doubt(&mut self) {
        self.maybe_sent_at = self.maybe_sent_at.or(self.claimed_at);
    }

    fn put_back(&mut self, now: Timestamp) {
        self.state = MessageState::Waiting;
        self.due_at = now;
        (self.delivery_count, self.lapse_count) = (0, 0);
    }

    fn end(&mut self, state: MessageState, now: Timestamp) {
        self.state = state;
        self.settled_at = Some(now);
    }
}
