//! Clients that keep the gateway waiting: with their first byte, a head, a body, or in taking an answer.

use std::sync::Arc;
use std::time::Duration;

use firstwrite::{Policy, memory_store};
use firstwrite_gateway::{Calling, Gateway, Listening, Operations, Rules, Target};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::client::{Client, ask, post};
use crate::gateway::{anywhere, policy, rules, start};
use crate::upstream::Upstream;
use crate::wire;

/// Long enough to answer within, short enough to wait for.
const SHORT: Duration = Duration::from_millis(300);

async fn impatient(rules: Rules) -> Gateway {
    let listening = Listening { head_within: SHORT, taken_within: SHORT, ..anywhere() };
    Gateway::start(Arc::new(memory_store()), &listening, rules).await.unwrap()
}

#[tokio::test]
async fn who_says_nothing_or_not_which_version_it_speaks_is_let_go() {
    let upstream = Upstream::start().await;
    let gateway = impatient(rules(&[&upstream])).await;
    // The last one could still become HTTP/2.
    for begun in ["", "P", "PRI * HTTP/2.0\r\n\r\nSM"] {
        let mut client = Client::connect(gateway.address()).await;
        client.send(begun).await;
        assert!(client.is_closed().await, "{begun:?}");
    }
    assert_eq!(upstream.seen().len(), 0);
}

#[tokio::test]
async fn a_head_that_does_not_come_in_time_is_a_408_and_the_end() {
    let upstream = Upstream::start().await;
    let gateway = impatient(rules(&[&upstream])).await;
    for begun in ["GET / HTTP/1.1\r\nhost:", "POST /pay HTTP/1.1\r\nhost: a\r\nidempotency-key: k"]
    {
        let mut client = Client::connect(gateway.address()).await;
        client.send(begun).await;
        let late = client.read().await.unwrap();
        assert_eq!((late.status(), late.header("connection")), (408, Some("close")), "{begun:?}");
        assert!(client.is_closed().await, "{begun:?}");
    }
    assert_eq!(upstream.seen().len(), 0);
    // The second on a connection, too; but one that waits for a next request is let go without a word.
    for (begun, is_told) in [("GET / HT", true), ("", false)] {
        let mut client = Client::connect(gateway.address()).await;
        assert_eq!(client.ask(&post(&format!("k{is_told}"), "{}")).await.status(), 201);
        client.send(begun).await;
        let late = client.read().await.map(|late| late.status());
        assert_eq!(late, is_told.then_some(408), "{begun:?}");
        assert!(client.is_closed().await);
    }
}

#[tokio::test]
async fn a_body_that_does_not_come_in_time_is_a_408_and_nothing_is_reserved() {
    let upstream = Upstream::start().await;
    let usual = rules(&[&upstream]);
    let calling = Calling { idle_for_max: SHORT, ..usual.calling.clone() };
    let gateway = start(Rules { calling, ..usual }).await;
    let whole = post("k", r#"{"a":1}"#);
    let mut client = Client::connect(gateway.address()).await;
    client.send(&whole[..whole.len() - 3]).await;
    let late = client.read().await.unwrap();
    assert_eq!((late.status(), late.header("connection")), (408, Some("close")));
    assert!(client.is_closed().await);
    assert_eq!(upstream.seen().len(), 0);
    let made = ask(gateway.address(), &whole).await;
    assert_eq!((made.status(), made.is_replay()), (201, false));
    // One that passes through, with a length and in chunks.
    for framing in ["content-length: 9\r\n\r\nha", "transfer-encoding: chunked\r\n\r\n9\r\nha"] {
        let mut client = Client::connect(gateway.address()).await;
        client.send(&format!("PUT /feed HTTP/1.1\r\nhost: a\r\n{framing}")).await;
        let late = client.read().await.unwrap();
        assert_eq!((late.status(), late.header("connection")), (504, Some("close")), "{framing}");
        assert!(client.is_closed().await);
    }
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn a_body_that_passes_through_and_breaks_off_may_have_taken_effect() {
    let upstream = Upstream::start().await;
    let usual = rules(&[&upstream]);
    let calling = Calling { idle_for_max: SHORT, ..usual.calling.clone() };
    let operations = Arc::new(Operations::only_named());
    let gateway = start(Rules { calling, operations, ..usual }).await;
    for (body, status) in [("9\r\nha", 504), ("4\r\nhalf\r\nno length\r\n", 400)] {
        for (method, retryable) in [("POST", false), ("PATCH", false), ("PUT", true)] {
            let head = format!("{method} /bulk HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked");
            let mut client = Client::connect(gateway.address()).await;
            client.send(&format!("{head}\r\n\r\n{body}")).await;
            let late = client.read().await.unwrap();
            assert_eq!((late.status(), late.code().as_str()), (status, "answer-lost"), "{late:?}");
            let document: serde_json::Value = serde_json::from_slice(&late.body).unwrap();
            assert_eq!(document["retryable"], retryable, "{method} {body}");
            let may_retry = late.header("retry-after").is_some();
            assert_eq!((may_retry, late.header("connection")), (retryable, Some("close")));
            let detail = document["detail"].as_str().unwrap();
            assert!(detail.contains("may have"), "{detail}");
        }
    }
}

#[tokio::test]
async fn who_takes_nothing_of_an_answer_is_let_go_and_the_upstream_with_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (ends, ended) = oneshot::channel();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(stream.read(&mut [0; 1000]).await.unwrap() > 0);
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n";
        stream.write_all(head).await.unwrap();
        while stream.write_all(&[0; 10_000]).await.is_ok() {}
        ends.send(()).unwrap();
    });
    let upstreams = vec![Target::new(&format!("http://{address}")).unwrap()];
    let gateway = impatient(Rules { upstreams, ..rules(&[]) }).await;
    let mut client = Client::connect(gateway.address()).await;
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    ended.await.unwrap();
}

#[tokio::test]
async fn without_room_a_large_body_is_a_503_and_a_small_one_is_taken() {
    let upstream = Upstream::start().await;
    let usual = rules(&[&upstream]);
    let calling = Calling { held_bytes_max: 32 * 1024, ..usual.calling.clone() };
    let gateway = start(Rules { calling, ..usual }).await;
    let large = format!("\"{}\"", "x".repeat(20_000));
    let mut client = Client::connect(gateway.address()).await;
    let refused = client.ask(&post("k", &large)).await;
    assert_eq!((refused.status(), refused.header("retry-after")), (503, Some("1")));
    assert_eq!(refused.header("connection"), Some("close"));
    assert!(client.is_closed().await);
    assert_eq!(upstream.seen().len(), 0);
    let made = ask(gateway.address(), &post("k", "{}")).await;
    assert_eq!((made.status(), made.is_replay()), (201, false), "nothing was reserved");
    // What is not held has no need of room.
    let passed = post("k", &large).replace("POST", "PUT");
    assert_eq!(ask(gateway.address(), &passed).await.status(), 201);
}

#[tokio::test]
async fn an_answer_that_trickles_is_passed_on_in_time_and_not_kept() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (goes_on, may_go_on) = oneshot::channel();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = tokio::io::BufReader::new(stream);
        wire::read(&mut stream).await.unwrap().unwrap();
        stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 4\r\n\r\nma").await.unwrap();
        may_go_on.await.unwrap();
        stream.write_all(b"de").await.unwrap();
        // The connection stays, as it would.
        assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0);
    });
    let upstreams = vec![Target::new(&format!("http://{address}")).unwrap()];
    let operations = policy(Policy::default().response_within(SHORT));
    let gateway = start(Rules { upstreams, operations, ..rules(&[]) }).await;
    let mut client = Client::connect(gateway.address()).await;
    client.send(&post("k", "{}")).await;
    let head = wire::read_head(&mut client.0).await.unwrap().unwrap();
    assert_eq!(head.status(), 201);
    goes_on.send(()).unwrap();
    let mut body = [0; 4];
    client.0.read_exact(&mut body).await.unwrap();
    assert_eq!(&body, b"made");
    let again = ask(gateway.address(), &post("k", "{}")).await;
    assert_eq!(again.code(), "answer-not-kept");
}
