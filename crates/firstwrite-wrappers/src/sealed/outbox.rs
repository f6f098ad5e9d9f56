//! Final answers, sealed on their way into the record; everything else about messages is handed on.

use std::future::pending;

use firstwrite_core::outbox::{ClaimStatus, HistoryRow, MessageNumber, Move, Outbox};
use firstwrite_core::{BoxFuture, Outcome, State, StoreError, StoreErrorKind, outbox_methods};

use super::SealedStore;
use super::envelope::Bond;

type Call<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

impl SealedStore {
    /// Calls the outbox behind; there is one, or [`firstwrite_core::Store::outbox`] had given none.
    async fn behind<'a, T>(
        &'a self,
        call: impl FnOnce(&'a dyn Outbox) -> Call<'a, T>,
    ) -> Result<T, StoreError> {
        let none = || StoreError::definite(StoreErrorKind::Unsupported, "using an outbox");
        call(self.inner.outbox().ok_or_else(none)?).await
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
        self.behind(|outbox| outbox.apply(receipts, &sealed)).await
    }
}

impl Outbox for SealedStore {
    outbox_methods!(self;
        enqueue(message) => self.behind(|outbox| outbox.enqueue(message)),
        claim(requests, nonce) => self.behind(move |outbox| outbox.claim(requests, nonce)),
        apply(receipts, moves) => self.apply_sealed(receipts, moves),
        put_destination(destination, change) => {
            self.behind(|outbox| outbox.put_destination(destination, change))
        },
        destinations() => self.behind(|outbox| outbox.destinations()),
        message(number) => self.behind(move |outbox| outbox.message(number)),
        scan(scan) => self.behind(|outbox| outbox.scan(scan)),
        upkeep(kept_for, limit) => self.behind(move |outbox| outbox.upkeep(kept_for, limit)),
        wait_for_work() => async move {
            match self.inner.outbox() {
                Some(outbox) => outbox.wait_for_work().await,
                None => pending().await,
            }
        },
    );
}
