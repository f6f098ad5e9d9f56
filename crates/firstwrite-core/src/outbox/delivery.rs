//! One handing-over of a message: what is handed over, who carries it, and how that ends.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use super::{Answers, wire_key};
use crate::{BoxFuture, Fence, RecordId, Tenant, Timestamp};

/// The number of a message in its outbox. It grows in about the order of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageNumber(pub i64);

/// A message as its carrier sees it, under a claim.
#[derive(Clone, PartialEq, Eq)]
pub struct ClaimedMessage {
    /// Which message it is.
    pub number: MessageNumber,
    /// The claim's own; every later write about this delivery carries it.
    pub fence: Fence,
    /// The record under which it was written.
    pub record: RecordId,
    /// The tenant that the message belongs to.
    pub tenant: Tenant,
    /// `<client key>:<step>`, for people and for the record's owner.
    pub derived_key: String,
    /// Name of the destination.
    pub destination: String,
    /// Media type of the payload.
    pub content_type: String,
    /// Bytes to deliver.
    pub payload: Bytes,
    /// The order it belongs to, if any.
    pub ordering_key: Option<String>,
    /// Time at which it was written.
    pub created_at: Timestamp,
    /// Number of deliveries that have counted so far.
    pub delivery_count: u32,
    /// Number of claims in a row that ran out without a settlement.
    pub lapse_count: u32,
    /// True if this delivery tests whether a destination that was out of order is back.
    pub is_trial: bool,
    /// Earliest time at which the message may have reached the destination, if it may have. Does not
    /// include this claim's own delivery.
    pub maybe_sent_at: Option<Timestamp>,
    /// Receipt of an earlier delivery that is known to have arrived. With one, the worker only has to
    /// settle.
    pub receipt: Option<Receipt>,
    /// Outcomes that can replace the record's interim answer, if this message decides it.
    pub answers: Option<Box<Answers>>,
    /// The store's time of this claim.
    pub claimed_at: Timestamp,
    /// The HTTP status of the last delivery that went wrong.
    pub status: Option<u16>,
    /// The last problem, in a few words.
    pub problem: Option<String>,
}

/// The parts of a claimed message that its next move is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Which message.
    pub number: MessageNumber,
    /// The claim's fence.
    pub fence: Fence,
    /// The store's time of the claim.
    pub claimed_at: Timestamp,
    /// Number of deliveries that have counted so far.
    pub delivery_count: u32,
    /// Number of claims in a row that ran out without a settlement.
    pub lapse_count: u32,
    /// Earliest time at which the message may have reached the destination before this claim.
    pub maybe_sent_at: Option<Timestamp>,
    /// The HTTP status of the last delivery that went wrong.
    pub status: Option<u16>,
    /// The last problem, in a few words.
    pub problem: Option<String>,
}

/// That a message arrived, and what the provider called what it made of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// The provider's own id, if it gave one.
    pub provider_id: Option<String>,
}

/// Result of one delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Consequence for the message.
    pub ending: Ending,
    /// The HTTP status, where there was one.
    pub status: Option<u16>,
    /// Description in a few words for people; never a payload, a key or a secret.
    pub detail: String,
    /// Time for which the destination asked not to be called again.
    pub retry_after: Option<Duration>,
    /// True if the destination said that it is overloaded.
    pub is_overloaded: bool,
}

/// Consequence of a delivery for the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It arrived.
    Delivered(Receipt),
    /// The destination understood it and will never take it.
    Refused,
    /// It certainly had no effect, and may have one later.
    Retry,
    /// Something answered in the destination's place: a login, a router, a maintenance page. It had no
    /// effect, and the destination has said nothing about the message.
    NotThere,
    /// It was sent, and it is unknown whether it had its effect.
    Unknown,
}

/// A destination's answer when it is asked whether a message had its effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probed {
    /// It did.
    Happened(Receipt),
    /// It did not, and no earlier delivery is still under way there.
    NotHappened,
    /// It did not say: in a few words, why.
    Silent(String),
    /// Something else answered in its place, as in [`Ending::NotThere`]: in a few words, what.
    NotThere(String),
}

/// Carries messages to one destination.
///
/// Implementations hold no state about messages and decide nothing about them: they hand over once,
/// within their own time limit, and say how it ended.
pub trait Carrier: fmt::Debug + Send + Sync + 'static {
    /// Hands `message` over, once, under its wire key. Dropping the future breaks the delivery off:
    /// it may have been sent then.
    fn carry<'a>(&'a self, message: &'a ClaimedMessage) -> BoxFuture<'a, Delivery>;

    /// Asks whether a delivery of `message` had its effect. `None` if this destination cannot be
    /// asked.
    fn probe<'a>(&'a self, message: &'a ClaimedMessage) -> Option<BoxFuture<'a, Probed>>;
}

impl ClaimedMessage {
    /// Returns the key by which the destination recognises the message, the same in every delivery: see
    /// [`wire_key`].
    pub fn wire_key(&self) -> String {
        wire_key(&self.derived_key, self.record)
    }

    /// The claim under which it is carried.
    pub fn claim(&self) -> Claim {
        Claim {
            number: self.number,
            fence: self.fence,
            claimed_at: self.claimed_at,
            delivery_count: self.delivery_count,
            lapse_count: self.lapse_count,
            maybe_sent_at: self.maybe_sent_at,
            status: self.status,
            problem: self.problem.clone(),
        }
    }
}

impl Delivery {
    /// An ending with its story; nothing else is known.
    pub fn new(ending: Ending, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { ending, status: None, detail, retry_after: None, is_overloaded: false }
    }

    /// Adds the HTTP status.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }
}

impl Ending {
    /// The word used in SQL, listings and metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Delivered(_) => "delivered",
            Self::Refused => "refused",
            Self::Retry => "retry",
            Self::NotThere => "not_there",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for MessageNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ClaimedMessage {
    /// Neither the key nor the payload: both are other people's data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimedMessage")
            .field("number", &self.number)
            .field("fence", &self.fence)
            .field("destination", &self.destination)
            .field("delivery_count", &self.delivery_count)
            .field("maybe_sent_at", &self.maybe_sent_at)
            .finish_non_exhaustive()
    }
}
