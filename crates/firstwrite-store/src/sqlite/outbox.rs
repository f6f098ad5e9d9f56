//! The outbox in the same file. One writer takes every step, so a claim needs no locks and counts are
//! exact; what only looks runs on the readers.

mod answer;
mod claim;
mod deliveries;
mod destinations;
mod enqueue;
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

use super::SqliteStore;
use super::fault::Failure;
use super::readers::View;

impl Outbox for SqliteStore {
    fn enqueue<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Result<(), StoreError>> {
        const DOING: &str = "enqueuing a message";
        let message = message.clone();
        Box::pin(self.command(DOING, move |session| {
            session.refuse_lost(DOING)?;
            session.enqueue(&message, session.now()).map_err(Failure::batch(DOING))
        }))
    }

    fn claim<'a>(
        &'a self,
        wants: &'a [Want],
        nonce: u64,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        let wants = wants.to_vec();
        Box::pin(self.command("claiming messages", move |session| session.claim(&wants, nonce)))
    }

    fn settle<'a>(
        &'a self,
        receipts: &'a [Received],
        settlements: &'a [Settlement],
    ) -> BoxFuture<'a, Result<Vec<Held>, StoreError>> {
        let (receipts, settlements) = (receipts.to_vec(), settlements.to_vec());
        Box::pin(
            self.command("settling messages", move |session| {
                session.settle(&receipts, &settlements)
            }),
        )
    }

    fn switch<'a>(
        &'a self,
        destination: &'a str,
        switch: &'a Switch,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let (destination, switch) = (destination.to_owned(), switch.clone());
        Box::pin(self.command("switching a destination", move |session| {
            session.switch(&destination, &switch)
        }))
    }

    fn pause<'a>(
        &'a self,
        destination: &'a str,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let (destination, by) = (destination.to_owned(), by.clone());
        Box::pin(
            self.command("pausing a destination", move |session| session.pause(&destination, &by)),
        )
    }

    fn resume<'a>(
        &'a self,
        destination: &'a str,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let (destination, by) = (destination.to_owned(), by.clone());
        Box::pin(
            self.command("resuming a destination", move |session| {
                session.resume(&destination, &by)
            }),
        )
    }

    fn destinations(&self) -> BoxFuture<'_, Result<Vec<DestinationView>, StoreError>> {
        Box::pin(self.look("listing destinations", View::destinations))
    }

    fn messages<'a>(
        &'a self,
        query: &'a MessageQuery,
    ) -> BoxFuture<'a, Result<MessagePage, StoreError>> {
        let query = query.clone();
        Box::pin(self.look("listing messages", move |view| view.messages(&query)))
    }

    fn count<'a>(&'a self, query: &'a MessageQuery) -> BoxFuture<'a, Result<Counted, StoreError>> {
        let query = query.clone();
        Box::pin(self.look("counting messages", move |view| view.count(&query)))
    }

    fn message(
        &self,
        number: MessageNumber,
    ) -> BoxFuture<'_, Result<Option<MessageStory>, StoreError>> {
        Box::pin(self.look("reading a message", move |view| view.message(number)))
    }

    fn written<'a>(
        &'a self,
        query: &'a WrittenQuery,
    ) -> BoxFuture<'a, Result<WrittenPage, StoreError>> {
        let query = query.clone();
        Box::pin(self.look("reading messages", move |view| view.written(&query)))
    }

    fn redrive<'a>(
        &'a self,
        query: &'a MessageQuery,
        limit: usize,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<usize, StoreError>> {
        let (query, by) = (query.clone(), by.clone());
        Box::pin(
            self.command("redriving messages", move |session| session.redrive(&query, limit, &by)),
        )
    }

    fn resolve<'a>(
        &'a self,
        number: MessageNumber,
        seen: Fence,
        resolution: &'a Resolution,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<Held, StoreError>> {
        let (resolution, by) = (resolution.clone(), by.clone());
        Box::pin(self.command("resolving a message", move |session| {
            session.resolve(number, seen, &resolution, &by)
        }))
    }

    fn upkeep(&self, kept_for: Duration, limit: usize) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(
            self.command("keeping messages up", move |session| session.upkeep(kept_for, limit)),
        )
    }

    fn nudged(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.threads.nudge.notified())
    }
}
