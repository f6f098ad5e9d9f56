//! The outbox on a real server: what this store promises beyond the suite.

mod counts;
mod history_loss;
mod interim;
mod late;
mod notifications;
mod operators;
mod orders;
mod snapshots;
mod workers;

use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::outbox::{
    ClaimRequest, ClaimStatus, Claimed, ClaimedMessage, Delivery, DestinationView, Ending,
    MessageQuery, MessageState, Next, Outbox, Receipt, Settlement, protocol,
};
use firstwrite_core::{AuditEntry, Message};
use firstwrite_store::{PostgresOptions, PostgresStore};
use firstwrite_testkit::sample;

use crate::server::Database;
use crate::subject::PostgresSubject;

pub(crate) const LEASE: Duration = Duration::from_secs(45);

async fn subject(database: &Database) -> PostgresSubject {
    PostgresSubject::new(database, PostgresOptions::default()).await
}

fn message(key: &str, destination: &str) -> Message {
    let payload = Bytes::from(format!("payload of {key}"));
    Message::new(&sample::tenant("shop"), &sample::key(key), "s", destination, payload).unwrap()
}

async fn enqueue(store: &PostgresStore, keys: &[&str], destination: &str) {
    for key in keys {
        store.enqueue(&message(key, destination)).await.unwrap();
    }
}

fn request(destination: &str, count_max: usize) -> ClaimRequest {
    ClaimRequest { destination: destination.to_owned(), count_max, lease_for: LEASE }
}

async fn claim_all(store: &PostgresStore, destination: &str, count_max: usize) -> Claimed {
    store.claim(&[request(destination, count_max)], fastrand::u64(..)).await.unwrap()
}

/// What a claim gives, by their derived keys, sorted.
async fn claim(store: &PostgresStore, destination: &str, count_max: usize) -> Vec<ClaimedMessage> {
    let mut claimed_messages = claim_all(store, destination, count_max).await.messages;
    claimed_messages.sort_by_key(|claimed_message| claimed_message.number);
    claimed_messages
}

fn keys(claimed_messages: &[ClaimedMessage]) -> Vec<&str> {
    claimed_messages
        .iter()
        .map(|claimed_message| claimed_message.derived_key.trim_end_matches(":s"))
        .collect()
}

fn receipt(id: &str) -> Receipt {
    Receipt { provider_id: Some(id.to_owned()) }
}

fn settlement(claimed_message: &ClaimedMessage, ending: Ending, next: Next) -> Settlement {
    Settlement {
        claim: claimed_message.claim(),
        delivery: Some(Delivery::new(ending, "what happened").with_status(200)),
        next,
        answer: None,
    }
}

fn arrived(claimed_message: &ClaimedMessage) -> Settlement {
    let receipt = receipt(&format!("id-{}", claimed_message.number));
    settlement(claimed_message, Ending::Delivered(receipt.clone()), Next::Delivered(receipt))
}

async fn settle(store: &PostgresStore, settlements: &[Settlement]) -> Vec<ClaimStatus> {
    protocol::settle(store, &[], settlements).await.unwrap()
}

async fn deliver(store: &PostgresStore, claimed_messages: &[ClaimedMessage]) {
    let all: Vec<Settlement> = claimed_messages.iter().map(arrived).collect();
    assert!(settle(store, &all).await.iter().all(|held| *held == ClaimStatus::Current));
}

fn somebody(action: &str) -> AuditEntry {
    let (actor, reason) = ("ops".to_owned(), "because".to_owned());
    AuditEntry { actor, action: action.to_owned(), reason }
}

async fn states(store: &PostgresStore) -> Vec<(String, MessageState)> {
    let query = MessageQuery { limit: 1000, ..MessageQuery::default() };
    let page = protocol::messages(store, &query).await.unwrap();
    let shown = |key: &str| key.trim_end_matches(":s").to_owned();
    page.messages.iter().map(|one| (shown(&one.derived_key), one.state)).collect()
}

async fn destination(store: &PostgresStore, name: &str) -> DestinationView {
    let all = store.destinations().await.unwrap();
    all.into_iter().find(|one| one.name == name).unwrap()
}

async fn number(subject: &PostgresSubject, sql: &str) -> i64 {
    subject.admin().query_one(sql, &[]).await.unwrap().get(0)
}
