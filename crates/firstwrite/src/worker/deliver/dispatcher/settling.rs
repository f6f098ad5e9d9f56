//! Writing down how tasks ended: receipts first, and everything in batches.

use std::sync::Arc;

use firstwrite_core::outbox::{ClaimStatus, Next, Received, Settlement, protocol};
use firstwrite_core::{Store, StoreError, crash_point};

use super::super::destination_state::{BreakerChange, tell};
use super::{Dispatcher, outbox};

/// A batch of receipts, settlements and breaker changes that was written together, and the result of the
/// write.
pub(super) struct SettleBatch {
    receipts: Vec<(Received, Settlement)>,
    settlements: Vec<Settlement>,
    breaker_changes: Vec<(usize, BreakerChange)>,
    written: Result<Vec<ClaimStatus>, StoreError>,
}

/// A statement of bounded size, and a commit that others need not wait for long.
const SETTLE_MAX: usize = 500;

impl Dispatcher {
    /// Begins to write down what has ended, unless a commit is under way: then it waits for the next.
    pub(super) fn settle(&mut self) {
        if self.settling.is_some() || self.is_store_away() {
            return;
        }
        if self.ended.is_empty() && self.breaker_changes.is_empty() {
            return;
        }
        let rest = self.ended.split_off(self.ended.len().min(SETTLE_MAX));
        let (mut receipts, mut settlements) = (Vec::new(), Vec::new());
        for (received, settlement) in std::mem::replace(&mut self.ended, rest) {
            match received {
                Some(received) => receipts.push((received, settlement)),
                None => settlements.push(settlement),
            }
        }
        let breaker_changes = std::mem::take(&mut self.breaker_changes);
        let names: Vec<(String, BreakerChange)> = breaker_changes
            .iter()
            .map(|(state, breaker_changes)| {
                (self.destinations[*state].destination.name().to_owned(), breaker_changes.clone())
            })
            .collect();
        let store = Arc::clone(&self.store);
        self.settling = Some(Box::pin(async move {
            let written = write(&*store, &receipts, &settlements, names).await;
            SettleBatch { receipts, settlements, breaker_changes, written }
        }));
    }

    pub(super) fn settled(&mut self, batch: SettleBatch) {
        let statuses = match batch.written {
            Ok(statuses) => statuses,
            Err(error) => {
                // Again, later: until then the leases hold, and after that the fences do.
                let receipts = batch.receipts.into_iter().map(|(got, next)| (Some(got), next));
                self.ended.extend(receipts);
                self.ended.extend(batch.settlements.into_iter().map(|next| (None, next)));
                self.breaker_changes.extend(batch.breaker_changes);
                self.fail(error);
                return;
            }
        };
        self.helped();
        // What was received is durable: now it is settled.
        self.ended.extend(batch.receipts.into_iter().map(|(_, settlement)| (None, settlement)));
        for (settlement, status) in batch.settlements.iter().zip(statuses) {
            self.count(settlement, status);
        }
    }

    fn count(&mut self, settlement: &Settlement, claim: ClaimStatus) {
        let message = settlement.claim.number.0;
        if claim == ClaimStatus::Lost {
            self.counts.lost += 1;
            tracing::warn!(message, "settled too late: the claim had run out");
            return;
        }
        let status = settlement.delivery.as_ref().and_then(|delivery| delivery.status);
        let detail = settlement.delivery.as_ref().map(|delivery| delivery.detail.as_str());
        match &settlement.next {
            Next::Delivered(_) => {
                self.counts.delivered += 1;
                tracing::debug!(message, "delivered");
            }
            Next::Waiting { pause, .. } => {
                self.counts.waiting += 1;
                let pause_ms = pause.as_millis();
                tracing::info!(message, status, detail, pause_ms, "not delivered; due again");
            }
            Next::Unknown(why) => {
                self.counts.unknown += 1;
                tracing::warn!(message, status, detail, why, "held: it waits for proof");
            }
            Next::Refused => {
                self.counts.refused += 1;
                tracing::info!(message, status, detail, "refused for good; its client is told");
            }
            Next::Dead(cause) => {
                self.counts.dead += 1;
                let cause = cause.as_str();
                tracing::warn!(message, status, detail, cause, "a dead letter");
            }
        }
    }
}

async fn write(
    store: &dyn Store,
    receipts: &[(Received, Settlement)],
    settlements: &[Settlement],
    breaker_changes: Vec<(String, BreakerChange)>,
) -> Result<Vec<ClaimStatus>, StoreError> {
    let outbox = outbox(store)?;
    let receipts: Vec<Received> = receipts.iter().map(|(received, _)| received.clone()).collect();
    let statuses = if receipts.is_empty() && settlements.is_empty() {
        Vec::new()
    } else {
        protocol::settle(outbox, &receipts, settlements).await?
    };
    if !receipts.is_empty() {
        crash_point!("deliver-recorded");
    }
    for (destination, breaker_changes) in breaker_changes {
        // Losing this only means that others find out for themselves.
        if let Err(error) = tell(outbox, &destination, breaker_changes).await {
            tracing::warn!(%error, destination, "other workers could not be told");
        }
    }
    Ok(statuses)
}
