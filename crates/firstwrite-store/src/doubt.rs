//! That a store has lost acknowledged history, as operators see it.

use firstwrite_core::Timestamp;

/// One time that acknowledged history was found to be missing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Doubt {
    /// When it was noticed, by the server's clock.
    pub noticed_at: Timestamp,
    /// What was missing.
    pub detail: String,
    /// Who cleared it, if somebody did.
    pub cleared: Option<ClearedDoubt>,
}

/// How a doubt was cleared.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClearedDoubt {
    /// When.
    pub at: Timestamp,
    /// By whom.
    pub by: String,
    /// Why, in their words.
    pub reason: String,
}
