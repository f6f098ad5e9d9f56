//! Handlers whose writes share a transaction with their outcome.

use std::sync::Arc;

use bytes::Bytes;
use firstwrite_core::protocol::{self, Atomic, AtomicStart, OpenAttempt};
use firstwrite_core::{Certainty, OnLostAnswer, Request, StoreErrorKind, Verdict};
use firstwrite_store::aws_sdk_dynamodb::types::{AttributeValue, ConditionCheck};
use firstwrite_store::{DynamoStore, DynamoTx};
use firstwrite_testkit::{Subject as _, sample};

use crate::emulator::{Tables, on_each};
use crate::subject::{DynamoSubject, make_business, put};

fn request(key: &str) -> Arc<Request> {
    Arc::new(sample::request(&sample::tenant("shop"), &sample::key(key), 1))
}

async fn begun(store: &DynamoStore, key: &str, nonce: u64) -> AtomicStart<DynamoTx> {
    let policy = Arc::new(sample::policy(OnLostAnswer::Resend));
    protocol::begin(store, request(key), policy, nonce).await.unwrap()
}

async fn running(store: &DynamoStore, key: &str, nonce: u64) -> OpenAttempt<DynamoTx> {
    match begun(store, key, nonce).await {
        AtomicStart::Run(held) => held,
        AtomicStart::Refused(verdict, _) => panic!("{verdict:?}"),
    }
}

fn created(text: &'static str) -> http::Response<Bytes> {
    http::Response::builder().status(201).body(Bytes::from_static(text.as_bytes())).unwrap()
}

/// That nobody has taken a name.
fn is_free(tables: &Tables, name: &str) -> ConditionCheck {
    ConditionCheck::builder()
        .table_name(tables.business())
        .key("name", AttributeValue::S(name.to_owned()))
        .condition_expression("attribute_not_exists(#name)")
        .expression_attribute_names("#name", "name")
        .build()
        .unwrap()
}

/// Two processes, both at work on one key: both handlers run, one commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_processes_at_work_on_a_key_one_commits() {
    on_each(async |tables| {
        make_business(&tables).await;
        let subject = DynamoSubject::new(&tables).await;
        let (one, other) = (subject.dynamo(), subject.rival().await);
        let (mut first, mut second) = (running(&one, "k", 1).await, running(&other, "k", 2).await);
        put(&tables.business(), &mut first, "first".to_owned(), "paid".to_owned()).unwrap();
        put(&tables.business(), &mut second, "second".to_owned(), "paid".to_owned()).unwrap();
        let ended = protocol::conclude(&other, second, created("second")).await.unwrap();
        assert!(matches!(ended, Atomic::Kept { .. }), "{ended:?}");
        let ended = protocol::conclude(&one, first, created("first")).await.unwrap();
        let Atomic::Refused(Verdict::Replay { outcome, .. }, _) = ended else {
            panic!("the first answer is the rival's: {ended:?}");
        };
        assert_eq!(outcome.body, firstwrite_core::Body::Bytes(Bytes::from_static(b"second")));
        assert_eq!(subject.row("first").await, None);
        assert_eq!(subject.row("second").await.as_deref(), Some("paid"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn within_a_process_a_rival_is_told_at_once() {
    on_each(async |tables| {
        let subject = DynamoSubject::new(&tables).await;
        let store = subject.dynamo();
        let held = running(&store, "k", 1).await;
        let rival = begun(&store, "k", 2).await;
        assert!(
            matches!(rival, AtomicStart::Refused(Verdict::InProgress { .. }, None)),
            "{rival:?}"
        );
        drop(held);
        drop(running(&store, "k", 3).await);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_condition_of_the_handlers_that_does_not_hold_undoes_everything() {
    on_each(async |tables| {
        make_business(&tables).await;
        let subject = DynamoSubject::new(&tables).await;
        let store = subject.dynamo();
        let mut held = running(&store, "k", 1).await;
        put(&tables.business(), &mut held, "taken".to_owned(), "by k".to_owned()).unwrap();
        protocol::conclude(&store, held, created("k")).await.unwrap();

        let mut held = running(&store, "other", 2).await;
        put(&tables.business(), &mut held, "row".to_owned(), "of other".to_owned()).unwrap();
        held.check(is_free(&tables, "taken")).unwrap();
        let error = protocol::conclude(&store, held, created("other")).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.certainty()),
            (StoreErrorKind::Unavailable, Certainty::Definite)
        );
        assert!(error.to_string().contains("handler's write number 2"), "{error}");
        assert_eq!(subject.row("row").await, None);
        drop(running(&store, "other", 3).await);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_writes_as_many_items_as_the_service_takes() {
    on_each(async |tables| {
        make_business(&tables).await;
        let subject = DynamoSubject::new(&tables).await;
        let store = subject.dynamo();
        let mut held = running(&store, "k", 1).await;
        for at in 0..99 {
            put(&tables.business(), &mut held, format!("row-{at}"), "x".to_owned()).unwrap();
        }
        let one_more = put(&tables.business(), &mut held, "row-99".to_owned(), "x".to_owned());
        assert!(one_more.unwrap_err().to_string().contains("at most 99"));
        protocol::conclude(&store, held, created("k")).await.unwrap();
        assert_eq!(subject.row("row-98").await.as_deref(), Some("x"));
    })
    .await;
}
