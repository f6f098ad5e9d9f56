//! One connection: bytes out, answers in.

use std::fmt;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::answer::{Answer, Framing};
use super::tls::Trust;
use crate::target::Target;

/// The reason why no response came. The client can conclude nothing about the effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// No server listens at the address.
    Unreachable(String),
    /// The connection ended before a whole answer.
    Closed,
    /// Nothing came in time.
    Late,
    /// The bytes are not an HTTP response.
    Garbled(String),
}

/// A connection with what was read from it and not yet used.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    read: Vec<u8>,
    deadline: Instant,
    /// Time at which the first byte of the latest response came.
    heard_at: Option<Instant>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// No answer that is compared needs more.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

impl Connection {
    /// A connection that is there already.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn over(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        within: Duration,
    ) -> Self {
        let deadline = Instant::now() + within;
        Self { stream: Box::new(stream), read: Vec::new(), deadline, heard_at: None }
    }

    /// Connects; everything on it must be done within `within`.
    pub(crate) async fn open(
        target: &Target,
        trust: Option<&Trust>,
        within: Duration,
    ) -> Result<Self, Silence> {
        let deadline = Instant::now() + within;
        let opening = async {
            let tcp = TcpStream::connect(target.addresses()).await?;
            // A small request must not wait for more to come.
            tcp.set_nodelay(true)?;
            let stream: Box<dyn Stream> = match trust {
                Some(trust) if target.is_tls() => {
                    Box::new(trust.greet(target.host(), tcp).await.map_err(Silence::Unreachable)?)
                }
                Some(_) | None => Box::new(tcp),
            };
            Ok::<_, Silence>(stream)
        };
        let stream = timeout_at(deadline, opening).await.unwrap_or(Err(Silence::Late))?;
        Ok(Self { stream, read: Vec::new(), deadline, heard_at: None })
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<(), Silence> {
        let writing = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        match timeout_at(self.deadline, writing).await {
            Ok(Ok(())) => Ok(()),
            // A server may answer and close before it was sent everything: what it said is still to be read.
            Ok(Err(_)) => Err(Silence::Closed),
            Err(_) => Err(Silence::Late),
        }
    }

    /// The next final answer; those that only say to go on are passed over.
    pub(crate) async fn answer(&mut self) -> Result<Answer, Silence> {
        loop {
            let answer = self.any_answer().await?;
            if answer.status >= 200 {
                return Ok(answer);
            }
        }
    }

    /// The next answer, `100 Continue` included.
    pub(crate) async fn any_answer(&mut self) -> Result<Answer, Silence> {
        self.heard_at = None;
        let (mut answer, length) = loop {
            match Answer::parse_head(&self.read).map_err(Silence::Garbled)? {
                Some(parsed) => break parsed,
                None => self.more().await?,
            }
        };
        self.read.drain(..length);
        answer.body = match answer.framing(false).map_err(Silence::Garbled)? {
            Framing::Length(length) => self.take(length).await?,
            Framing::Chunked => self.chunks().await?,
            Framing::UntilClose => loop {
                match self.more().await {
                    Ok(()) => {}
                    Err(Silence::Closed) => break std::mem::take(&mut self.read),
                    Err(silence) => return Err(silence),
                }
            },
        };
        Ok(answer)
    }

    /// Whatever comes within `wait`, if anything does: for what should not come at all.
    pub(crate) async fn answer_within(&mut self, wait: Duration) -> Result<Answer, Silence> {
        let deadline = self.deadline;
        self.deadline = deadline.min(Instant::now() + wait);
        let answer = self.any_answer().await;
        self.deadline = deadline;
        answer
    }

    /// Returns the time at which the first byte of the latest response came.
    pub(crate) fn heard_at(&self) -> Option<Instant> {
        self.heard_at
    }

    async fn take(&mut self, length: usize) -> Result<Vec<u8>, Silence> {
        if length > ANSWER_BYTES_MAX {
            return Err(too_long());
        }
        while self.read.len() < length {
            self.more().await?;
        }
        Ok(self.read.drain(..length).collect())
    }

    async fn chunks(&mut self) -> Result<Vec<u8>, Silence> {
        let mut body = Vec::new();
        loop {
            let (start, size) = loop {
                match httparse::parse_chunk_size(&self.read) {
                    Ok(httparse::Status::Complete(parsed)) => break parsed,
                    Ok(httparse::Status::Partial) => self.more().await?,
                    Err(_) => return Err(Silence::Garbled("a chunk without a size".to_owned())),
                }
            };
            self.read.drain(..start);
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            if size == 0 {
                // Trailers end with an empty line.
                while self.line().await?.len() > 2 {}
                return Ok(body);
            }
            if body.len().saturating_add(size) > ANSWER_BYTES_MAX {
                return Err(too_long());
            }
            body.extend(self.take(size).await?);
            if !matches!(&*self.line().await?, b"\r\n" | b"\n") {
                return Err(Silence::Garbled("a chunk longer than its size".to_owned()));
            }
        }
    }

    async fn line(&mut self) -> Result<Vec<u8>, Silence> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                return Ok(self.read.drain(..=end).collect());
            }
            self.more().await?;
        }
    }

    async fn more(&mut self) -> Result<(), Silence> {
        if self.read.len() > 2 * ANSWER_BYTES_MAX {
            return Err(too_long());
        }
        let mut buffer = [0; 8192];
        match timeout_at(self.deadline, self.stream.read(&mut buffer)).await {
            Ok(Ok(0) | Err(_)) => Err(Silence::Closed),
            Ok(Ok(count)) => {
                self.heard_at.get_or_insert_with(Instant::now);
                self.read.extend_from_slice(&buffer[..count]);
                Ok(())
            }
            Err(_) => Err(Silence::Late),
        }
    }
}

impl From<io::Error> for Silence {
    fn from(error: io::Error) -> Self {
        Self::Unreachable(error.to_string())
    }
}

fn too_long() -> Silence {
    Silence::Garbled(format!("an answer of more than {ANSWER_BYTES_MAX} bytes"))
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "no connection: {why}"),
            Self::Closed => f.write_str("the connection was closed without an answer"),
            Self::Late => f.write_str("no answer in time"),
            Self::Garbled(why) => f.write_str(why),
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("unread", &self.read.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    /// The answers that a server's bytes make, until the connection ends.
    async fn answers(bytes: &[u8]) -> Vec<Result<(u16, String), Silence>> {
        let (mut server, client) = duplex(64);
        let bytes = bytes.to_vec();
        let sending = async move {
            server.write_all(&bytes).await.unwrap();
        };
        let mut connection = Connection::over(client, Duration::from_secs(5));
        let reading = async {
            let mut found = Vec::new();
            loop {
                let one = connection.answer().await;
                let is_last = one.is_err();
                found.push(one.map(|a| (a.status, String::from_utf8(a.body).unwrap())));
                if is_last {
                    return found;
                }
            }
        };
        tokio::join!(sending, reading).1
    }

    #[tokio::test]
    async fn bodies_end_where_they_say() {
        let found = answers(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nab\
              HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1;x=y\r\nd\r\n0\r\nT: 1\r\n\r\n\
              HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\n\r\nto the end",
        )
        .await;
        let expected = [(201, "ab"), (200, "abcd"), (204, ""), (200, "to the end")];
        let expected = expected.map(|(status, body)| Ok((status, body.to_owned())));
        assert_eq!(found[..4], expected);
        assert_eq!(found[4], Err(Silence::Closed));
    }

    #[tokio::test]
    async fn what_is_no_answer_is_said_to_be_none() {
        for (bytes, expected) in [
            (&b"SSH-2.0\r\n\r\n"[..], "no HTTP/1.1 answer"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "length is `x`"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "coded as `gzip`"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", "more than"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "without a size"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", "than its size"),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n\r\n",
                "coded as `chunked, gzip`",
            ),
            (b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nab", "length is `+2`"),
            (
                b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 1\r\n\r\nab",
                "or another as well",
            ),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", "closed"),
        ] {
            let found = answers(bytes).await;
            let found = found[0].as_ref().unwrap_err().to_string();
            assert!(found.contains(expected), "{found}");
        }
    }
}
