//! Findings: what a reconciliation could not settle by itself, until a person has.
//!
//! A finding is about one discrepancy: a source, a kind and a subject. Seen again, it is the same finding,
//! seen once more; it is never listed twice. A person makes it their own and, in the end, closes it: as
//! *fixed*, and then it is open again if it is seen again, or as *accepted*, and then it stays closed
//! unless something about it changes.

mod limits;
mod query;

use std::fmt;
use std::time::Duration;

pub use limits::{Closing, FindingError, Owner};
pub use query::{FindingPage, FindingQuery, FindingStory};

use crate::outbox::MessageNumber;
use crate::{AuditEntry, BoxFuture, RecordId, StoreError, Timestamp};

/// Where findings are kept, and when each source was last compared.
pub trait Findings: fmt::Debug + Send + Sync {
    /// Writes down what a run of `source` saw at `seen_at`, in one commit: for each, what became of it.
    /// At most [`NOTED_MAX`] at a time.
    ///
    /// A finding that was closed later than `seen_at` is not opened again by it.
    fn note<'a>(
        &'a self,
        source: &'a str,
        found: &'a [NewFinding],
        seen_at: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<Noted>, StoreError>>;

    /// One page of findings, the oldest first.
    fn found<'a>(
        &'a self,
        query: &'a FindingQuery,
    ) -> BoxFuture<'a, Result<FindingPage, StoreError>>;

    /// Everything about one finding.
    fn finding(
        &self,
        number: FindingNumber,
    ) -> BoxFuture<'_, Result<Option<FindingStory>, StoreError>>;

    /// Makes a finding somebody's, or nobody's, with an audit entry in the same commit. `false` if there
    /// is no such finding.
    fn assign<'a>(
        &'a self,
        number: FindingNumber,
        owner: Option<&'a Owner>,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// Closes a finding that is open, with an audit entry in the same commit. `false` if there is none.
    fn close<'a>(
        &'a self,
        number: FindingNumber,
        closing: &'a Closing,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// How the last run of `source` that was complete ended.
    fn last_run<'a>(&'a self, source: &'a str) -> BoxFuture<'a, Result<Option<Run>, StoreError>>;

    /// Writes down that a run of `source` was complete. Forgets, meanwhile, up to [`NOTED_MAX`] findings
    /// that have been closed for [`FINDINGS_KEPT_FOR`].
    fn ran<'a>(&'a self, source: &'a str, run: &'a Run) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// A commit that nobody waits long for.
pub const NOTED_MAX: usize = 1000;

/// Books are closed once a year; whoever looks into the last one finds what was found then.
pub const FINDINGS_KEPT_FOR: Duration = Duration::from_hours(400 * 24);

/// The number of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FindingNumber(pub i64);

/// What kind of discrepancy it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FindingKind {
    /// The provider did something that nobody here asked for.
    MissingHere,
    /// It was delivered, and the provider does not have it.
    MissingThere,
    /// Both have it, and do not agree.
    Differs,
    /// The provider did more than once what was asked for once.
    Duplicate,
    /// Nobody knows whether it arrived, and something like it is there.
    Likely,
    /// Nobody knows whether it arrived, it is not there, and the account proves no absence.
    Unproven,
}

/// A discrepancy, as a run sees it. Its kind and subject, with the source, are what it is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFinding {
    /// What kind it is.
    pub kind: FindingKind,
    /// What it is about, in a few words that stay the same.
    pub subject: String,
    /// What was seen, for people. If it changes, a finding that was accepted is open again.
    pub detail: String,
    /// The record it is about, if it is about one.
    pub record: Option<RecordId>,
    /// The message it is about, if it is about one.
    pub message: Option<MessageNumber>,
    /// What the provider calls it.
    pub provider_id: Option<String>,
}

/// What became of a discrepancy that was noted.
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
    /// What was seen.
    pub found: NewFinding,
    /// When it was first seen.
    pub first_seen: Timestamp,
    /// When it was last seen.
    pub last_seen: Timestamp,
    /// How often it was opened again.
    pub reopened_count: u32,
    /// Whose it is.
    pub owner: Option<String>,
    /// How it was closed, if it is.
    pub closed: Option<Closed>,
}

/// How a finding was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// When.
    pub at: Timestamp,
    /// By whom.
    pub by: String,
    /// How, and why.
    pub closing: Closing,
}

/// How a run ended that was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// When it began.
    pub at: Timestamp,
    /// Up to when the provider gave account.
    pub until: Timestamp,
    /// From when on the next run must look again: what was too early to tell is not older.
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

    /// The word used in SQL, listings and metrics.
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

impl Finding {
    /// Says what a run does to this finding that saw `found` at `seen_at`.
    ///
    /// For stores that hold the finding in their hands; others put the same conditions into the statement
    /// that writes.
    pub fn seen_again(&self, found: &NewFinding, seen_at: Timestamp) -> Noted {
        match &self.closed {
            None => Noted::Known(self.number),
            // What was seen before it was closed is what was closed.
            Some(closed) if seen_at <= closed.at => Noted::Closed(self.number),
            Some(Closed { closing: Closing::Accepted(_), .. })
                if found.detail == self.found.detail =>
            {
                Noted::Closed(self.number)
            }
            Some(_) => Noted::Reopened(self.number),
        }
    }
}

impl fmt::Display for FindingNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
