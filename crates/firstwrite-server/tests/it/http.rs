//! A client that knows as little HTTP as the tests need.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Far longer than any answer takes; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Request {
    method: &'static str,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// A request that was sent.
pub(crate) struct Started(TcpStream);

/// A request whose body has not been sent.
pub(crate) struct Begun {
    stream: TcpStream,
    body: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

pub(crate) fn get(path: &str) -> Request {
    Request { method: "GET", path: path.to_owned(), headers: Vec::new(), body: Vec::new() }
}

pub(crate) fn post(path: &str, body: &str) -> Request {
    let request = Request { method: "POST", body: body.as_bytes().to_vec(), ..get(path) };
    request.header("Content-Type", "application/json")
}

/// Sends these bytes and reads the answer.
pub(crate) fn raw(address: SocketAddr, bytes: &str) -> Option<Response> {
    let mut stream = connect(address);
    stream.write_all(bytes.as_bytes()).unwrap();
    Response::read(stream)
}

impl Request {
    pub(crate) fn method(self, method: &'static str) -> Self {
        Self { method, ..self }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn acme(self) -> Self {
        self.header("Authorization", "Bearer demo-acme")
    }

    pub(crate) fn globex(self) -> Self {
        self.header("Authorization", "Bearer demo-globex")
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.header("Idempotency-Key", key)
    }

    pub(crate) fn fault(self, fault: &str) -> Self {
        self.header("X-Demo-Fault", fault)
    }

    /// Sends the request and reads the answer; `None` if the connection ended without one.
    pub(crate) fn send(&self, address: SocketAddr) -> Option<Response> {
        Response::read(self.start(address).0)
    }

    /// Sends the request and does not wait for the answer.
    pub(crate) fn start(&self, address: SocketAddr) -> Started {
        let mut stream = connect(address);
        stream.write_all(&[self.head(address).as_bytes(), &self.body].concat()).unwrap();
        Started(stream)
    }

    /// The same, to a server that may be gone.
    pub(crate) fn try_start(&self, address: SocketAddr) -> Option<Started> {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.write_all(&[self.head(address).as_bytes(), &self.body].concat()).ok()?;
        Some(Started(stream))
    }

    /// Sends the request to a server that may be killed at any moment; `None` if there is no whole answer.
    pub(crate) fn attempt(&self, address: SocketAddr) -> Option<Response> {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&[self.head(address).as_bytes(), &self.body].concat()).ok()?;
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("no answer came at all"),
            Err(_killed) => return None,
        }
        answer.windows(4).position(|four| four == b"\r\n\r\n")?;
        let response = Response::parse(&answer);
        let length: usize = response.header("content-length")?.parse().unwrap();
        (response.body.len() == length).then_some(response)
    }

    /// Sends all but the body, and returns once the server has begun to work on the request.
    pub(crate) fn begin(self, address: SocketAddr) -> Begun {
        let request = self.header("Expect", "100-continue");
        let mut stream = connect(address);
        stream.write_all(request.head(address).as_bytes()).unwrap();
        let mut go_on = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
        stream.read_exact(&mut go_on).unwrap();
        assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
        Begun { stream, body: request.body }
    }

    fn head(&self, address: SocketAddr) -> String {
        let mut head = format!(
            "{} {} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n",
            self.method,
            self.path,
            self.body.len()
        );
        if !self.headers.iter().any(|(name, _)| name == "Host") {
            write!(head, "Host: {address}\r\n").unwrap();
        }
        for (name, value) in &self.headers {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        head.push_str("\r\n");
        head
    }
}

impl Started {
    /// Whether anything of an answer is there.
    pub(crate) fn is_answered(&self) -> bool {
        self.0.set_nonblocking(true).unwrap();
        self.0.peek(&mut [0]).is_ok()
    }

    /// Waits for the first byte of an answer.
    pub(crate) fn wait_answered(&self) {
        self.0.set_nonblocking(false).unwrap();
        assert_eq!(self.0.peek(&mut [0]).unwrap(), 1);
    }

    /// How many bytes of an answer came before the connection ended.
    pub(crate) fn received(mut self) -> usize {
        let mut answer = Vec::new();
        // How it ended does not matter.
        drop(self.0.read_to_end(&mut answer));
        answer.len()
    }

    /// Reads the answer; `None` if the connection ended without one.
    pub(crate) fn finish(self) -> Option<Response> {
        self.0.set_nonblocking(false).unwrap();
        Response::read(self.0)
    }
}

impl Begun {
    /// Sends a part of the body and hangs up.
    pub(crate) fn hang_up_after(mut self, byte_count: usize) {
        self.stream.write_all(&self.body[..byte_count]).unwrap();
    }

    /// Sends the body and reads the answer.
    pub(crate) fn finish(mut self) -> Option<Response> {
        self.stream.write_all(&self.body).unwrap();
        Response::read(self.stream)
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The values of all lines of a header.
    pub(crate) fn lines(&self, name: &str) -> Vec<&str> {
        let lines = self.headers.iter().filter(|(found, _)| found.eq_ignore_ascii_case(name));
        lines.map(|(_, value)| value.as_str()).collect()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// The code of a problem document.
    pub(crate) fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let document = self.json();
        assert_eq!(document["status"], self.status, "{document}");
        document["code"].as_str().unwrap().to_owned()
    }

    fn read(mut stream: TcpStream) -> Option<Self> {
        let mut answer = Vec::new();
        // A reset is how a killed server says goodbye.
        let ended = stream.read_to_end(&mut answer);
        if answer.is_empty() {
            return None;
        }
        ended.unwrap();
        Some(Self::parse(&answer))
    }

    fn parse(answer: &[u8]) -> Self {
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let head = std::str::from_utf8(&answer[..end]).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_owned(), value.trim().to_owned())
        });
        Self { status, headers: headers.collect(), body: answer[end + 4..].to_vec() }
    }
}
