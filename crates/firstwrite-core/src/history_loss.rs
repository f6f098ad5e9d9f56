//! Losses of acknowledged history, as reported to operators, and the first half of clearing them.

use crate::outbox::protocol::mark_maybe_sent;
use crate::protocol::mark_given_up_now;
use crate::{AuditEntry, Store, StoreError, StoreErrorKind, Timestamp};

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

impl HistoryLoss {
    /// A loss that was noticed, and perhaps cleared.
    pub fn new(noticed_at: Timestamp, detail: String, cleared: Option<ClearedLoss>) -> Self {
        Self { noticed_at, detail, cleared }
    }
}

impl ClearedLoss {
    /// The clearance by an operator.
    pub fn new(at: Timestamp, by: String, reason: String) -> Self {
        Self { at, by, reason }
    }
}

impl HistoryClearance {
    /// Marks the messages and the uncertain records of a store that lost history, while its loss is open and
    /// nothing is claimed. Returns what was marked, with losses yet to be cleared. `pause` waits before messages
    /// are marked again that workers moved meanwhile.
    #[doc(hidden)]
    pub async fn mark(
        store: &dyn Store,
        (actor, reason): (&str, &str),
        pause: impl AsyncFn(),
    ) -> Result<Self, StoreError> {
        let by = AuditEntry {
            actor: actor.to_owned(),
            action: "clear history loss".to_owned(),
            reason: reason.to_owned(),
        };
        let messages = match store.outbox() {
            Some(outbox) => mark_maybe_sent(outbox, &by, pause).await?,
            None => 0,
        };
        let records = mark_given_up_now(store, &by).await?;
        Ok(Self { losses: 0, messages, records })
    }

    /// The result once `losses` are cleared.
    #[doc(hidden)]
    #[must_use]
    pub fn of(self, losses: usize) -> Self {
        Self { losses, ..self }
    }
}

/// The losses that stand are not those that messages and records were marked for.
#[doc(hidden)]
pub fn lost_again(doing: &'static str) -> StoreError {
    StoreError::definite(StoreErrorKind::HistoryLost, doing).caused_by(
        "history was lost, or cleared, once more while messages and records were marked; run it again",
    )
}
