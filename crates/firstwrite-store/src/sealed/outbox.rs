//! Final answers, sealed on their way into the record; everything else about messages is handed on.

use std::future::{pending, ready};
use std::time::Duration;

use firstwrite_core::outbox::{
    Claimed, Counted, DestinationView, Held, MessageNumber, MessagePage, MessageQuery,
    MessageStory, Outbox, Received, Resolution, Settlement, Switch, Want, WrittenPage,
    WrittenQuery,
};
use firstwrite_core::{
    AuditEntry, BoxFuture, Fence, Message, Outcome, State, StoreError, StoreErrorKind,
};

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

    async fn settle_sealed(
        &self,
        receipts: &[Received],
        settlements: &[Settlement],
    ) -> Result<Vec<Held>, StoreError> {
        let mut sealed = settlements.to_vec();
        for settlement in &mut sealed {
            if let Some(answer) = settlement.answer.take() {
                settlement.answer = self.sealed_answer(settlement.number, answer).await?;
            }
        }
        self.behind_now()?.settle(receipts, &sealed).await
    }

    async fn resolve_sealed(
        &self,
        number: MessageNumber,
        seen: Fence,
        resolution: &Resolution,
        by: &AuditEntry,
    ) -> Result<Held, StoreError> {
        let mut sealed = resolution.clone();
        match &mut sealed {
            Resolution::Delivered { answer, .. } | Resolution::Refused { answer } => {
                if let Some(plain) = answer.take() {
                    *answer = self.sealed_answer(number, plain).await?;
                }
            }
            Resolution::NotDelivered | Resolution::Dropped => {}
        }
        self.behind_now()?.resolve(number, seen, &sealed, by).await
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

    fn claim<'a>(&'a self, wants: &'a [Want], nonce: u64) -> Call<'a, Claimed> {
        self.behind(|outbox| outbox.claim(wants, nonce))
    }

    fn settle<'a>(
        &'a self,
        receipts: &'a [Received],
        settlements: &'a [Settlement],
    ) -> Call<'a, Vec<Held>> {
        if settlements.iter().all(|settlement| settlement.answer.is_none()) {
            return self.behind(|outbox| outbox.settle(receipts, settlements));
        }
        Box::pin(self.settle_sealed(receipts, settlements))
    }

    fn switch<'a>(&'a self, destination: &'a str, switch: &'a Switch) -> Call<'a, ()> {
        self.behind(|outbox| outbox.switch(destination, switch))
    }

    fn pause<'a>(&'a self, destination: &'a str, by: &'a AuditEntry) -> Call<'a, ()> {
        self.behind(|outbox| outbox.pause(destination, by))
    }

    fn resume<'a>(&'a self, destination: &'a str, by: &'a AuditEntry) -> Call<'a, ()> {
        self.behind(|outbox| outbox.resume(destination, by))
    }

    fn destinations(&self) -> Call<'_, Vec<DestinationView>> {
        self.behind(|outbox| outbox.destinations())
    }

    fn messages<'a>(&'a self, query: &'a MessageQuery) -> Call<'a, MessagePage> {
        self.behind(|outbox| outbox.messages(query))
    }

    fn count<'a>(&'a self, query: &'a MessageQuery) -> Call<'a, Counted> {
        self.behind(|outbox| outbox.count(query))
    }

    fn message(&self, number: MessageNumber) -> Call<'_, Option<MessageStory>> {
        self.behind(|outbox| outbox.message(number))
    }

    fn written<'a>(&'a self, query: &'a WrittenQuery) -> Call<'a, WrittenPage> {
        self.behind(|outbox| outbox.written(query))
    }

    fn redrive<'a>(
        &'a self,
        query: &'a MessageQuery,
        limit: usize,
        by: &'a AuditEntry,
    ) -> Call<'a, usize> {
        self.behind(|outbox| outbox.redrive(query, limit, by))
    }

    fn resolve<'a>(
        &'a self,
        number: MessageNumber,
        seen: Fence,
        resolution: &'a Resolution,
        by: &'a AuditEntry,
    ) -> Call<'a, Held> {
        Box::pin(self.resolve_sealed(number, seen, resolution, by))
    }

    fn upkeep(&self, kept_for: Duration, limit: usize) -> Call<'_, usize> {
        self.behind(|outbox| outbox.upkeep(kept_for, limit))
    }

    fn nudged(&self) -> BoxFuture<'_, ()> {
        match self.inner.outbox() {
            Some(outbox) => outbox.nudged(),
            None => Box::pin(pending()),
        }
    }
}
