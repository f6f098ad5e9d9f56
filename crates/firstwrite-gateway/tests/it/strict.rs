//! An API that takes requests to the letter, and complains of whatever could be read in two ways.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Says in each answer what it was asked, so that whoever asked can compare.
pub(crate) struct Strict {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// What it was asked: method, target and body.
    asked: Mutex<Vec<String>>,
    complaints: Mutex<Vec<String>>,
    /// All bytes of all connections.
    raw: Mutex<Vec<u8>>,
}

/// Why reading ended.
enum Ended {
    /// The other side hung up: at the end of a message, or in the middle of one.
    HungUp,
    Complaint(String),
}

impl Strict {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let serving = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&serving)));
            }
        });
        Self { address, shared }
    }

    /// What it was asked since it was last asked this.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.shared.asked.lock().unwrap())
    }

    pub(crate) fn complaints(&self) -> Vec<String> {
        self.shared.complaints.lock().unwrap().clone()
    }

    /// Whether these bytes ever arrived, wherever.
    pub(crate) fn heard(&self, bytes: &[u8]) -> bool {
        self.shared.raw.lock().unwrap().windows(bytes.len()).any(|window| window == bytes)
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let mut stream = BufReader::new(stream);
    loop {
        match request(&mut stream, &shared).await {
            Ok(asked) => {
                shared.asked.lock().unwrap().push(asked.clone());
                let length = asked.len();
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{asked}");
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
            Err(Ended::HungUp) => return,
            Err(Ended::Complaint(what)) => {
                shared.complaints.lock().unwrap().push(what);
                return;
            }
        }
    }
}

async fn request(stream: &mut BufReader<TcpStream>, shared: &Shared) -> Result<String, Ended> {
    let start = line(stream, shared).await?;
    let words: Vec<&str> = start.split(' ').collect();
    let [method, target, "HTTP/1.1"] = words[..] else {
        return Err(Ended::Complaint(format!("a request line: {start:?}")));
    };
    let mut length = None;
    let mut is_chunked = false;
    let mut hosts = 0;
    loop {
        let field = line(stream, shared).await?;
        if field.is_empty() {
            break;
        }
        let Some((name, value)) = field.split_once(':') else {
            return Err(Ended::Complaint(format!("no field: {field:?}")));
        };
        let is_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(Ended::Complaint(format!("no name: {field:?}")));
        }
        let value = value.trim_matches([' ', '\t']);
        match name.to_ascii_lowercase().as_str() {
            "host" => hosts += 1,
            "content-length" if length.is_none() && !value.is_empty() => {
                let digits = value.bytes().all(|byte| byte.is_ascii_digit());
                let parsed: Option<usize> = value.parse().ok().filter(|_| digits);
                length = Some(parsed.ok_or_else(|| Ended::Complaint(field.clone()))?);
            }
            "transfer-encoding" if !is_chunked && value == "chunked" => is_chunked = true,
            "content-length" | "transfer-encoding" => return Err(Ended::Complaint(field)),
            _ => {}
        }
    }
    if length.is_some() && is_chunked || hosts > 1 {
        return Err(Ended::Complaint(format!("two framings or hosts: {start}")));
    }
    let body = match length {
        Some(length) => bytes(stream, shared, length).await?,
        None if is_chunked => chunks(stream, shared).await?,
        None => Vec::new(),
    };
    Ok(format!("{method} {target} {}", String::from_utf8_lossy(&body)))
}

async fn chunks(stream: &mut BufReader<TcpStream>, shared: &Shared) -> Result<Vec<u8>, Ended> {
    let mut body = Vec::new();
    loop {
        let size = line(stream, shared).await?;
        let is_hex = !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_hexdigit());
        let length = usize::from_str_radix(&size, 16).ok().filter(|_| is_hex);
        let length = length.ok_or_else(|| Ended::Complaint(format!("a chunk of {size:?}")))?;
        body.extend(bytes(stream, shared, length).await?);
        let end = line(stream, shared).await?;
        if !end.is_empty() {
            return Err(Ended::Complaint(format!("after a chunk: {end:?}")));
        }
        if length == 0 {
            return Ok(body);
        }
    }
}

async fn bytes(
    stream: &mut BufReader<TcpStream>,
    shared: &Shared,
    length: usize,
) -> Result<Vec<u8>, Ended> {
    let mut body = Vec::new();
    let count = u64::try_from(length).unwrap_or(u64::MAX);
    let read = stream.take(count).read_to_end(&mut body).await;
    if read.is_err() || body.len() < length {
        return Err(Ended::HungUp);
    }
    shared.raw.lock().unwrap().extend(&body);
    Ok(body)
}

/// A line, which ends in CR LF and has no other control character.
async fn line(stream: &mut BufReader<TcpStream>, shared: &Shared) -> Result<String, Ended> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let byte = stream.read_u8().await.map_err(|_ended| Ended::HungUp)?;
        shared.raw.lock().unwrap().push(byte);
        line.push(byte);
    }
    line.truncate(line.len() - 2);
    if line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
        return Err(Ended::Complaint(format!("a control character: {line:?}")));
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}
