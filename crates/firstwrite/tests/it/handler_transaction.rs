//! A transaction that the handler holds, over sockets: one effect, and a caller who hangs up.

use axum::Router;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::post;
use bytes::Bytes;
use firstwrite::{
    IdempotencyLayer, MemoryStore, Policy, Response, Tenant, Transaction, json, memory_store,
};
use http::StatusCode;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::app::{App, Effects, payment, to};

struct Refused;

impl IntoResponse for Refused {
    fn into_response(self) -> axum::response::Response {
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

async fn pay(mut tx: Transaction<MemoryStore>, body: Bytes) -> Result<Response, Refused> {
    let key = tx.attempt().key().as_str().to_owned();
    tx.put(&format!("payment {key}"), "paid");
    tokio::task::yield_now().await;
    if body.as_ref() == b"fail" {
        return Err(Refused);
    }
    Ok(tx.commit(json(StatusCode::CREATED, &key)).await)
}

async fn slow(State(effects): State<Effects>, mut tx: Transaction<MemoryStore>) -> Response {
    tx.put(&format!("slow {}", effects.happen()), "paid");
    effects.entered.add_permits(1);
    effects.leave.acquire().await.unwrap().forget();
    tx.commit(json(StatusCode::CREATED, &"slow")).await
}

async fn app(store: &MemoryStore) -> App {
    let layer = IdempotencyLayer::atomic::<Transaction<_>, _>(store.clone())
        .policy(Policy::atomic())
        .unwrap()
        .single_tenant(Tenant::new("acme").unwrap());
    let effects = Effects::default();
    let router = Router::new()
        .route("/payments", post(pay))
        .route("/slow", post(slow))
        .layer(layer)
        .with_state(effects.clone());
    App::serve(router, effects).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_over_one_store_commit_one_row_per_key() {
    let store = memory_store();
    // Two layers do not know of each other's attempts, as two processes do not.
    let apps = [app(&store).await, app(&store).await];
    let mut answers = Vec::new();
    for number in 0..200 {
        let (app, key) = (apps[number % 2].clone(), format!("k{}", number % 10));
        answers.push(tokio::spawn(async move { app.send(payment(&key, "{}")).await }));
    }
    for answer in answers {
        let answer = answer.await.unwrap();
        assert!([201, 409].contains(&answer.status.as_u16()), "{answer:?}");
    }
    assert_eq!(apps[0].send(payment("failing", "fail")).await.status, 500);
    assert_eq!(store.row_count(), 10);
    for number in 0..10 {
        let again = apps[number % 2].send(payment(&format!("k{number}"), "{}")).await;
        assert_eq!(again.summary(), format!("201 \"k{number}\" again"));
    }
}

#[tokio::test]
async fn a_caller_who_hangs_up_in_the_middle_of_a_transaction_gets_its_answer_later() {
    let store = memory_store();
    let app = app(&store).await;
    let mut stream = TcpStream::connect(app.address).await.unwrap();
    let request = "POST /slow HTTP/1.1\r\nHost: payments.test\r\nIdempotency-Key: k\r\n\
                   Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    stream.write_all(request.as_bytes()).await.unwrap();
    app.effects.entered.acquire().await.unwrap().forget();
    drop(stream);
    assert_eq!(app.send(to("/slow", "k", "{}")).await.summary(), "409 in-progress");
    app.effects.leave.add_permits(1);
    let mut retry = app.send(to("/slow", "k", "{}")).await;
    while retry.status == 409 {
        tokio::task::yield_now().await;
        retry = app.send(to("/slow", "k", "{}")).await;
    }
    assert_eq!(retry.summary(), "201 \"slow\" again");
    assert_eq!((app.effects.count(), store.row_count()), (1, 1));
}
