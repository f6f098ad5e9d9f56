//! A small HTTP/1.1 client over a plain socket: enough to load the demo and to read every byte it answers.
//!
//! It never repeats a request by itself. Whether a request may be sent again is the very thing under test.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest line of a head; real ones are a few hundred bytes.
const LINE_BYTES_MAX: u64 = 16 * 1024;
/// Most header lines in one answer.
const HEADER_COUNT_MAX: usize = 100;
/// Largest body: a page of a thousand payments is a fraction of this.
const BODY_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Request to send.
#[derive(Clone, Debug)]
pub struct Request {
    /// Such as `GET`.
    pub method: &'static str,
    /// With its query.
    pub path: String,
    /// Names and values, sent as they are.
    pub headers: Vec<(&'static str, String)>,
    /// Its length is told by a header.
    pub body: Vec<u8>,
}

/// A complete answer. One that broke off is an error instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The number in its first line.
    pub status: u16,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    /// The whole of it.
    pub body: Vec<u8>,
}

/// One connection at a time to one address, kept open between requests.
#[derive(Debug)]
pub struct Client {
    address: SocketAddr,
    limit: Duration,
    stream: Option<BufReader<TcpStream>>,
}

impl Client {
    /// `limit` bounds connecting, each write and each read.
    pub fn new(address: SocketAddr, limit: Duration) -> Self {
        Self { address, limit, stream: None }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends once and waits for the whole answer. After an error it is unknown whether the request was carried out.
    pub fn send(&mut self, request: &Request) -> io::Result<Response> {
        // The stream is put back only when it is known to be at the start of the next answer.
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        stream.get_mut().write_all(&request.to_bytes(self.address))?;
        let (response, can_go_on) = read_response(&mut stream)?;
        if can_go_on {
            self.stream = Some(stream);
        }
        Ok(response)
    }

    fn connect(&self) -> io::Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect_timeout(&self.address, self.limit)?;
        stream.set_read_timeout(Some(self.limit))?;
        stream.set_write_timeout(Some(self.limit))?;
        stream.set_nodelay(true)?;
        Ok(BufReader::new(stream))
    }
}

impl Request {
    fn to_bytes(&self, address: SocketAddr) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\nhost: {address}\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        if self.method != "GET" {
            head.extend(["content-length: ", &self.body.len().to_string(), "\r\n"]);
        }
        head += "\r\n";
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

impl Response {
    /// The value of a header, by its name in lower case; the first if there are several.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// All headers, with names in lower case.
    pub(crate) fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// Reads what `curl -i` prints: the head as it came, then the body already put together.
    pub(crate) fn from_printed(bytes: &[u8]) -> io::Result<Self> {
        let mut reader = bytes;
        let (_, status, headers) = read_head(&mut reader)?;
        Ok(Self { status, headers, body: reader.to_vec() })
    }
}

/// Reads headers up to the empty line; their names are in lower case.
pub(crate) fn read_headers(
    reader: &mut impl BufRead,
    count_max: usize,
) -> io::Result<Vec<(String, String)>> {
    let mut headers = Vec::new();
    loop {
        let line = read_line(reader)?;
        if line.is_empty() {
            return Ok(headers);
        }
        let Some((name, value)) = line.split_once(':') else {
            return Err(broken(format!("`{line}` is no header")));
        };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        if headers.len() > count_max {
            return Err(broken("too many headers"));
        }
    }
}

/// Reads one answer; also says whether another may follow on the same connection.
pub(crate) fn read_response(reader: &mut impl BufRead) -> io::Result<(Response, bool)> {
    let (version, status, headers) = read_head(reader)?;
    let mut response = Response { status, headers, body: Vec::new() };
    let is_kept = version == "HTTP/1.1"
        && !response.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    if matches!(status, 204 | 304) {
        return Ok((response, is_kept));
    }
    if response.header("transfer-encoding").is_some_and(|value| value.contains("chunked")) {
        response.body = read_chunks(reader)?;
        return Ok((response, is_kept));
    }
    let Some(length) = response.header("content-length") else {
        reader.take(BODY_BYTES_MAX).read_to_end(&mut response.body)?;
        return Ok((response, false));
    };
    let length = length.parse().map_err(|error| broken(format!("content-length: {error}")))?;
    response.body = read_exactly(reader, length)?;
    Ok((response, is_kept))
}

type Head = (String, u16, Vec<(String, String)>);

/// Reads a status line and headers; interim answers (1xx) are read over.
fn read_head(reader: &mut impl BufRead) -> io::Result<Head> {
    loop {
        let line = read_line(reader)?;
        let mut words = line.split(' ');
        let version = words.next().filter(|word| word.starts_with("HTTP/"));
        let status = words.next().and_then(|word| word.parse().ok());
        let (Some(version), Some(status)) = (version, status) else {
            return Err(broken(format!("`{line}` is no status line")));
        };
        let headers = read_headers(reader, HEADER_COUNT_MAX)?;
        if !(100..200).contains(&status) {
            return Ok((version.to_owned(), status, headers));
        }
    }
}

pub(crate) fn read_chunks(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = read_line(reader)?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size =
            u64::from_str_radix(size, 16).map_err(|error| broken(format!("chunk: {error}")))?;
        if size == 0 {
            // Trailers, if any, up to the empty line.
            while !read_line(reader)?.is_empty() {}
            return Ok(body);
        }
        body.extend(read_exactly(reader, size)?);
        if u64::try_from(body.len()).unwrap_or(u64::MAX) > BODY_BYTES_MAX {
            return Err(broken("the body is too large"));
        }
        if !read_line(reader)?.is_empty() {
            return Err(broken("a chunk is longer than it says"));
        }
    }
}

pub(crate) fn read_exactly(reader: &mut impl BufRead, length: u64) -> io::Result<Vec<u8>> {
    if length > BODY_BYTES_MAX {
        return Err(broken("the body is too large"));
    }
    let mut body = Vec::new();
    reader.take(length).read_to_end(&mut body)?;
    if u64::try_from(body.len()).ok() != Some(length) {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the body broke off"));
    }
    Ok(body)
}

pub(crate) fn read_line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    reader.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the head broke off"));
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    String::from_utf8(line).map_err(|error| broken(error.to_string()))
}

fn broken(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

#[cfg(test)]
mod tests;
