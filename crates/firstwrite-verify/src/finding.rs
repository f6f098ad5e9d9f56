//! The result of one check.

use crate::catalogue::{Check, Severity};

/// A check and its result.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// The check.
    pub check: &'static Check,
    /// Its verdict.
    pub verdict: Verdict,
    /// Requests that were sent; empty if there were none.
    pub sent: String,
    /// Responses that came back, or the reason why the check was skipped.
    pub found: String,
}

/// Verdict of a check.
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
