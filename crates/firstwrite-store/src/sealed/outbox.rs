//! Final answers, sealed on their way into the record; everything else about messages is handed on.

use std::future::{pending, ready};
use std::time::Duration;

use firstwrite_core::outbox::{
    ClaimRequest, ClaimStatus, Claimed, DestinationChange, DestinationView, HistoryRow,
    MessageNumber, MessageStory, Move, Outbox, Scan, ScanPage,
};
use firstwrite_core::{BoxFuture, Message, Outcome, State, StoreError, StoreErrorKind};

use super::SealedStore;
use super::envelope::Bond;

type Call<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

impl SealedStore {
    /// Calls the outbox behind; there is one, or [`firstwrite_core::Store::outbox`] had given none.
    fn behind<'a, T: Send + 'a>(
        &'a self,
        call: impl FnOnce(&'a dyn Outbox) -> Call<'a, T>,
    ) -> Call<'a, T> {
        match self.behind_now() {
            Ok(outbox) => call(outbox),
            Err(none) => Box::pin(ready(Err(none))),
        }
    }

    /// The answer as it goes into the record of a message. `None` where no interim answer waits for it:
    /// then the store would not use it either.
    async fn sealed_answer(
        &self,
        number: MessageNumber,
        answer: Outcome,
    ) -> Result<Option<Outcome>, StoreError> {
        let Some(story) = self.behind(|outbox| outbox.message(number)).await? else {
            return Ok(None);
        };
        let Some(found) = self.inner.get(story.message.record).await? else { return Ok(None) };
        match &found.record.state {
            // An interim outcome is neither taken over nor reaped, so its fence stays what it is.
            State::Completed { outcome, .. } if outcome.is_interim => {
                let answer = Outcome { is_interim: false, ..answer };
                self.sealed_ending(Bond::of(&found.record), &answer).map(Some)
            }
            State::Completed { .. } | State::Reserved(_) | State::Uncertain { .. } => Ok(None),
        }
    }

    async fn apply_sealed(
        &self,
        receipts: &[HistoryRow],
        moves: &[Move],
    ) -> Result<Vec<ClaimStatus>, StoreError> {
        let mut sealed = moves.to_vec();
        for step in &mut sealed {
            if let Some(answer) = step.answer.take() {
                step.answer = self.sealed_answer(step.number, answer).await?;
            }
        }
        self.behind_now()?.apply(receipts, &sealed).await
    }

    fn behind_now(&self) -> Result<&dyn Outbox, StoreError> {
        let none = || StoreError::definite(StoreErrorKind::Unsupported, "using an outbox");
        self.inner.outbox().ok_or_else(none)
    }
}

impl Outbox for SealedStore {
    fn enqueue<'a>(&'a self, message: &'a Message) -> Call<'a, ()> {
        self.behind(|outbox| outbox.enqueue(message))
    }

    fn claim<'a>(&'a self, requests: &'a [ClaimRequest], nonce: u64) -> Call<'a, Claimed> {
        self.behind(|outbox| outbox.claim(requests, nonce))
    }

    fn apply<'a>(
        &'a self,
        receipts: &'a [HistoryRow],
        moves: &'a [Move],
    ) -> Call<'a, Vec<ClaimStatus>> {
        if moves.iter().all(|step| step.answer.is_none()) {
            return self.behind(|outbox| outbox.apply(receipts, moves));
        }
        Box::pin(self.apply_sealed(receipts, moves))
    }

    fn put_destination<'a>(
        &'a self,
        destination: &'a str,
        change: &'a DestinationChange,
    ) -> Call<'a, ()> {
        self.behind(|outbox| outbox.put_destination(destination, change))
    }

    fn destinations(&self) -> Call<'_, Vec<DestinationView>> {
        self.behind(|outbox| outbox.destinations())
    }

    fn message(&self, number: MessageNumber) -> Call<'_, Option<MessageStory>> {
        self.behind(|outbox| outbox.message(number))
    }

    fn scan<'a>(&'a self, scan: &'a Scan) -> Call<'a, ScanPage> {
        self.behind(|outbox| outbox.scan(scan))
    }

    fn upkeep(&self, kept_for: Duration, limit: usize) -> Call<'_, usize> {
        self.behind(|outbox| outbox.upkeep(kept_for, limit))
    }

    fn wait_for_work(&self) -> BoxFuture<'_, ()> {
        match self.inner.outbox() {
            Some(outbox) => outbox.wait_for_work(),
            None => Box::pin(pending()),
        }
    }
}
