//! Losses of acknowledged history, as reported to operators.

use firstwrite_core::Timestamp;

/// A detected loss of acknowledged history.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistoryLoss {
    /// Time at which the loss was noticed, by the server's clock.
    pub noticed_at: Timestamp,
    /// Description of what was missing.
    pub detail: String,
    /// The operator's clearance, if there is one.
    pub cleared: Option<ClearedLoss>,
}

/// Clearance of a history loss by an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClearedLoss {
    /// Time of the clearance.
    pub at: Timestamp,
    /// Operator who cleared it.
    pub by: String,
    /// The operator's reason, in their words.
    pub reason: String,
}
