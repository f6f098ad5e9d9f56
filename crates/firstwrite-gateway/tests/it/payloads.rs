//! Messages that two readers could take in two ways. The gateway refuses them, or passes on something that
//! can be read in one way only; what it passes on, a reader that takes everything to the letter must not
//! complain of, and both must have seen the same messages.

use std::time::Duration;

use firstwrite_gateway::{Gateway, Rules, Target};
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use crate::client::Client;
use crate::gateway::{rules, start};
use crate::strict::Strict;

/// What is sent, and what must come of it. In `bytes` and `asked`, `%M` stands for a method and a target,
/// `%H` for a host and a key, `%N` for a key.
struct Payload {
    bytes: &'static [u8],
    asked: &'static [&'static str],
    then: Then,
}

/// What comes after the messages that were passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// A refusal, and the end of the connection.
    Refused(u16),
    /// The end of the connection.
    Closed,
    /// Whatever is asked next.
    Open,
}

/// Far longer than any of them takes.
const PATIENCE: Duration = Duration::from_secs(20);
/// Stands behind everything that has no clear end, and must not be taken for a request.
const HIDDEN: &[u8] = b"GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";
const PROBE: &[u8] = b"GET /probe HTTP/1.1\r\nHost: a\r\n\r\n";

fn refused(status: u16, bytes: &'static [u8]) -> Payload {
    Payload { bytes, asked: &[], then: Then::Refused(status) }
}

fn closed(asked: &'static [&'static str], bytes: &'static [u8]) -> Payload {
    Payload { bytes, asked, then: Then::Closed }
}

fn open(asked: &'static [&'static str], bytes: &'static [u8]) -> Payload {
    Payload { bytes, asked, then: Then::Open }
}

/// One message with the body `hi`, however it is spelt.
fn fine(bytes: &'static [u8]) -> Payload {
    open(&["%M hi"], bytes)
}

/// What a length may look like.
#[rustfmt::skip]
fn lengths() -> Vec<Payload> {
    vec![
        fine(b"%M HTTP/1.1\r\n%HContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r\n%HContent-Length: 2, 2\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r\n%HContent-Length: 2, 3\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r\n%HContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r\n%HContent-Length: +2\r\n\r\nhi"),
        fine(b"%M HTTP/1.1\r\n%HContent-Length: 0002\r\n\r\nhi"),
        fine(b"%M HTTP/1.1\r\n%HContent-Length:\t2\t\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r\n%HContent-Length: \x0b2\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r\n%HContent-Length: \xa02\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r\n%HContent-Length: 2.0\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r\n%HContent-Length: 2e0\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r\n%HContent-Length: 2 0\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r\n%HContent-Length: 2;a\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r\n%HContent-Length: \"2\"\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r\n%HContent-Length: 18446744073709551618\r\n\r\nhi"),
    ]
}

/// Which codings say where a body ends.
#[rustfmt::skip]
fn codings() -> Vec<Payload> {
    vec![
        closed(&["%M hi"], b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
        closed(&["%M hi"], b"%M HTTP/1.1\r\n%HContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: identity, chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked, chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: ,chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked,\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: \r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding:\r\nContent-Length: 2\r\n\r\nhi"),
        fine(b"%M HTTP/1.1\r\n%HTransfer-Encoding: CHUNKED\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: xchunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: \"chunked\"\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked;a=b\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: \xa0chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: \x0bchunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
        fine(b"%M HTTP/1.1\r\n%HTransfer-Encoding:\tchunked\t\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.0\r\n%HTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.0\r\n%HConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding : chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding:\r\n chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
        fine(b"%M HTTP/1.1\r\n%HTransfer_Encoding: chunked\r\nContent-Length: 2\r\n\r\nhi"),
        fine(b"%M HTTP/1.1\r\n%HX: y\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
    ]
}

/// What a line of a head may be made of.
#[rustfmt::skip]
fn lines() -> Vec<Payload> {
    vec![
        fine(b"%M HTTP/1.1\nHost: a\nIdempotency-Key: k%N\nContent-Length: 2\n\nhi"),
        refused(400, b"%M HTTP/1.1\r\n%HX: y\rZ: w\r\nContent-Length: 2\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r%HContent-Length: 2\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r\n%HX: y\0z\r\nContent-Length: 2\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r\n%HX\0: y\r\nContent-Length: 2\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r\n%HX: y\x01z\r\nContent-Length: 2\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r\n%HX: y\x7fz\r\nContent-Length: 2\r\n\r\nhi"),
        fine(b"%M HTTP/1.1\r\n%HX: y\xe9z\r\nContent-Length: 2\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r\n%H\xc3\xa9: y\r\nContent-Length: 2\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r\n%HX y: z\r\nContent-Length: 2\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r\n%HXyz\r\nContent-Length: 2\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r\n%H: z\r\nContent-Length: 2\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r\n X: y\r\n%HContent-Length: 2\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r\n%HX: y\r\n z\r\nContent-Length: 2\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r\n%HX: y\r\n\tz\r\nContent-Length: 2\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r\n%HX(y): z\r\nContent-Length: 2\r\n\r\nhi"),
        refused(400, b" %M HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        refused(400, b"\0%M HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
    ]
}

/// What chunks and trailers may look like.
#[rustfmt::skip]
fn chunks() -> Vec<Payload> {
    vec![
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\n0x2\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\n0_2\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\n+2\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\n-2\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\n 2\r\nhi\r\n0\r\n\r\n"),
        fine(b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\n2 \r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\n2 2\r\nhi\r\n0\r\n\r\n"),
        fine(b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\n0000000000000002\r\nhi\r\n0\r\n\r\n"),
        fine(b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\n00000000000000000000000000000000002\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\n10000000000000002\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\n\r\n\r\n"),
        fine(b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nhi\r\n0\r\n\r\n"),
        fine(b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\n2;a=\"b;c\"\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\n2;a\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\n2;a\rb\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\n2;\n\r\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\n2\nhi\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\n2\r\nhi\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\n2\r\nhi0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\n2\r\nhihi\r\n0\r\n\r\n"),
        fine(b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n00\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\n\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\r\n"),
        open(&["%M 0123456789"], b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n0\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\ng\r\n0123456789\r\n0\r\n\r\n"),
        fine(b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nContent-Length: 5\r\nIdempotency-Key: z\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX Y: z\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nXYZ\r\n\r\n"),
        refused(400, b"%M HTTP/1.1\r\n%HTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX: y\nZ: w\r\n\r\n"),
    ]
}

/// What a request line may look like.
#[rustfmt::skip]
fn starts() -> Vec<Payload> {
    vec![
        refused(400, b"%M HTTP/1.2\r\n%HContent-Length: 2\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.10\r\n%HContent-Length: 2\r\n\r\nhi"),
        refused(400, b"%M http/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        refused(400, b"%M\r\n%HContent-Length: 2\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1x\r\n%HContent-Length: 2\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1 \r\n%HContent-Length: 2\r\n\r\nhi"),
        refused(400, b"GET /x\r\n"),
        refused(400, b"PUT  /x HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        refused(400, b"PUT\t/x HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        refused(400, b"PUT /x y HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        refused(400, b"PUT /x\nHTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        refused(400, b"P(T /x HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        refused(400, b"put /x HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        open(&["FROB /x hi"], b"FROB /x HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        refused(400, b"PUT ! HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        open(&["PUT /x hi"], b"PUT /x#f HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        refused(400, b"PUT /x\0 HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        open(&["PUT /x\u{e9} hi"], b"PUT /x\xc3\xa9 HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        refused(400, b"PUT /x\\y HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        open(&["OPTIONS * "], b"OPTIONS * HTTP/1.1\r\n%HContent-Length: 0\r\n\r\n"),
        refused(400, b"PUT * HTTP/1.1\r\n%HContent-Length: 0\r\n\r\n"),
        refused(400, b"PUT a:80 HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        open(&["PUT /x hi"], b"PUT http://a/x HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        open(&["PUT /x hi"], b"PUT https://a/x HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        refused(400, b"PUT ftp://a/x HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        refused(400, b"PUT http://u@a/x HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        open(&["PUT / hi"], b"PUT http://a HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        open(&["PUT /?q hi"], b"PUT http://a?q HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        refused(400, b"PUT http://b/x HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        refused(400, b"PUT http://A/x HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        open(&["PUT //b/x hi"], b"PUT //b/x HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        refused(400, b"PUT /y/../x HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        refused(405, b"CONNECT a:80 HTTP/1.1\r\n%H\r\n"),
        refused(400, b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"),
    ]
}

/// What a host may look like.
#[rustfmt::skip]
fn hosts() -> Vec<Payload> {
    vec![
        refused(400, b"%M HTTP/1.1\r\nIdempotency-Key: k%N\r\nContent-Length: 2\r\n\r\nhi"),
        open(&["PUT /x hi"], b"PUT http://a/x HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r\n%HHost: a\r\nContent-Length: 2\r\n\r\nhi"),
        refused(400, b"%M HTTP/1.1\r\n%HHost: b\r\nContent-Length: 2\r\n\r\nhi"),
        refused(400, b"PUT /x HTTP/1.1\r\nHost:\r\nContent-Length: 2\r\n\r\nhi"),
        refused(400, b"PUT /x HTTP/1.1\r\nHost: a,b\r\nContent-Length: 2\r\n\r\nhi"),
        refused(400, b"PUT /x HTTP/1.1\r\nHost: a b\r\nContent-Length: 2\r\n\r\nhi"),
        refused(400, b"PUT /x HTTP/1.1\r\nHost: a/b\r\nContent-Length: 2\r\n\r\nhi"),
        refused(400, b"PUT /x HTTP/1.1\r\nHost: u@a\r\nContent-Length: 2\r\n\r\nhi"),
        refused(400, b"PUT /x HTTP/1.1\r\nHost: a:b\r\nContent-Length: 2\r\n\r\nhi"),
        refused(400, b"PUT /x HTTP/1.1\r\nHost: a:99999\r\nContent-Length: 2\r\n\r\nhi"),
        open(&["PUT /x hi"], b"PUT /x HTTP/1.1\r\nHost: a:\r\nContent-Length: 2\r\n\r\nhi"),
        refused(400, b"PUT /x HTTP/1.1\r\nHost: a?b\r\nContent-Length: 2\r\n\r\nhi"),
    ]
}

/// What may stand between messages, and what is no message.
#[rustfmt::skip]
fn between() -> Vec<Payload> {
    vec![
        fine(b"\r\n%M HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        fine(b"\r\n\r\n\r\n%M HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        fine(b"\n%M HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        open(&["%M hi", "GET /second "], b"%M HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi\r\nGET /second HTTP/1.1\r\nHost: a\r\n\r\n"),
        open(&["GET /x hi"], b"GET /x HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhi"),
        open(&["GET /x GET /inside HTTP/1.1\r\nHost: a\r\n\r\n\r\n\r"], b"GET /x HTTP/1.1\r\n%HContent-Length: 36\r\n\r\nGET /inside HTTP/1.1\r\nHost: a\r\n\r\n\r\n\r\n"),
        open(&["%M hi", "GET /second "], b"%M HTTP/1.1\r\n%HContent-Length: 2\r\n\r\nhiGET /second HTTP/1.1\r\nHost: a\r\n\r\n"),
        fine(b"%M HTTP/1.1\r\n%HExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi"),
        fine(b"%M HTTP/1.1\r\n%HExpect: 200-ok\r\nContent-Length: 2\r\n\r\nhi"),
        fine(b"%M HTTP/1.1\r\n%HConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: 2\r\n\r\nhi"),
        closed(&["%M hi"], b"%M HTTP/1.1\r\n%HConnection: close\r\nContent-Length: 2\r\n\r\nhi"),
        fine(b"%M HTTP/1.1\r\n%HConnection: content-length\r\nContent-Length: 2\r\n\r\nhi"),
        fine(b"%M HTTP/1.1\r\n%HConnection: transfer-encoding\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
    ]
}

#[tokio::test]
async fn a_message_is_read_by_both_sides_alike_or_by_none() {
    let strict = Strict::start().await;
    let gateway = before(&strict).await;
    let payloads: Vec<Payload> =
        [lengths(), codings(), lines(), chunks(), starts(), hosts(), between()]
            .into_iter()
            .flatten()
            .collect();
    assert!(payloads.len() >= 80);
    for (number, payload) in payloads.iter().enumerate() {
        // Passed through as it comes, and read whole first.
        for target in ["PUT /x", "POST /x"] {
            if target == "POST /x" && !payload.bytes.windows(2).any(|window| window == b"%M") {
                continue;
            }
            let told = timeout(PATIENCE, payload.send(&gateway, number, target)).await;
            told.unwrap_or_else(|_| panic!("no end: {} {target}", payload.shown()));
            let expected: Vec<String> = payload.expected(target);
            assert_eq!(strict.asked(), expected, "{} {target}", payload.shown());
            let complaints = strict.complaints();
            assert_eq!(complaints, [""; 0], "{} {target}", payload.shown());
        }
    }
    assert!(!strict.heard(b"/hidden"));
}

/// A gateway in front of the one that takes everything to the letter.
pub(crate) async fn before(strict: &Strict) -> Gateway {
    let upstreams = vec![Target::new(&format!("http://{}", strict.address)).unwrap()];
    start(Rules { upstreams, ..rules(&[]) }).await
}

impl Payload {
    async fn send(&self, gateway: &Gateway, number: usize, target: &str) {
        let mut client = Client::connect(gateway.address()).await;
        let key = format!("{}{number}", &target[..3]);
        let mut bytes = filled(self.bytes, target, &key);
        bytes.extend(if self.then == Then::Open { PROBE } else { HIDDEN });
        client.0.write_all(&bytes).await.unwrap();
        for expected in self.expected(target) {
            let mut answered = client.read().await;
            while answered.as_ref().is_some_and(|answered| answered.status() == 100) {
                answered = client.read().await;
            }
            let answered = answered.unwrap_or_else(|| panic!("no answer: {}", self.shown()));
            assert_eq!(answered.text(), expected, "{}", self.shown());
        }
        if let Then::Refused(status) = self.then {
            let refused = client.read().await.unwrap_or_else(|| panic!("{}", self.shown()));
            assert_eq!(refused.status(), status, "{}: {}", self.shown(), refused.text());
        }
        if self.then != Then::Open {
            assert!(client.is_closed().await, "{}", self.shown());
        }
    }

    /// What the API is to be asked, which it repeats to the client.
    fn expected(&self, target: &str) -> Vec<String> {
        let asked = self.asked.iter().map(|asked| asked.replace("%M", target));
        let probe = (self.then == Then::Open).then(|| "GET /probe ".to_owned());
        asked.chain(probe).collect()
    }

    fn shown(&self) -> String {
        self.bytes.escape_ascii().to_string()
    }
}

fn filled(bytes: &[u8], target: &str, key: &str) -> Vec<u8> {
    let mut filled = Vec::new();
    let mut rest = bytes;
    while let Some(mark) = rest.iter().position(|byte| *byte == b'%') {
        filled.extend(&rest[..mark]);
        let header = format!("Host: a\r\nIdempotency-Key: {key}\r\n");
        match rest[mark + 1] {
            b'M' => filled.extend(target.as_bytes()),
            b'H' => filled.extend(header.as_bytes()),
            b'N' => filled.extend(key.as_bytes()),
            other => filled.extend([b'%', other]),
        }
        rest = &rest[mark + 2..];
    }
    filled.extend(rest);
    filled
}
