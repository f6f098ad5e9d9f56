//! What was found out about one check.

use crate::catalogue::{Check, Severity};

/// A check, and how it went.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// What was asked.
    pub check: &'static Check,
    /// How it went.
    pub verdict: Verdict,
    /// What was sent; empty if nothing was.
    pub sent: String,
    /// What came back, or why nothing was asked.
    pub found: String,
}

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As expected.
    Passed,
    /// Not as expected, and how bad that is: at most as bad as the check's own severity.
    Failed(Severity),
    /// Nothing can be said, because something was not given; what, is in [`Finding::found`].
    NotAsked,
    /// It does not concern this API, or this profile.
    DoesNotApply,
}
