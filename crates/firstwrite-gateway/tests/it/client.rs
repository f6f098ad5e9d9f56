//! A client that writes bytes and reads answers.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::wire::{self, Message};

/// A connection to the gateway.
pub(crate) struct Client(pub(crate) BufReader<TcpStream>);

/// A POST with a key.
pub(crate) fn post(key: &str, body: &str) -> String {
    keyed("/pay", key, "", body)
}

/// The same with a path and further headers.
pub(crate) fn keyed(path: &str, key: &str, headers: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: shop.example\r\nidempotency-key: {key}\r\n{headers}\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self(BufReader::new(TcpStream::connect(address).await.unwrap()))
    }

    pub(crate) async fn send(&mut self, bytes: &str) {
        self.0.write_all(bytes.as_bytes()).await.unwrap();
    }

    /// The next answer, if there is one.
    pub(crate) async fn read(&mut self) -> Option<Message> {
        wire::read(&mut self.0).await.ok().flatten()
    }

    pub(crate) async fn ask(&mut self, bytes: &str) -> Message {
        self.send(bytes).await;
        self.read().await.expect("an answer")
    }

    /// Whether the other side has ended, without another byte.
    pub(crate) async fn is_closed(&mut self) -> bool {
        matches!(self.0.read(&mut [0]).await, Ok(0) | Err(_))
    }
}

/// Asks on a connection of its own.
pub(crate) async fn ask(address: SocketAddr, bytes: &str) -> Message {
    Client::connect(address).await.ask(bytes).await
}
