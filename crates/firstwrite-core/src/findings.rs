//! Findings: what a reconciliation could not settle by itself, until a person has.
//!
//! A finding is about one discrepancy: a source, a kind and a subject. Seen again, it is the same finding,
//! seen once more; it is never listed twice. A person makes it their own and, in the end, closes it: as
//! *fixed*, and then it is open again if it is seen again, or as *accepted*, and then it stays closed
//! unless something about it changes.
//!
//! `rules.rs` says what becomes of a finding, `encoding.rs` how it is written in a
//! [document](crate::documents), and [`Findings`] carries both out over any store of documents.

mod encoding;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod limits;
mod protocol;
mod query;
mod rules;

use std::fmt;
use std::time::Duration;

pub use limits::{Closing, FindingError, Owner};
pub use protocol::Findings;
pub use query::{FindingPage, FindingQuery, FindingStory};

use crate::outbox::MessageNumber;
use crate::{RecordId, Timestamp};

/// Time for which a closed finding is kept: longer than a year, because books are closed once a year and
/// the findings of the last closing must still be there.
pub const FINDINGS_KEPT_FOR: Duration = Duration::from_hours(400 * 24);

/// The number of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FindingNumber(pub i64);

/// Kind of discrepancy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FindingKind {
    /// The provider did something that this system did not ask for.
    MissingHere,
    /// It was delivered, and the provider does not have it.
    MissingThere,
    /// Both have it, and do not agree.
    Differs,
    /// The provider did more than once what was asked for once.
    Duplicate,
    /// It is unknown whether the message or request arrived, and the provider has something similar.
    Likely,
    /// It is unknown whether the message or request arrived, the provider does not list it, and its account
    /// does not prove absence.
    Unproven,
}

/// A discrepancy, as a run sees it. Its kind and subject, with the source, are what it is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFinding {
    /// Kind of the discrepancy.
    pub kind: FindingKind,
    /// Subject, in a few words that stay the same from run to run.
    pub subject: String,
    /// Description for people. If it changes, an accepted finding is opened again.
    pub detail: String,
    /// The record it is about, if it is about one.
    pub record: Option<RecordId>,
    /// The message it is about, if it is about one.
    pub message: Option<MessageNumber>,
    /// The provider's id of the object.
    pub provider_id: Option<String>,
}

/// Result of noting a discrepancy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// It is a new finding.
    New(FindingNumber),
    /// It is open already.
    Known(FindingNumber),
    /// It had been closed, and is open again.
    Reopened(FindingNumber),
    /// It is closed, and stays so.
    Closed(FindingNumber),
}

/// A finding as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which one it is.
    pub number: FindingNumber,
    /// Which source it is of.
    pub source: String,
    /// The discrepancy, as last seen while the finding was open.
    pub found: NewFinding,
    /// Time at which it was first seen.
    pub first_seen: Timestamp,
    /// Time at which it was last seen.
    pub last_seen: Timestamp,
    /// Number of times it was opened again.
    pub reopened_count: u32,
    /// The person or team that owns it.
    pub owner: Option<String>,
    /// Details of its closing, if it is closed.
    pub closed: Option<Closed>,
}

/// Details of a finding's closing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Time of the closing.
    pub at: Timestamp,
    /// The person who closed it.
    pub by: String,
    /// Kind of closing, and the reason.
    pub closing: Closing,
}

/// Record of a complete run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Time at which the run began.
    pub at: Timestamp,
    /// Time up to which the provider gave account.
    pub until: Timestamp,
    /// Time from which the next run must look again: nothing that was too early to judge is older.
    pub again_from: Timestamp,
}

impl FindingKind {
    /// Every kind.
    pub const ALL: [Self; 6] = [
        Self::MissingHere,
        Self::MissingThere,
        Self::Differs,
        Self::Duplicate,
        Self::Likely,
        Self::Unproven,
    ];

    /// The word used in documents, listings and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MissingHere => "missing_here",
            Self::MissingThere => "missing_there",
            Self::Differs => "differs",
            Self::Duplicate => "duplicate",
            Self::Likely => "likely",
            Self::Unproven => "unproven",
        }
    }

    /// From that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

impl fmt::Display for FindingNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
