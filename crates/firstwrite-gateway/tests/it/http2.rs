//! What is a mistake in HTTP/2 ends a stream or the connection, and reaches nobody (RFC 9113, RFC 7541).

use crate::frames::{
    ACK, CONTINUATION, Came, DATA, END_HEADERS, END_STREAM, Frames, GET, HEADERS, PING, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, block, frame, get, put,
};
use crate::gateway::{rules, start};
use crate::http2_cases::Expected::{Connection, Fine, Stream};
use crate::http2_cases::{PROTOCOL, blocks, definitions, frames, messages, setting, streams};
use crate::payloads::before;
use crate::strict::Strict;
use crate::upstream::Upstream;

#[tokio::test]
async fn a_mistake_ends_the_stream_or_the_connection_and_reaches_nobody() {
    let strict = Strict::start().await;
    let gateway = before(&strict).await;
    for (name, sent, expected) in
        [frames(), blocks(), streams(), definitions(), messages()].into_iter().flatten()
    {
        let mut connection = Frames::connect(gateway.address()).await;
        let parts: Vec<&[u8]> = sent.iter().map(Vec::as_slice).collect();
        connection.send(&parts).await;
        let came = connection.came(1).await;
        let is_expected = match (expected, came) {
            (Fine, Came::Answer) | (Stream(_), Came::GoAway(_)) => true,
            (Stream(code), Came::Reset(found)) => found == code,
            (Connection(code), Came::GoAway(found)) => found == code || found == PROTOCOL,
            (_, _) => false,
        };
        assert!(is_expected, "{name}: {came:?}, not {expected:?}");
        let asked_max = usize::from(matches!(expected, Fine));
        assert!(strict.asked().len() <= asked_max, "{name}");
    }
    assert_eq!(strict.complaints(), [""; 0]);
    assert!(!strict.heard(b"/hidden"));
}

#[tokio::test]
async fn a_ping_is_answered_with_what_it_said_and_settings_with_a_nod() {
    let strict = Strict::start().await;
    let gateway = before(&strict).await;
    let mut connection = Frames::connect(gateway.address()).await;
    connection.send(&[&frame(PING, 0, 0, b"whatever")]).await;
    let mut acknowledged = Vec::new();
    while acknowledged.len() < 2 {
        let frame = connection.read().await.unwrap();
        if frame.flags & ACK != 0 {
            acknowledged.push((frame.kind, frame.payload));
        }
    }
    acknowledged.sort();
    assert_eq!(acknowledged, [(SETTINGS, vec![]), (PING, b"whatever".to_vec())]);
}

#[tokio::test]
async fn no_more_is_sent_than_a_client_has_room_for() {
    let strict = Strict::start().await;
    let gateway = before(&strict).await;
    let mut connection = Frames::connect(gateway.address()).await;
    connection.send(&[&frame(SETTINGS, 0, 0, &setting(4, 3)), &get(1)]).await;
    let mut body = Vec::new();
    while body.len() < "GET /a ".len() {
        let found = connection.read().await.unwrap();
        if found.kind == DATA {
            assert!(found.payload.len() <= 3, "{found:?}");
            body.extend(found.payload);
            connection.send(&[&frame(WINDOW_UPDATE, 0, 1, &3_u32.to_be_bytes())]).await;
        }
    }
    assert_eq!(body, b"GET /a ");
}

#[tokio::test]
async fn a_head_has_the_same_limits() {
    let strict = Strict::start().await;
    let gateway = before(&strict).await;
    let mut connection = Frames::connect(gateway.address()).await;
    let value = "v".repeat(8000);
    let wide =
        block(&put(&[("a", &value), ("b", &value), ("c", &value), ("d", &value), ("e", &value)]));
    let mut sent = vec![frame(HEADERS, END_STREAM, 1, &wide[..16_000])];
    sent.push(frame(CONTINUATION, 0, 1, &wide[16_000..32_000]));
    sent.push(frame(CONTINUATION, END_HEADERS, 1, &wide[32_000..]));
    connection.send(&sent.iter().map(Vec::as_slice).collect::<Vec<_>>()).await;
    assert_eq!(answered(&mut connection, 1).await, WIDE);
    let long = format!("/{}", "a".repeat(9000));
    let long = block(&[GET[0], GET[1], (":path", &long), GET[3]]);
    let two_hosts = block(&put(&[("host", "b")]));
    for (stream, block, status) in [(3, long, &LONG[..]), (5, two_hosts, &BAD)] {
        connection.send(&[&frame(HEADERS, END_STREAM | END_HEADERS, stream, &block)]).await;
        assert_eq!(answered(&mut connection, stream).await, status);
    }
    assert_eq!(strict.asked(), [""; 0]);
}

#[tokio::test]
async fn white_space_around_a_value_is_malformed_and_makes_no_other_tenant() {
    let upstream = Upstream::start().await;
    let gateway = start(rules(&[&upstream])).await;
    let mut connection = Frames::connect(gateway.address()).await;
    let mut stream = 1;
    for value in ["Bearer tok1 ", " Bearer tok1", "Bearer tok1\t", " "] {
        let head = block(&put(&[("authorization", value)]));
        connection.send(&[&frame(HEADERS, END_STREAM | END_HEADERS, stream, &head)]).await;
        assert_eq!(answered(&mut connection, stream).await, BAD, "{value:?}");
        stream += 2;
    }
    assert_eq!(upstream.seen().len(), 0);
    // A trailer too, of a body that is passed on and of one that is held.
    for (method, key) in [("PUT", "x-not"), ("POST", "idempotency-key")] {
        let mut head = put(&[(key, "k")]);
        head[0].1 = method;
        connection
            .send(&[
                &frame(HEADERS, END_HEADERS, stream, &block(&head)),
                &frame(DATA, 0, stream, b"{}"),
                &frame(HEADERS, END_STREAM | END_HEADERS, stream, &block(&[("x-sum", "1 ")])),
            ])
            .await;
        assert_eq!(answered(&mut connection, stream).await, BAD, "{method}");
        stream += 2;
    }
    assert_eq!(upstream.seen().len(), 0, "nothing was complete");
}

#[tokio::test]
async fn a_hundred_headers_are_the_most() {
    let strict = Strict::start().await;
    let gateway = before(&strict).await;
    let mut connection = Frames::connect(gateway.address()).await;
    let of = |name, count| block(&put(&vec![(name, "b"); count]));
    let (most, more, crumbs) = (of("x-a", 100), of("x-a", 101), of("cookie", 200));
    for (stream, block) in [(1, most), (3, crumbs)] {
        connection.send(&[&frame(HEADERS, END_STREAM | END_HEADERS, stream, &block)]).await;
        assert_eq!(answered(&mut connection, stream).await[0], FINE, "{stream}");
    }
    assert_eq!(strict.asked().len(), 2, "the crumbs of a cookie are one header");
    connection.send(&[&frame(HEADERS, END_STREAM | END_HEADERS, 5, &more)]).await;
    assert_eq!(answered(&mut connection, 5).await, WIDE);
    assert_eq!(strict.asked(), [""; 0]);
}

/// The one refusal over HTTP/2 without a document: the library gives it before there is a request.
#[tokio::test]
async fn a_head_over_the_limit_of_bytes_gets_its_status_alone() {
    let strict = Strict::start().await;
    let gateway = before(&strict).await;
    let mut connection = Frames::connect(gateway.address()).await;
    let wide = "b".repeat(40_000);
    let whole = block(&put(&[("x-a", &wide)]));
    let (first, rest) = whole.split_at(16_384);
    let (second, third) = rest.split_at(16_384);
    connection
        .send(&[
            &frame(HEADERS, END_STREAM, 1, first),
            &frame(CONTINUATION, 0, 1, second),
            &frame(CONTINUATION, END_HEADERS, 1, third),
        ])
        .await;
    let refused = loop {
        let found = connection.read().await.unwrap();
        if found.stream == 1 {
            break found;
        }
    };
    assert_eq!((refused.kind, refused.flags), (HEADERS, END_HEADERS | END_STREAM), "{refused:?}");
    assert_eq!(refused.payload[..5], WIDE, "{refused:?}");
    // The connection goes on.
    let fine = block(&put(&[]));
    connection.send(&[&frame(HEADERS, END_STREAM | END_HEADERS, 3, &fine)]).await;
    assert_eq!(answered(&mut connection, 3).await[0], FINE);
    assert_eq!(strict.asked().len(), 1);
}

/// How the statuses 431, 414 and 400 are spelt, by number and by Huffman's code.
const WIDE: [u8; 5] = [0x48, 0x83, 0x69, 0x90, 0xff];
const LONG: [u8; 5] = [0x48, 0x83, 0x68, 0x2d, 0x7f];
const BAD: [u8; 1] = [0x8c];
/// The same of 200.
const FINE: u8 = 0x88;

/// The first field of the answer on a stream, which is its status.
async fn answered(connection: &mut Frames, stream: u32) -> Vec<u8> {
    loop {
        let found = connection.read().await.unwrap();
        assert_ne!((found.kind, found.stream), (RST_STREAM, stream), "{found:?}");
        if (found.kind, found.stream) == (HEADERS, stream) {
            let length = if found.payload[0] == BAD[0] { 1 } else { 5 };
            return found.payload[..length].to_vec();
        }
    }
}
