//! Messages and destinations as an operator sees them.

use bytes::Bytes;

use crate::{Audited, Fence, RecordId, Tenant, Timestamp};

use super::{Answers, MessageNumber, Receipt};

/// How far a message has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MessageState {
    /// It is due, or will be.
    Waiting,
    /// A worker has claimed it.
    Sending,
    /// Whether it arrived nobody knows; it waits for proof.
    Unknown,
    /// It is no longer delivered by itself.
    Dead,
    /// It arrived.
    Delivered,
    /// It never will arrive, and its client was told so.
    Refused,
    /// An operator gave it up.
    Dropped,
}

/// Which messages are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageQuery {
    /// Only to this destination.
    pub destination: Option<String>,
    /// Only in this state.
    pub state: Option<MessageState>,
    /// Only this tenant's.
    pub tenant: Option<Tenant>,
    /// Only those whose last delivery's status or detail contains this text.
    pub problem: Option<String>,
    /// Only the one with this derived key.
    pub derived_key: Option<String>,
    /// Only later ones than this.
    pub after: Option<MessageNumber>,
    /// At most this many; outboxes cap it at [`Self::LIMIT_MAX`].
    pub limit: usize,
}

/// A number that was counted up to a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// How many, or the bound.
    pub count: usize,
    /// Whether there are more.
    pub is_more: bool,
}

/// One page of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessagePage {
    /// The messages, the oldest first.
    pub messages: Vec<MessageView>,
    /// Where the next page starts, if there is one.
    pub next: Option<MessageNumber>,
    /// The store's clock when the page was read.
    pub now: Timestamp,
}

/// A message, without its payload.
#[derive(Clone, PartialEq, Eq)]
pub struct MessageView {
    /// Which message it is.
    pub number: MessageNumber,
    /// Under which record it was written.
    pub record: RecordId,
    /// Whose message it is.
    pub tenant: Tenant,
    /// `<client key>:<step>`.
    pub derived_key: String,
    /// Where it goes.
    pub destination: String,
    /// The order it belongs to, if any.
    pub ordering_key: Option<String>,
    /// When it was written.
    pub created_at: Timestamp,
    /// How far it has come.
    pub state: MessageState,
    /// The fence of its last claim; guards what an operator does.
    pub fence: Fence,
    /// When it is due, if it waits by itself. `None` while it waits for its predecessor.
    pub due_at: Option<Timestamp>,
    /// How many deliveries have counted.
    pub delivery_count: u32,
    /// When it may first have arrived.
    pub maybe_sent_at: Option<Timestamp>,
    /// When it was last claimed, unless it is settled: see [`absence_shows_from`].
    ///
    /// [`absence_shows_from`]: super::absence_shows_from
    pub claimed_at: Option<Timestamp>,
    /// The HTTP status of the last delivery that went wrong.
    pub status: Option<u16>,
    /// What went wrong, in a few words.
    pub problem: Option<String>,
    /// That it arrived, if that is known.
    pub receipt: Option<Receipt>,
    /// How many bytes the payload has.
    pub payload_bytes: usize,
}

/// Everything about one message.
#[derive(Clone, PartialEq, Eq)]
pub struct MessageStory {
    /// The message.
    pub message: MessageView,
    /// What the payload is.
    pub content_type: String,
    /// What is delivered.
    pub payload: Bytes,
    /// What the record's interim answer is replaced with, if this message decides that.
    pub answers: Option<Box<Answers>>,
    /// Its deliveries, the oldest first; the last hundred at most.
    pub deliveries: Vec<PastDelivery>,
    /// What operators did to its record and its messages.
    pub audits: Vec<Audited>,
    /// The store's clock when it was read.
    pub now: Timestamp,
}

/// A delivery that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastDelivery {
    /// When it was written down.
    pub at: Timestamp,
    /// The claim under which it was made.
    pub fence: Fence,
    /// How it ended: delivered, refused, retry or unknown.
    pub ending: String,
    /// The HTTP status, where there was one.
    pub status: Option<u16>,
    /// What happened, in a few words.
    pub detail: String,
    /// What the provider called what it made of it.
    pub provider_id: Option<String>,
}

/// A destination and how it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationView {
    /// Its name.
    pub name: String,
    /// Why and by whom it is paused, if it is.
    pub paused: Option<Audited>,
    /// Until when it is left alone, if it is; a past time means that it is due for a trial.
    pub open_until: Option<Timestamp>,
    /// Why it is left alone.
    pub open_cause: Option<String>,
    /// How often in a row it was left alone.
    pub opening_count: u32,
    /// Messages that wait or are being sent.
    pub open_count: i64,
    /// Messages of which nobody knows whether they arrived.
    pub unknown_count: i64,
    /// Dead letters.
    pub dead_count: i64,
    /// Messages that arrived, ever.
    pub delivered_count: i64,
    /// When the oldest message that is due became due.
    pub oldest_due_at: Option<Timestamp>,
}

impl MessageState {
    /// Every state, in the order in which a message can come to it.
    pub const ALL: [Self; 7] = [
        Self::Waiting,
        Self::Sending,
        Self::Unknown,
        Self::Dead,
        Self::Delivered,
        Self::Refused,
        Self::Dropped,
    ];

    /// Whether nothing can become of it any more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Delivered | Self::Refused | Self::Dropped)
    }

    /// The word used in SQL, listings and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Sending => "sending",
            Self::Unknown => "unknown",
            Self::Dead => "dead",
            Self::Delivered => "delivered",
            Self::Refused => "refused",
            Self::Dropped => "dropped",
        }
    }
}

impl MessageQuery {
    /// A page that a person can read and a connection can carry.
    pub const LIMIT_MAX: usize = 1000;
    /// A preview says "more than" beyond this.
    pub const COUNT_MAX: usize = 100_000;
}

impl std::fmt::Debug for MessageView {
    /// Not the key: it is other people's data.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageView")
            .field("number", &self.number)
            .field("destination", &self.destination)
            .field("state", &self.state)
            .field("delivery_count", &self.delivery_count)
            .field("status", &self.status)
            .field("problem", &self.problem)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for MessageStory {
    /// Not the payload: it is other people's data.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageStory")
            .field("message", &self.message)
            .field("content_type", &self.content_type)
            .field("deliveries", &self.deliveries)
            .field("audits", &self.audits)
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}
