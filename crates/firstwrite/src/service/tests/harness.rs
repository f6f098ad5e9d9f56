//! The world of a test: a layer over a watched store, around a handler that is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::{
    BoxError, BoxFuture, Key, MemoryStore, Policy, RecordId, Secret, Secrets, Tenant, Timestamp,
};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};

use super::watched::Watched;
use crate::policies::Operation;
use crate::{Idempotency, IdempotencyLayer, ResponseBody};

pub(super) type RequestBody = Full<Bytes>;
type Inner = BoxCloneSyncService<Request<RequestBody>, Response<ResponseBody>, BoxError>;
pub(super) type Handled = Result<Response<ResponseBody>, BoxError>;

/// A layer around a handler.
#[derive(Clone)]
pub(super) struct World {
    pub(super) store: Arc<Watched>,
    pub(super) service: Idempotency<Inner>,
    pub(super) layer: IdempotencyLayer,
    runs: Arc<AtomicUsize>,
}

/// Response that a client got.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// A handler that says when it was entered and waits until it may leave.
#[derive(Clone, Debug)]
pub(super) struct Door {
    entered: Arc<Semaphore>,
    leave: Arc<Semaphore>,
}

/// A memory store on tokio's clock, which tests pause and advance.
pub(super) fn paused_store() -> MemoryStore {
    let start = tokio::time::Instant::now();
    MemoryStore::new(move || Timestamp::from_millis(1_700_000_000_000).plus(start.elapsed()))
}

pub(super) fn tenant(name: &str) -> Tenant {
    Tenant::new(name).unwrap()
}

pub(super) fn id(key: &str) -> RecordId {
    RecordId::of(&tenant("acme"), &Key::new(key).unwrap())
}

/// The secret that begins with this byte; worlds have the one of 1.
pub(super) fn secret(first: u8) -> Secret {
    let bytes: [u8; 32] = std::array::from_fn(|at| first.wrapping_add(u8::try_from(at).unwrap()));
    Secret::new(&bytes).unwrap()
}

/// A POST of acme's under this key.
pub(super) fn post(key: &str, body: &str) -> Request<RequestBody> {
    request("acme", key, body)
}

pub(super) fn request(tenant_name: &str, key: &str, body: &str) -> Request<RequestBody> {
    Request::builder()
        .method(Method::POST)
        .uri("/payments")
        .header("idempotency-key", key)
        .extension(tenant(tenant_name))
        .body(Full::from(Bytes::copy_from_slice(body.as_bytes())))
        .unwrap()
}

/// An answer with this status and body.
pub(super) fn answer(status: u16, body: &str) -> Response<ResponseBody> {
    let body = ResponseBody::passed(Full::from(Bytes::copy_from_slice(body.as_bytes())));
    Response::builder().status(status).body(body).unwrap()
}

impl World {
    /// Every request, of any method, is protected by `policy`. The handler gets the number of its
    /// run, from 1.
    pub(super) fn new<H, F>(policy: Policy, handler: H) -> Self
    where
        H: Fn(usize, Request<RequestBody>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Handled> + Send + 'static,
    {
        let policy = Arc::new(policy);
        Self::with(handler, |layer| {
            let keyed = layer.secrets(secret(1)).policies(move |_: &http::request::Parts| {
                Some(Operation { name: "POST /payments".into(), policy: Arc::clone(&policy) })
            });
            keyed.unwrap()
        })
    }

    pub(super) fn with<H, F>(
        handler: H,
        configure: impl FnOnce(IdempotencyLayer) -> IdempotencyLayer,
    ) -> Self
    where
        H: Fn(usize, Request<RequestBody>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Handled> + Send + 'static,
    {
        let store = Arc::new(Watched::over(paused_store()));
        let runs = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&runs);
        let inner = Inner::new(service_fn(move |request| {
            handler(counter.fetch_add(1, Ordering::SeqCst) + 1, request)
        }));
        let layer = configure(IdempotencyLayer::new(store.clone()));
        let service = layer.layer(inner);
        Self { store, service, layer, runs }
    }

    /// The same handler behind another process's layer, over the same store.
    pub(super) fn second_process(&self, policy: Policy) -> Self {
        self.second_process_with(policy, secret(1))
    }

    /// The same, with these secrets.
    pub(super) fn second_process_with(&self, policy: Policy, secrets: impl Into<Secrets>) -> Self {
        let policy = Arc::new(policy);
        let layer = IdempotencyLayer::new(self.store.clone()).secrets(secrets).policies(
            move |_: &http::request::Parts| {
                Some(Operation { name: "POST /payments".into(), policy: Arc::clone(&policy) })
            },
        );
        let layer = layer.unwrap();
        let inner = self.service.inner.clone();
        Self { service: layer.layer(inner), layer, ..self.clone() }
    }

    pub(super) async fn send(&self, request: Request<RequestBody>) -> Answer {
        let response = self.respond(request).await.expect("the layer answers");
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("the body is whole").to_bytes();
        Answer { status: parts.status, headers: parts.headers, body }
    }

    pub(super) fn respond(&self, request: Request<RequestBody>) -> BoxFuture<'static, Handled> {
        Box::pin(self.service.clone().oneshot(request))
    }

    pub(super) fn send_aside(&self, request: Request<RequestBody>) -> JoinHandle<Answer> {
        let world = self.clone();
        tokio::spawn(async move { world.send(request).await })
    }

    /// Returns the number of runs of the handler.
    pub(super) fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
}

impl Answer {
    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("the body is JSON")
    }

    /// The status and the problem code, as `409 in-progress`; or the status and the body.
    pub(super) fn summary(&self) -> String {
        let code = match self.header("content-type") {
            Some("application/problem+json") => self.json()["code"].as_str().map(str::to_owned),
            _ => None,
        };
        let said = code.unwrap_or_else(|| String::from_utf8_lossy(&self.body).into_owned());
        format!("{} {said}", self.status.as_u16())
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(super) fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }
}

impl Door {
    pub(super) fn new() -> Self {
        Self { entered: Arc::new(Semaphore::new(0)), leave: Arc::new(Semaphore::new(0)) }
    }

    /// The handler's side: says that it is there, and waits.
    pub(super) async fn pass(&self) {
        self.entered.add_permits(1);
        self.leave.acquire().await.unwrap().forget();
    }

    /// The test's side: waits until a handler is there.
    pub(super) async fn entered(&self) {
        self.entered.acquire().await.unwrap().forget();
    }

    /// The test's side: lets one handler go on.
    pub(super) fn open(&self) {
        self.leave.add_permits(1);
    }
}

/// Moves tokio's clock, and with it the store's.
pub(super) async fn advance(by: Duration) {
    tokio::time::advance(by).await;
}

/// Moves the clock in steps, and lets all tasks act after each.
pub(super) async fn advance_slowly(by: Duration) {
    const STEP_COUNT: u32 = 50;
    for _ in 0..STEP_COUNT {
        tokio::task::yield_now().await;
        tokio::time::advance(by / STEP_COUNT).await;
    }
}
