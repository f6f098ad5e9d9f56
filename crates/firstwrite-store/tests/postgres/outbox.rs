//! The outbox on a real server: what this store promises beyond the suite.

mod counts;
mod interim;
mod late;
mod nudges;
mod operators;
mod orders;
mod snapshots;
mod workers;

use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::outbox::{
    Claimed, Delivery, DestinationView, Ending, Held, MessageQuery, MessageState, Next, Outbox,
    Parcel, Receipt, Settlement, Want, protocol,
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

fn want(destination: &str, count_max: usize) -> Want {
    Want { destination: destination.to_owned(), count_max, lease_for: LEASE }
}

async fn claim_all(store: &PostgresStore, destination: &str, count_max: usize) -> Claimed {
    store.claim(&[want(destination, count_max)], fastrand::u64(..)).await.unwrap()
}

/// What a claim gives, by their derived keys, sorted.
async fn claim(store: &PostgresStore, destination: &str, count_max: usize) -> Vec<Parcel> {
    let mut parcels = claim_all(store, destination, count_max).await.parcels;
    parcels.sort_by_key(|parcel| parcel.number);
    parcels
}

fn keys(parcels: &[Parcel]) -> Vec<&str> {
    parcels.iter().map(|parcel| parcel.derived_key.trim_end_matches(":s")).collect()
}

fn receipt(id: &str) -> Receipt {
    Receipt { provider_id: Some(id.to_owned()) }
}

fn settlement(parcel: &Parcel, ending: Ending, next: Next) -> Settlement {
    Settlement {
        claim: parcel.claim(),
        delivery: Some(Delivery::new(ending, "what happened").with_status(200)),
        next,
        answer: None,
    }
}

fn arrived(parcel: &Parcel) -> Settlement {
    let receipt = receipt(&format!("id-{}", parcel.number));
    settlement(parcel, Ending::Delivered(receipt.clone()), Next::Delivered(receipt))
}

async fn settle(store: &PostgresStore, settlements: &[Settlement]) -> Vec<Held> {
    protocol::settle(store, &[], settlements).await.unwrap()
}

async fn deliver(store: &PostgresStore, parcels: &[Parcel]) {
    let all: Vec<Settlement> = parcels.iter().map(arrived).collect();
    assert!(settle(store, &all).await.iter().all(|held| *held == Held::Yes));
}

fn somebody(action: &str) -> AuditEntry {
    let (actor, reason) = ("ops".to_owned(), "because".to_owned());
    AuditEntry { actor, action: action.to_owned(), reason }
}

async fn states(store: &PostgresStore) -> Vec<(String, MessageState)> {
    let query = MessageQuery { limit: 1000, ..MessageQuery::default() };
    let page = store.messages(&query).await.unwrap();
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
