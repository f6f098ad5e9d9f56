//! The outbox in the same file. One writer takes every step, so a claim needs no locks and counts are
//! exact; what only looks runs on the readers.

mod apply;
mod claim;
mod destinations;
mod listing;
mod pending;
mod upkeep;

use std::time::Duration;

use firstwrite_core::outbox::{
    ClaimRequest, ClaimStatus, Claimed, DestinationChange, DestinationView, HistoryRow,
    MessageNumber, MessageStory, Move, Outbox, Scan, ScanPage,
};
use firstwrite_core::{BoxFuture, Message, StoreError};

use super::SqliteStore;
use super::driver_error::Failure;
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
        requests: &'a [ClaimRequest],
        nonce: u64,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        let requests = requests.to_vec();
        Box::pin(self.command("claiming messages", move |session| session.claim(&requests, nonce)))
    }

    fn apply<'a>(
        &'a self,
        receipts: &'a [HistoryRow],
        moves: &'a [Move],
    ) -> BoxFuture<'a, Result<Vec<ClaimStatus>, StoreError>> {
        let (receipts, moves) = (receipts.to_vec(), moves.to_vec());
        Box::pin(self.command(apply::DOING, move |session| session.apply_moves(&receipts, &moves)))
    }

    fn put_destination<'a>(
        &'a self,
        destination: &'a str,
        change: &'a DestinationChange,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let (destination, change) = (destination.to_owned(), change.clone());
        Box::pin(self.command(destinations::DOING, move |session| {
            session.put_destination(&destination, &change)
        }))
    }

    fn destinations(&self) -> BoxFuture<'_, Result<Vec<DestinationView>, StoreError>> {
        Box::pin(self.look("listing destinations", View::destinations))
    }

    fn message(
        &self,
        number: MessageNumber,
    ) -> BoxFuture<'_, Result<Option<MessageStory>, StoreError>> {
        Box::pin(self.look("reading a message", move |view| view.message(number)))
    }

    fn scan<'a>(&'a self, scan: &'a Scan) -> BoxFuture<'a, Result<ScanPage, StoreError>> {
        let scan = scan.clone();
        Box::pin(self.look("listing messages", move |view| view.scan(&scan)))
    }

    fn upkeep(&self, kept_for: Duration, limit: usize) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(
            self.command("keeping messages up", move |session| session.upkeep(kept_for, limit)),
        )
    }

    fn wait_for_work(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.threads.work.notified())
    }
}
