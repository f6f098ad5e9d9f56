//! Atomic mode in a plain tower service: the transaction comes from the request's extensions, without
//! the feature `axum`.

#![expect(clippy::unwrap_used, reason = "in a test, what cannot be had ends the test")]

use std::convert::Infallible;

use bytes::Bytes;
use firstwrite::{
    Atomic, IdempotencyLayer, MemoryStore, Policy, Response, Tenant, Transaction, json,
    memory_store,
};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use tower::{Layer as _, ServiceExt as _, service_fn};

type Handled = Result<Response, Infallible>;

async fn pay_held(request: Request<Full<Bytes>>) -> Handled {
    let mut tx = match Transaction::<MemoryStore>::from_extensions(request.extensions()) {
        Ok(tx) => tx,
        Err(problem) => return Ok(problem.response()),
    };
    let key = tx.attempt().key().as_str().to_owned();
    tx.put("payment", &key);
    Ok(tx.commit(json(StatusCode::CREATED, &key)).await)
}

async fn pay_by_closure(request: Request<Full<Bytes>>) -> Handled {
    let atomic = match Atomic::<MemoryStore>::from_extensions(request.extensions()) {
        Ok(atomic) => atomic,
        Err(problem) => return Ok(problem.response()),
    };
    atomic
        .run(|tx, attempt| {
            tx.put("payment", attempt.key().as_str());
            Ok(json(StatusCode::CREATED, &attempt.key().as_str()))
        })
        .await
}

async fn said(answer: Handled) -> String {
    let answer = answer.unwrap();
    let again = if answer.headers().contains_key("idempotent-replayed") { " again" } else { "" };
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    format!("{status} {}{again}", String::from_utf8_lossy(&body))
}

fn request() -> Request<Full<Bytes>> {
    let request = Request::post("/payments").header("idempotency-key", "order-1");
    request.body(Full::from("{}")).unwrap()
}

fn under(layer: IdempotencyLayer) -> IdempotencyLayer {
    layer.policy(Policy::atomic()).unwrap().single_tenant(Tenant::new("acme").unwrap())
}

#[tokio::test]
async fn a_plain_service_holds_its_transaction() {
    let store = memory_store();
    let layer = under(IdempotencyLayer::atomic::<Transaction<_>, _>(store.clone()));
    let service = layer.layer(service_fn(pay_held));
    for expected in ["201 \"order-1\"", "201 \"order-1\" again"] {
        assert_eq!(said(service.clone().oneshot(request()).await).await, expected);
    }
    assert_eq!((store.row("payment").as_deref(), store.row_count()), (Some("order-1"), 1));
}

#[tokio::test]
async fn a_plain_service_hands_a_closure_to_the_store() {
    let store = memory_store();
    let layer = under(IdempotencyLayer::atomic::<Atomic<_>, _>(store.clone()));
    let service = layer.layer(service_fn(pay_by_closure));
    for expected in ["201 \"order-1\"", "201 \"order-1\" again"] {
        assert_eq!(said(service.clone().oneshot(request()).await).await, expected);
    }
    assert_eq!((store.row("payment").as_deref(), store.row_count()), (Some("order-1"), 1));
}

#[tokio::test]
async fn the_wrong_one_runs_nothing() {
    let store = memory_store();
    let layer = under(IdempotencyLayer::atomic::<Atomic<_>, _>(store.clone()));
    let answer = said(layer.layer(service_fn(pay_held)).oneshot(request()).await).await;
    assert!(answer.starts_with("500 "), "{answer}");
    assert_eq!(store.row_count(), 0);
}
