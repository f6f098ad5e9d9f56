//! Losses of acknowledged history, as reported to operators, and the first half of clearing them.

#[cfg(feature = "_history")]
use std::time::Duration;

use firstwrite_core::Timestamp;
#[cfg(feature = "_history")]
use firstwrite_core::{AuditEntry, Store, StoreError, outbox, protocol};

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
    /// Number of uncertain records that were marked as given up at that time.
    pub records: usize,
}

/// Time before messages are marked again that workers moved meanwhile: long enough for a worker to end its claims
/// on a loaded server.
#[cfg(feature = "_history")]
const MARK_PAUSE: Duration = Duration::from_millis(250);

/// Marks the messages and the uncertain records of a store that lost history, while its loss is open and nothing
/// is claimed. Returns what was marked, with `losses` yet to be cleared.
#[cfg(feature = "_history")]
pub(crate) async fn mark(
    store: &dyn Store,
    (actor, reason): (&str, &str),
) -> Result<HistoryClearance, StoreError> {
    let by = AuditEntry {
        actor: actor.to_owned(),
        action: "clear history loss".to_owned(),
        reason: reason.to_owned(),
    };
    let pause = async || tokio::time::sleep(MARK_PAUSE).await;
    let messages = match store.outbox() {
        Some(outbox) => outbox::protocol::mark_maybe_sent(outbox, &by, pause).await?,
        None => 0,
    };
    let records = protocol::mark_given_up_now(store, &by).await?;
    Ok(HistoryClearance { losses: 0, messages, records })
}

/// Returns true if one of `losses` is not cleared.
#[cfg(feature = "sqlite")]
pub(crate) fn is_open(losses: &[HistoryLoss]) -> bool {
    losses.iter().any(|loss| loss.cleared.is_none())
}

/// The losses that stand are not those that messages and records were marked for.
#[cfg(any(feature = "_sql", feature = "redis"))]
pub(crate) fn lost_again(doing: &'static str) -> StoreError {
    StoreError::definite(firstwrite_core::StoreErrorKind::HistoryLost, doing).caused_by(
        "history was lost, or cleared, once more while messages and records were marked; run it again",
    )
}
