//! Sources of a provider's account of what it did.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use firstwrite_core::reconcile::{Theirs, Window};
use firstwrite_core::{BoxFuture, Timestamp};

pub use crate::probe::list_end::StatedExtent;

/// A provider's account of what it did.
///
/// Implement it for whatever a provider offers that is neither a list by HTTP nor a file of CSV. An
/// account must be whole, and say so with a [`Flaw`] where it is not: what it leaves out between two entries
/// that match ours is taken as proof that it did not happen, and is done again.
pub trait Source: fmt::Debug + Send + Sync + 'static {
    /// One page of what was done in `window`; `cursor` is what the page before it gave as `next`.
    ///
    /// Entries outside of the window do no harm. An entry may be given twice, on two pages.
    fn pull<'a>(
        &'a self,
        window: Window,
        cursor: Option<&'a str>,
    ) -> BoxFuture<'a, Result<SourcePage, SourceError>>;

    /// Returns the export if the account is one: a copy of some moment, which may be long ago. A run over an
    /// export does not move the window of the scheduled ones.
    fn as_export(&self) -> Option<Export> {
        None
    }
}

/// An account that is a copy of some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Export {
    /// Time at which the export was made, if a person states it. Otherwise the export reaches to its newest
    /// match.
    pub until: Option<Timestamp>,
}

/// One page of a provider's account.
#[derive(Debug, Default)]
pub struct SourcePage {
    /// Entries that the provider reports.
    pub entries: Vec<Theirs>,
    /// Items that cannot be understood: then the account is not whole.
    pub flaws: Vec<Flaw>,
    /// Start of the next page, if there is one.
    pub next: Option<String>,
    /// Number of items that were read and are no entries: what failed, and what cannot be understood.
    pub passed_over: usize,
    /// The extent of the whole account that the page states. An account that has more than was read is not
    /// whole.
    pub stated: StatedExtent,
}

/// A part of an account that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// Its place: a line of a file, an item of a list.
    pub place: String,
    /// The problem; never the content, which may be personal data.
    pub detail: String,
}

/// A page that cannot be had.
#[derive(Debug)]
pub struct SourceError {
    detail: String,
    is_transient: bool,
    retry_after: Option<Duration>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl SourceError {
    /// It cannot be had, and trying again does not help.
    pub fn new(detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), is_transient: false, retry_after: None, source: None }
    }

    /// It cannot be had at the moment.
    pub fn transient(detail: impl Into<String>) -> Self {
        Self { is_transient: true, ..Self::new(detail) }
    }

    /// Sets the time for which the provider asked to be left alone.
    #[must_use]
    pub fn retry_after(mut self, retry_after: Option<Duration>) -> Self {
        self.retry_after = retry_after;
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Returns true if another try may succeed.
    pub fn is_transient(&self) -> bool {
        self.is_transient
    }

    /// Returns the time to wait before the next try, if the provider gave one.
    pub fn asked_pause(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl Flaw {
    /// Makes a flaw of the item at `place`.
    pub fn new(place: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { place: place.into(), detail: detail.into() }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.detail)
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)?;
        self.source.as_ref().map_or(Ok(()), |source| write!(f, ": {source}"))
    }
}

impl Error for SourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
