//! HTTP/2 as it stands on the wire, written and read without the code that is tested.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A connection to the gateway, in HTTP/2.
pub(crate) struct Frames(pub(crate) TcpStream);

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// What came of something that was sent on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// An answer.
    Answer,
    /// The stream was reset, with this code.
    Reset(u32),
    /// The connection ended, with this code.
    GoAway(u32),
    /// The connection ended without a word.
    End,
}

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;
pub(crate) const WITH_PRIORITY: u8 = 32;

/// Far longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Fields as literals that nobody has to remember.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            bytes.extend(length(text.len()));
            bytes.extend(text.as_bytes());
        }
    }
    bytes
}

/// A number in seven bits, or in as many bytes more as it takes.
fn length(mut number: usize) -> Vec<u8> {
    let byte = |number: usize| u8::try_from(number).unwrap();
    if number < 127 {
        return vec![byte(number)];
    }
    let mut bytes = vec![127];
    number -= 127;
    while number >= 128 {
        bytes.push(byte(number % 128 + 128));
        number /= 128;
    }
    bytes.push(byte(number));
    bytes
}

/// The head of a GET.
pub(crate) const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "http"), (":path", "/a"), (":authority", "a")];

/// The head of a PUT, with further fields.
pub(crate) fn put<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut fields = GET.to_vec();
    fields[0].1 = "PUT";
    fields.extend(more);
    fields
}

pub(crate) fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &block(&GET))
}

impl Frames {
    /// A connection on which nothing was said.
    pub(crate) async fn silent(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.unwrap())
    }

    /// A connection on which both sides have said what they take.
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let mut frames = Self::silent(address).await;
        frames.send(&[PREFACE, &frame(SETTINGS, 0, 0, &[]), &frame(SETTINGS, ACK, 0, &[])]).await;
        let settings = frames.read().await.unwrap();
        assert_eq!((settings.kind, settings.flags), (SETTINGS, 0));
        frames
    }

    /// Sends all of it. The other side may have hung up meanwhile: what it said before is what counts.
    pub(crate) async fn send(&mut self, parts: &[&[u8]]) {
        drop(self.0.write_all(&parts.concat()).await);
    }

    /// The next frame, if the other side has not ended.
    pub(crate) async fn read(&mut self) -> Option<Frame> {
        let reading = async {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).await.ok()?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            self.0.read_exact(&mut payload).await.ok()?;
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            Some(Frame { kind: head[3], flags: head[4], stream, payload })
        };
        timeout(PATIENCE, reading).await.expect("a frame, or the end")
    }

    /// Reads until something has come of what was sent on a stream.
    pub(crate) async fn came(&mut self, stream: u32) -> Came {
        while let Some(frame) = self.read().await {
            match (frame.kind, frame.stream) {
                (HEADERS, id) if id == stream => return Came::Answer,
                (RST_STREAM, id) if id == stream => return Came::Reset(code(&frame.payload)),
                (GOAWAY, _) if code(&frame.payload[4..]) != 0 => {
                    return Came::GoAway(code(&frame.payload[4..]));
                }
                _ => {}
            }
        }
        Came::End
    }
}

pub(crate) fn code(payload: &[u8]) -> u32 {
    u32::from_be_bytes([payload[0], payload[1], payload[2], payload[3]])
}
