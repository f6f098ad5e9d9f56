//! The outbox in PostgreSQL: a log of messages, and a queue of what is under way.
//!
//! - **The log** is `messages`. It is all that the business transaction writes, and nothing in it changes.
//! - **The queue** is `pending`. A worker takes messages in from the log under a lock that only one holds at
//!   a time ([`intake`]), in the statement that claims ([`claim`]): what is wanted at once is written
//!   already claimed, so that a message costs one insert and one delete.
//! - **What happened** is `deliveries`. A message that is in neither was not taken in yet.
//!
//! Numbers are given out before their transactions commit: [`numbers`] says what may still come to light.

mod apply;
mod claim;
mod destinations;
mod hints;
mod intake;
mod listing;
mod notifier;
mod numbers;
mod parts;
mod statements;
mod upkeep;

pub(super) use parts::short_millis;

use std::sync::Arc;

use firstwrite_core::outbox::{
    ClaimRequest, ClaimStatus, Claimed, HistoryRow, Move, MoveGuard, Outbox,
};
use firstwrite_core::{Fence, Message, StoreError, lock, outbox_methods};
use tokio::sync::Mutex;

use super::connect::Role;
use super::link::OwnClient;
use super::tx::statements::messages_values;
use super::{Inner, PostgresStore, Shared};
use crate::transactions::ENQUEUING;
use claim::{Again, Claiming};
use hints::Leases;
use notifier::Notifier;
pub(super) use statements::OutboxSql;
use upkeep::Upkeep;

/// Outbox state of this process. Claims and settlements have a connection each, opened on first use: handlers may
/// hold all connections of the pool.
pub(super) struct Delivering {
    claiming: Mutex<Claiming>,
    settling: Mutex<OwnClient>,
    leases: Arc<std::sync::Mutex<Leases>>,
    upkeep: Mutex<Upkeep>,
    notifier: Arc<Notifier>,
}

impl Delivering {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        let client = || OwnClient::new(shared, Role::Outbox, None);
        let leases = Arc::new(std::sync::Mutex::default());
        Self {
            claiming: Mutex::new(Claiming::new(client(), Arc::clone(&leases))),
            settling: Mutex::new(client()),
            leases,
            upkeep: Mutex::default(),
            notifier: Arc::new(Notifier::new()),
        }
    }

    /// Messages were committed.
    pub(super) fn wrote(&self, shared: &Arc<Shared>) {
        self.notifier.notify();
        self.notifier.tell(shared);
    }

    /// Closes the connections; later use opens them again.
    pub(super) async fn close(&self) {
        self.notifier.close();
        self.claiming.lock().await.close();
        self.settling.lock().await.drop_client();
    }
}

impl PostgresStore {
    /// A handler's transaction with messages was committed.
    pub(super) fn wrote_messages(&self) {
        let Inner { shared, delivering, .. } = &*self.inner;
        delivering.wrote(shared);
    }

    async fn enqueue_message(&self, message: &Message) -> Result<(), StoreError> {
        self.writes(ENQUEUING)?;
        let Inner { shared, delivering, .. } = &*self.inner;
        let values = messages_values(message.record(), std::slice::from_ref(message));
        let messages = &shared.sql.tx.messages;
        shared.write_alone(ENQUEUING, messages, &values.parameters()).await?;
        delivering.wrote(shared);
        Ok(())
    }

    async fn claim_messages(
        &self,
        requests: &[ClaimRequest],
        nonce: u64,
    ) -> Result<Claimed, StoreError> {
        self.writes(claim::DOING)?;
        let Inner { shared, delivering, .. } = &*self.inner;
        let mut claiming = delivering.claiming.lock().await;
        delivering.notifier.claiming();
        let (claimed, again) = claiming.claim(shared, requests, nonce).await?;
        match again {
            Again::AtOnce => delivering.notifier.notify(),
            Again::Soon => delivering.notifier.notify_soon(),
            Again::WhenTold => {}
        }
        Ok(claimed)
    }

    async fn apply_moves(
        &self,
        receipts: &[HistoryRow],
        moves: &[Move],
    ) -> Result<Vec<ClaimStatus>, StoreError> {
        let mut held = self.apply_taken_in(receipts, moves).await?;
        let never_claimed = Fence::from_u64(0);
        let is_left = |(step, held): (&Move, &ClaimStatus)| {
            matches!(step.guard, MoveGuard::Idle(fence) | MoveGuard::Unsettled(fence) if fence == never_claimed)
                && *held == ClaimStatus::Lost
        };
        if moves.iter().zip(&held).any(is_left) {
            // Perhaps no worker has taken them in yet. A move that was taken is not taken again.
            self.claim_messages(&[], 0).await?;
            for (held, again) in held.iter_mut().zip(self.apply_taken_in(&[], moves).await?) {
                *held = if *held == ClaimStatus::Current { ClaimStatus::Current } else { again };
            }
        }
        let is_due = |step: &Move| !matches!(step.guard, MoveGuard::Claimed(_));
        if moves.iter().any(is_due) {
            self.inner.delivering.notifier.notify();
        }
        Ok(held)
    }

    async fn apply_taken_in(
        &self,
        receipts: &[HistoryRow],
        moves: &[Move],
    ) -> Result<Vec<ClaimStatus>, StoreError> {
        self.writes(apply::DOING)?;
        let Inner { shared, delivering, .. } = &*self.inner;
        let mut client = delivering.settling.lock().await;
        let held = apply::apply(shared, &mut client, receipts, moves).await?;
        drop(client);
        let mut leases = lock(&delivering.leases);
        for step in moves {
            leases.end(step.number);
        }
        Ok(held)
    }
}

impl Outbox for PostgresStore {
    outbox_methods!(self;
        enqueue(message) => self.enqueue_message(message),
        claim(requests, nonce) => self.claim_messages(requests, nonce),
        apply(receipts, moves) => self.apply_moves(receipts, moves),
        put_destination(destination, change) => async move {
            self.writes(destinations::DOING)?;
            destinations::put(self.shared(), destination, change).await?;
            self.inner.delivering.notifier.notify();
            Ok(())
        },
        destinations() => destinations::list(self.shared()),
        message(number) => listing::message(self.shared(), number),
        scan(scan) => listing::scan(self.shared(), scan),
        upkeep(kept_for, limit) => async move {
            self.writes("keeping the outbox in order")?;
            let mut upkeep = self.inner.delivering.upkeep.lock().await;
            upkeep.go(self.shared(), kept_for, limit).await
        },
        wait_for_work() => async move {
            let Inner { shared, delivering, .. } = &*self.inner;
            delivering.notifier.listen(shared);
            delivering.notifier.wait_for_work().await;
        },
    );
}
