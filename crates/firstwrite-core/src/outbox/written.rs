//! Messages as a reconciliation reads them: with what was to be delivered.

use std::fmt;

use bytes::Bytes;

use super::{Answers, MessageNumber, MessageView};
use crate::Timestamp;

/// Which messages are to be compared.
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
    /// At most this many; outboxes cap it at [`Self::LIMIT_MAX`].
    pub limit: usize,
}

/// A message with its payload.
#[derive(Clone, PartialEq, Eq)]
pub struct Written {
    /// The message and how far it has come.
    pub view: MessageView,
    /// What the payload is.
    pub content_type: String,
    /// What is delivered.
    pub payload: Bytes,
    /// What the record's interim answer is replaced with, if this message decides that.
    pub answers: Option<Box<Answers>>,
    /// When it was last claimed, or, if it is settled, when that was written down: later than this, by
    /// the length of a claim's lease, it has not been sent. `None` if it was never claimed.
    pub handled_at: Option<Timestamp>,
}

/// One page of messages with their payloads. It may have fewer than asked for, or none, and a next page
/// all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenPage {
    /// The messages, the oldest first.
    pub messages: Vec<Written>,
    /// Where the next page starts, if there is one.
    pub next: Option<MessageNumber>,
    /// The store's clock when the page was read.
    pub now: Timestamp,
}

impl WrittenQuery {
    /// Payloads are a few kilobytes as a rule, so a page is a few megabytes.
    pub const LIMIT_MAX: usize = 1000;
    /// Where they are not, a page ends early.
    pub const PAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
}

impl fmt::Debug for Written {
    /// Not the payload: it is other people's data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Written")
            .field("view", &self.view)
            .field("payload_bytes", &self.payload.len())
            .field("handled_at", &self.handled_at)
            .finish_non_exhaustive()
    }
}
