//! Where one message ends and the next begins: nobody on either side may be led to believe otherwise.

use tokio::io::AsyncWriteExt as _;

use crate::client::{Client, ask, post};
use crate::frames::{Came, END_HEADERS, END_STREAM, Frames, HEADERS, block, frame, put};
use crate::gateway::{rules, start};
use crate::upstream::{Script, Upstream, answer};

/// What follows must not be taken for a request of its own.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nhost: shop.example\r\n\r\n";

async fn started() -> (Upstream, firstwrite_gateway::Gateway) {
    let upstream = Upstream::start().await;
    let gateway = start(rules(&[&upstream])).await;
    (upstream, gateway)
}

#[tokio::test]
async fn what_has_no_clear_end_is_refused_and_the_connection_with_it() {
    let (upstream, gateway) = started().await;
    let head = "POST /pay HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\n";
    for framing in [
        "content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        "content-length: +2\r\n\r\n{}",
        "content-length: 0x2\r\n\r\n{}",
        "content-length: 2_0\r\n\r\n{}",
        "content-length: -2\r\n\r\n{}",
        "content-length: \r\n\r\n{}",
        "content-length: 99999999999999999999999\r\n\r\n{}",
        "transfer-encoding: xchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "transfer-encoding: chunked, gzip\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "content-length : 2\r\n\r\n{}",
        "x-a: b\r\n folded\r\ncontent-length: 2\r\n\r\n{}",
        "x-a: \0\r\ncontent-length: 2\r\n\r\n{}",
        ": empty\r\ncontent-length: 2\r\n\r\n{}",
    ] {
        let mut client = Client::connect(gateway.address()).await;
        client.send(&format!("{head}{framing}{HIDDEN}")).await;
        let refused = client.read().await;
        let status = refused.map_or(0, |refused| refused.status());
        assert_eq!(status, 400, "{framing:?}");
        assert!(client.is_closed().await, "{framing:?}");
    }
    assert_eq!(upstream.seen().len(), 0);
}

#[tokio::test]
async fn a_broken_chunk_reaches_nobody() {
    let (upstream, gateway) = started().await;
    let head =
        "POST /pay HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\ntransfer-encoding: chunked\r\n\r\n";
    for chunks in [
        "0x2\r\n{}\r\n0\r\n\r\n",
        "2_\r\n{}\r\n0\r\n\r\n",
        "2\r\n{}xx0\r\n\r\n",
        "fffffffffffffffff\r\n{}",
    ] {
        let mut client = Client::connect(gateway.address()).await;
        client.send(&format!("{head}{chunks}")).await;
        let status = client.read().await.map_or(400, |refused| refused.status());
        assert_eq!(status, 400, "{chunks:?}");
        assert!(client.is_closed().await, "{chunks:?}");
    }
    assert_eq!(upstream.seen().len(), 0);
}

#[tokio::test]
async fn of_two_framings_one_is_passed_on_and_the_connection_ends() {
    let (upstream, gateway) = started().await;
    let mut client = Client::connect(gateway.address()).await;
    client
        .send(
            "POST /pay HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\ncontent-length: 2\r\n\
             transfer-encoding: chunked\r\n\r\n4\r\n{  }\r\n0\r\n\r\n",
        )
        .await;
    client.send(HIDDEN).await;
    let answered = client.read().await.unwrap();
    assert!(matches!(answered.status(), 201 | 400), "{answered:?}");
    for seen in upstream.seen() {
        let framings = seen.all("content-length").len() + seen.all("transfer-encoding").len();
        assert_eq!((framings, seen.text().as_str()), (1, "{  }"));
        assert!(!seen.start.contains("hidden"));
    }
}

#[tokio::test]
async fn a_body_that_is_not_read_is_not_the_next_request() {
    let (upstream, gateway) = started().await;
    // Refused by its head: nobody needs the body.
    let hidden = format!("{}{HIDDEN}", "x".repeat(100));
    let refused = post("a b", &hidden);
    let mut client = Client::connect(gateway.address()).await;
    assert_eq!(client.ask(&refused).await.status(), 400);
    let next = client.ask("GET /next HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(next.status(), 201);
    // Too large to be read away: the connection ends.
    let large = format!("{}{HIDDEN}", "x".repeat(10_000_000));
    let mut client = Client::connect(gateway.address()).await;
    client.send(&post("a b", &large)[..200]).await;
    let refused = client.read().await.unwrap();
    assert_eq!((refused.status(), refused.header("connection")), (400, Some("close")));
    let targets: Vec<String> = upstream.seen().into_iter().map(|seen| seen.start).collect();
    assert_eq!(targets, ["GET /next HTTP/1.1"]);
}

#[tokio::test]
async fn a_host_is_named_once_and_a_head_has_limits() {
    let (upstream, gateway) = started().await;
    let many = "x-a: b\r\n".repeat(101);
    let long = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "a".repeat(9000));
    let wide = format!("GET / HTTP/1.1\r\nhost: a\r\nx-a: {}\r\n\r\n", "b".repeat(100_000));
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n".to_owned(), 400),
        ("GET http://a/ HTTP/1.1\r\nhost: b\r\n\r\n".to_owned(), 400),
        ("CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\n\r\n".to_owned(), 405),
        (format!("GET / HTTP/1.1\r\nhost: a\r\n{many}\r\n"), 431),
        (long, 414),
        (wide, 431),
    ] {
        let mut client = Client::connect(gateway.address()).await;
        client.send(&request).await;
        let found = client.read().await.map_or(0, |refused| refused.status());
        assert_eq!(found, status, "{}", &request[..request.len().min(60)]);
    }
    assert_eq!(upstream.seen().len(), 0);
}

#[tokio::test]
async fn a_body_over_the_cap_is_refused_before_anything_is_reserved() {
    let (upstream, gateway) = started().await;
    let head = "POST /pay HTTP/1.1\r\nhost: shop.example\r\nidempotency-key: k\r\n";
    let mut client = Client::connect(gateway.address()).await;
    let refused = client.ask(&format!("{head}content-length: 2000000\r\n\r\n")).await;
    assert_eq!((refused.status(), refused.code()), (413, "body-too-large".to_owned()));
    let mut client = Client::connect(gateway.address()).await;
    let piece = format!("100000\r\n{}\r\n", "x".repeat(0x0010_0000));
    client.send(&format!("{head}transfer-encoding: chunked\r\n\r\n{piece}1\r\nx\r\n")).await;
    assert_eq!(client.read().await.unwrap().status(), 413);
    assert_eq!(upstream.seen().len(), 0);
    assert!(!ask(gateway.address(), &post("k", "{}")).await.is_replay());
}

#[tokio::test]
async fn trailers_and_connection_headers_go_no_further() {
    let (upstream, gateway) = started().await;
    let request = "PUT /a HTTP/1.1\r\nhost: a\r\nconnection: x-hop, authorization\r\nx-hop: 1\r\n\
                   authorization: Bearer t\r\nx-forwarded-user: root\r\nforwarded: for=1.1.1.1\r\n\
                   trailer: content-length\r\ntransfer-encoding: chunked\r\n\r\n\
                   1\r\nx\r\n0\r\ncontent-length: 5\r\nidempotency-key: k\r\n\r\n";
    assert_eq!(ask(gateway.address(), request).await.status(), 201);
    let seen = &upstream.seen()[0];
    assert_eq!(seen.all("authorization"), ["Bearer t"]);
    for gone in ["x-hop", "trailer", "idempotency-key", "content-length"] {
        assert_eq!(seen.header(gone), None, "{gone}");
    }
    assert!(seen.header("forwarded").unwrap().starts_with("for=127.0.0.1;"));
}

#[tokio::test]
async fn an_answer_has_one_framing_and_none_of_its_connection() {
    let (upstream, gateway) = started().await;
    let both = "HTTP/1.1 200 OK\r\nconnection: x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\n\
                transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    upstream.does(Script::Answer(both.to_owned()));
    let answered = ask(gateway.address(), "GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(answered.text(), "ok");
    for gone in ["x-hop", "keep-alive", "content-length"] {
        assert_eq!(answered.header(gone), None, "{gone}");
    }
    upstream.does(Script::Answer(answer("200 OK", "content-length: 2\r\n", "three")));
    let wrong = ask(gateway.address(), "GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(wrong.status(), 502);
}

#[tokio::test]
async fn of_an_answers_length_and_coding_the_coding_counts() {
    for (status, length) in [(201, 2), (201, 30), (500, 2)] {
        let (upstream, gateway) = started().await;
        upstream.does(Script::Answer(format!(
            "HTTP/1.1 {status} Said\r\ncontent-length: {length}\r\n\
             transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        )));
        let mut client = Client::connect(gateway.address()).await;
        for is_replay in [false, status == 201] {
            let answered = client.ask(&post("k", "{}")).await;
            let found = (answered.status(), answered.text(), answered.is_replay());
            assert_eq!(found, (status, "hello".to_owned(), is_replay));
        }
    }
}

#[tokio::test]
async fn a_replay_does_not_leave_its_body_behind() {
    let (upstream, gateway) = started().await;
    let inside = format!("{HIDDEN}{HIDDEN}");
    for answer in ["201 false", "201 true"] {
        let mut client = Client::connect(gateway.address()).await;
        let found = client.ask(&post("k", &inside)).await;
        assert_eq!(format!("{} {}", found.status(), found.is_replay()), answer);
        assert_eq!(client.ask("GET /next HTTP/1.1\r\nhost: a\r\n\r\n").await.status(), 201);
    }
    // Ten megabytes are over the cap: they are not read, and nothing in them is taken for a request, also
    // when all of them were sent before anybody looked for an answer.
    let large = format!("{}{HIDDEN}", "x".repeat(10_000_000));
    for framing in [false, true] {
        let mut request = post("k", &large);
        if framing {
            let (head, body) = request.split_once("\r\n\r\n").unwrap();
            let head = head.rsplit_once("\r\n").unwrap().0;
            let length = body.len();
            request = format!("{head}\r\ntransfer-encoding: chunked\r\n\r\n{length:x}\r\n{body}");
        }
        let mut client = Client::connect(gateway.address()).await;
        // It may be refused, and the connection ended, before all of it was sent.
        drop(client.0.write_all(request.as_bytes()).await);
        let refused = client.read().await.unwrap();
        assert_eq!((refused.status(), refused.header("connection")), (413, Some("close")));
        assert!(client.is_closed().await);
    }
    let targets: Vec<String> = upstream.seen().into_iter().map(|seen| seen.start).collect();
    assert_eq!(targets, ["POST /pay HTTP/1.1", "GET /next HTTP/1.1", "GET /next HTTP/1.1"]);
}

#[tokio::test]
async fn what_follows_a_refused_change_of_protocol_reaches_nobody() {
    let (upstream, gateway) = started().await;
    let upgrade =
        crate::client::keyed("/pay", "k", "connection: upgrade\r\nupgrade: websocket\r\n", "{}");
    let connect = "CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\nidempotency-key: k\r\n\r\n".to_owned();
    for (request, status) in [(upgrade, 400), (connect, 405)] {
        let mut client = Client::connect(gateway.address()).await;
        client.send(&format!("{request}{HIDDEN}")).await;
        assert_eq!(client.read().await.unwrap().status(), status);
        assert!(client.is_closed().await);
    }
    assert_eq!(upstream.seen().len(), 0);
}

#[tokio::test]
async fn who_offers_http2_in_clear_is_answered_in_http1() {
    let (upstream, gateway) = started().await;
    let offer =
        "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n";
    let mut client = Client::connect(gateway.address()).await;
    for is_replay in [false, true] {
        let answered = client.ask(&crate::client::keyed("/pay", "k", offer, "{}")).await;
        assert_eq!((answered.status(), answered.is_replay()), (201, is_replay));
    }
    client.ask(&crate::client::keyed("/put", "k", offer, "whole").replace("POST", "PUT")).await;
    let seen = upstream.seen();
    assert_eq!((seen.len(), seen[1].text()), (2, "whole".to_owned()));
    for gone in ["upgrade", "connection", "http2-settings"] {
        assert_eq!((seen[0].header(gone), seen[1].header(gone)), (None, None), "{gone}");
    }
}

#[tokio::test]
async fn the_body_of_a_wish_for_another_protocol_is_passed_on() {
    let (upstream, gateway) = started().await;
    let wish = "PUT /ws HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                content-length: 5\r\n\r\nwhole";
    let mut client = Client::connect(gateway.address()).await;
    assert_eq!(client.ask(wish).await.status(), 201, "it was declined");
    assert_eq!(client.ask("GET /next HTTP/1.1\r\nhost: a\r\n\r\n").await.status(), 201);
    let seen = upstream.seen();
    assert_eq!((seen[0].text().as_str(), seen[0].all("upgrade")), ("whole", vec!["websocket"]));
    assert_eq!(seen[1].start, "GET /next HTTP/1.1");
}

/// An API that wants a length answers 411, which would be kept as the key's answer.
#[tokio::test]
async fn an_empty_body_has_a_length_where_a_body_is_usual_or_was_framed() {
    let (upstream, gateway) = started().await;
    let (length, chunks) =
        ("content-length: 0\r\n\r\n", "transfer-encoding: chunked\r\n\r\n0\r\n\r\n");
    let key = |framing: &str| format!("idempotency-key: k\r\n{framing}");
    for (method, rest, expected) in [
        ("POST", key(length), (vec!["0"], 0)),
        ("POST", key(chunks), (vec!["0"], 0)),
        ("POST", key("\r\n"), (vec!["0"], 0)),
        ("PUT", length.to_owned(), (vec!["0"], 0)),
        ("PUT", "\r\n".to_owned(), (vec!["0"], 0)),
        ("PATCH", length.to_owned(), (vec!["0"], 0)),
        ("PUT", chunks.to_owned(), (vec![], 1)),
        ("DELETE", length.to_owned(), (vec!["0"], 0)),
        ("DELETE", "\r\n".to_owned(), (vec![], 0)),
        ("GET", length.to_owned(), (vec!["0"], 0)),
        ("GET", "\r\n".to_owned(), (vec![], 0)),
    ] {
        let shown = format!("{method} {rest:?}");
        let rest = rest.replace(": k", &format!(": k{}", upstream.seen().len()));
        let request = format!("{method} /a HTTP/1.1\r\nhost: a\r\n{rest}");
        assert_eq!(ask(gateway.address(), &request).await.status(), 201, "{shown}");
        let seen = upstream.seen().pop().unwrap();
        let found = (seen.all("content-length"), seen.all("transfer-encoding").len());
        assert_eq!(found, expected, "{shown}");
    }
    let mut connection = Frames::connect(gateway.address()).await;
    for (stream, fields) in [(1, &[][..]), (3, &[("content-length", "0")])] {
        let head = block(&put(fields));
        connection.send(&[&frame(HEADERS, END_STREAM | END_HEADERS, stream, &head)]).await;
        assert_eq!(connection.came(stream).await, Came::Answer);
        let seen = upstream.seen().pop().unwrap();
        assert_eq!(seen.all("content-length"), ["0"], "{fields:?}");
    }
}

#[tokio::test]
async fn what_is_compressed_is_passed_on_unopened() {
    let (upstream, gateway) = started().await;
    // By its own word it is 4 GiB when opened.
    let packed = "\u{1f}\u{8}gzip, or not".to_owned() + &"\u{7f}".repeat(1000);
    let coded = "content-encoding: gzip\r\n";
    for method in ["POST", "PUT"] {
        let request = crate::client::keyed("/pay", "k", coded, &packed).replace("POST", method);
        assert_eq!(ask(gateway.address(), &request).await.status(), 201);
    }
    for seen in upstream.seen() {
        assert_eq!((seen.text(), seen.all("content-encoding")), (packed.clone(), vec!["gzip"]));
        assert_eq!(seen.all("content-length"), [packed.len().to_string()]);
    }
}

#[tokio::test]
async fn a_hundred_headers_are_the_most() {
    let (upstream, gateway) = started().await;
    for (count, status) in [(99, 201), (100, 431)] {
        let headers = "x-a: b\r\n".repeat(count);
        let request = format!("GET / HTTP/1.1\r\nhost: a\r\n{headers}\r\n");
        let mut client = Client::connect(gateway.address()).await;
        assert_eq!(client.ask(&request).await.status(), status, "{count}");
        if status != 201 {
            assert!(client.is_closed().await);
        }
    }
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn a_refusal_arrives_though_its_body_is_still_being_sent() {
    let (_upstream, gateway) = started().await;
    let mut client = Client::connect(gateway.address()).await;
    // All of it is sent before anybody reads, and the connection ends: it is not reset.
    let sent = client.0.write_all(post("k", &"x".repeat(2_000_000)).as_bytes()).await;
    assert!(sent.is_ok(), "{sent:?}");
    assert_eq!(client.read().await.unwrap().status(), 413);
    let end = tokio::io::AsyncReadExt::read(&mut client.0, &mut [0]).await;
    assert!(matches!(end, Ok(0)), "{end:?}");
}

#[tokio::test]
async fn a_length_beyond_every_number_is_too_large_like_any_other() {
    let (upstream, gateway) = started().await;
    let lengths = ["9223372036854775807", "18446744073709551613", "18446744073709551614"];
    for length in lengths.into_iter().chain(["18446744073709551615"]) {
        let request =
            post("k", "").replace("content-length: 0", &format!("Content-Length: {length}"));
        let mut client = Client::connect(gateway.address()).await;
        let refused = client.ask(&request).await;
        let found = (refused.status(), refused.code());
        assert_eq!(found, (413, "body-too-large".to_owned()), "{length}");
        assert!(client.is_closed().await);
    }
    assert_eq!(upstream.connections(), 0);
}
