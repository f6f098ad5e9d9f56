//! Handlers whose writes share a transaction of DynamoDB with their outcome, on an emulator, over sockets.

use std::env;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use firstwrite::store::aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, Put,
    ScalarAttributeType,
};
use firstwrite::store::{DynamoOptions, DynamoStore};
use firstwrite::{IdempotencyLayer, Key, Policy, Response, Tenant, Transaction, json};
use firstwrite_core::{RecordId, StateKind, Store as _, protocol};
use firstwrite_testkit::{Network, Proxy};
use http::StatusCode;
use serde_json::Value;
use tokio::time::timeout;

use crate::app::{App, Effects, payment};

const ADDRESS: &str = "FIRSTWRITE_TEST_DYNAMODB";

/// A loaded machine may be slow.
const WAITED_MAX: Duration = Duration::from_mins(2);

/// Writes a payment with an id of its own, so that two effects are two items.
async fn pay(
    State(effects): State<Effects>,
    mut tx: Transaction<DynamoStore>,
    Json(order): Json<Value>,
) -> Response {
    effects.happen();
    let (id, key) = (fastrand::u128(..).to_string(), tx.attempt().key().as_str().to_owned());
    let payment = Put::builder()
        .table_name(order["table"].as_str().unwrap())
        .item("id", AttributeValue::S(id.clone()))
        .item("key", AttributeValue::S(key))
        .build()
        .unwrap();
    tx.put(payment).unwrap();
    let status = if order["refused"] == true { 402 } else { 201 };
    tx.commit(json(StatusCode::from_u16(status).unwrap(), &id)).await
}

async fn app(url: &str) -> App {
    let layer = IdempotencyLayer::atomic(DynamoStore::connect(url).await.unwrap())
        .policy(Policy::atomic())
        .unwrap()
        .single_tenant(Tenant::new("acme").unwrap());
    let effects = Effects::default();
    let router = Router::new().route("/payments", post(pay)).layer(layer);
    App::serve(router.with_state(effects.clone()), effects).await
}

async fn make_payments(store: &DynamoStore, table: &str) {
    let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash);
    let id = AttributeDefinition::builder().attribute_name("id");
    let id = id.attribute_type(ScalarAttributeType::S).build().unwrap();
    let making = store.client().create_table().table_name(table).attribute_definitions(id);
    let making = making.billing_mode(BillingMode::PayPerRequest);
    making.key_schema(key.build().unwrap()).send().await.unwrap();
}

async fn payments(store: &DynamoStore, table: &str) -> usize {
    store.client().scan().table_name(table).send().await.unwrap().items().len()
}

/// The emulator that the environment names; `None`, and a line that says so, if it does not.
#[expect(clippy::print_stdout, reason = "a backend that is skipped is named")]
fn endpoint() -> Option<String> {
    let endpoint = env::var(ADDRESS).ok();
    if endpoint.is_none() {
        let is_required = env::var("FIRSTWRITE_TEST_REQUIRE").is_ok_and(|value| value == "all");
        assert!(!is_required, "{ADDRESS} is not set and everything is required");
        println!("skipped: dynamodb ({ADDRESS} is not set)");
    }
    endpoint
}

/// Two processes do not know of each other, and nothing is locked: both may run a handler, one commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_over_one_table_commit_one_payment_per_key() {
    let Some(endpoint) = endpoint() else { return };
    let name = format!("firstwrite-layer-{:016x}", fastrand::u64(..));
    let (url, table) =
        (format!("dynamodb:{name}?endpoint={endpoint}&shards=2"), format!("{name}.payments"));
    DynamoStore::migrate(&url, DynamoOptions::default()).await.unwrap();
    let store = DynamoStore::connect(&url).await.unwrap();
    make_payments(&store, &table).await;
    let apps = [app(&url).await, app(&url).await];
    let body = format!("{{\"table\":\"{table}\"}}");
    let mut answers = Vec::new();
    for number in 0..100 {
        let (app, key) = (apps[number % 2].clone(), format!("k{}", number % 10));
        let body = body.clone();
        answers.push(tokio::spawn(async move { app.send(payment(&key, &body)).await }));
    }
    for answer in answers {
        let answer = answer.await.unwrap();
        assert!([201, 409].contains(&answer.status.as_u16()), "{answer:?}");
    }
    assert_eq!(payments(&store, &table).await, 10);
    for number in 0..10 {
        let again = apps[number % 2].send(payment(&format!("k{number}"), &body)).await;
        assert!(again.summary().ends_with(" again"), "{again:?}");
    }
    // A refusal is kept, and what was written for it is not.
    let refused = format!("{{\"table\":\"{table}\",\"refused\":true}}");
    for again in [false, true] {
        let answer = apps[0].send(payment("refused", &refused)).await;
        assert_eq!(answer.status, 402, "{answer:?}");
        assert_eq!(answer.headers.contains_key("idempotent-replayed"), again, "{answer:?}");
    }
    assert_eq!(payments(&store, &table).await, 10);
    for table in [&name, &table] {
        store.client().delete_table().table_name(table).send().await.unwrap();
    }
}

/// Longer than the store's own calls take, and short enough to wait for its end.
const SHORT_LEASE: Duration = Duration::from_secs(3);

/// The service takes a reservation and is silent for longer than its lease. Nothing ran under it, so the process that
/// sent it takes it back, also after the sweep of another process has made it uncertain.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_was_reserved_while_the_service_stood_still_is_free_afterwards() {
    let Some(endpoint) = endpoint() else { return };
    let name = format!("firstwrite-frozen-{:016x}", fastrand::u64(..));
    let url = |endpoint: &str| format!("dynamodb:{name}?endpoint={endpoint}&shards=2");
    DynamoStore::migrate(&url(&endpoint), DynamoOptions::default()).await.unwrap();
    let other = DynamoStore::connect(&url(&endpoint)).await.unwrap();
    let proxy = Proxy::new(&endpoint).await.unwrap();
    let mut options = DynamoOptions::default();
    options.call_timeout = Duration::from_millis(700);
    let store = DynamoStore::connect_with(&url(&proxy.url(&endpoint)), options).await.unwrap();
    let layer = IdempotencyLayer::new(Arc::new(store))
        .policy(Policy::default().lease(SHORT_LEASE))
        .unwrap()
        .single_tenant(Tenant::new("acme").unwrap());
    let effects = Effects::default();
    let paid = |State(effects): State<Effects>| async move {
        effects.happen();
        StatusCode::CREATED
    };
    let router = Router::new().route("/payments", post(paid)).layer(layer);
    let app = App::serve(router.with_state(effects.clone()), effects).await;
    let id = RecordId::of(&Tenant::new("acme").unwrap(), &Key::new("k").unwrap());
    let state = async || other.get(id).await.unwrap().map(|found| found.record.state.kind());

    proxy.set(Network::AnswersLost);
    let stand_still = async {
        // The reservation reaches the service, and nothing behind it does.
        while state().await.is_none() {}
        proxy.set(Network::Down);
    };
    let (answer, ()) = tokio::join!(app.send(payment("k", "{}")), stand_still);
    assert_eq!(answer.status, 503);
    let lapse = async {
        while state().await == Some(StateKind::Reserved) {
            protocol::sweep_once(&other, 100).await.unwrap();
        }
    };
    timeout(WAITED_MAX, lapse).await.expect("the lease runs out");
    assert_eq!(state().await, Some(StateKind::Uncertain), "as another process sees it");
    proxy.set(Network::Up);
    let freed = async { while state().await.is_some() {} };
    timeout(WAITED_MAX, freed).await.expect("the reservation is taken back");
    assert_eq!(app.send(payment("k", "{}")).await.status, 201);
    assert_eq!(app.effects.count(), 1);
    other.client().delete_table().table_name(&name).send().await.unwrap();
}
