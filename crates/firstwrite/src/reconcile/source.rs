//! Where a provider's account of what it did comes from.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use firstwrite_core::reconcile::{Theirs, Window};
use firstwrite_core::{BoxFuture, Timestamp};

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

    /// Says that the account is an export: a copy of some moment, which may be long ago. A run over an
    /// export does not move the window of the scheduled ones.
    fn as_export(&self) -> Option<Export> {
        None
    }
}

/// An account that is a copy of some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Export {
    /// When the export was made, if a person states it. It reaches to its newest match otherwise.
    pub until: Option<Timestamp>,
}

/// One page of a provider's account.
#[derive(Debug, Default)]
pub struct SourcePage {
    /// What it did.
    pub entries: Vec<Theirs>,
    /// What is there and cannot be understood: then the account is not whole.
    pub flaws: Vec<Flaw>,
    /// Where the next page starts, if there is one.
    pub next: Option<String>,
}

/// Something in an account that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// Where it stands: a line of a file, an item of a list.
    pub place: String,
    /// What is wrong with it; never what it says, which may be anybody's data.
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

    /// How long the provider asked to be left alone.
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

    /// Whether another try may succeed.
    pub fn is_transient(&self) -> bool {
        self.is_transient
    }

    /// How long to wait with it, if the provider said so.
    pub fn asked_pause(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl Flaw {
    /// What is wrong with the item at `place`.
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
