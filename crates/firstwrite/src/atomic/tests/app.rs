//! An axum router with one atomic handler, over a watched store in memory, without a socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response as AxumResponse};
use axum::routing::{MethodRouter, post};
use bytes::Bytes;
use firstwrite_core::outbox::Answers;
use firstwrite_core::{
    Interim, KeptHeaders, MemoryStore, Outcome, Policy, Rejection, RejectionKind, Tenant, Timestamp,
};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tower::ServiceExt;

use crate::service::tests::watched::Watched;
use crate::{Atomic, Attempt, IdempotencyLayer, Observer, Transaction, json};

/// Way in which the handler gets its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Closure,
    Held,
}

/// The router, its store, and how often the handler's work ran.
#[derive(Clone)]
pub(super) struct App {
    pub(super) router: Router,
    pub(super) store: Watched,
    pub(super) counting: Counting,
    kind: Kind,
}

/// Counts runs of the work and entries into the handler.
#[derive(Clone, Default)]
pub(super) struct Counting {
    pub(super) runs: Arc<AtomicUsize>,
    pub(super) entered: Arc<AtomicUsize>,
}

/// Lets no new key be made.
struct Full;

impl Observer for Full {
    fn may_make_key(&self, _tenant: &Tenant) -> Result<(), Rejection> {
        Err(Rejection::new(RejectionKind::RateLimited))
    }
}

pub(super) struct OutOfStock;

impl IntoResponse for OutOfStock {
    fn into_response(self) -> AxumResponse {
        (StatusCode::CONFLICT, "out of stock").into_response()
    }
}

/// Returns a route whose handler does what the body says.
pub(super) fn order(kind: Kind) -> MethodRouter<Counting> {
    match kind {
        Kind::Closure => post(order_by_closure),
        Kind::Held => post(order_held),
    }
}

async fn order_by_closure(
    State(counting): State<Counting>,
    atomic: Atomic<Watched>,
    body: String,
) -> Result<AxumResponse, OutOfStock> {
    if let Some(early) = counting.enter(&body) {
        return Ok(early);
    }
    let work = body.clone();
    let answer = atomic
        .run(move |tx, attempt| {
            let run = counting.run();
            tx.put(&format!("order-{run}"), attempt.key().as_str());
            tx.enqueue(receipt(attempt));
            answer_to(&work, run)
        })
        .await?;
    Ok(late(&body, answer.into_response()))
}

async fn order_held(
    State(counting): State<Counting>,
    mut tx: Transaction<Watched>,
    body: String,
) -> Result<AxumResponse, OutOfStock> {
    if let Some(early) = counting.enter(&body) {
        return Ok(early);
    }
    let (run, attempt) = (counting.run(), tx.attempt().clone());
    tx.put(&format!("order-{run}"), attempt.key().as_str());
    tokio::task::yield_now().await;
    tx.enqueue(receipt(&attempt));
    let answer = tx.commit(answer_to(&body, run)?).await;
    Ok(late(&body, answer.into_response()))
}

fn receipt(attempt: &Attempt) -> firstwrite_core::Message {
    let answer = |status, body: &'static str| {
        Outcome::new(status, KeptHeaders::default(), Bytes::from_static(body.as_bytes()))
    };
    let answers = Answers {
        delivered: answer(StatusCode::CREATED, "sent as {provider_id}"),
        refused: answer(StatusCode::PAYMENT_REQUIRED, "nobody takes it"),
    };
    let message = attempt.message("receipt", "mailer", Bytes::from_static(b"{}")).unwrap();
    message.answering(answers)
}

fn answer_to(body: &str, run: usize) -> Result<Response<Bytes>, OutOfStock> {
    match body {
        "fail" => Err(OutOfStock),
        "panic" => panic!("inside of the transaction"),
        "refuse" => Ok(json(StatusCode::PAYMENT_REQUIRED, &"no money")),
        "later" => Ok(interim(Duration::from_secs(2))),
        "later at once" => Ok(interim(Duration::ZERO)),
        "break" => Ok(json(StatusCode::INTERNAL_SERVER_ERROR, &"broken")),
        _ => Ok(json(StatusCode::CREATED, &run)),
    }
}

fn interim(wait_for: Duration) -> Response<Bytes> {
    let mut response = json(StatusCode::ACCEPTED, &"on its way");
    response.extensions_mut().insert(Interim { wait_for });
    response
}

/// Does what the body says after the transaction.
fn late(body: &str, answer: AxumResponse) -> AxumResponse {
    assert!(body != "late panic", "after the commit");
    let changed = match body {
        "late error" => Some(StatusCode::INTERNAL_SERVER_ERROR),
        "late words" => Some(StatusCode::CREATED),
        _ => None,
    };
    changed.map_or(answer, |status| (status, "not what was committed").into_response())
}

pub(super) fn policy() -> Policy {
    Policy::atomic()
}

pub(super) async fn said(response: AxumResponse) -> String {
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

impl Kind {
    pub(super) const ALL: [Self; 2] = [Self::Closure, Self::Held];

    pub(super) fn layer(self, store: &Watched) -> IdempotencyLayer {
        let layer = match self {
            Self::Closure => IdempotencyLayer::atomic::<Atomic<_>, _>(store.clone()),
            Self::Held => IdempotencyLayer::atomic::<Transaction<_>, _>(store.clone()),
        };
        layer.single_tenant(Tenant::new("acme").unwrap())
    }
}

impl App {
    /// The handler that every kind has.
    pub(super) fn new(kind: Kind) -> Self {
        Self::with(kind, policy(), order(kind))
    }

    pub(super) fn with(kind: Kind, policy: Policy, handler: MethodRouter<Counting>) -> Self {
        let start = tokio::time::Instant::now();
        let memory = MemoryStore::new(move || Timestamp::EPOCH.plus(start.elapsed()));
        let (store, counting) = (Watched::over(memory), Counting::default());
        let layer = kind.layer(&store).policy(policy).unwrap();
        let router =
            Router::new().route("/orders", handler).layer(layer).with_state(counting.clone());
        Self { router, store, counting, kind }
    }

    /// The same handler behind another process's layer, over the same store.
    pub(super) fn second_process(&self) -> Self {
        self.behind(self.kind.layer(&self.store))
    }

    /// The same, where no new key may be made.
    pub(super) fn full_process(&self) -> Self {
        self.behind(self.kind.layer(&self.store).observed_by(Arc::new(Full)))
    }

    fn behind(&self, layer: IdempotencyLayer) -> Self {
        let layer = layer.policy(policy()).unwrap();
        let router = Router::new()
            .route("/orders", order(self.kind))
            .layer(layer)
            .with_state(self.counting.clone());
        Self { router, ..self.clone() }
    }

    pub(super) fn request(key: &str, body: &'static str) -> Request<Body> {
        let request = Request::post("/orders").header("idempotency-key", key);
        request.body(Body::from(body)).unwrap()
    }

    pub(super) async fn send(&self, key: &str, body: &'static str) -> String {
        said(self.router.clone().oneshot(Self::request(key, body)).await.unwrap()).await
    }

    /// Runs, rows and messages so far.
    pub(super) fn effects(&self) -> (usize, usize, usize) {
        let memory = &self.store.memory;
        (self.counting.runs(), memory.row_count(), memory.messages().len())
    }
}

impl Counting {
    pub(super) fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    pub(super) fn entered(&self) -> usize {
        self.entered.load(Ordering::SeqCst)
    }

    fn run(&self) -> usize {
        self.runs.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Does what the body says before the transaction.
    fn enter(&self, body: &str) -> Option<AxumResponse> {
        self.entered.fetch_add(1, Ordering::SeqCst);
        assert!(body != "early panic", "before the transaction");
        let refusal = (StatusCode::UNPROCESSABLE_ENTITY, "invalid order");
        (body == "invalid").then(|| refusal.into_response())
    }
}
