//! The outbox in the same table. Each move of a message is one transaction, on the condition that it is as it was
//! read; where messages are, and what points to them, is told in `message.rs`, `queue.rs` and `order.rs`.

mod apply;
mod body;
mod claim;
mod destinations;
pub(super) mod enqueue;
mod history;
mod listing;
mod message;
mod moves;
mod order;
mod queue;
mod upkeep;

use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::outbox::{Outbox, Tally};
use firstwrite_core::{Message, outbox_methods};
use tokio::sync::Notify;

use super::DynamoStore;
use super::link::Link;
use destinations::Counts;
pub(super) use enqueue::Numbers;
use upkeep::Recount;

/// Outbox state that this process keeps in memory, beside the table.
#[derive(Debug, Default)]
pub(super) struct Delivering {
    pub(super) numbers: Numbers,
    counts: Counts,
    recount: tokio::sync::Mutex<Recount>,
    notify: Notify,
}

/// Time for which counts of handlers' messages are added up in memory before they are written.
const COUNTED_WITHIN: Duration = Duration::from_secs(1);

impl DynamoStore {
    /// Notes that a handler's messages were written. The handler does not wait until they are counted.
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
    /// Counts messages that were written, and wakes the workers of this process.
    fn note(&self, messages: &[Message]) {
        self.counts.note(|tallies| {
            for message in messages {
                tallies.add(message.destination(), Tally::Open, 1);
            }
        });
        self.notify();
    }

    fn notify(&self) {
        self.notify.notify_waiters();
        self.notify.notify_one();
    }

    /// Nothing depends on counts: what cannot be written is written later, or counted anew.
    async fn write_counts(&self, link: &Link) {
        if let Err(error) = self.counts.write(link).await {
            tracing::warn!(%error, "messages could not be counted");
        }
    }
}

impl Outbox for DynamoStore {
    outbox_methods!(self;
        enqueue(message) => async move {
            let link = self.link();
            link.writable("enqueuing a message")?;
            let delivering = &self.inner.delivering;
            enqueue::enqueue(link, &delivering.numbers, message).await?;
            delivering.note(std::slice::from_ref(message));
            delivering.write_counts(link).await;
            Ok(())
        },
        claim(requests, nonce) => async move {
            let claimed = claim::claim(self.link(), requests, nonce).await?;
            self.inner.delivering.write_counts(self.link()).await;
            Ok(claimed)
        },
        apply(receipts, moves) => async move {
            let (link, delivering) = (self.link(), &self.inner.delivering);
            let statuses = apply::apply(link, receipts, moves, &delivering.counts).await;
            delivering.write_counts(link).await;
            // A message may be due, or a successor.
            delivering.notify();
            statuses
        },
        put_destination(destination, change) => async move {
            destinations::put(self.link(), destination, change).await?;
            self.inner.delivering.notify();
            Ok(())
        },
        destinations() => destinations::views(self.link()),
        message(number) => listing::story(self.link(), number),
        scan(scan) => listing::scan(self.link(), scan),
        upkeep(kept_for, limit) => async move {
            let (link, delivering) = (self.link(), &self.inner.delivering);
            link.writable("keeping messages up")?;
            delivering.write_counts(link).await;
            // One at a time in a process: two would count the same.
            delivering.recount.lock().await.go_on(link).await?;
            upkeep::delete_ended(link, kept_for, limit).await
        },
        // Only writes of this process notify, since DynamoDB sends no notifications. Messages of other processes
        // are found by polling.
        wait_for_work() => self.inner.delivering.notify.notified(),
    );
}
