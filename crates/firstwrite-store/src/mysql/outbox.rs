//! The outbox in the same database. A claim locks its destination's row, so that workers take turns; what is
//! pending of a message is locked while it changes.

mod apply;
mod claim;
mod destinations;
mod listing;
pub(super) mod pending;
mod upkeep;

use firstwrite_core::outbox::Outbox;
use firstwrite_core::{Message, StoreError, outbox_methods};
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
    outbox_methods!(self;
        enqueue(message) => self.enqueue_alone(message),
        claim(requests, nonce) => async move {
            self.writes("claiming messages")?;
            claim::claim(self.pool(), requests, nonce).await
        },
        apply(receipts, moves) => async move {
            self.writes(apply::DOING)?;
            let statuses = apply::apply(self.pool(), receipts, moves).await?;
            // A message may be due, or a successor.
            self.inner.delivering.notify();
            Ok(statuses)
        },
        put_destination(destination, change) => async move {
            self.writes(destinations::DOING)?;
            destinations::put(self.pool(), destination, change).await?;
            self.inner.delivering.notify();
            Ok(())
        },
        destinations() => destinations::destinations(self.pool()),
        message(number) => listing::message(self.pool(), number),
        scan(scan) => listing::scan(self.pool(), scan),
        upkeep(kept_for, limit) => async move {
            self.writes("keeping messages up")?;
            let after = &self.inner.delivering.upkeep_after;
            upkeep::upkeep(self.pool(), after, kept_for, limit).await
        },
        wait_for_work() => self.inner.delivering.work.notified(),
    );
}
