//! Requests put together at random, most of them wrong: whatever comes, the gateway does not fail, and what
//! it passes on can be read in one way only.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::payloads::before;
use crate::strict::Strict;

/// More are a matter of `FIRSTWRITE_TEST_NOISE`.
const REQUESTS: u64 = 2000;
const AT_ONCE: usize = 16;
const PATIENCE: Duration = Duration::from_secs(20);

const STARTS: &[&str] = &[
    "POST /pay HTTP/1.1",
    "PUT /a HTTP/1.1",
    "GET /a?b HTTP/1.1",
    "DELETE http://a/b HTTP/1.1",
    "POST /pay HTTP/1.0",
    "OPTIONS * HTTP/1.1",
    "GET /.firstwrite/operations/k HTTP/1.1",
    "PRI * HTTP/2.0",
    "CONNECT a:1 HTTP/1.1",
];
const LINES: &[&str] = &[
    "Host: a",
    "Host: a",
    "Host: a",
    "Host: b",
    "Content-Length: 5",
    "Content-Length: 5",
    "Content-Length: 50",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip",
    "Idempotency-Key: k",
    "Idempotency-Key: \"a, b\"",
    "Connection: close",
    "Connection: upgrade, content-length",
    "Upgrade: websocket",
    "Expect: 100-continue",
    "Trailer: x",
    "TE: trailers, gzip",
    "X-A: b",
    "Authorization: Bearer a",
    " folded",
    "",
];
const BODIES: &[&str] = &[
    "",
    "hello",
    "5\r\nhello\r\n0\r\n\r\n",
    "5;x\r\nhello\r\n0\r\nx: y\r\n\r\n",
    "hello5\r\n",
    "0\r\n\r\n",
    "GET /next HTTP/1.1\r\nHost: a\r\n\r\n",
];
/// What is put into the middle, or in place of something.
const NOISE: &[u8] = b"\r\n\0\t :;,\"\x0b\x7f\x80\xa0\xff+-_0x9aZ/%?#@[]";

#[tokio::test]
async fn nothing_that_is_sent_makes_it_fail() {
    let fresh = firstwrite_testkit::seed();
    let count = std::env::var("FIRSTWRITE_TEST_NOISE").ok().map(|count| count.parse().unwrap());
    for seed in [1, fresh] {
        run(fastrand::Rng::with_seed(seed), count.unwrap_or(REQUESTS) / 2).await;
    }
}

async fn run(mut random: fastrand::Rng, count: u64) {
    let strict = Strict::start().await;
    let gateway = before(&strict).await;
    let address = gateway.address();
    let mut under_way = JoinSet::new();
    for _ in 0..count {
        if under_way.len() >= AT_ONCE {
            under_way.join_next().await.unwrap().unwrap();
        }
        let bytes = made(&mut random);
        under_way.spawn(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(&bytes).await.unwrap();
            // Nothing more comes; a gateway that has answered already may have hung up.
            drop(stream.shutdown().await);
            let mut answered = Vec::new();
            let read = timeout(PATIENCE, stream.read_to_end(&mut answered)).await;
            // However the connection ends: what was said before counts.
            let (Ok(_) | Err(_)) = read.unwrap_or_else(|_| panic!("no end: {}", shown(&bytes)));
            let text = String::from_utf8_lossy(&answered);
            let failed = text.starts_with("HTTP/1.1 5") || text.contains("\nHTTP/1.1 5");
            assert!(!failed, "{} {text}", shown(&bytes));
        });
    }
    while let Some(ended) = under_way.join_next().await {
        ended.unwrap();
    }
    assert_eq!(strict.complaints(), [""; 0]);
    assert!(!strict.asked().is_empty(), "some of them are requests");
}

fn made(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.usize(1..3) {
        bytes.extend(STARTS[random.usize(..STARTS.len())].as_bytes());
        for _ in 0..random.usize(1..7) {
            bytes.extend(b"\r\n");
            bytes.extend(LINES[random.usize(..LINES.len())].as_bytes());
        }
        bytes.extend(b"\r\n\r\n");
        bytes.extend(BODIES[random.usize(..BODIES.len())].as_bytes());
    }
    for _ in 0..random.usize(..4) {
        let (place, noise) = (random.usize(..bytes.len()), NOISE[random.usize(..NOISE.len())]);
        match random.u8(..3) {
            0 => bytes[place] = noise,
            1 => bytes.insert(place, noise),
            _ => drop(bytes.remove(place)),
        }
    }
    bytes
}

fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
