//! Reading messages: bounded looks at what an outbox keeps, and messages as a reconciliation reads them.

use std::fmt;

use bytes::Bytes;

use super::{Answers, MessageNumber, MessageQuery, MessageState, MessageView};
use crate::{RecordId, Timestamp};

/// One bounded look at messages, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The messages to look at.
    pub among: Among,
    /// Messages to this destination are read with their content.
    pub contents_to: Option<String>,
    /// Only later ones than this.
    pub after: Option<MessageNumber>,
    /// At most this many; outboxes cap it at [`Self::LIMIT_MAX`].
    pub limit: usize,
}

/// The messages that a scan looks at: what an outbox finds without looking at all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Among {
    /// Every message.
    Everything,
    /// Those that are not settled.
    Pending,
    /// Those of which it is unknown whether they arrived.
    Unknown,
    /// Dead letters.
    Dead,
    /// Those that were written for this record. A person asks this now and then, so no index serves it.
    Record(RecordId),
    /// Those with this derived key; without an index as well.
    Key(String),
}

/// The part of a message that is delivered, and what follows from its delivery.
#[derive(Clone, PartialEq, Eq)]
pub struct MessageContent {
    /// Media type of the payload.
    pub content_type: String,
    /// Bytes to deliver.
    pub payload: Bytes,
    /// Outcomes that can replace the record's interim answer, if this message decides it.
    pub answers: Option<Box<Answers>>,
}

/// A message that a scan found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// The message and how far it has come.
    pub view: MessageView,
    /// Its content, if the scan asked for it.
    pub content: Option<MessageContent>,
}

/// The answer to a scan. It may have fewer messages than asked for, or none, and a next page all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanPage {
    /// The messages, the oldest first.
    pub messages: Vec<Scanned>,
    /// Number after which the next page starts, if there is one.
    pub next: Option<MessageNumber>,
    /// The store's clock when the page was read.
    pub now: Timestamp,
}

/// Which messages are to be compared with what their destination says it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenQuery {
    /// To this destination.
    pub destination: String,
    /// Written at this time or later.
    pub from: Timestamp,
    /// Written before this time.
    pub until: Timestamp,
    /// Only later ones than this.
    pub after: Option<MessageNumber>,
    /// At most this many, and never more than [`Self::LIMIT_MAX`].
    pub limit: usize,
}

/// A message with its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The message and how far it has come.
    pub view: MessageView,
    /// Its content.
    pub content: MessageContent,
}

/// One page of messages with their contents. It may have fewer than asked for, or none, and a next page
/// all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenPage {
    /// The messages, the oldest first.
    pub messages: Vec<Written>,
    /// Number after which the next page starts, if there is one.
    pub next: Option<MessageNumber>,
    /// The store's clock when the page was read.
    pub now: Timestamp,
}

impl Scan {
    /// A look that holds no snapshot for long.
    pub const LIMIT_MAX: usize = 1000;

    /// Number of messages to read: one more than are returned, which tells whether there is a next page.
    pub fn row_max(&self) -> usize {
        self.limit.clamp(1, Self::LIMIT_MAX) + 1
    }

    /// Number after which to begin. Numbers are not negative.
    pub fn begin(&self) -> i64 {
        self.after.map_or(-1, |after| after.0)
    }
}

impl ScanPage {
    /// The page of the messages that were read for `scan`, [`Scan::row_max`] at most.
    pub fn new(mut messages: Vec<Scanned>, scan: &Scan, now: Timestamp) -> Self {
        let limit = scan.row_max() - 1;
        let next = (messages.len() > limit).then(|| messages[limit - 1].view.number);
        messages.truncate(limit);
        Self { messages, next, now }
    }
}

impl WrittenQuery {
    /// Payloads are a few kilobytes as a rule, so a page is a few megabytes.
    pub const LIMIT_MAX: usize = 1000;
    /// Size limit of a page: with larger payloads, a page ends early.
    pub const PAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

    /// Returns true if this message is meant.
    pub(super) fn matches(&self, view: &MessageView) -> bool {
        view.destination == self.destination && (self.from..self.until).contains(&view.created_at)
    }
}

impl MessageQuery {
    /// The fewest messages that hold all that match.
    pub(super) fn among(&self) -> Among {
        match (&self.derived_key, self.record, self.state) {
            (Some(key), _, _) => Among::Key(key.clone()),
            (None, Some(record), _) => Among::Record(record),
            (None, None, Some(MessageState::Unknown)) => Among::Unknown,
            (None, None, Some(MessageState::Dead)) => Among::Dead,
            (None, None, Some(MessageState::Waiting | MessageState::Sending)) => Among::Pending,
            (
                None,
                None,
                None
                | Some(MessageState::Delivered | MessageState::Refused | MessageState::Dropped),
            ) => Among::Everything,
        }
    }

    /// Returns true if this message is meant.
    pub(super) fn matches(&self, view: &MessageView) -> bool {
        let has_problem = |text: &String| {
            view.problem.as_ref().is_some_and(|problem| problem.contains(text))
                || view.status.is_some_and(|status| status.to_string() == *text)
        };
        self.destination.as_ref().is_none_or(|name| view.destination == *name)
            && self.state.is_none_or(|state| view.state == state)
            && self.tenant.as_ref().is_none_or(|tenant| view.tenant == *tenant)
            && self.problem.as_ref().is_none_or(has_problem)
            && self.derived_key.as_ref().is_none_or(|key| view.derived_key == *key)
            && self.record.is_none_or(|record| view.record == record)
    }
}

impl fmt::Debug for MessageContent {
    /// Not the payload: it is other people's data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageContent")
            .field("content_type", &self.content_type)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}
