//! The inbox: makes a message from another system take effect once, however often it is delivered.

use std::fmt;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::{StoreError, StoreErrorKind, Timestamp};

/// The messages of one source that were consumed here.
///
/// Consuming is one insert in the consumer's own transaction: the effects of the message are committed with
/// it or not at all, so a consumed message is done, and one that was not consumed can be delivered again.
///
/// ```
/// # fn main() -> Result<(), firstwrite_core::InboxError> {
/// let inbox = firstwrite_core::Inbox::new("stripe")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inbox {
    source: String,
    kept_for: Duration,
}

/// Tells whether a message takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumed {
    /// It was not seen before: its effects are to be written in the same transaction.
    First,
    /// It was consumed before; nothing is to be done.
    Again {
        /// Time at which it was consumed.
        at: Timestamp,
    },
}

/// A name that cannot be a source's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboxError;

/// The step of a store that consumes a message.
const CONSUMING: &str = "consuming a message";

/// Prefix of the digested bytes, so that no id equals a digest of another kind.
const LABEL: &[u8] = b"firstwrite inbox";

impl Inbox {
    /// Sources are names in code and configuration, not data.
    pub const SOURCE_BYTES_MAX: usize = 64;
    /// Maximum length of a message id: longer than any in use, so a longer one is probably a payload.
    pub const MESSAGE_ID_BYTES_MAX: usize = 512;
    /// Default time for which a message is remembered: longer than senders redeliver. Most give up after
    /// three days, and a person who presses "send again" looks at this month.
    pub const KEPT_FOR: Duration = Duration::from_hours(30 * 24);

    /// Makes the inbox for messages of `source`: 1 to 64 visible characters. Two sources never share ids.
    pub fn new(source: &str) -> Result<Self, InboxError> {
        let is_name = (1..=Self::SOURCE_BYTES_MAX).contains(&source.len())
            && source.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_name {
            return Err(InboxError);
        }
        Ok(Self { source: source.to_owned(), kept_for: Self::KEPT_FOR })
    }

    /// Sets the minimum time for which a message is remembered: longer than its sender may deliver it
    /// again.
    #[must_use]
    pub fn kept_for(mut self, kept_for: Duration) -> Self {
        self.kept_for = kept_for;
        self
    }

    /// Returns the source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the minimum time for which a message is remembered.
    pub fn span(&self) -> Duration {
        self.kept_for
    }

    /// Returns the time until which a message consumed at `now` is remembered.
    pub fn kept_until(&self, now: Timestamp) -> Timestamp {
        now.plus(self.kept_for)
    }

    /// Returns the identity of a message: the first 16 bytes of SHA-256 over a label and the
    /// length-prefixed source and id. Refuses an id that no message can have.
    pub fn digest(&self, message_id: &str) -> Result<[u8; 16], StoreError> {
        if !(1..=Self::MESSAGE_ID_BYTES_MAX).contains(&message_id.len()) {
            let error = StoreError::definite(StoreErrorKind::Unsupported, CONSUMING);
            return Err(error.caused_by("a message's id is 1 to 512 bytes"));
        }
        let mut hash = Sha256::new();
        hash.update(LABEL);
        for part in [&self.source, message_id] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
        let digest: [u8; 32] = hash.finalize().into();
        Ok(*digest.first_chunk().expect("16 of 32 bytes"))
    }
}

impl fmt::Display for InboxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a source is 1 to 64 visible characters")
    }
}

impl std::error::Error for InboxError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(source: &str, message_id: &str) -> String {
        let digest = Inbox::new(source).unwrap().digest(message_id).unwrap();
        format!("{:032x}", u128::from_be_bytes(digest))
    }

    #[test]
    fn a_digest_keeps_source_and_id_apart() {
        assert_ne!(hex("a", "bc"), hex("ab", "c"));
        assert_ne!(hex("stripe", "evt_1"), hex("adyen", "evt_1"));
        // Part of what is stored: it must never change.
        assert_eq!(hex("stripe", "evt_1"), "b023a50447eb0a0b8cf27048f22fa088");
    }

    #[test]
    fn names_and_ids_are_bounded() {
        for name in ["", "a b", "ü", &"s".repeat(65)] {
            assert_eq!(Inbox::new(name), Err(InboxError), "{name}");
        }
        let inbox = Inbox::new(&"s".repeat(64)).unwrap();
        assert!(inbox.digest("").is_err() && inbox.digest(&"i".repeat(513)).is_err());
        assert!(inbox.digest(&"i".repeat(512)).is_ok());
    }
}
