//! The mistakes that can be planted in an outbox.

use std::time::Duration;

use firstwrite_core::outbox::{
    Cause, Claimed, Counted, DestinationView, Held, MessageNumber, MessagePage, MessageQuery,
    MessageStory, Next, Outbox, Received, Resolution, Sent, Settlement, Switch, Want, WrittenPage,
    WrittenQuery,
};
use firstwrite_core::{AuditEntry, BoxFuture, Fence, Message, StoreError, Timestamp};

use super::{Defect, DefectiveStore};

impl DefectiveStore {
    fn spoil_claimed(&self, claimed: &mut Claimed) {
        for parcel in &mut claimed.parcels {
            if self.has(Defect::LapseForgotten) {
                (parcel.maybe_sent_at, parcel.lapse_count) = (None, 0);
            }
            if self.has(Defect::ReceiptForgotten) {
                parcel.receipt = None;
            }
        }
    }

    /// Settles under whatever fence the message wears now.
    async fn settle_anybody(
        &self,
        settlements: &[Settlement],
    ) -> Result<Vec<Settlement>, StoreError> {
        let mut spoilt = Vec::new();
        for settlement in settlements {
            let story = self.memory().message(settlement.number).await?;
            let fence = story.map_or(settlement.fence, |story| story.message.fence);
            spoilt.push(Settlement { fence, ..settlement.clone() });
        }
        Ok(spoilt)
    }
}

impl Outbox for DefectiveStore {
    fn enqueue<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let message = if self.has(Defect::OrderIgnored) {
                let plain = Message::new(
                    message.tenant(),
                    &crate::sample::key(message.derived_key().split(':').next().unwrap_or("k")),
                    "step",
                    message.destination(),
                    message.payload().clone(),
                );
                plain.map_or_else(|_| message.clone(), |plain| plain.delayed_by(message.delay()))
            } else {
                message.clone()
            };
            self.memory().enqueue(&message).await
        })
    }

    fn claim<'a>(
        &'a self,
        wants: &'a [Want],
        nonce: u64,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        Box::pin(async move {
            let mut wants = wants.to_vec();
            for want in &mut wants {
                if self.has(Defect::ClaimWithoutLease) {
                    want.lease_for = Duration::ZERO;
                }
                if self.has(Defect::ClaimTakesTooMany) {
                    want.count_max += 1;
                }
            }
            let mut claimed = self.memory().claim(&wants, nonce).await?;
            self.spoil_claimed(&mut claimed);
            Ok(claimed)
        })
    }

    fn settle<'a>(
        &'a self,
        receipts: &'a [Received],
        settlements: &'a [Settlement],
    ) -> BoxFuture<'a, Result<Vec<Held>, StoreError>> {
        Box::pin(async move {
            let mut settlements = if self.has(Defect::SettleIgnoresFence) {
                self.settle_anybody(settlements).await?
            } else {
                settlements.to_vec()
            };
            for settlement in &mut settlements {
                match &mut settlement.next {
                    Next::Waiting { sent, .. } if self.has(Defect::DoubtForgotten) => {
                        *sent = Sent::No;
                    }
                    next @ Next::Unknown(_) if self.has(Defect::UnknownComesBack) => {
                        let pause = Duration::ZERO;
                        *next = Next::Waiting { pause, counts: true, sent: Sent::No };
                    }
                    next @ Next::Refused if self.has(Defect::RefusedIsDead) => {
                        *next = Next::Dead(Cause::Refused);
                    }
                    Next::Delivered(_)
                    | Next::Waiting { .. }
                    | Next::Unknown(_)
                    | Next::Refused
                    | Next::Dead(_) => {}
                }
                if self.has(Defect::InterimForEver) {
                    settlement.answer = None;
                }
            }
            self.memory().settle(receipts, &settlements).await
        })
    }

    fn switch<'a>(
        &'a self,
        destination: &'a str,
        switch: &'a Switch,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            if self.has(Defect::BreakerIgnored) {
                return Ok(());
            }
            self.memory().switch(destination, switch).await
        })
    }

    fn pause<'a>(
        &'a self,
        destination: &'a str,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move { self.memory().pause(destination, by).await })
    }

    fn resume<'a>(
        &'a self,
        destination: &'a str,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move { self.memory().resume(destination, by).await })
    }

    fn destinations(&self) -> BoxFuture<'_, Result<Vec<DestinationView>, StoreError>> {
        Box::pin(async move { self.memory().destinations().await })
    }

    fn messages<'a>(
        &'a self,
        query: &'a MessageQuery,
    ) -> BoxFuture<'a, Result<MessagePage, StoreError>> {
        Box::pin(async move { Outbox::messages(&self.memory(), query).await })
    }

    fn count<'a>(&'a self, query: &'a MessageQuery) -> BoxFuture<'a, Result<Counted, StoreError>> {
        Box::pin(async move { self.memory().count(query).await })
    }

    fn message(
        &self,
        number: MessageNumber,
    ) -> BoxFuture<'_, Result<Option<MessageStory>, StoreError>> {
        Box::pin(async move { self.memory().message(number).await })
    }

    fn written<'a>(
        &'a self,
        query: &'a WrittenQuery,
    ) -> BoxFuture<'a, Result<WrittenPage, StoreError>> {
        Box::pin(async move {
            let mut query = query.clone();
            if self.has(Defect::WrittenIgnoresTime) {
                query.from = Timestamp::EPOCH;
            }
            let mut page = self.memory().written(&query).await?;
            if self.has(Defect::HandledAtFirst) {
                for message in &mut page.messages {
                    message.handled_at = message.handled_at.map(|_| message.view.created_at);
                }
            }
            Ok(page)
        })
    }

    fn redrive<'a>(
        &'a self,
        query: &'a MessageQuery,
        limit: usize,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<usize, StoreError>> {
        Box::pin(async move {
            let limit = if self.has(Defect::RedriveIgnoresLimit) { usize::MAX } else { limit };
            self.memory().redrive(query, limit, by).await
        })
    }

    fn resolve<'a>(
        &'a self,
        number: MessageNumber,
        seen: Fence,
        resolution: &'a Resolution,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<Held, StoreError>> {
        Box::pin(async move {
            let mut seen = seen;
            if self.has(Defect::ResolveIgnoresFence)
                && let Some(story) = self.memory().message(number).await?
            {
                seen = story.message.fence;
            }
            self.memory().resolve(number, seen, resolution, by).await
        })
    }

    fn upkeep(&self, kept_for: Duration, limit: usize) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(async move {
            let early = self.has(Defect::MessagesDeletedEarly);
            let kept_for = if early { Duration::ZERO } else { kept_for };
            self.memory().upkeep(kept_for, limit).await
        })
    }

    fn nudged(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}
