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
pub struct Parcel {
    /// Which message it is.
    pub number: MessageNumber,
    /// The claim's own; every later write about this delivery carries it.
    pub fence: Fence,
    /// Under which record it was written.
    pub record: RecordId,
    /// Whose message it is.
    pub tenant: Tenant,
    /// `<client key>:<step>`, for people and for the record's owner.
    pub derived_key: String,
    /// Where it goes.
    pub destination: String,
    /// What the payload is.
    pub content_type: String,
    /// What is delivered.
    pub payload: Bytes,
    /// The order it belongs to, if any.
    pub ordering_key: Option<String>,
    /// When it was written.
    pub created_at: Timestamp,
    /// How many deliveries have counted so far.
    pub delivery_count: u32,
    /// How many claims in a row ran out without a word.
    pub lapse_count: u32,
    /// Whether it goes to see if a destination that was out of order is back.
    pub is_trial: bool,
    /// When it may first have reached the destination, if it may have. This claim's own sending is
    /// not in it.
    pub maybe_sent_at: Option<Timestamp>,
    /// What an earlier delivery of it is known to have brought about: then only settling is left.
    pub receipt: Option<Receipt>,
    /// What the record's interim answer is replaced with, if this message decides that.
    pub answers: Option<Box<Answers>>,
}

/// That a message arrived, and what the provider called what it made of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// The provider's own id, if it gave one.
    pub provider_id: Option<String>,
}

/// How one handing-over ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// What it means for the message.
    pub ending: Ending,
    /// The HTTP status, where there was one.
    pub status: Option<u16>,
    /// What happened, in a few words for people; never a payload, a key or a secret.
    pub detail: String,
    /// How long the destination asked to be left alone.
    pub retry_after: Option<Duration>,
    /// Whether the destination said that it is asked too much.
    pub is_overloaded: bool,
}

/// What the end of a handing-over means for the message.
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
    /// It was sent, and whether it had its effect nobody knows.
    Unknown,
}

/// What a destination says when it is asked whether a message had its effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probed {
    /// It did.
    Happened(Receipt),
    /// It did not, and no earlier delivery is still under way there.
    NotHappened,
    /// It did not say: in a few words, why.
    Silent(String),
}

/// Carries messages to one destination.
///
/// Implementations hold no state about messages and decide nothing about them: they hand over once,
/// within their own time limit, and say how it ended.
pub trait Carrier: fmt::Debug + Send + Sync + 'static {
    /// Hands `parcel` over, once, under its wire key. Dropping the future breaks the delivery off:
    /// it may have been sent then.
    fn carry<'a>(&'a self, parcel: &'a Parcel) -> BoxFuture<'a, Delivery>;

    /// Asks whether a delivery of `parcel` had its effect. `None` if this destination cannot be
    /// asked.
    fn probe<'a>(&'a self, parcel: &'a Parcel) -> Option<BoxFuture<'a, Probed>>;
}

impl Parcel {
    /// What the destination knows it by, the same in every delivery: see [`wire_key`].
    pub fn wire_key(&self) -> String {
        wire_key(&self.derived_key, self.record)
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

impl fmt::Debug for Parcel {
    /// Neither the key nor the payload: both are other people's data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parcel")
            .field("number", &self.number)
            .field("fence", &self.fence)
            .field("destination", &self.destination)
            .field("delivery_count", &self.delivery_count)
            .field("maybe_sent_at", &self.maybe_sent_at)
            .finish_non_exhaustive()
    }
}
