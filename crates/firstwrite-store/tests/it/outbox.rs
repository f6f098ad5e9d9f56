//! What the outbox of the `SQLite` store promises beyond the conformance suite: what is in its file, and
//! what happens to it when a process ends, a closure is undone or a row is damaged.

mod answers;
mod damage;
mod history_loss;
mod plans;
mod restart;
mod upkeep;
mod writing;

use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::outbox::{
    ClaimRequest, ClaimStatus, ClaimedMessage, Delivery, DestinationView, Ending, MessageQuery,
    MessageView, Next, Outbox, Receipt, Settlement, protocol,
};
use firstwrite_core::{AuditEntry, Key, Message};
use firstwrite_store::SqliteStore;

use crate::shop::{LEASE, tenant};

fn message(key: &str) -> Message {
    let payload = Bytes::from(format!("payload of {key}"));
    Message::new(&tenant(), &Key::new(key).unwrap(), "step", "provider", payload).unwrap()
}

async fn enqueue(store: &SqliteStore, keys: &[&str]) {
    for key in keys {
        store.enqueue(&message(key)).await.unwrap();
    }
}

async fn claim(store: &SqliteStore, count_max: usize) -> Vec<ClaimedMessage> {
    let request = ClaimRequest { destination: "provider".to_owned(), count_max, lease_for: LEASE };
    store.claim(&[request], 7).await.unwrap().messages
}

/// Claims exactly one message.
async fn claim_one(store: &SqliteStore) -> ClaimedMessage {
    let mut claimed_messages = claim(store, 1).await;
    claimed_messages.pop().expect("a message is due")
}

fn settlement(
    claimed_message: &ClaimedMessage,
    delivery: Option<Delivery>,
    next: Next,
) -> Settlement {
    Settlement { claim: claimed_message.claim(), delivery, next, answer: None }
}

fn receipt(id: &str) -> Receipt {
    Receipt { provider_id: Some(id.to_owned()) }
}

fn delivered(claimed_message: &ClaimedMessage, id: &str) -> Settlement {
    let delivery = Delivery::new(Ending::Delivered(receipt(id)), "in a test").with_status(201);
    settlement(claimed_message, Some(delivery), Next::Delivered(receipt(id)))
}

fn failed(claimed_message: &ClaimedMessage, next: Next) -> Settlement {
    let delivery = Delivery::new(Ending::Unknown, "it was away").with_status(503);
    settlement(claimed_message, Some(delivery), next)
}

async fn settle(store: &SqliteStore, settlement: Settlement) {
    assert_eq!(protocol::settle(store, &[], &[settlement]).await.unwrap(), [ClaimStatus::Current]);
}

/// Every message, the oldest first.
async fn views(store: &SqliteStore) -> Vec<MessageView> {
    let query = MessageQuery { limit: 100, ..MessageQuery::default() };
    protocol::messages(store, &query).await.unwrap().messages
}

async fn destination(store: &SqliteStore) -> DestinationView {
    let mut all = store.destinations().await.unwrap();
    assert_eq!(all.len(), 1);
    all.pop().expect("one destination")
}

/// Open, unknown, dead and delivered messages.
async fn counts(store: &SqliteStore) -> [i64; 4] {
    let view = destination(store).await;
    [view.open_count, view.unknown_count, view.dead_count, view.delivered_count]
}

fn ada(action: &str) -> AuditEntry {
    let reason = "asked the provider".to_owned();
    AuditEntry { actor: "ada".to_owned(), action: action.to_owned(), reason }
}

const DAY: Duration = Duration::from_hours(24);
