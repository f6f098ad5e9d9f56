//! The outbox in the same file. One writer takes every step, so a claim needs no locks and counts are
//! exact; what only looks runs on the readers.

mod apply;
mod claim;
mod destinations;
mod listing;
mod pending;
mod upkeep;

use firstwrite_core::outbox::Outbox;
use firstwrite_core::outbox_methods;

pub(super) use listing::MessageRow;

use super::SqliteStore;
use super::driver_error::Failure;
use super::readers::View;

impl Outbox for SqliteStore {
    outbox_methods!(self;
        enqueue(message) => {
            const DOING: &str = "enqueuing a message";
            let message = message.clone();
            self.command(DOING, move |session| {
                session.refuse_lost(DOING)?;
                session.enqueue(&message, session.now()).map_err(Failure::batch(DOING))
            })
        },
        claim(requests, nonce) => {
            let requests = requests.to_vec();
            self.command("claiming messages", move |session| session.claim(&requests, nonce))
        },
        apply(receipts, moves) => {
            let (receipts, moves) = (receipts.to_vec(), moves.to_vec());
            self.command(apply::DOING, move |session| session.apply_moves(&receipts, &moves))
        },
        put_destination(destination, change) => {
            let (destination, change) = (destination.to_owned(), change.clone());
            self.command(destinations::DOING, move |session| {
                session.put_destination(&destination, &change)
            })
        },
        destinations() => self.look("listing destinations", View::destinations),
        message(number) => self.look("reading a message", move |view| view.message(number)),
        scan(scan) => {
            let scan = scan.clone();
            self.look("listing messages", move |view| view.scan(&scan))
        },
        upkeep(kept_for, limit) => {
            self.command("keeping messages up", move |session| session.upkeep(kept_for, limit))
        },
        wait_for_work() => self.threads.work.notified(),
    );
}
