//! The application under test: payments, over any store, on a port of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use firstwrite::{
    Attempt, IdempotencyLayer, Policies, Policy, Rejection, RejectionKind, Store, Tenant,
};
use firstwrite_core::Secret;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// A running application.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) address: SocketAddr,
    pub(crate) effects: Effects,
}

/// What the handler did, and a door it waits at when it is asked to.
#[derive(Clone, Debug)]
pub(crate) struct Effects {
    count: Arc<AtomicUsize>,
    pub(crate) entered: Arc<Semaphore>,
    pub(crate) leave: Arc<Semaphore>,
}

/// What a client got.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// One keep-alive connection.
pub(crate) struct Client {
    sender: http1::SendRequest<Full<Bytes>>,
}

impl App {
    /// Payments behind the layer over `store`.
    pub(crate) async fn over(store: Arc<dyn Store>) -> Self {
        let policies = Policies::new()
            .operation(Method::POST, "/payments", Policy::default())
            .unprotected(Method::POST, "/echo", "changes nothing");
        let secret = Secret::new(b"sixteen bytes of this app").expect("it is long enough");
        let layer = IdempotencyLayer::new(store)
            .secrets(secret)
            .policies(policies)
            .unwrap()
            .tenant_from(bearer);
        let effects = Effects::default();
        let router = Router::new()
            .route("/payments", post(pay).get(|| async { "payments" }))
            .route("/slow", post(slow))
            .route("/echo", post(|body: Bytes| async { body }))
            .route("/health", get(|| async { "well" }))
            .layer(layer)
            .with_state(effects.clone());
        Self::serve(router, effects).await
    }

    pub(crate) async fn serve(router: Router, effects: Effects) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, effects }
    }

    pub(crate) async fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Client { sender }
    }

    /// One request on a connection of its own.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        self.connect().await.send(request).await
    }
}

impl Client {
    pub(crate) async fn send(&mut self, mut request: Request<Full<Bytes>>) -> Answer {
        let host = http::HeaderValue::from_static("payments.test");
        request.headers_mut().entry("host").or_insert(host);
        self.sender.ready().await.unwrap();
        let (parts, body) = self.sender.send_request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer { status: parts.status, headers: parts.headers, body }
    }
}

impl Answer {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The status and the problem code or body, and whether it is a replay.
    pub(crate) fn summary(&self) -> String {
        let code = serde_json::from_slice::<serde_json::Value>(&self.body)
            .ok()
            .and_then(|json| json["code"].as_str().map(str::to_owned));
        let said = code.unwrap_or_else(|| String::from_utf8_lossy(&self.body).into_owned());
        let again = if self.headers.contains_key("idempotent-replayed") { " again" } else { "" };
        format!("{} {said}{again}", self.status.as_u16())
    }
}

impl Effects {
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    pub(crate) fn happen(&self) -> usize {
        self.count.fetch_add(1, Ordering::SeqCst) + 1
    }
}

impl Default for Effects {
    fn default() -> Self {
        let closed = || Arc::new(Semaphore::new(0));
        Self { count: Arc::default(), entered: closed(), leave: closed() }
    }
}

/// A POST of acme's.
pub(crate) fn payment(key: &str, body: &str) -> Request<Full<Bytes>> {
    to("/payments", key, body)
}

pub(crate) fn to(path: &str, key: &str, body: &str) -> Request<Full<Bytes>> {
    Request::post(path)
        .header("authorization", "Bearer acme")
        .header("content-type", "application/json")
        .header("idempotency-key", key)
        .body(Full::from(Bytes::copy_from_slice(body.as_bytes())))
        .unwrap()
}

/// The stand-in for authentication: the bearer's name is the tenant.
fn bearer(request: &http::request::Parts) -> Result<Tenant, Rejection> {
    let unknown = || Rejection::new(RejectionKind::TenantUnknown);
    let header = request.headers.get("authorization").ok_or_else(unknown)?;
    let name = header.to_str().ok().and_then(|text| text.strip_prefix("Bearer "));
    name.and_then(|name| Tenant::new(name).ok()).ok_or_else(unknown)
}

async fn pay(State(effects): State<Effects>, attempt: Attempt, body: Bytes) -> Response {
    let number = effects.happen();
    let headers = [("location", format!("/payments/{number}")), ("set-cookie", "s=1".to_owned())];
    let text = format!("{} {number} {} bytes", attempt.tenant(), body.len());
    (StatusCode::CREATED, headers, text).into_response()
}

async fn slow(State(effects): State<Effects>) -> Response {
    let number = effects.happen();
    effects.entered.add_permits(1);
    effects.leave.acquire().await.unwrap().forget();
    (StatusCode::CREATED, format!("slow {number}")).into_response()
}
