//! Findings as an operator sees them.

use super::{Finding, FindingKind, FindingNumber};
use crate::{Audited, Timestamp};

/// Which findings are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FindingQuery {
    /// Only of this source.
    pub source: Option<String>,
    /// Only of this kind.
    pub kind: Option<FindingKind>,
    /// Only those that are open, or only those that are closed.
    pub is_open: Option<bool>,
    /// Only later ones than this.
    pub after: Option<FindingNumber>,
    /// At most this many, and at most [`Self::LIMIT_MAX`].
    pub limit: usize,
}

/// One page of findings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindingPage {
    /// The findings, the oldest first.
    pub findings: Vec<Finding>,
    /// The number after which the next page starts, if there may be one. A page that has one may be short.
    pub next: Option<FindingNumber>,
    /// The store's clock when the page was read.
    pub now: Timestamp,
}

/// Everything about one finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindingStory {
    /// The finding.
    pub finding: Finding,
    /// The latest changes that people made to it, the oldest first.
    pub audits: Vec<Audited>,
    /// Number of older changes that are no longer kept.
    pub audits_dropped: u32,
    /// The store's clock when it was read.
    pub now: Timestamp,
}

impl FindingQuery {
    /// A page that a person can read and a connection can carry.
    pub const LIMIT_MAX: usize = 1000;

    /// Returns true if `finding` matches the source, kind and state of the query. Ignores `after` and
    /// `limit`.
    pub fn matches(&self, finding: &Finding) -> bool {
        self.source.as_ref().is_none_or(|source| finding.source == *source)
            && self.kind.is_none_or(|kind| finding.found.kind == kind)
            && self.is_open.is_none_or(|is_open| finding.closed.is_none() == is_open)
    }
}
