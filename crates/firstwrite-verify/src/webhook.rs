//! A counter of the checker's own: every request that arrives is an effect.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::error::Error;

/// Listens until it is dropped.
#[derive(Debug)]
pub(crate) struct Webhook {
    url: String,
    received: Arc<Mutex<Received>>,
    serving: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Received {
    /// Deliveries that name themselves count once, however often they are sent.
    named: HashSet<String>,
    unnamed: u64,
}

/// A notice is small.
const REQUEST_BYTES_MAX: usize = 256 * 1024;
const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);

/// Headers by which senders name a delivery.
const NAMES: [&str; 3] = ["webhook-id", "idempotency-key", "x-request-id"];

impl Webhook {
    pub(crate) async fn listen(address: &str) -> Result<Self, Error> {
        let failed = |error| Error::failed(format!("cannot listen on {address}: {error}"));
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let url = format!("http://{}/", listener.local_addr().map_err(failed)?);
        let received = Arc::<Mutex<Received>>::default();
        let serving = tokio::spawn(serve(listener, Arc::clone(&received)));
        Ok(Self { url, received, serving })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn count(&self) -> u64 {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        received.unnamed + u64::try_from(received.named.len()).unwrap_or(u64::MAX)
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, received: Arc<Mutex<Received>>) {
    // One after the other: senders wait, and nothing grows.
    while let Ok((stream, _)) = listener.accept().await {
        if let Ok(Some(name)) = timeout(REQUEST_TIME_MAX, receive(stream)).await {
            let mut received = received.lock().unwrap_or_else(PoisonError::into_inner);
            match name {
                Some(name) => drop(received.named.insert(name)),
                None => received.unnamed += 1,
            }
        }
    }
}

/// One whole request and its answer; the name that it gives itself, if any.
async fn receive(mut stream: TcpStream) -> Option<Option<String>> {
    let mut bytes = Vec::new();
    let (name, end) = loop {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut headers);
        if let httparse::Status::Complete(length) = request.parse(&bytes).ok()? {
            let value = |name: &str| {
                let found =
                    request.headers.iter().find(|one| one.name.eq_ignore_ascii_case(name))?;
                std::str::from_utf8(found.value).ok().map(str::to_owned)
            };
            let body: usize = value("content-length").map_or(Some(0), |text| text.parse().ok())?;
            break (NAMES.iter().find_map(|name| value(name)), length.checked_add(body)?);
        }
        more(&mut stream, &mut bytes).await?;
    };
    while bytes.len() < end {
        more(&mut stream, &mut bytes).await?;
    }
    let answer = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
    stream.write_all(answer).await.ok()?;
    Some(name)
}

async fn more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<()> {
    let mut buffer = [0; 4096];
    let count = stream.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
    bytes.extend_from_slice(&buffer[..count]);
    (bytes.len() <= REQUEST_BYTES_MAX).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn post(webhook: &Webhook, request: &str) -> String {
        let address = webhook.url().trim_start_matches("http://").trim_end_matches('/');
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_delivery_that_names_itself_counts_once() {
        let webhook = Webhook::listen("127.0.0.1:0").await.unwrap();
        let named = "POST / HTTP/1.1\r\nWebhook-Id: a\r\nContent-Length: 2\r\n\r\n{}";
        let unnamed = "POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}";
        for request in [named, named, unnamed, unnamed] {
            assert!(post(&webhook, request).await.starts_with("HTTP/1.1 204"));
        }
        // The answer goes out before the count: a connection more, and it is there.
        assert_eq!(post(&webhook, "nonsense\r\n\r\n").await, "");
        assert_eq!(webhook.count(), 3);
    }
}
