//! Handlers whose writes share a transaction of DynamoDB with their outcome, on an emulator, over sockets.

use std::env;

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use firstwrite::store::aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, Put,
    ScalarAttributeType,
};
use firstwrite::store::{DynamoOptions, DynamoStore};
use firstwrite::{IdempotencyLayer, Policy, Response, Tenant, Transaction, json};
use http::StatusCode;
use serde_json::Value;

use crate::app::{App, Effects, payment};

const ADDRESS: &str = "FIRSTWRITE_TEST_DYNAMODB";

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

/// Two processes do not know of each other, and nothing is locked: both may run a handler, one commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_over_one_table_commit_one_payment_per_key() {
    let Ok(endpoint) = env::var(ADDRESS) else {
        let is_required = env::var("FIRSTWRITE_TEST_REQUIRE").is_ok_and(|value| value == "all");
        assert!(!is_required, "{ADDRESS} is not set and everything is required");
        println!("skipped: dynamodb ({ADDRESS} is not set)");
        return;
    };
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
