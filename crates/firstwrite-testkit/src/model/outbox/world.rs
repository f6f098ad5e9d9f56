//! A state of the model: one message, its record, two workers, the destination, an operator.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::LazyLock;

use bytes::Bytes;
use firstwrite_core::outbox::{
    Answers, ClaimedMessage, MessageNumber, MessageState, Next, Receipt, Standing,
};
use firstwrite_core::{Fence, RecordId, Timestamp};

use super::destination::{Destination, Kind, Reply};
use super::time::at;
use crate::sample;

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub(super) now: u16,
    pub(super) kind: Kind,
    /// True if the client's interim answer waits for the message.
    pub(super) is_awaited: bool,
    pub(super) written: Written,
    pub(super) message: Standing,
    /// True if a receipt of it is stored.
    pub(super) has_receipt: bool,
    pub(super) told: Told,
    pub(super) replaced: u8,
    pub(super) workers: [Worker; 2],
    pub(super) destination: Destination,
    /// Time until which the destination's breaker is open.
    pub(super) open_until: Option<u16>,
    pub(super) look: Option<Look>,
    pub(super) history: History,
    pub(super) spent: Spent,
    /// Steps since nothing goes wrong any more; zero before.
    pub(super) calm_steps: u8,
}

/// The transaction in which the message is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Written {
    Open,
    Committed,
    RolledBack,
}

/// Answer in the client's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Told {
    Nothing,
    Interim,
    Delivered,
    Refused,
}

/// Progress of a worker with a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Worker {
    Idle,
    Claimed(Claim),
    /// It has asked, and nothing had happened.
    Asked(Claim),
    /// A delivery is under way since `began`. `reply`: what the destination said, if it arrived.
    Sending {
        claim: Claim,
        began: u16,
        is_proven: bool,
        reply: Option<Reply>,
    },
    /// It is over and not yet written down. `owes_receipt`: the receipt comes first.
    Ended {
        claim: Claim,
        next: Next,
        owes_receipt: bool,
        was_there: Option<bool>,
    },
}

/// A worker's knowledge of the message that it has claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Claim {
    pub(super) fence: Fence,
    pub(super) claimed_at: u16,
    pub(super) delivery_count: u32,
    pub(super) lapse_count: u32,
    pub(super) maybe_sent_at: Option<Timestamp>,
    pub(super) is_trial: bool,
    pub(super) has_receipt: bool,
}

/// An operator's view of the message and the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Look {
    pub(super) fence: Fence,
    /// True if the ledger had the effect.
    pub(super) found: bool,
    /// True if it was too early for a missing effect to count as absent.
    pub(super) is_early: bool,
}

/// Whether the store has everything that was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum History {
    Whole,
    /// A copy of the store was made.
    Copied(Copied),
    /// The copy was put back, and the loss is open.
    Lost,
    /// The loss was cleared.
    Cleared,
}

/// A copy of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Copied {
    pub(super) message: Standing,
    pub(super) has_receipt: bool,
    pub(super) told: Told,
    pub(super) replaced: u8,
}

/// Number of times that each failure or operator action has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Spent {
    pub(super) ticks: u8,
    pub(super) crashes: u8,
    pub(super) losses: u8,
    pub(super) refusals: u8,
    pub(super) put_offs: u8,
    pub(super) openings: u8,
    pub(super) words: u8,
    pub(super) redrives: u8,
    pub(super) waits: u8,
}

static PARCEL: LazyLock<ClaimedMessage> = LazyLock::new(|| {
    let tenant = sample::tenant("acme");
    ClaimedMessage {
        number: MessageNumber(1),
        fence: Fence::from_u64(0),
        record: RecordId::of(&tenant, &sample::key("order-1")),
        tenant,
        derived_key: "order-1:charge".to_owned(),
        destination: "provider".to_owned(),
        content_type: "application/json".to_owned(),
        payload: Bytes::new(),
        ordering_key: None,
        created_at: Timestamp::EPOCH,
        delivery_count: 0,
        lapse_count: 0,
        is_trial: false,
        maybe_sent_at: None,
        receipt: None,
        answers: None,
        claimed_at: Timestamp::EPOCH,
        status: None,
        problem: None,
    }
});

/// Final answers for the client.
static ANSWERS: LazyLock<Answers> = LazyLock::new(|| Answers {
    delivered: sample::outcome(201, "paid"),
    refused: sample::outcome(402, "declined"),
});

impl World {
    pub(super) fn new(kind: Kind, is_awaited: bool) -> Self {
        Self {
            now: 0,
            kind,
            is_awaited,
            written: Written::Open,
            message: Standing::new(at(0)),
            has_receipt: false,
            told: Told::Nothing,
            replaced: 0,
            workers: [Worker::Idle, Worker::Idle],
            destination: Destination::default(),
            open_until: None,
            look: None,
            history: History::Whole,
            spent: Spent::default(),
            calm_steps: 0,
        }
    }

    /// The message as its carrier sees it under `claim`.
    pub(super) fn claimed_message(&self, claim: &Claim) -> ClaimedMessage {
        ClaimedMessage {
            fence: claim.fence,
            delivery_count: claim.delivery_count,
            lapse_count: claim.lapse_count,
            is_trial: claim.is_trial,
            maybe_sent_at: claim.maybe_sent_at,
            claimed_at: at(claim.claimed_at),
            receipt: claim.has_receipt.then(receipt),
            answers: self.is_awaited.then(|| Box::new(ANSWERS.clone())),
            ..PARCEL.clone()
        }
    }

    /// Replaces the client's interim answer, as core has it.
    pub(super) fn answer(&mut self, next: &Next) {
        if !self.is_awaited {
            return;
        }
        let told = match ANSWERS.after(next).map(|outcome| outcome.status.as_u16()) {
            Some(201) => Told::Delivered,
            Some(_) => Told::Refused,
            None => return,
        };
        self.tell(told);
    }

    pub(super) fn tell(&mut self, told: Told) {
        self.told = told;
        self.replaced = self.replaced.saturating_add(1);
    }

    /// Returns true if nothing happens to the message by itself any more.
    pub(super) fn has_ended(&self) -> bool {
        match self.written {
            Written::Open => false,
            Written::RolledBack => true,
            Written::Committed => {
                !matches!(self.message.state, MessageState::Waiting | MessageState::Sending)
            }
        }
    }

    /// Returns true if no worker will ever claim the message although nothing goes wrong any more.
    pub(super) fn is_stuck(&self) -> bool {
        self.calm_steps > 0
            && !self.has_ended()
            && self.workers.iter().all(|worker| *worker == Worker::Idle)
            && self.next_instant().is_none()
    }

    /// Returns the time from which the message can be claimed; `None` if it never can.
    pub(super) fn next_instant(&self) -> Option<Timestamp> {
        self.message.claimable_since(Timestamp::NEVER)
    }

    /// Brings states that differ in nothing that matters into one form.
    pub(super) fn canonical(mut self) -> Self {
        let hash =
            |worker: &Worker| BuildHasherDefault::<DefaultHasher>::default().hash_one(worker);
        if hash(&self.workers[0]) > hash(&self.workers[1]) {
            self.workers.swap(0, 1);
        }
        if self.message.state != MessageState::Sending {
            self.message.lease_until = Timestamp::EPOCH;
        }
        if self.message.state != MessageState::Waiting {
            self.message.due_at = Timestamp::EPOCH;
        }
        self.message.settled_at = None;
        if self.message.state.is_final() {
            self.message.claimed_at = None;
            (self.message.delivery_count, self.message.lapse_count) = (0, 0);
        }
        self
    }
}

/// The receipt of the one effect.
pub(super) fn receipt() -> Receipt {
    Receipt { provider_id: Some("pay_1".to_owned()) }
}
