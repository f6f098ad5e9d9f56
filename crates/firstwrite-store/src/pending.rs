//! What stores whose rows are read, changed in memory and written back have in common of a message that is
//! under way: how it stands, what becomes of it, what is counted and what is told of it.

mod tallies;

use firstwrite_core::outbox::{
    Cause, Delivery, Ending, MessageNumber, MessageState, MessageView, Next, Sent,
};
use firstwrite_core::{Fence, RecordId, Timestamp};

pub(crate) use tallies::{Kind, Tallies};

/// What changes of a message.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) number: MessageNumber,
    pub(crate) id: RecordId,
    pub(crate) destination: String,
    pub(crate) ordering_key: Option<String>,
    pub(crate) phase: Phase,
    /// When it can be claimed: when it is due, or when its claim runs out.
    pub(crate) due_at: Option<Timestamp>,
    /// Of the last claim; zero before the first.
    pub(crate) fence: Fence,
    pub(crate) claimed_at: Option<Timestamp>,
    pub(crate) delivery_count: u32,
    pub(crate) lapse_count: u32,
    pub(crate) maybe_sent_at: Option<Timestamp>,
    pub(crate) status: Option<u16>,
    pub(crate) problem: Option<String>,
}

/// How far a message has come that is still pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Waiting,
    Sending,
    Unknown,
    Dead,
}

/// What a message wears that nobody has claimed.
pub(crate) const NEVER_CLAIMED: Fence = Fence::from_u64(0);

/// What is kept of a problem: enough to recognise it, and never a whole page of somebody's error.
const PROBLEM_BYTES_MAX: usize = 500;

/// What is written in `ending` when a message arrived.
pub(crate) const DELIVERED: &str = "delivered";
/// What is written in `ending` when a message will never arrive.
pub(crate) const REFUSED: &str = "refused";
/// What is written in `ending` when an operator gave a message up.
pub(crate) const DROPPED: &str = "dropped";

/// One row of the history of handing-overs.
pub(crate) struct Entry<'a> {
    pub(crate) number: MessageNumber,
    pub(crate) fence: Fence,
    pub(crate) ending: &'static str,
    pub(crate) status: Option<u16>,
    pub(crate) detail: &'a str,
    pub(crate) provider_id: Option<&'a str>,
}

impl<'a> Entry<'a> {
    pub(crate) fn of(number: MessageNumber, fence: Fence, delivery: &'a Delivery) -> Self {
        let provider_id = match &delivery.ending {
            Ending::Delivered(receipt) => receipt.provider_id.as_deref(),
            Ending::Refused | Ending::Retry | Ending::NotThere | Ending::Unknown => None,
        };
        Self {
            number,
            fence,
            ending: delivery.ending.as_str(),
            status: delivery.status,
            detail: &delivery.detail,
            provider_id,
        }
    }
}

impl Pending {
    /// What is shown of the message, with what changes of it.
    pub(crate) fn shown_in(self, view: MessageView) -> MessageView {
        MessageView {
            state: self.phase.state(),
            fence: self.fence,
            due_at: self.due_at.filter(|_| self.phase == Phase::Waiting),
            delivery_count: self.delivery_count,
            maybe_sent_at: self.maybe_sent_at,
            claimed_at: self.claimed_at,
            status: self.status,
            problem: self.problem,
            ..view
        }
    }

    /// That the message may have reached its destination, since its last claim if not before.
    pub(crate) fn doubt(&mut self) {
        self.maybe_sent_at = self.maybe_sent_at.or(self.claimed_at);
    }

    /// What becomes of a message that did not arrive, as far as anybody knows.
    pub(crate) fn proceed(&mut self, delivery: Option<&Delivery>, next: &Next, now: Timestamp) {
        if let Some(delivery) = delivery {
            self.status = delivery.status;
            self.problem = Some(delivery.detail.clone());
        }
        match next {
            Next::Delivered(_) | Next::Refused => {
                unreachable!("a message that ended is not pending")
            }
            Next::Waiting { pause, counts, sent } => {
                match sent {
                    Sent::No => self.maybe_sent_at = None,
                    Sent::AsBefore => {}
                    Sent::Maybe => self.doubt(),
                }
                self.phase = Phase::Waiting;
                self.due_at = Some(now.plus(*pause));
                self.delivery_count = self.delivery_count.saturating_add(u32::from(*counts));
                self.lapse_count = 0;
            }
            Next::Unknown(why) => {
                self.doubt();
                self.phase = Phase::Unknown;
                self.due_at = None;
                self.problem = Some(match self.problem.take() {
                    Some(problem) => format!("{why}: {problem}"),
                    None => (*why).to_owned(),
                });
            }
            Next::Dead(cause) => {
                self.phase = Phase::Dead;
                self.due_at = None;
                self.problem.get_or_insert_with(|| said(*cause).to_owned());
            }
        }
    }
}

impl Phase {
    pub(crate) fn number(self) -> i64 {
        match self {
            Self::Waiting => 0,
            Self::Sending => 1,
            Self::Unknown => 2,
            Self::Dead => 3,
        }
    }

    /// None for a number that stands for nothing.
    pub(crate) fn of_number(number: i64) -> Option<Self> {
        match number {
            0 => Some(Self::Waiting),
            1 => Some(Self::Sending),
            2 => Some(Self::Unknown),
            3 => Some(Self::Dead),
            _ => None,
        }
    }

    pub(crate) fn state(self) -> MessageState {
        match self {
            Self::Waiting => MessageState::Waiting,
            Self::Sending => MessageState::Sending,
            Self::Unknown => MessageState::Unknown,
            Self::Dead => MessageState::Dead,
        }
    }
}

/// As much of `text` as is kept.
pub(crate) fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(PROBLEM_BYTES_MAX)]
}

/// What is told of a message that will never arrive.
pub(crate) fn said(cause: Cause) -> &'static str {
    match cause {
        Cause::Refused => "the destination will never take it",
        Cause::Exhausted => "its deliveries are exhausted",
    }
}
