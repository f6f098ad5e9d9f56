//! The outbox in the same database. A claim locks its destination's row, so that workers take turns; what is
//! pending of a message is locked while it changes.

mod claim;
mod deliveries;
mod destinations;
pub(super) mod enqueue;
mod listing;
mod operate;
mod pending;
mod settle;
mod tallies;
mod upkeep;
mod written;

use std::time::Duration;

use firstwrite_core::outbox::{
    Claimed, Counted, DestinationView, Held, MessageNumber, MessagePage, MessageQuery,
    MessageStory, Outbox, Received, Resolution, Settlement, Switch, Want, WrittenPage,
    WrittenQuery,
};
use firstwrite_core::{AuditEntry, BoxFuture, Fence, Message, StoreError};
use tokio::sync::{Mutex, Notify};

use super::MysqlStore;
use super::flight::Flight;

/// What the outbox remembers between two steps.
#[derive(Debug, Default)]
pub(super) struct Delivering {
    /// Where the next step of deleting begins.
    upkeep_after: Mutex<i64>,
    nudge: Notify,
}

impl Delivering {
    /// Says that there may be something to claim.
    pub(super) fn nudge(&self) {
        self.nudge.notify_waiters();
        self.nudge.notify_one();
    }
}

impl MysqlStore {
    async fn enqueue_alone(&self, message: &Message) -> Result<(), StoreError> {
        const DOING: &str = "enqueuing a message";
        self.writes(DOING)?;
        enqueue::check(message)?;
        let mut flight = Flight::transaction();
        enqueue::put(&mut flight, message);
        enqueue::put_tallies(&mut flight, std::slice::from_ref(message));
        flight.commit();
        self.pool().fly(DOING, &flight).await?;
        self.inner.delivering.nudge();
        Ok(())
    }
}

impl Outbox for MysqlStore {
    fn enqueue<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(self.enqueue_alone(message))
    }

    fn claim<'a>(
        &'a self,
        wants: &'a [Want],
        nonce: u64,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        Box::pin(async move {
            self.writes("claiming messages")?;
            claim::claim(self.pool(), wants, nonce).await
        })
    }

    fn settle<'a>(
        &'a self,
        receipts: &'a [Received],
        settlements: &'a [Settlement],
    ) -> BoxFuture<'a, Result<Vec<Held>, StoreError>> {
        Box::pin(async move {
            self.writes("settling messages")?;
            let held = settle::settle(self.pool(), receipts, settlements).await?;
            // A successor may have been let go.
            self.inner.delivering.nudge();
            Ok(held)
        })
    }

    fn switch<'a>(
        &'a self,
        destination: &'a str,
        switch: &'a Switch,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.writes("switching a destination")?;
            destinations::switch(self.pool(), destination, switch).await?;
            self.inner.delivering.nudge();
            Ok(())
        })
    }

    fn pause<'a>(
        &'a self,
        destination: &'a str,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.writes("pausing a destination")?;
            destinations::pause(self.pool(), destination, by).await
        })
    }

    fn resume<'a>(
        &'a self,
        destination: &'a str,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.writes("resuming a destination")?;
            destinations::resume(self.pool(), destination, by).await?;
            self.inner.delivering.nudge();
            Ok(())
        })
    }

    fn destinations(&self) -> BoxFuture<'_, Result<Vec<DestinationView>, StoreError>> {
        Box::pin(destinations::destinations(self.pool()))
    }

    fn messages<'a>(
        &'a self,
        query: &'a MessageQuery,
    ) -> BoxFuture<'a, Result<MessagePage, StoreError>> {
        Box::pin(listing::messages(self.pool(), query))
    }

    fn count<'a>(&'a self, query: &'a MessageQuery) -> BoxFuture<'a, Result<Counted, StoreError>> {
        Box::pin(listing::count(self.pool(), query))
    }

    fn message(
        &self,
        number: MessageNumber,
    ) -> BoxFuture<'_, Result<Option<MessageStory>, StoreError>> {
        Box::pin(listing::message(self.pool(), number))
    }

    fn written<'a>(
        &'a self,
        query: &'a WrittenQuery,
    ) -> BoxFuture<'a, Result<WrittenPage, StoreError>> {
        Box::pin(written::written(self.pool(), query))
    }

    fn redrive<'a>(
        &'a self,
        query: &'a MessageQuery,
        limit: usize,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<usize, StoreError>> {
        Box::pin(async move {
            self.writes("redriving messages")?;
            let count = operate::redrive(self.pool(), query, limit, by).await?;
            self.inner.delivering.nudge();
            Ok(count)
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
            self.writes("resolving a message")?;
            let held = operate::resolve(self.pool(), number, seen, resolution, by).await?;
            self.inner.delivering.nudge();
            Ok(held)
        })
    }

    fn upkeep(&self, kept_for: Duration, limit: usize) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(async move {
            self.writes("keeping messages up")?;
            let after = &self.inner.delivering.upkeep_after;
            upkeep::upkeep(self.pool(), after, kept_for, limit).await
        })
    }

    fn nudged(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.inner.delivering.nudge.notified())
    }
}
