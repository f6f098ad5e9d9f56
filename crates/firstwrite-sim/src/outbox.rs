//! The outbox as a worker's process sees it: the same faults as the store's.

use std::time::Duration;

use firstwrite_core::outbox::{
    ClaimRequest, ClaimStatus, Claimed, DestinationChange, DestinationView, HistoryRow,
    MessageNumber, MessageStory, Move, Outbox, Scan, ScanPage,
};
use firstwrite_core::{BoxFuture, Message, State, Store as _, StoreError, StoreErrorKind};

use crate::defects::Defect;
use crate::events::Event;
use crate::reconcile::{self, is_reconciliation};
use crate::store::{Fate, SimStore, now};

impl SimStore {
    /// A writing step of the outbox: refused, lost before or after, or done.
    async fn outbox_step<T>(
        &self,
        doing: &'static str,
        step: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.way_there(doing).await?;
        let world = self.process.world();
        let lost = || StoreError::indeterminate(StoreErrorKind::Unavailable, doing);
        let done = match self.fate() {
            Fate::Through => step.await,
            Fate::SlowAcknowledgement => {
                let done = step.await;
                world.passes(100, 1900).await;
                done
            }
            Fate::Refused => Err(StoreError::definite(StoreErrorKind::Unavailable, doing)),
            Fate::LostBefore => Err(lost()),
            Fate::LostAfter | Fate::Late => step.await.and_then(|_| Err(lost())),
        };
        self.way_back().await;
        done
    }

    /// Writes down which records have a final answer now.
    fn note_all_answers(&self) {
        let world = self.process.world();
        let books = world.state().ledger.keys.clone();
        for (key, id) in books.iter().enumerate().filter_map(|(key, book)| Some((key, book.id?))) {
            let Some(found) = now(self.memory.get(id)) else { continue };
            let retention = found.record.retention;
            let State::Completed { outcome, .. } = found.record.state else { continue };
            let is_new = {
                let state = world.state();
                state.ledger.keys[key].kept.last().is_some_and(|(_, kept)| kept.is_interim)
            };
            if is_new && !outcome.is_interim {
                world.note(Event::FinalAnswer, || format!("key {key}"));
                self.kept(key, &outcome, retention);
            }
        }
    }
}

impl Outbox for SimStore {
    fn enqueue<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(self.outbox_step("enqueuing a message", self.memory.enqueue(message)))
    }

    fn claim<'a>(
        &'a self,
        requests: &'a [ClaimRequest],
        nonce: u64,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        Box::pin(async move {
            let mut claimed =
                self.outbox_step("claiming messages", self.memory.claim(requests, nonce)).await?;
            if self.process.world().has(Defect::MessageDoubtDropped) {
                claimed
                    .messages
                    .iter_mut()
                    .for_each(|claimed_message| claimed_message.maybe_sent_at = None);
            }
            Ok(claimed)
        })
    }

    fn apply<'a>(
        &'a self,
        receipts: &'a [HistoryRow],
        moves: &'a [Move],
    ) -> BoxFuture<'a, Result<Vec<ClaimStatus>, StoreError>> {
        let step = async move {
            let held = self.memory.apply(receipts, moves).await?;
            let is_proof = |step: &&Move| is_reconciliation(step.audit.as_ref());
            let taken = moves.iter().zip(&held).filter(|(_, held)| **held == ClaimStatus::Current);
            for step in taken.map(|(step, _)| step).filter(is_proof) {
                if let Some(story) = now(self.memory.message(step.number)) {
                    reconcile::judge_message(self.process.world(), &story.message, step);
                }
            }
            self.note_all_answers();
            Ok(held)
        };
        Box::pin(self.outbox_step("moving messages", step))
    }

    fn put_destination<'a>(
        &'a self,
        destination: &'a str,
        change: &'a DestinationChange,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let step = self.memory.put_destination(destination, change);
        Box::pin(self.outbox_step("changing a destination", step))
    }

    fn destinations(&self) -> BoxFuture<'_, Result<Vec<DestinationView>, StoreError>> {
        self.memory.destinations()
    }

    fn message(
        &self,
        number: MessageNumber,
    ) -> BoxFuture<'_, Result<Option<MessageStory>, StoreError>> {
        self.memory.message(number)
    }

    fn scan<'a>(&'a self, scan: &'a Scan) -> BoxFuture<'a, Result<ScanPage, StoreError>> {
        Box::pin(self.read("reading messages", self.memory.scan(scan)))
    }

    fn upkeep(&self, kept_for: Duration, limit: usize) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.memory.upkeep(kept_for, limit)
    }

    fn wait_for_work(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}
