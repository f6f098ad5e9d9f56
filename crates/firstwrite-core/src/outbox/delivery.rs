//! One handing-over of a message: what is handed over, who carries it, and how that ends.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use super::Answers;
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

/// What most destinations take as a key; our own limit for clients, too.
const WIRE_KEY_BYTES_MAX: usize = 255;

/// The key that goes over the wire: the derived key and a mark of whose it is.
///
/// Tenants choose their keys apart from each other, and often alike (`order-1`), but may share one
/// account at the destination. Without the mark the second tenant's payment would be taken for
/// a repetition of the first's. A key that would be too long is given by the record's id.
pub fn wire_key(derived_key: &str, record: RecordId) -> String {
    let id = record.to_string();
    let mark = id.get(..16).unwrap_or(&id);
    let key = format!("{derived_key}:{mark}");
    if key.len() <= WIRE_KEY_BYTES_MAX {
        return key;
    }
    let step = derived_key.rsplit(':').next().unwrap_or_default();
    format!("{id}:{step}")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    fn wire(tenant: &str, key: &str, step: &str) -> String {
        let record = RecordId::of(&Tenant::new(tenant).unwrap(), &Key::new(key).unwrap());
        wire_key(&format!("{key}:{step}"), record)
    }

    #[test]
    fn two_tenants_with_one_key_are_told_apart_at_the_destination() {
        // Part of what destinations store: it must never change.
        assert_eq!(wire("acme", "order-1", "charge"), "order-1:charge:ef56e51bcb051fa4");
        assert_ne!(wire("acme", "order-1", "charge"), wire("other", "order-1", "charge"));
    }

    #[test]
    fn a_long_key_is_sent_as_the_records_id() {
        let key = "k".repeat(255);
        let long = wire("acme", &key, "charge");
        assert!(long.len() <= WIRE_KEY_BYTES_MAX && long.ends_with(":charge"), "{long}");
        assert_ne!(long, wire("acme", &key, "refund"));
        assert_ne!(long, wire("other", &key, "charge"));
    }
}
