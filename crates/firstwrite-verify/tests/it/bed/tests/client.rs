//! A client that writes and reads HTTP/1.1 by hand.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::{interval, timeout};

use super::super::Bed;
use super::{Seen, ensure};

/// Nothing in these tests takes so long; what does is broken.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// A request to be sent, once or often.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    method: &'static str,
    target: String,
    headers: Vec<(&'static str, Vec<u8>)>,
    body: Vec<u8>,
}

/// An answer as it came.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

pub(super) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Ask {
    /// An order of acme's.
    pub(super) fn order(key: &str) -> Self {
        let headers = vec![
            ("Authorization", b"Bearer acme".to_vec()),
            ("Content-Type", b"application/json".to_vec()),
            ("Idempotency-Key", key.into()),
        ];
        Self {
            method: "POST",
            target: "/orders".into(),
            headers,
            body: br#"{"amount":100}"#.into(),
        }
    }

    pub(super) fn get(target: &str) -> Self {
        let headers = vec![("Authorization", b"Bearer acme".to_vec())];
        Self { method: "GET", target: target.to_owned(), headers, body: Vec::new() }
    }

    pub(super) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub(super) fn at(mut self, method: &'static str, target: &str) -> Self {
        (self.method, self.target) = (method, target.to_owned());
        self
    }

    /// Adds a line.
    pub(super) fn and(mut self, name: &'static str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(super) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(own, _)| *own != name);
        self
    }

    pub(super) fn globex(self) -> Self {
        self.without("Authorization").and("Authorization", "Bearer globex")
    }

    /// Makes the handler take its time.
    pub(super) fn slow(self, time: Duration) -> Self {
        self.and("X-Slow", time.as_millis().to_string())
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let length = format!("Content-Length: {}\r\n", self.body.len());
        [self.head(&length), self.body.clone()].concat()
    }

    /// Without the body, and with these lines more.
    pub(super) fn head(&self, more: &str) -> Vec<u8> {
        let mut head =
            format!("{} {} HTTP/1.1\r\nHost: bed\r\n", self.method, self.target).into_bytes();
        for (name, value) in &self.headers {
            head.extend_from_slice(&[name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        [head, more.into(), b"\r\n".into()].concat()
    }

    /// Sends it on a connection of its own.
    pub(super) async fn send(&self, bed: &Bed) -> Result<Reply, String> {
        let mut connection = Connection::to(bed).await?;
        connection.write(&self.bytes()).await?;
        connection.reply().await
    }

    /// Sends it again and again until nobody says any more that it is in flight.
    pub(super) async fn settle(&self, bed: &Bed, at_most: Duration) -> Result<Reply, String> {
        let reply = self.until(bed, at_most, |reply| !matches!(reply.status, 409 | 500)).await?;
        reply.ok_or_else(|| format!("still in flight after {at_most:?}"))
    }

    /// Sends it again and again until the answer is as it should be; nothing if it never was.
    pub(super) async fn until(
        &self,
        bed: &Bed,
        at_most: Duration,
        is_it: impl Fn(&Reply) -> bool,
    ) -> Result<Option<Reply>, String> {
        const EVERY: Duration = Duration::from_millis(25);
        let asking = async {
            let mut again = interval(EVERY);
            loop {
                again.tick().await;
                let reply = self.send(bed).await?;
                if is_it(&reply) {
                    return Ok(reply);
                }
            }
        };
        timeout(at_most, asking).await.ok().transpose()
    }
}

impl Reply {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let line = self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        line.map(|(_, value)| value.as_str())
    }

    pub(super) fn is_replay(&self) -> bool {
        self.header("Idempotent-Replayed") == Some("true")
    }

    pub(super) fn has_status(&self, status: u16) -> Seen {
        ensure(self.status == status, || format!("not {status}: {self:?}"))
    }

    /// A refusal with this status, in the form of refusals.
    pub(super) fn is_refusal(&self, status: u16) -> Seen {
        self.has_status(status)?;
        let kind = self.header("Content-Type");
        ensure(kind == Some("application/problem+json"), || format!("refused as {kind:?}"))
    }
}

impl Connection {
    pub(super) async fn to(bed: &Bed) -> Result<Self, String> {
        let url = bed.url();
        let address = url.trim_start_matches("http://").trim_end_matches("/orders");
        let stream = patiently(TcpStream::connect(address)).await?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        patiently(self.stream.write_all(bytes)).await
    }

    pub(super) async fn reply(&mut self) -> Result<Reply, String> {
        patiently(self.read()).await
    }

    /// The server ends the connection, and says nothing more on it.
    pub(super) async fn ends(&mut self) -> Seen {
        match timeout(PATIENCE, self.stream.read_u8()).await {
            Ok(Err(_)) => Ok(()),
            Ok(Ok(_)) => Err("it goes on".to_owned()),
            Err(_) => Err("it stays open".to_owned()),
        }
    }

    async fn read(&mut self) -> io::Result<Reply> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.stream.read_u8().await?);
        }
        let text = String::from_utf8_lossy(&head).into_owned();
        let mut lines = text.trim_end().split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let mut reply = Reply { status: status.unwrap_or(0), headers, body: String::new() };
        let length = reply.header("Content-Length").and_then(|length| length.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        self.stream.read_exact(&mut body).await?;
        reply.body = String::from_utf8_lossy(&body).into_owned();
        Ok(reply)
    }
}

/// Sends it, and waits until it has its key.
pub(super) async fn in_flight(ask: &Ask, bed: &Bed) -> Result<Connection, String> {
    let mut connection = Connection::to(bed).await?;
    connection.write(&ask.bytes()).await?;
    let reserved = timeout(PATIENCE, bed.reserved(1)).await;
    reserved.map_err(|_elapsed| "it has not got its key, or not for long enough".to_owned())?;
    Ok(connection)
}

async fn patiently<T>(work: impl Future<Output = io::Result<T>>) -> Result<T, String> {
    match timeout(PATIENCE, work).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err(format!("nothing for {PATIENCE:?}")),
    }
}
