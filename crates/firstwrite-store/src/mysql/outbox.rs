//! The outbox in the same database. A claim locks its destination's row, so that workers take turns; what is
//! pending of a message is locked while it changes.

mod apply;
mod claim;
mod destinations;
mod listing;
pub(super) mod pending;
mod upkeep;

use std::time::Duration;

use firstwrite_core::outbox::{
    ClaimRequest, ClaimStatus, Claimed, DestinationChange, DestinationView, HistoryRow,
    MessageNumber, MessageStory, Move, Outbox, Scan, ScanPage,
};
use firstwrite_core::{BoxFuture, Message, StoreError};
use tokio::sync::{Mutex, Notify};

use super::MysqlStore;
use super::pipeline::Pipeline;

/// Outbox state that this process keeps between two steps.
#[derive(Debug, Default)]
pub(super) struct Delivering {
    /// Number of the message after which the next deletion step begins.
    upkeep_after: Mutex<i64>,
    work: Notify,
}

impl Delivering {
    /// Says that there may be something to claim.
    pub(super) fn notify(&self) {
        self.work.notify_waiters();
        self.work.notify_one();
    }
}

impl MysqlStore {
    async fn enqueue_alone(&self, message: &Message) -> Result<(), StoreError> {
        const DOING: &str = "enqueuing a message";
        self.writes(DOING)?;
        pending::check(message)?;
        let mut pipeline = Pipeline::transaction();
        pending::put(&mut pipeline, message);
        pending::put_tallies(&mut pipeline, std::slice::from_ref(message));
        pipeline.commit();
        self.pool().send(DOING, &pipeline).await?;
        self.inner.delivering.notify();
        Ok(())
    }
}

impl Outbox for MysqlStore {
    fn enqueue<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(self.enqueue_alone(message))
    }

    fn claim<'a>(
        &'a self,
        requests: &'a [ClaimRequest],
        nonce: u64,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        Box::pin(async move {
            self.writes("claiming messages")?;
            claim::claim(self.pool(), requests, nonce).await
        })
    }

    fn apply<'a>(
        &'a self,
        receipts: &'a [HistoryRow],
        moves: &'a [Move],
    ) -> BoxFuture<'a, Result<Vec<ClaimStatus>, StoreError>> {
        Box::pin(async move {
            self.writes(apply::DOING)?;
            let held = apply::apply(self.pool(), receipts, moves).await?;
            // A message may be due, or a successor.
            self.inner.delivering.notify();
            Ok(held)
        })
    }

    fn put_destination<'a>(
        &'a self,
        destination: &'a str,
        change: &'a DestinationChange,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.writes(destinations::DOING)?;
            destinations::put(self.pool(), destination, change).await?;
            self.inner.delivering.notify();
            Ok(())
        })
    }

    fn destinations(&self) -> BoxFuture<'_, Result<Vec<DestinationView>, StoreError>> {
        Box::pin(destinations::destinations(self.pool()))
    }

    fn message(
        &self,
        number: MessageNumber,
    ) -> BoxFuture<'_, Result<Option<MessageStory>, StoreError>> {
        Box::pin(listing::message(self.pool(), number))
    }

    fn scan<'a>(&'a self, scan: &'a Scan) -> BoxFuture<'a, Result<ScanPage, StoreError>> {
        Box::pin(listing::scan(self.pool(), scan))
    }

    fn upkeep(&self, kept_for: Duration, limit: usize) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(async move {
            self.writes("keeping messages up")?;
            let after = &self.inner.delivering.upkeep_after;
            upkeep::upkeep(self.pool(), after, kept_for, limit).await
        })
    }

    fn wait_for_work(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.inner.delivering.work.notified())
    }
}
