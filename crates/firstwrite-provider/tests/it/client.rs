//! A client that makes one call per connection and never repeats one by itself.

use std::net::SocketAddr;

use axum::http::{HeaderMap, Request};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

pub(crate) struct Call {
    method: &'static str,
    path: String,
    key: Option<String>,
    body: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

pub(crate) fn get(path: impl Into<String>) -> Call {
    Call { method: "GET", path: path.into(), key: None, body: Vec::new() }
}

pub(crate) fn post(path: &str, body: impl Into<Vec<u8>>) -> Call {
    Call { method: "POST", body: body.into(), ..get(path) }
}

pub(crate) fn put(path: &str, body: impl Into<Vec<u8>>) -> Call {
    Call { method: "PUT", ..post(path, body) }
}

/// A call for a payment of `amount` under `key`.
pub(crate) fn pay(key: &str, amount: u64) -> Call {
    let body = format!(r#"{{"amount":{amount},"currency":"EUR","reference":"order"}}"#);
    post("/v1/payments", body).key(key)
}

impl Call {
    pub(crate) fn key(self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self }
    }

    /// The answer, or how the connection ended without one.
    pub(crate) async fn try_send(&self, to: SocketAddr) -> hyper::Result<Answer> {
        let (mut sender, connection) = connect(to).await;
        let sent = sender.send_request(self.request(to)).await;
        let answer = match sent {
            Ok(response) => {
                let (head, body) = response.into_parts();
                let body = body.collect().await?.to_bytes();
                Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
            }
            Err(error) => Err(error),
        };
        connection.abort();
        answer
    }

    pub(crate) async fn send(&self, to: SocketAddr) -> Answer {
        self.try_send(to).await.unwrap()
    }

    /// Sends the call and hangs up without waiting for an answer.
    pub(crate) async fn send_and_leave(&self, to: SocketAddr) {
        let head = format!(
            "{} {} HTTP/1.1\r\nhost: {to}\r\ncontent-length: {}\r\nidempotency-key: {}\r\n\r\n",
            self.method,
            self.path,
            self.body.len(),
            self.key.as_deref().unwrap_or("none"),
        );
        let mut stream = TcpStream::connect(to).await.unwrap();
        let bytes = [head.as_bytes(), &self.body].concat();
        tokio::io::AsyncWriteExt::write_all(&mut stream, &bytes).await.unwrap();
    }

    fn request(&self, to: SocketAddr) -> Request<Full<Bytes>> {
        let mut request = Request::builder()
            .method(self.method)
            .uri(&self.path)
            .header("host", to.to_string())
            .header("content-type", "application/json");
        if let Some(key) = &self.key {
            request = request.header("idempotency-key", key);
        }
        request.body(Full::new(Bytes::from(self.body.clone()))).unwrap()
    }
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The id of the payment in it.
    pub(crate) fn id(&self) -> String {
        self.json()["id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

async fn connect(to: SocketAddr) -> (SendRequest<Full<Bytes>>, JoinHandle<()>) {
    let stream = TcpStream::connect(to).await.unwrap();
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    // How the connection ended is told by the call itself.
    let connection = tokio::spawn(async move { drop(connection.await) });
    (sender, connection)
}
