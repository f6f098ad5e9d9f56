//! The proxy: one thread for each connection, one connection to the demo for each request.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};

use super::Bed;
use super::control;
use super::faults::Fault;
use super::journal::Entry;
use crate::clock::{pause, wait_until};
use crate::http::{self, Response};
use crate::place::steady_port;

/// Longer than the status resource holds a caller, and than any delay.
const PATIENCE: Duration = Duration::from_secs(90);
/// A port is free again at once after its listener has gone; this is for a loaded machine.
const OPENING_MAX: Duration = Duration::from_secs(10);
const HEADER_COUNT_MAX: usize = 200;
/// Headers about one connection, which end at the proxy; bodies are passed on with their length.
const OF_THE_CONNECTION: [&str; 7] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "content-length",
    "expect",
    "x-bed-fault",
];

/// The port of the proxy, which can be closed for a while.
pub(super) struct Door {
    address: SocketAddr,
    listener: Mutex<Option<TcpListener>>,
    closed_for: Mutex<Option<Duration>>,
}

/// A request as it came.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) method: String,
    pub(super) path: String,
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Door {
    pub(super) fn open() -> anyhow::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, steady_port()?));
        let listener = TcpListener::bind(address).context("cannot open the proxy's port")?;
        let listener = Mutex::new(Some(listener));
        Ok(Self { address, listener, closed_for: Mutex::new(None) })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes the port; it is open again after `time`. Connections that stand go on.
    pub(super) fn close_for(&self, time: Duration) -> anyhow::Result<()> {
        *self.closed_for.lock().expect("closing does not panic") = Some(time);
        // A connection of our own wakes the thread that waits for one, which then finds the order.
        TcpStream::connect(self.address).context("cannot wake the proxy").map(drop)
    }
}

/// Takes connections for as long as the process lives.
pub(super) fn serve(bed: &Arc<Bed>) {
    let mut listener = bed.door.listener.lock().expect("opening does not panic").take();
    while let Some(open) = listener.take() {
        let Ok((stream, _)) = open.accept() else { break };
        let order = bed.door.closed_for.lock().expect("closing does not panic").take();
        if let Some(time) = order {
            drop((open, stream));
            pause(time);
            wait_until(OPENING_MAX, || {
                listener = TcpListener::bind(bed.door.address).ok();
                listener.is_some()
            });
            continue;
        }
        listener = Some(open);
        let bed = Arc::clone(bed);
        std::thread::spawn(move || {
            // A connection that breaks is the client's matter: the journal says what came.
            drop(attend(&bed, stream));
        });
    }
    eprintln!("xtask client-bed: the proxy's port cannot be opened any more");
}

/// Serves one connection to its end.
fn attend(bed: &Bed, stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    if !is_for_the_bed(&stream)?
        && bed.schedule.lock().expect("drawing a fault does not panic").refuses()
    {
        bed.journal.add(Entry::new("", "", Fault::Refuse));
        // With bytes that nobody took, this is a reset.
        return Ok(());
    }
    let mut reader = BufReader::new(stream);
    while let Some(asked) = Asked::read(&mut reader)? {
        let stays = if asked.path.starts_with(control::PATHS) {
            let (status, body) = control::answer(bed, &asked);
            say(reader.get_mut(), status, &body)?
        } else {
            pass_on(bed, &asked, reader.get_mut())?
        };
        if !stays {
            return reader.get_mut().shutdown(Shutdown::Both);
        }
    }
    Ok(())
}

/// Looks at the first line of a connection without taking it: the test's own orders always come through.
fn is_for_the_bed(stream: &TcpStream) -> io::Result<bool> {
    let mut seen = [0; 64];
    let length = stream.peek(&mut seen)?;
    let path = control::PATHS.as_bytes();
    Ok(seen[..length].windows(path.len()).any(|part| part == path))
}

/// Does with one request what is to happen to it; returns whether another may follow.
fn pass_on(bed: &Bed, asked: &Asked, client: &mut TcpStream) -> io::Result<bool> {
    let decided = {
        let mut schedule = bed.schedule.lock().expect("drawing a fault does not panic");
        schedule.decide(asked.header("x-bed-fault"), &asked.kind())
    };
    let fault = match decided {
        Ok(fault) => fault,
        Err(error) => return say(client, 400, &json!({ "error": error })),
    };
    let number = bed.journal.add(asked.to_entry(fault));
    match fault {
        Fault::Refuse | Fault::CutBefore => return Ok(false),
        Fault::Status(503) => {
            let wait = bed.schedule.lock().expect("drawing a fault does not panic").retry_after();
            return say_later(client, wait);
        }
        Fault::Delay(time) => pause(time),
        Fault::Ok | Fault::CutAfter | Fault::CutHalf | Fault::Status(_) => {}
    }
    // A demo that is down answers nobody, and neither does its proxy.
    let Ok(answer) = ask(bed.address, asked) else { return Ok(false) };
    bed.journal.answered(number, answer.status);
    let bytes = asked.answer_bytes(&answer);
    match fault {
        Fault::CutAfter => Ok(false),
        Fault::CutHalf => {
            // Up to the middle of the body, or of the head where there is no body.
            let body = if bytes.ends_with(&answer.body) { answer.body.len() } else { 0 };
            let cut = if body > 1 { bytes.len() - body.div_ceil(2) } else { bytes.len() / 2 };
            client.write_all(&bytes[..cut]).map(|()| false)
        }
        Fault::Status(status) => say(client, status, &json!({ "title": "asked for" })),
        Fault::Ok | Fault::Delay(_) | Fault::Refuse | Fault::CutBefore => {
            client.write_all(&bytes).map(|()| !asked.closes())
        }
    }
}

/// Sends a request to the demo on a connection of its own.
fn ask(address: SocketAddr, asked: &Asked) -> io::Result<Response> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&asked.to_bytes())?;
    http::read_response(&mut BufReader::new(stream)).map(|(response, _)| response)
}

/// Answers by itself.
fn say(client: &mut TcpStream, status: u16, body: &Value) -> io::Result<bool> {
    say_with(client, status, "", body)
}

/// Answers that the service is not there, and when to come back.
fn say_later(client: &mut TcpStream, seconds: u64) -> io::Result<bool> {
    let wait = format!("retry-after: {seconds}\r\n");
    say_with(client, 503, &wait, &json!({ "title": "asked for" }))
}

fn say_with(client: &mut TcpStream, status: u16, wait: &str, body: &Value) -> io::Result<bool> {
    let body = body.to_string();
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} Said-By-The-Bed\r\ncontent-type: application/json\r\n{wait}content-length: {length}\r\n\r\n"
    );
    client.write_all((head + &body).as_bytes()).map(|()| true)
}

impl Asked {
    /// Reads the next request; `None` at the end of the connection.
    fn read(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Self>> {
        if reader.fill_buf()?.is_empty() {
            return Ok(None);
        }
        let line = http::read_line(reader)?;
        let mut words = line.split(' ');
        let (Some(method), Some(path)) = (words.next(), words.next()) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no request line"));
        };
        // A client that takes the bed for its proxy sends the whole address.
        let path = path
            .strip_prefix("http://")
            .map_or(path, |rest| rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("/"));
        let (method, path) = (method.to_owned(), path.to_owned());
        let headers = http::read_headers(reader, HEADER_COUNT_MAX)?;
        let mut asked = Self { method, path, headers, body: Vec::new() };
        if asked.header("expect").is_some() {
            reader.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        if asked.header("transfer-encoding").is_some() {
            asked.body = http::read_chunks(reader)?;
        } else if let Some(length) = asked.header("content-length") {
            let length = length.parse().map_err(io::Error::other)?;
            asked.body = http::read_exactly(reader, length)?;
        }
        Ok(Some(asked))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    fn key(&self) -> Option<String> {
        self.header("idempotency-key").map(|key| key.trim_matches('"').to_owned())
    }

    /// Returns what a request has in common with its retries.
    fn kind(&self) -> String {
        format!("{} {} {}", self.method, self.path, self.key().unwrap_or_default())
    }

    fn closes(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    fn to_entry(&self, fault: Fault) -> Entry {
        let mut entry = Entry::new(&self.method, &self.path, fault);
        entry.key = self.key();
        let body = serde_json::from_slice::<Value>(&self.body).ok();
        entry.customer = body.and_then(|body| Some(body["customer"].as_str()?.to_owned()));
        entry
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in self.headers.iter().filter(|(name, _)| is_passed_on(name)) {
            head.extend([name, ": ", value, "\r\n"]);
        }
        let length = self.body.len().to_string();
        head.extend(["connection: close\r\ncontent-length: ", &length, "\r\n\r\n"]);
        [head.as_bytes(), &self.body].concat()
    }

    /// The demo's answer as it goes to the client.
    fn answer_bytes(&self, answer: &Response) -> Vec<u8> {
        let has_body = self.method != "HEAD" && !matches!(answer.status, 204 | 304);
        let mut head = format!("HTTP/1.1 {} Passed-On\r\n", answer.status);
        for (name, value) in answer.headers().iter().filter(|(name, _)| is_passed_on(name)) {
            head.extend([name, ": ", value, "\r\n"]);
        }
        if has_body {
            head.extend(["content-length: ", &answer.body.len().to_string(), "\r\n"]);
        }
        if self.closes() {
            head += "connection: close\r\n";
        }
        head += "\r\n";
        let body: &[u8] = if has_body { &answer.body } else { &[] };
        [head.as_bytes(), body].concat()
    }
}

fn is_passed_on(name: &str) -> bool {
    !OF_THE_CONNECTION.contains(&name)
}
