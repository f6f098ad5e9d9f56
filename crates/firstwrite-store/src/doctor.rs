//! Findings about unsafe settings and problems of a store, with the next step for each.
//!
//! Each check is bounded: a doctor that counts every record makes the patient worse.

use std::fmt;

#[cfg(feature = "_sql")]
use firstwrite_core::HistoryLoss;

#[cfg(feature = "dynamodb")]
pub use crate::dynamo::doctor::examine as dynamodb;
#[cfg(feature = "mysql")]
pub use crate::mysql::doctor::examine as mysql;
#[cfg(feature = "postgres")]
pub use crate::postgres::doctor::{Expected, examine as postgres};
#[cfg(feature = "redis")]
pub use crate::redis::doctor::examine as redis;
#[cfg(feature = "sqlite")]
pub use crate::sqlite::doctor::examine as sqlite;

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// A stable name, for machines.
    pub code: &'static str,
    /// Severity of the finding.
    pub severity: Severity,
    /// Description of what was seen.
    pub what: String,
    /// Consequence for keys and their answers.
    pub meaning: &'static str,
    /// Next step for the operator.
    pub next_step: String,
}

/// Severity of a finding, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Keys can be lost or used twice.
    Unsafe,
    /// Nothing is lost, but something does not go as it should.
    Warning,
    /// Good to know.
    Note,
}

#[cfg_attr(not(feature = "sqlite"), allow(dead_code, reason = "each store uses its part"))]
impl Finding {
    /// Makes the finding that acknowledged history is missing, the same for every store.
    pub(crate) fn history_lost(what: String) -> Self {
        Self::unsafe_("history-lost", what)
            .means("acknowledged history is missing; keys that are not known are refused")
            .next(
                "compare with the effect's own books, then `firstwrite doctor --clear-history-loss \
                 --reason …`",
            )
    }

    /// Makes the finding of the losses that no operator has cleared, if there are any.
    #[cfg(feature = "_sql")]
    pub(crate) fn open_losses(losses: &[HistoryLoss]) -> Option<Self> {
        let open = || losses.iter().filter(|loss| loss.cleared.is_none());
        let (count, first) = (open().count(), open().next()?);
        let what = format!("{count} open history losses, the first: {}", first.detail);
        Some(Self::history_lost(what))
    }

    /// Something by which keys can be lost or used twice.
    pub(crate) fn unsafe_(code: &'static str, what: impl Into<String>) -> Self {
        Self::new(code, Severity::Unsafe, what)
    }

    /// Something that does not go as it should.
    pub(crate) fn warning(code: &'static str, what: impl Into<String>) -> Self {
        Self::new(code, Severity::Warning, what)
    }

    /// Something good to know.
    pub(crate) fn note(code: &'static str, what: impl Into<String>) -> Self {
        Self::new(code, Severity::Note, what)
    }

    fn new(code: &'static str, severity: Severity, what: impl Into<String>) -> Self {
        Self { code, severity, what: what.into(), meaning: "", next_step: String::new() }
    }

    pub(crate) fn means(mut self, meaning: &'static str) -> Self {
        self.meaning = meaning;
        self
    }

    pub(crate) fn next(mut self, step: impl Into<String>) -> Self {
        self.next_step = step.into();
        self
    }
}

impl Severity {
    /// Returns the name of the severity.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unsafe => "unsafe",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
