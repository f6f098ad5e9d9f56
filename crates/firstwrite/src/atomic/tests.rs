//! Atomic handlers in an axum router over a memory store, without a socket.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::post;
use firstwrite_core::{MemoryStore, Mode, Tenant, Timestamp};
use http::Request;
use http_body_util::BodyExt;
use tower::ServiceExt;

use super::*;
use crate::{IdempotencyLayer, Misconfigured, json};

/// The router, its store, and how often the handler's work ran.
#[derive(Clone)]
struct App {
    router: Router,
    store: MemoryStore,
    runs: Arc<AtomicUsize>,
    entered: Arc<AtomicUsize>,
}

/// How often the work ran, and how often the handler was entered.
#[derive(Clone)]
struct Counting(Arc<AtomicUsize>, Arc<AtomicUsize>);

struct OutOfStock;

impl IntoResponse for OutOfStock {
    fn into_response(self) -> AxumResponse {
        (StatusCode::CONFLICT, "out of stock").into_response()
    }
}

/// What the body says decides what happens.
async fn order(
    State(Counting(runs, entered)): State<Counting>,
    atomic: Atomic<MemoryStore>,
    body: String,
) -> Result<AxumResponse, OutOfStock> {
    entered.fetch_add(1, Ordering::SeqCst);
    if body == "invalid" {
        return Ok((StatusCode::UNPROCESSABLE_ENTITY, "invalid order").into_response());
    }
    assert!(body != "early panic", "before the transaction");
    let late_panic = body == "late panic";
    let late_change = match body.as_str() {
        "late error" => Some(StatusCode::INTERNAL_SERVER_ERROR),
        "late words" => Some(StatusCode::CREATED),
        _ => None,
    };
    let answer = atomic
        .run(move |tx, attempt| {
            let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
            tx.put(&format!("order-{run}"), attempt.key().as_str());
            tx.enqueue(attempt.message("receipt", "mailer", Bytes::from_static(b"{}")).unwrap());
            match body.as_str() {
                "fail" => Err(OutOfStock),
                "panic" => panic!("inside of the transaction"),
                "refuse" => Ok(json(StatusCode::PAYMENT_REQUIRED, &"no money")),
                "break" => Ok(json(StatusCode::INTERNAL_SERVER_ERROR, &"broken")),
                _ => Ok(json(StatusCode::CREATED, &run)),
            }
        })
        .await?;
    assert!(!late_panic, "after the commit");
    Ok(late_change.map_or(answer, |status| (status, "not what was committed").into_response()))
}

fn policy() -> Policy {
    Policy { mode: Mode::Atomic, ..Policy::default() }
}

fn app() -> App {
    let start = tokio::time::Instant::now();
    let store = MemoryStore::new(move || Timestamp::EPOCH.plus(start.elapsed()));
    let (runs, entered) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
    let layer = IdempotencyLayer::transactional(store.clone())
        .policy(policy())
        .single_tenant(Tenant::new("acme").unwrap());
    let router = Router::new()
        .route("/orders", post(order))
        .layer(layer)
        .with_state(Counting(Arc::clone(&runs), Arc::clone(&entered)));
    App { router, store, runs, entered }
}

async fn said(response: AxumResponse) -> String {
    let replayed =
        if response.headers().contains_key("idempotent-replayed") { " again" } else { "" };
    let kept = if response.headers().contains_key("idempotency-expires") { " kept" } else { "" };
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(body.to_vec()).unwrap();
    let code = serde_json::from_str::<serde_json::Value>(&text)
        .ok()
        .and_then(|json| json["code"].as_str().map(str::to_owned));
    format!("{status} {}{kept}{replayed}", code.unwrap_or(text))
}

impl App {
    fn request(key: &str, body: &'static str) -> Request<Body> {
        let request = Request::post("/orders").header("idempotency-key", key);
        request.body(Body::from(body)).unwrap()
    }

    async fn send(&self, key: &str, body: &'static str) -> String {
        said(self.router.clone().oneshot(Self::request(key, body)).await.unwrap()).await
    }

    /// Runs, rows and messages so far.
    fn effects(&self) -> (usize, usize, usize) {
        (self.runs.load(Ordering::SeqCst), self.store.row_count(), self.store.messages().len())
    }
}

#[tokio::test(start_paused = true)]
async fn rows_messages_and_the_outcome_are_committed_once() {
    let app = app();
    assert_eq!(app.send("k", "book").await, "201 1 kept");
    assert_eq!(app.send("k", "book").await, "201 1 kept again");
    assert_eq!(app.send("k", "other").await, "422 key-reused");
    assert_eq!(app.effects(), (1, 1, 1));
    assert_eq!(app.entered.load(Ordering::SeqCst), 1, "a retry does not reach the handler");
    assert_eq!(app.store.messages()[0].derived_key(), "k:receipt");
    assert_eq!(app.store.row("order-1").as_deref(), Some("k"));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_kept_and_what_it_wrote_is_not() {
    let app = app();
    assert_eq!(app.send("k", "refuse").await, "402 \"no money\" kept");
    assert_eq!(app.send("k", "refuse").await, "402 \"no money\" kept again");
    assert_eq!(app.effects(), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_rolled_back_and_runs_again() {
    for (body, expected) in [
        ("break", "500 \"broken\""),
        ("fail", "409 out of stock"),
        ("panic", "500 "),
        ("early panic", "500 "),
    ] {
        let app = app();
        for _ in 0..2 {
            let answer = app.send("k", body).await;
            assert!(answer.starts_with(expected), "{body}: {answer}");
            assert!(!answer.contains("kept"), "{body}: {answer}");
        }
        let (runs, rows, messages) = app.effects();
        assert_eq!((rows, messages), (0, 0), "{body}");
        assert_eq!(runs, if body == "early panic" { 0 } else { 2 }, "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_after_the_commit_does_not_lose_the_answer() {
    let app = app();
    assert_eq!(app.send("k", "late panic").await, "201 1 kept again");
    assert_eq!(app.send("k", "late panic").await, "201 1 kept again");
    assert_eq!(app.effects(), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_first_answer_is_the_committed_one_whatever_the_handler_makes_of_it() {
    for body in ["late error", "late words"] {
        let app = app();
        assert_eq!(app.send("k", body).await, "201 1 kept again", "{body}");
        assert_eq!(app.send("k", body).await, "201 1 kept again", "{body}");
        assert_eq!(app.runs.load(Ordering::SeqCst), 1, "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_transaction_is_kept_too() {
    let app = app();
    assert_eq!(app.send("k", "invalid").await, "422 invalid order kept");
    assert_eq!(app.send("k", "invalid").await, "422 invalid order kept again");
    assert_eq!(app.send("k", "book").await, "422 key-reused");
    tokio::time::advance(Policy::RETENTION_DEFAULT).await;
    assert_eq!(app.send("k", "invalid").await, "422 invalid order kept", "as new after retention");
    assert_eq!(app.effects(), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn two_processes_at_once_commit_one_effect() {
    let app = app();
    let layer = IdempotencyLayer::transactional(app.store.clone())
        .policy(policy())
        .single_tenant(Tenant::new("acme").unwrap());
    let elsewhere = Router::new()
        .route("/orders", post(order))
        .layer(layer)
        .with_state(Counting(Arc::clone(&app.runs), Arc::clone(&app.entered)));
    let mut answers = Vec::new();
    for router in [app.router.clone(), elsewhere].into_iter().cycle().take(200) {
        let request = App::request("k", "book");
        answers
            .push(tokio::spawn(async move { said(router.oneshot(request).await.unwrap()).await }));
    }
    for answer in answers {
        let answer = answer.await.unwrap();
        assert!(
            ["201 1 kept", "201 1 kept again", "409 in-progress"].contains(&answer.as_str()),
            "{answer}"
        );
    }
    assert_eq!(app.effects(), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn respond_async_and_the_status_resource_know_a_running_transaction() {
    let app = app();
    let mut request = App::request("k", "book");
    request.headers_mut().insert("prefer", http::HeaderValue::from_static("respond-async"));
    let early = app.router.clone().oneshot(request).await.unwrap();
    assert_eq!(early.status(), StatusCode::ACCEPTED);
    let location = early.headers()["location"].to_str().unwrap().to_owned();
    let ask = Request::get(format!("{location}?wait=20s")).body(Body::empty()).unwrap();
    let status = app.router.clone().oneshot(ask).await.unwrap();
    let body = status.into_body().collect().await.unwrap().to_bytes();
    let document: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(document["state"], "completed");
    assert_eq!(document["operation"], "POST /orders");
    assert_eq!(document["outcome"]["body"], "1");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_put_together_wrongly_says_so_without_running() {
    let check = async |layer: Option<IdempotencyLayer>| {
        let runs = Arc::new(AtomicUsize::new(0));
        let router = Router::new().route("/orders", post(order));
        let router = match layer {
            Some(layer) => router.layer(layer.single_tenant(Tenant::new("acme").unwrap())),
            None => router,
        };
        let router = router.with_state(Counting(Arc::clone(&runs), Arc::default()));
        let response = router.oneshot(App::request("k", "book")).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(runs.load(Ordering::SeqCst), 0);
    };
    let store = MemoryStore::new(|| Timestamp::EPOCH);
    check(None).await;
    check(Some(IdempotencyLayer::transactional(store.clone()))).await;
    // A policy made up as requests come cannot be checked when the layer is built.
    let made_up = IdempotencyLayer::new(Arc::new(store)).policies(|_: &http::request::Parts| {
        Some(crate::Operation { name: "POST /orders".into(), policy: Arc::new(policy()) })
    });
    check(Some(made_up)).await;
    assert_ne!(Misconfigured::NotAtomic.to_string(), Misconfigured::NoAttempt.to_string());
}

#[test]
fn a_layer_refuses_policies_it_cannot_carry_out() {
    use crate::Unusable;
    let plain = IdempotencyLayer::new(Arc::new(crate::memory_store()));
    let transactional = IdempotencyLayer::transactional(crate::memory_store());
    assert_eq!(plain.check(&Policy::default()), Ok(()));
    assert_eq!(transactional.check(&policy()), Ok(()));
    assert_eq!(plain.check(&policy()), Err(Unusable::NoTransactions));
    let keyless = Policy { key: firstwrite_core::KeyRequirement::Optional, ..policy() };
    assert_eq!(transactional.check(&keyless), Err(Unusable::KeylessAtomic));
    let hasty = Policy { lease: Duration::from_millis(1), ..Policy::default() };
    assert!(matches!(plain.check(&hasty), Err(Unusable::Contradictory(_))));
}

#[test]
#[should_panic(expected = "atomic mode needs a layer built by IdempotencyLayer::transactional")]
fn a_layer_without_transactions_does_not_start_with_an_atomic_policy() {
    drop(IdempotencyLayer::new(Arc::new(crate::memory_store())).policy(policy()));
}
