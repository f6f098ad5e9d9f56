//! A provider of the tests' own, and messages for it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use firstwrite::carrier::http::{HttpCarrier, HttpDestination};
use firstwrite::{Key, Tenant, Timestamp};
use firstwrite_core::outbox::{Carrier, ClaimedMessage, Delivery, MessageNumber};
use firstwrite_core::{Fence, RecordId};
use http::request::Parts;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// The wire key of [`message`].
pub(crate) const WIRE_KEY: &str = "order-1:charge:ef56e51bcb051fa4";
pub(crate) const PAYLOAD: &str = r#"{"amount":1200}"#;

pub(crate) type Answer = Response<Full<Bytes>>;

type Answers = dyn Fn(&Parts) -> Answer + Send + Sync;

/// A request as it arrived.
pub(crate) type Seen = (Parts, Bytes);

/// Answers every request alike and remembers what it was asked.
#[derive(Clone)]
pub(crate) struct Provider {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    answer: Box<Answers>,
    seen: Mutex<Vec<Seen>>,
    connection_count: AtomicUsize,
}

impl Provider {
    pub(crate) async fn start(answer: impl Fn(&Parts) -> Answer + Send + Sync + 'static) -> Self {
        Self::start_over(None, answer).await
    }

    pub(crate) async fn start_over(
        tls: Option<TlsAcceptor>,
        answer: impl Fn(&Parts) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            answer: Box::new(answer),
            seen: Mutex::default(),
            connection_count: AtomicUsize::new(0),
        });
        let provider = Self { address, shared: Arc::clone(&shared) };
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                shared.connection_count.fetch_add(1, Ordering::Relaxed);
                let (shared, tls) = (Arc::clone(&shared), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, shared).await,
                        Some(tls) => {
                            // A client that does not trust us ends the handshake.
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, shared).await;
                            }
                        }
                    }
                });
            }
        });
        provider
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/charges", self.address)
    }

    /// A destination there that may be reached.
    pub(crate) fn destination(&self) -> HttpDestination {
        HttpDestination::new(&self.url()).allow_network("127.0.0.0/8".parse().unwrap())
    }

    /// What was asked so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    pub(crate) fn connection_count(&self) -> usize {
        self.shared.connection_count.load(Ordering::Relaxed)
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, shared: Arc<Shared>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let shared = Arc::clone(&shared);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let answer = (shared.answer)(&parts);
            shared.seen.lock().unwrap().push((parts, body));
            Ok::<_, Infallible>(answer)
        }
    });
    // It ends when the client hangs up, which is no error of the test.
    drop(
        auto::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await,
    );
}

pub(crate) fn answer(status: u16, body: &str) -> Answer {
    Response::builder().status(status).body(Full::from(body.to_owned())).unwrap()
}

pub(crate) fn message() -> ClaimedMessage {
    let tenant = Tenant::new("acme").unwrap();
    ClaimedMessage {
        number: MessageNumber(1),
        fence: Fence::first(1),
        record: RecordId::of(&tenant, &Key::new("order-1").unwrap()),
        tenant,
        derived_key: "order-1:charge".to_owned(),
        destination: "provider".to_owned(),
        content_type: "application/json".to_owned(),
        payload: Bytes::from_static(PAYLOAD.as_bytes()),
        ordering_key: None,
        created_at: Timestamp::EPOCH,
        delivery_count: 0,
        lapse_count: 0,
        is_trial: false,
        maybe_sent_at: None,
        receipt: None,
        answers: None,
        claimed_at: Timestamp::from_millis(0),
        status: None,
        problem: None,
    }
}

/// Carries one message.
pub(crate) async fn carry(carrier: &HttpCarrier) -> Delivery {
    carrier.carry(&message()).await
}

/// Lets the tasks of this thread come to rest: what a client does with a connection after the answer, it
/// does in a task of its own.
pub(crate) async fn settle_down() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}
