//! Somebody who receives webhooks, and hands each to the test that waits for it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::http::{Request, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use firstwrite_provider::{Secret, Webhooks};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use sha2::Sha256;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};

const KEY: &[u8] = b"a secret of the receiver's own";

pub(crate) struct Receiver {
    address: SocketAddr,
    webhooks: mpsc::UnboundedReceiver<Received>,
    desk: Arc<Desk>,
}

/// What the receiver answers with.
struct Desk {
    /// Statuses of the next answers; afterwards, 204.
    statuses: Mutex<VecDeque<u16>>,
    /// An answer takes a place for good.
    answers: Semaphore,
    received: mpsc::UnboundedSender<Received>,
}

#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) id: String,
    pub(crate) timestamp: u64,
    signature: String,
    body: Bytes,
}

impl Receiver {
    pub(crate) async fn new() -> Self {
        Self::with(&[], Semaphore::MAX_PERMITS).await
    }

    /// Answers the first webhooks with `statuses`.
    pub(crate) async fn answering(statuses: &[u16]) -> Self {
        Self::with(statuses, Semaphore::MAX_PERMITS).await
    }

    /// Takes webhooks and answers none before [`Receiver::answer_all`].
    pub(crate) async fn silent() -> Self {
        Self::with(&[], 0).await
    }

    async fn with(statuses: &[u16], answers: usize) -> Self {
        let (received, webhooks) = mpsc::unbounded_channel();
        let statuses = Mutex::new(statuses.iter().copied().collect());
        let desk = Arc::new(Desk { statuses, answers: Semaphore::new(answers), received });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(accept(listener, Arc::clone(&desk)));
        Self { address, webhooks, desk }
    }

    pub(crate) fn answer_all(&self) {
        self.desk.answers.add_permits(1000);
    }

    /// Webhooks to this receiver, signed, tried again at once.
    pub(crate) fn webhooks(&self) -> Webhooks {
        let secret = Secret::new(&secret()).unwrap();
        let url = format!("http://{}/hooks", self.address);
        Webhooks { retry_after: std::time::Duration::ZERO, ..Webhooks::new(url, secret) }
    }

    /// The next webhook, its signature checked.
    pub(crate) async fn next(&mut self) -> Received {
        let received = self.webhooks.recv().await.unwrap();
        assert_eq!(received.signature, received.expected_signature());
        received
    }

    /// The numbers of the payments that the next `count` webhooks are about.
    pub(crate) async fn next_payments(&mut self, count: usize) -> Vec<u64> {
        let mut numbers = Vec::new();
        for _ in 0..count {
            let json = self.next().await.json();
            let id = json["data"]["id"].as_str().unwrap();
            numbers.push(id.strip_prefix("pay_").unwrap().parse().unwrap());
        }
        numbers
    }

    pub(crate) fn has_none_waiting(&mut self) -> bool {
        self.webhooks.try_recv().is_err()
    }
}

/// The secret as text.
pub(crate) fn secret() -> String {
    format!("whsec_{}", STANDARD.encode(KEY))
}

impl Received {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// As the specification has it: the HMAC of `id.timestamp.body`.
    fn expected_signature(&self) -> String {
        let text = std::str::from_utf8(&self.body).unwrap();
        let signed = format!("{}.{}.{text}", self.id, self.timestamp);
        let mac = Hmac::<Sha256>::new_from_slice(KEY).unwrap().chain_update(signed);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

async fn accept(listener: TcpListener, desk: Arc<Desk>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let desk = Arc::clone(&desk);
        let service = service_fn(move |request| answer(request, Arc::clone(&desk)));
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        // Its end is of no interest: what arrived has been handed over.
        tokio::spawn(async move { drop(connection.await) });
    }
}

async fn answer(
    request: Request<Incoming>,
    desk: Arc<Desk>,
) -> hyper::Result<Response<Empty<Bytes>>> {
    let header = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
    let (id, timestamp) = (header("webhook-id"), header("webhook-timestamp").parse().unwrap());
    let signature = header("webhook-signature");
    let body = request.into_body().collect().await?.to_bytes();
    // A test that has ended wants no more.
    drop(desk.received.send(Received { id, timestamp, signature, body }));
    desk.answers.acquire().await.unwrap().forget();
    let status = desk.statuses.lock().unwrap().pop_front().unwrap_or(204);
    Ok(Response::builder().status(status).body(Empty::new()).unwrap())
}
