//! The outbox in the same table. Each move of a message is one transaction, on the condition that it is as it was
//! read; where messages are, and what points to them, is told in `message.rs`, `queue.rs` and `order.rs`.

mod answer;
mod body;
mod claim;
mod counts;
mod destinations;
pub(super) mod enqueue;
mod history;
mod listing;
mod message;
mod moves;
mod numbers;
mod operate;
mod order;
mod queue;
mod settle;
mod upkeep;
mod written;

use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::outbox::{
    Claimed, Counted, DestinationView, Held, MessageNumber, MessagePage, MessageQuery,
    MessageStory, Outbox, Received, Resolution, Settlement, Switch, Want, WrittenPage,
    WrittenQuery,
};
use firstwrite_core::{AuditEntry, BoxFuture, Fence, Message, StoreError};
use tokio::sync::Notify;

use super::DynamoStore;
use super::link::Link;
use crate::pending::Kind;
use counts::Counts;
pub(super) use numbers::Numbers;
use upkeep::Recount;

/// What a process knows of its messages beside the table.
#[derive(Debug, Default)]
pub(super) struct Delivering {
    pub(super) numbers: Numbers,
    counts: Counts,
    recount: tokio::sync::Mutex<Recount>,
    nudge: Notify,
}

/// How long handlers' messages are added up before it is written how many there are.
const COUNTED_WITHIN: Duration = Duration::from_secs(1);

impl DynamoStore {
    /// A handler's messages were written. It is not kept waiting until they are counted.
    pub(super) fn enqueued(&self, messages: &[Message]) {
        if messages.is_empty() {
            return;
        }
        let delivering = &self.inner.delivering;
        delivering.note(messages);
        if delivering.counts.await_writing() {
            let inner = Arc::clone(&self.inner);
            tokio::spawn(async move {
                tokio::time::sleep(COUNTED_WITHIN).await;
                inner.delivering.write_counts(&inner.link).await;
            });
        }
    }
}

impl Delivering {
    /// Messages were written.
    fn note(&self, messages: &[Message]) {
        self.counts.note(|tallies| {
            for message in messages {
                tallies.add(message.destination(), Kind::Open, 1);
            }
        });
        self.nudge();
    }

    fn nudge(&self) {
        self.nudge.notify_waiters();
        self.nudge.notify_one();
    }

    /// Nothing depends on counts: what cannot be written is written later, or counted anew.
    async fn write_counts(&self, link: &Link) {
        if let Err(error) = self.counts.write(link).await {
            tracing::warn!(%error, "messages could not be counted");
        }
    }
}

impl Outbox for DynamoStore {
    fn enqueue<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let link = self.link();
            link.writable("enqueuing a message")?;
            let delivering = &self.inner.delivering;
            enqueue::enqueue(link, &delivering.numbers, message).await?;
            delivering.note(std::slice::from_ref(message));
            delivering.write_counts(link).await;
            Ok(())
        })
    }

    fn claim<'a>(
        &'a self,
        wants: &'a [Want],
        nonce: u64,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        Box::pin(async move {
            let claimed = claim::claim(self.link(), wants, nonce).await?;
            self.inner.delivering.write_counts(self.link()).await;
            Ok(claimed)
        })
    }

    fn settle<'a>(
        &'a self,
        receipts: &'a [Received],
        settlements: &'a [Settlement],
    ) -> BoxFuture<'a, Result<Vec<Held>, StoreError>> {
        Box::pin(async move {
            let delivering = &self.inner.delivering;
            let counts = &delivering.counts;
            let settled = settle::settle(self.link(), receipts, settlements, counts).await;
            delivering.write_counts(self.link()).await;
            let settled = settled?;
            if settled.has_released {
                delivering.nudge();
            }
            Ok(settled.held)
        })
    }

    fn switch<'a>(
        &'a self,
        destination: &'a str,
        switch: &'a Switch,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            destinations::switch(self.link(), destination, switch).await?;
            self.inner.delivering.nudge();
            Ok(())
        })
    }

    fn pause<'a>(
        &'a self,
        destination: &'a str,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(destinations::pause(self.link(), destination, by))
    }

    fn resume<'a>(
        &'a self,
        destination: &'a str,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            destinations::resume(self.link(), destination, by).await?;
            self.inner.delivering.nudge();
            Ok(())
        })
    }

    fn destinations(&self) -> BoxFuture<'_, Result<Vec<DestinationView>, StoreError>> {
        Box::pin(destinations::views(self.link()))
    }

    fn messages<'a>(
        &'a self,
        query: &'a MessageQuery,
    ) -> BoxFuture<'a, Result<MessagePage, StoreError>> {
        Box::pin(listing::messages(self.link(), query))
    }

    fn count<'a>(&'a self, query: &'a MessageQuery) -> BoxFuture<'a, Result<Counted, StoreError>> {
        Box::pin(listing::count(self.link(), query))
    }

    fn message(
        &self,
        number: MessageNumber,
    ) -> BoxFuture<'_, Result<Option<MessageStory>, StoreError>> {
        Box::pin(listing::story(self.link(), number))
    }

    fn written<'a>(
        &'a self,
        query: &'a WrittenQuery,
    ) -> BoxFuture<'a, Result<WrittenPage, StoreError>> {
        Box::pin(written::written(self.link(), query))
    }

    fn redrive<'a>(
        &'a self,
        query: &'a MessageQuery,
        limit: usize,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<usize, StoreError>> {
        Box::pin(async move {
            let delivering = &self.inner.delivering;
            let redriven =
                operate::redrive(self.link(), query, limit, by, &delivering.counts).await;
            delivering.write_counts(self.link()).await;
            delivering.nudge();
            redriven
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
            let delivering = &self.inner.delivering;
            let (link, which) = (self.link(), (number, seen));
            let held = operate::resolve(link, which, resolution, by, &delivering.counts).await;
            delivering.write_counts(link).await;
            delivering.nudge();
            held
        })
    }

    fn upkeep(&self, kept_for: Duration, limit: usize) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(async move {
            let (link, delivering) = (self.link(), &self.inner.delivering);
            link.writable("keeping messages up")?;
            delivering.write_counts(link).await;
            // One at a time in a process: two would count the same.
            delivering.recount.lock().await.go_on(link).await?;
            upkeep::delete_ended(link, kept_for, limit).await
        })
    }

    /// Word comes from this process alone: DynamoDB tells nobody. Looking again is the floor.
    fn nudged(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.inner.delivering.nudge.notified())
    }
}
