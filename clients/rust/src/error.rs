//! Errors around an intent. The end of the action itself is an [`End`](crate::End), and no error.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::BoxError;
use crate::end::EndKind;
use crate::entry::Entry;

use crate::storage::StorageError;

/// Something went wrong, or time was up. The intent stands as it stood, and may be sent again.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// `wait_for` ran out before there was an end. The intent goes on by the next `send`, or in the queue.
    Pending(Pending),
    /// An intent of this name stands with another request. Nothing was sent.
    IntentConflict {
        /// The name.
        intent: String,
        /// The parts that differ: `method`, `url`, `headers`, `body`; or `lane`, where it stands outside of the queue
        /// or in another lane.
        differing: Vec<&'static str>,
    },
    /// No intent of this name stands: it was never opened, or is acknowledged.
    NoIntent {
        /// The name.
        intent: String,
    },
    /// The intent has no end that could be acknowledged.
    NotEnded {
        /// The name.
        intent: String,
    },
    /// The intent stands in a lane, in whose order only the queue sends it, and takes its effect back.
    InLane {
        /// The name.
        intent: String,
        /// The lane.
        lane: String,
    },
    /// Only an unknown end can be resumed.
    NotUnknown {
        /// The name.
        intent: String,
        /// The end it has.
        end: Option<EndKind>,
    },
    /// The action may have been carried out, or was, so it must not be sent under a new key.
    NewKeyUnsafe {
        /// The name.
        intent: String,
        /// The end it has.
        end: Option<EndKind>,
    },
    /// A key is derived from the name, so another life of the name would have the same one.
    KeyIsDerived {
        /// The name.
        intent: String,
    },
    /// The name is empty or over 255 bytes. Nothing was written.
    Name {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The request makes no sense, or is over a limit. Nothing was written.
    Request {
        /// The name of the intent.
        intent: String,
        /// The fault.
        problem: String,
        /// The error that found it.
        source: Option<BoxError>,
    },
    /// There are as many entries as [`entries_max`](crate::Builder::entries_max) allows. Nothing was written.
    TooManyEntries {
        /// The limit.
        entries_max: usize,
    },
    /// The storage failed.
    Storage(StorageError),
    /// An entry cannot be read. It is left where it is.
    Damaged {
        /// The name of the intent.
        intent: String,
        /// The fault.
        problem: String,
        /// The lane of the queue in which it stands, where that can still be known.
        lane: Option<String>,
    },
    /// The provider of credentials failed. Nothing was sent.
    Credentials(BoxError),
    /// The application's `seal` failed. Nothing was written.
    Seal(BoxError),
    /// A hook of the queue failed, and is called again.
    Hook {
        /// The name of the intent.
        intent: String,
        /// Which hook.
        hook: &'static str,
        /// Its error.
        source: BoxError,
    },
    /// The system gave no randomness for a key. Nothing was written.
    Randomness(BoxError),
}

/// An intent that has no end yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its name.
    pub intent: String,
    /// The number of attempts that were begun.
    pub attempts: u32,
    /// True if an attempt may have been carried out.
    pub is_in_doubt: bool,
    /// The time that is left before the next attempt.
    pub wait_left: Duration,
}

impl Pending {
    pub(crate) fn of(entry: &Entry, wait_left: Duration) -> Self {
        Self {
            intent: entry.name.clone(),
            attempts: entry.attempts,
            is_in_doubt: entry.doubt,
            wait_left,
        }
    }
}

impl Error {
    /// The intent that has no end yet, where this is no more than that.
    pub fn pending(&self) -> Option<&Pending> {
        if let Self::Pending(pending) = self { Some(pending) } else { None }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending(Pending { intent, attempts, is_in_doubt, .. }) => {
                let doubt = if *is_in_doubt { "; it may have happened" } else { "" };
                write!(
                    f,
                    "the intent {intent:?} has no end yet after {attempts} attempts{doubt}; send it again"
                )
            }
            Self::IntentConflict { intent, differing } => {
                let differing = differing.join(", ");
                write!(
                    f,
                    "the intent {intent:?} stands with another request ({differing} differ); nothing was sent"
                )
            }
            Self::NoIntent { intent } => {
                write!(f, "no intent {intent:?} stands: it was never opened, or is acknowledged")
            }
            Self::NotEnded { intent } => {
                write!(f, "the intent {intent:?} has no end that could be acknowledged; send it")
            }
            Self::InLane { intent, lane } => {
                write!(
                    f,
                    "the intent {intent:?} stands in the lane {lane:?}; only the queue sends it and takes it back"
                )
            }
            Self::NotUnknown { intent, end } => {
                write!(f, "the intent {intent:?} cannot be resumed: {}", Self::standing(*end))
            }
            Self::NewKeyUnsafe { intent, end } => {
                let standing = Self::standing(*end);
                write!(f, "the intent {intent:?} must not have a new key: {standing}")
            }
            Self::KeyIsDerived { intent } => {
                write!(f, "the key of {intent:?} is derived from the name; take another name")
            }
            Self::Name { bytes: 0 } => f.write_str("the name of an intent is empty"),
            Self::Name { bytes } => {
                write!(f, "the name of an intent has {bytes} bytes; at most 255 are allowed")
            }
            Self::Request { intent, problem, source } => {
                write!(f, "the request of {intent:?} cannot be sent: {problem}")?;
                source.as_ref().map_or(Ok(()), |source| write!(f, ": {source}"))
            }
            Self::TooManyEntries { entries_max } => {
                write!(f, "{entries_max} intents stand already; acknowledge those that ended")
            }
            Self::Storage(error) => error.fmt(f),
            Self::Damaged { intent, problem, .. } => {
                write!(f, "the entry of {intent:?} cannot be read and is left as it is: {problem}")
            }
            Self::Credentials(error) => {
                write!(f, "there are no credentials; nothing was sent: {error}")
            }
            Self::Seal(error) => write!(f, "a body cannot be sealed; nothing was written: {error}"),
            Self::Hook { intent, hook, source } => {
                write!(f, "the hook `{hook}` failed for {intent:?}: {source}")
            }
            Self::Randomness(error) => {
                write!(f, "the system gave no random bytes for a key: {error}")
            }
        }
    }
}

impl Error {
    fn standing(end: Option<EndKind>) -> String {
        end.map_or("it has no end yet".to_owned(), |end| format!("it ended {end}"))
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Storage(error) => Some(error),
            Self::Credentials(source)
            | Self::Seal(source)
            | Self::Hook { source, .. }
            | Self::Randomness(source)
            | Self::Request { source: Some(source), .. } => Some(source.as_ref()),
            Self::Pending(_)
            | Self::IntentConflict { .. }
            | Self::NoIntent { .. }
            | Self::NotEnded { .. }
            | Self::InLane { .. }
            | Self::NotUnknown { .. }
            | Self::NewKeyUnsafe { .. }
            | Self::KeyIsDerived { .. }
            | Self::Name { .. }
            | Self::Request { source: None, .. }
            | Self::TooManyEntries { .. }
            | Self::Damaged { .. } => None,
        }
    }
}

impl From<StorageError> for Error {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}
