//! Messages and destinations as an operator sees them.

use crate::{Audited, Fence, RecordId, Tenant, Timestamp};

use super::{MessageContent, MessageNumber, Receipt};

/// State of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MessageState {
    /// It is due, or will be.
    Waiting,
    /// A worker has claimed it.
    Sending,
    /// It is unknown whether it arrived; it waits for proof.
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
    /// Only those that were written for this record.
    pub record: Option<RecordId>,
    /// Only later ones than this.
    pub after: Option<MessageNumber>,
    /// At most this many, and never more than [`Self::LIMIT_MAX`].
    pub limit: usize,
}

/// A number that was counted up to a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Number counted, at most the bound.
    pub count: usize,
    /// True if there are more.
    pub is_more: bool,
}

/// One page of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessagePage {
    /// The messages, the oldest first.
    pub messages: Vec<MessageView>,
    /// Number after which the next page starts, if there is one.
    pub next: Option<MessageNumber>,
    /// The store's clock when the page was read.
    pub now: Timestamp,
}

/// A message, without its payload.
#[derive(Clone, PartialEq, Eq)]
pub struct MessageView {
    /// Which message it is.
    pub number: MessageNumber,
    /// The record under which it was written.
    pub record: RecordId,
    /// The tenant that the message belongs to.
    pub tenant: Tenant,
    /// `<client key>:<step>`.
    pub derived_key: String,
    /// Name of the destination.
    pub destination: String,
    /// The order it belongs to, if any.
    pub ordering_key: Option<String>,
    /// Time at which it was written.
    pub created_at: Timestamp,
    /// State of the message.
    pub state: MessageState,
    /// The fence of its last claim; guards what an operator does.
    pub fence: Fence,
    /// Time at which it is due, if it waits by itself. `None` while it waits for its predecessor.
    pub due_at: Option<Timestamp>,
    /// Number of deliveries, whether or not they count towards the destination's limit. A redrive does not
    /// reset it.
    pub delivery_count: u32,
    /// Earliest time at which it may have arrived.
    pub maybe_sent_at: Option<Timestamp>,
    /// Time of its last claim or, if it is settled, of the settlement: the message has not been sent later
    /// than one claim lease after this. `None` if it was never claimed.
    pub handled_at: Option<Timestamp>,
    /// The HTTP status of the last delivery that went wrong.
    pub status: Option<u16>,
    /// Problem with the last delivery, in a few words.
    pub problem: Option<String>,
    /// Receipt, if it is known to have arrived.
    pub receipt: Option<Receipt>,
    /// Size of the payload in bytes.
    pub payload_bytes: usize,
}

/// Everything about one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageStory {
    /// The message.
    pub message: MessageView,
    /// Its content.
    pub content: MessageContent,
    /// Its deliveries, the oldest first; the last hundred at most.
    pub deliveries: Vec<PastDelivery>,
    /// Operators' actions on its record and its messages.
    pub audits: Vec<Audited>,
    /// The store's clock when it was read.
    pub now: Timestamp,
}

/// A delivery that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastDelivery {
    /// Time at which it was written to the history.
    pub at: Timestamp,
    /// The claim under which it was made.
    pub fence: Fence,
    /// Ending of the delivery: delivered, refused, retry, `not_there`, unknown or dropped.
    pub ending: String,
    /// The HTTP status, where there was one.
    pub status: Option<u16>,
    /// Description in a few words.
    pub detail: String,
    /// The provider's id of what it made of the message, if it gave one.
    pub provider_id: Option<String>,
}

/// A destination and how it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationView {
    /// Its name.
    pub name: String,
    /// Reason and author of the pause, if it is paused.
    pub paused: Option<Audited>,
    /// Time until which its breaker is open, if it is; a past time means that a trial is due.
    pub open_until: Option<Timestamp>,
    /// Cause of the opening.
    pub open_cause: Option<String>,
    /// Number of openings in a row.
    pub opening_count: u32,
    /// Messages that wait or are being sent.
    pub open_count: i64,
    /// Messages of which it is unknown whether they arrived.
    pub unknown_count: i64,
    /// Dead letters.
    pub dead_count: i64,
    /// Messages that arrived, ever.
    pub delivered_count: i64,
    /// Time at which the oldest message that is due became due.
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

    /// Returns true if the state never changes again.
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
    /// Handlers write a few messages each; more than a screenful is not useful to a reader.
    pub const OF_RECORD_MAX: usize = 100;
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
