//! The operator's listener: metrics, and whether the gateway is alive and ready.
//!
//! It stands apart from the clients' listener, so that nothing a client sends can reach it, and is as
//! bounded: few connections, one request on each, a few seconds for all of it. It asks for no credentials
//! and tells no secrets; it belongs on an address that only operators reach.

mod readiness;

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::Store;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::claim::Claim;
use crate::metrics::{self, Metrics};
use readiness::Readiness;

/// A listener for operators, at work until it is dropped.
#[must_use = "it stops when it is dropped"]
pub struct Operator {
    address: SocketAddr,
    readiness: Arc<Readiness>,
    _tasks: JoinSet<()>,
}

/// Handler of the operator endpoints.
struct Desk {
    metrics: Arc<Metrics>,
    readiness: Arc<Readiness>,
}

/// A scraper, a supervisor, a person or two, and room for a mistake.
const CONNECTIONS_MAX: usize = 64;
/// Time limit of one connection, from its first byte to its last: as long as Prometheus waits.
const CONNECTION_WITHIN: Duration = Duration::from_secs(10);
/// Far more than a scraper sends.
const HEAD_BYTES_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 50;
/// Pause after a failed accept: used-up descriptors do not come back within a millisecond.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Content type that Prometheus prefers, and that is answered.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

impl Operator {
    /// Listens, and begins to look at the store for what is told.
    pub async fn start(
        listen: SocketAddr,
        store: Arc<dyn Store>,
        metrics: Arc<Metrics>,
    ) -> io::Result<Self> {
        Self::start_at(Claim::of(listen)?, store, metrics).await
    }

    /// The same, at an address that was taken before.
    #[expect(
        clippy::unused_async,
        reason = "listening and tasks need a runtime, like everything here"
    )]
    pub async fn start_at(
        claim: Claim,
        store: Arc<dyn Store>,
        metrics: Arc<Metrics>,
    ) -> io::Result<Self> {
        let listener = claim.listen()?;
        let address = listener.local_addr()?;
        let readiness = Arc::new(Readiness::new(Arc::clone(&store)));
        let mut tasks = JoinSet::new();
        tasks.spawn(metrics::keep_looking(Arc::clone(&metrics), store));
        let desk = Arc::new(Desk { metrics, readiness: Arc::clone(&readiness) });
        tasks.spawn(serve(listener, desk));
        Ok(Self { address, readiness, _tasks: tasks })
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Reports from now on that the gateway is not ready, as it takes no new requests. Call it before the
    /// gateway is told to stop, so that load balancers send requests elsewhere meanwhile.
    pub fn drain(&self) {
        self.readiness.drain();
    }
}

async fn serve(listener: TcpListener, desk: Arc<Desk>) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _address)) => stream,
            Err(error) => {
                tracing::warn!(%error, "an operator's connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        let desk = Arc::clone(&desk);
        connections.spawn(async move {
            if timeout(CONNECTION_WITHIN, connection(stream, desk)).await.is_err() {
                tracing::debug!("an operator's connection took too long");
            }
            drop(permit);
        });
    }
}

async fn connection(stream: TcpStream, desk: Arc<Desk>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let desk = Arc::clone(&desk);
        async move { Ok::<_, Infallible>(desk.answer(&request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(CONNECTION_WITHIN)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = served.await {
        tracing::debug!(%error, "an operator's connection ended");
    }
}

impl Desk {
    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "GET only\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match request.uri().path() {
            "/metrics" => self.metrics(),
            "/healthz" => plain(StatusCode::OK, "alive\n"),
            "/readyz" => match self.readiness.check().await {
                Ok(()) => plain(StatusCode::OK, "ready\n"),
                Err(reason) => plain(StatusCode::SERVICE_UNAVAILABLE, reason),
            },
            _ => plain(StatusCode::NOT_FOUND, "/metrics, /healthz, /readyz\n"),
        }
    }

    fn metrics(&self) -> Response<Full<Bytes>> {
        match self.metrics.text() {
            Ok(text) => whole(StatusCode::OK, OPEN_METRICS, Bytes::from(text)),
            Err(error) => {
                tracing::error!(%error, "metrics could not be written");
                plain(StatusCode::INTERNAL_SERVER_ERROR, "metrics could not be written\n")
            }
        }
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    whole(status, "text/plain; charset=utf-8", Bytes::from_static(text.as_bytes()))
}

fn whole(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator").field("address", &self.address).finish_non_exhaustive()
    }
}
