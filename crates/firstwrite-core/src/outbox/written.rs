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
    /// Media type of the payload.
    pub content_type: String,
    /// Bytes to deliver.
    pub payload: Bytes,
    /// Outcomes that can replace the record's interim answer, if this message decides it.
    pub answers: Option<Box<Answers>>,
    /// Time of its last claim or, if it is settled, of the settlement: the message has not been sent later
    /// than one claim lease after this. `None` if it was never claimed.
    pub handled_at: Option<Timestamp>,
}

/// One page of messages with their payloads. It may have fewer than asked for, or none, and a next page
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

impl WrittenQuery {
    /// Payloads are a few kilobytes as a rule, so a page is a few megabytes.
    pub const LIMIT_MAX: usize = 1000;
    /// Size limit of a page: with larger payloads, a page ends early.
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
