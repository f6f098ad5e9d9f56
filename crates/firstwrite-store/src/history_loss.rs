//! Losses of acknowledged history, as reported to operators, and the first half of clearing them.

use firstwrite_core::Timestamp;
#[cfg(any(feature = "_sql", feature = "sqlite"))]
use firstwrite_core::outbox::{Outbox, protocol};
#[cfg(any(feature = "_sql", feature = "sqlite"))]
use firstwrite_core::{AuditEntry, StoreError};

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

/// Result of clearing the history losses of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistoryClearance {
    /// Number of losses that were cleared.
    pub losses: usize,
    /// Number of messages that were marked as maybe sent before that: every message that was not settled.
    pub messages: usize,
}

/// Marks the messages of a store that lost history, while its loss is open and nothing is claimed. Returns
/// how many; `None` if no loss is open, and nothing is to be cleared.
#[cfg(any(feature = "_sql", feature = "sqlite"))]
pub(crate) async fn mark_messages(
    losses: &[HistoryLoss],
    outbox: &dyn Outbox,
    (actor, reason): (&str, &str),
) -> Result<Option<usize>, StoreError> {
    if losses.iter().all(|loss| loss.cleared.is_some()) {
        return Ok(None);
    }
    let by = AuditEntry {
        actor: actor.to_owned(),
        action: "clear history loss".to_owned(),
        reason: reason.to_owned(),
    };
    protocol::mark_maybe_sent(outbox, &by).await.map(Some)
}
