//! Outcomes that do not fit into one item.

use firstwrite_core::{Body, Fence, Inserted, Outcome, Policy, Record, State, Store as _};
use firstwrite_testkit::Subject as _;

use crate::emulator::{Tables, on_each};
use crate::subject::{DynamoSubject, completed};

fn outcome(record: Record) -> Outcome {
    match record.state {
        State::Completed { outcome, .. } => outcome,
        State::Reserved(_) | State::Uncertain { .. } => panic!("a completed record"),
    }
}

fn body_bytes(outcome: &Outcome) -> Option<usize> {
    match &outcome.body {
        Body::Bytes(bytes) => Some(bytes.len()),
        Body::Tombstone | Body::Sealed(_) | Body::Released => None,
    }
}

async fn item_count(tables: &Tables, subject: &DynamoSubject) -> usize {
    let table = subject.url.split(['?', ':']).nth(1).unwrap();
    let mut pages = tables.admin.scan().table_name(table).into_paginator().items().send();
    let mut count = 0;
    while let Some(item) = pages.next().await {
        item.unwrap();
        count += 1;
    }
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_size_is_kept_whole_up_to_the_largest() {
    on_each(async |tables| {
        let subject = DynamoSubject::new(&tables).await;
        let store = subject.dynamo();
        for bytes in [0, 349_000, 350_000, 360_000, 410_000, 1_300_000] {
            let draft = completed(&format!("k-{bytes}"), Fence::first(1), bytes);
            store.insert(&draft).await.unwrap();
            let stands = store.insert(&draft).await.unwrap();
            let Inserted::Stands(found) = stands else { panic!("{bytes} bytes stand there") };
            assert_eq!(body_bytes(&outcome(found.record)), Some(bytes));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_large_leaves_a_tombstone_and_a_spent_key() {
    on_each(async |tables| {
        let subject = DynamoSubject::new(&tables).await;
        let store = subject.dynamo();
        let draft = completed("k", Fence::first(1), 6_500_000);
        assert!(matches!(store.insert(&draft).await.unwrap(), Inserted::Done(_)));
        let kept = outcome(store.get(draft.id).await.unwrap().unwrap().record);
        assert_eq!((kept.status.as_u16(), &kept.body), (201, &Body::Tombstone));
        assert!(matches!(store.insert(&draft).await.unwrap(), Inserted::Stands(_)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_go_with_their_record() {
    on_each(async |tables| {
        let subject = DynamoSubject::new(&tables).await;
        let store = subject.dynamo();
        let empty = item_count(&tables, &subject).await;
        store.insert(&completed("k", Fence::first(1), 900_000)).await.unwrap();
        assert_eq!(item_count(&tables, &subject).await, empty + 1 + 3);
        let policy = Policy::default();
        subject.advance(policy.retention + policy.slack).await;
        assert_eq!(store.reap(10).await.unwrap(), 1);
        assert_eq!(item_count(&tables, &subject).await, empty);
    })
    .await;
}
