//! One connection: requests one after the other, each with its whole body before the next.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::defect::Defect;
use super::message::{Answer, Framing, Head, Parsed};
use super::process::Process;
use super::{delays, guard};

const HEAD_BYTES_MAX: usize = 16 * 1024;
const BODY_BYTES_MAX: usize = 64 * 1024;

/// What a body may take on the wire, chunk sizes and trailers included.
const RAW_BYTES_MAX: usize = 4 * BODY_BYTES_MAX;

/// A request that has arrived in full.
pub(super) struct Request {
    pub(super) head: Head,
    pub(super) body: Vec<u8>,
    /// The key was reserved when only the head was there.
    pub(super) is_reserved: bool,
}

/// Why there is no request.
enum NoRequest {
    /// The caller has gone, in the middle or between two requests.
    Cut,
    Refused(Answer),
}

struct Connection {
    stream: TcpStream,
    /// What has arrived and is not yet read as a request.
    arrived: Vec<u8>,
}

/// Serves until one of the two sides has had enough.
pub(super) async fn serve(stream: TcpStream, process: &Arc<Process>) {
    // Answers are written in one piece; waiting for more of them would only add to the times.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let mut connection = Connection { stream, arrived: Vec::new() };
    loop {
        let (method, answer) = match connection.request(process).await {
            Ok((request, raw)) => {
                let (method, is_last) = (request.head.method.clone(), request.head.is_last);
                let Some(mut answer) = connection.answer(request, process).await else { return };
                answer.is_last |= is_last;
                if answer.leaves_body {
                    connection.arrived.splice(0..0, raw);
                }
                (method, answer)
            }
            Err(NoRequest::Refused(answer)) => (String::new(), answer.last()),
            Err(NoRequest::Cut) => return,
        };
        if connection.stream.write_all(&answer.bytes(&method)).await.is_err() {
            return;
        }
        if answer.is_last {
            connection.close().await;
            return;
        }
    }
}

impl Connection {
    /// The next request, and its body as it came over the wire.
    async fn request(&mut self, process: &Process) -> Result<(Request, Vec<u8>), NoRequest> {
        let head = self.head(process).await?;
        let expects = head.says("expect", "100-continue");
        if expects && process.shared.has(Defect::IgnoresExpect) {
            return Err(NoRequest::Refused(Answer::problem(417, "expectation-failed")));
        }
        if let Framing::Length(length) = head.framing
            && length > BODY_BYTES_MAX
        {
            return Err(NoRequest::Refused(Answer::problem(413, "body-too-large")));
        }
        let is_reserved = guard::reserve_early(&process.shared, &head);
        if expects {
            let go_on = self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await;
            go_on.map_err(|_gone| NoRequest::Cut)?;
        }
        let (body, length) = match head.framing {
            Framing::Length(length) => {
                while self.arrived.len() < length {
                    self.fill().await?;
                }
                (self.arrived[..length].to_vec(), length)
            }
            Framing::Chunked => self.chunks().await?,
        };
        let raw = self.arrived.drain(..length).collect();
        Ok((Request { head, body, is_reserved }, raw))
    }

    async fn head(&mut self, process: &Process) -> Result<Head, NoRequest> {
        let refused = |status, code| Err(NoRequest::Refused(Answer::problem(status, code)));
        loop {
            if !self.arrived.is_empty() {
                match Head::parse(&self.arrived) {
                    Parsed::Head(_, length) if length > HEAD_BYTES_MAX => break,
                    Parsed::Head(head, length) => {
                        self.arrived.drain(..length);
                        return Ok(head);
                    }
                    Parsed::BadCharacter if process.shared.has(Defect::ControlCharacters500) => {
                        return refused(500, "internal-error");
                    }
                    Parsed::BadCharacter => return refused(400, "key-invalid"),
                    Parsed::Bad(code) => return refused(400, code),
                    Parsed::Partial if self.arrived.len() >= HEAD_BYTES_MAX => break,
                    Parsed::Partial => {}
                }
            }
            self.fill().await?;
        }
        refused(431, "head-too-large")
    }

    /// A body in chunks, and its length on the wire.
    async fn chunks(&mut self) -> Result<(Vec<u8>, usize), NoRequest> {
        let (mut body, mut at) = (Vec::new(), 0);
        loop {
            let size = match httparse::parse_chunk_size(&self.arrived[at..]) {
                Ok(httparse::Status::Complete((line, size))) => {
                    at += line;
                    usize::try_from(size).unwrap_or(usize::MAX)
                }
                Ok(httparse::Status::Partial) => {
                    self.fill().await?;
                    continue;
                }
                Err(_) => return Err(NoRequest::Refused(Answer::problem(400, "chunk-invalid"))),
            };
            if size == 0 {
                break;
            }
            if size.saturating_add(body.len()) > BODY_BYTES_MAX {
                return Err(NoRequest::Refused(Answer::problem(413, "body-too-large")));
            }
            while self.arrived.len() < at + size + 2 {
                self.fill().await?;
            }
            body.extend_from_slice(&self.arrived[at..at + size]);
            at += size + 2;
        }
        // Trailers are read up to the empty line, and thrown away.
        loop {
            let line = self.arrived[at..].windows(2).position(|pair| pair == b"\r\n");
            match line {
                Some(0) => return Ok((body, at + 2)),
                Some(length) => at += length + 2,
                None => self.fill().await?,
            }
        }
    }

    /// Waits for more.
    async fn fill(&mut self) -> Result<(), NoRequest> {
        if self.arrived.len() > RAW_BYTES_MAX {
            return Err(NoRequest::Refused(Answer::problem(413, "body-too-large")));
        }
        match timeout(delays::IDLE_MAX, self.stream.read_buf(&mut self.arrived)).await {
            Ok(Ok(read)) if read > 0 => Ok(()),
            _ => Err(NoRequest::Cut),
        }
    }

    /// The answer to a request; nothing if nobody is there to take it.
    ///
    /// The work is a task of its own, so that it ends as it should when the caller hangs up.
    async fn answer(&self, request: Request, process: &Arc<Process>) -> Option<Answer> {
        let (done, mut answer) = oneshot::channel();
        let working = Arc::clone(process);
        process.spawn(async move { guard::answer(request, &working.shared, done).await });
        if process.shared.has(Defect::CutRunsAgain) {
            tokio::select! {
                answer = &mut answer => return answer.ok(),
                // The other end of the channel sees that this one is dropped.
                () = self.hung_up() => return None,
            }
        }
        answer.await.ok()
    }

    /// Ends when the caller has hung up; never if it has sent more instead.
    async fn hung_up(&self) {
        if let Ok(1..) = self.stream.peek(&mut [0]).await {
            std::future::pending::<()>().await;
        }
    }

    /// Ends the connection so that the last answer arrives: closing with input unread would reset it.
    async fn close(&mut self) {
        const REST_BYTES_MAX: usize = 1024 * 1024;
        if self.stream.shutdown().await.is_err() {
            return;
        }
        let mut rest = [0; 4096];
        let mut read = 0;
        while read < REST_BYTES_MAX {
            match timeout(delays::LINGER, self.stream.read(&mut rest)).await {
                Ok(Ok(more)) if more > 0 => read += more,
                _ => return,
            }
        }
    }
}
