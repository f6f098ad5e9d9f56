//! HTTP/1.1 messages as they stand on the wire, read without the code that is tested.

use std::io;

use tokio::io::{AsyncReadExt as _, BufReader};
use tokio::net::TcpStream;

/// A request or an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message {
    pub(crate) start: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Message {
    /// All values of a header, in their order.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let lines = self.headers.iter().filter(|(found, _)| found.eq_ignore_ascii_case(name));
        lines.map(|(_, value)| value.as_str()).collect()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    pub(crate) fn status(&self) -> u16 {
        self.start.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The code of a problem document of ours.
    pub(crate) fn code(&self) -> String {
        let document: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
        document["code"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }
}

/// Reads a head; nothing if the other side has ended before it began one.
pub(crate) async fn read_head(stream: &mut BufReader<TcpStream>) -> io::Result<Option<Message>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && head.is_empty() => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    let mut lines = text.trim_end().split("\r\n");
    let start = lines.next().unwrap_or_default().to_owned();
    let split = |line: &str| {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        (name.to_owned(), value.trim().to_owned())
    };
    Ok(Some(Message { start, headers: lines.map(split).collect(), body: Vec::new() }))
}

/// Reads a whole message. An answer without a length lasts until the other side ends it.
pub(crate) async fn read(stream: &mut BufReader<TcpStream>) -> io::Result<Option<Message>> {
    let Some(mut message) = read_head(stream).await? else { return Ok(None) };
    let is_answer = message.start.starts_with("HTTP/");
    if message.header("transfer-encoding") == Some("chunked") {
        read_chunks(stream, &mut message.body).await?;
    } else if let Some(length) = message.header("content-length") {
        let length = length.parse().map_err(io::Error::other)?;
        message.body.resize(length, 0);
        stream.read_exact(&mut message.body).await?;
    } else if is_answer && !matches!(message.status(), 100 | 101 | 204 | 304) {
        stream.read_to_end(&mut message.body).await?;
    }
    Ok(Some(message))
}

async fn read_chunks(stream: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let line = read_line(stream).await?;
        let size = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
        let start = body.len();
        body.resize(start + size, 0);
        stream.read_exact(&mut body[start..]).await?;
        read_line(stream).await?;
        if size == 0 {
            return Ok(());
        }
    }
}

pub(crate) async fn read_line(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}
