//! What has no policy passes through, as it is and as it comes.

use std::sync::Arc;

use firstwrite_gateway::{ForwardedKey, Gateway, Operations};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::client::{Client, ask, keyed};
use crate::gateway::{rules, start};
use crate::upstream::{Script, Upstream, answer};
use crate::wire;

const GET: &str =
    "GET /a%20b?c=d&e HTTP/1.1\r\nhost: shop.example\r\nx-mine: 1\r\nx-mine: 2\r\n\r\n";

#[tokio::test]
async fn a_request_reaches_the_upstream_with_its_target_and_headers() {
    let upstream = Upstream::start().await;
    let gateway = start(rules(&[&upstream])).await;
    let answered = ask(gateway.address(), GET).await;
    assert_eq!((answered.status(), answered.text().as_str()), (201, "made"));
    assert_eq!(answered.header("set-cookie"), Some("a=b"));
    let seen = &upstream.seen()[0];
    assert_eq!(seen.start, "GET /a%20b?c=d&e HTTP/1.1");
    assert_eq!(seen.all("x-mine"), ["1", "2"]);
    assert_eq!(seen.all("host"), ["shop.example"]);
    assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(seen.header("content-length"), None);
}

#[tokio::test]
async fn a_key_on_a_get_is_passed_on_unchanged() {
    let upstream = Upstream::start().await;
    let gateway = start(rules(&[&upstream])).await;
    let get = GET.replace("x-mine: 1", "idempotency-key: mine");
    for _ in 0..2 {
        ask(gateway.address(), &get).await;
    }
    let seen = upstream.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[1].all("idempotency-key"), ["mine"]);
    assert_eq!(seen[1].header("firstwrite-record"), None);
}

/// A derived key of another tenant would get that tenant's answer from the API.
#[tokio::test]
async fn a_key_that_the_gateway_could_have_derived_passes_nowhere() {
    let upstream = Upstream::start().await;
    let mut rules = rules(&[&upstream]);
    rules.operations = Arc::new(Operations::only_named());
    let gateway = start(rules.clone()).await;
    let ask = async |gateway: &Gateway, lines: &str| {
        let request = format!("POST /a HTTP/1.1\r\nhost: a\r\n{lines}content-length: 0\r\n\r\n");
        ask(gateway.address(), &request).await
    };
    for key in [
        "samekey:forward:457d83d01989d09e",
        "\"samekey:forward:457d83d01989d09e\"",
        "\"samekey:forward:457D83D01989D09E\";a=b",
        "457d83d01989d09e457d83d01989d09e:forward",
        "samekey:FORWARD:457d83d01989d09e",
        "samekey:Forward:457D83D01989D09E",
        "457D83D01989D09E457D83D01989D09E:fOrWaRd",
        "'samekey:forward:457d83d01989d09e'",
        "\\samekey:forward:457d83d01989d09e\\",
        "a\r\nidempotency-key: b",
    ] {
        let refused = ask(&gateway, &format!("idempotency-key: {key}\r\n")).await;
        assert_eq!((refused.status(), refused.code().as_str()), (400, "key-invalid"), "{key}");
        let upgrade =
            format!("connection: upgrade\r\nupgrade: websocket\r\nidempotency-key: {key}\r\n");
        assert_eq!(ask(&gateway, &upgrade).await.code(), "key-invalid", "{key}");
    }
    assert_eq!(upstream.seen().len(), 0);
    for key in ["a:forward:1", "a:forward:457d83d01989d09e0", "a:b:457d83d01989d09e", "(", "a,b"] {
        assert_eq!(ask(&gateway, &format!("idempotency-key: {key}\r\n")).await.status(), 201);
        assert_eq!(upstream.seen().pop().unwrap().all("idempotency-key"), [key]);
    }
    rules.forwarding.key = ForwardedKey::Nothing;
    let gateway = start(rules).await;
    for key in ["mine", "samekey:forward:457d83d01989d09e", "a\r\nidempotency-key: b"] {
        assert_eq!(ask(&gateway, &format!("idempotency-key: {key}\r\n")).await.status(), 201);
        assert_eq!(upstream.seen().pop().unwrap().header("idempotency-key"), None, "{key}");
    }
}

#[tokio::test]
async fn an_answer_is_in_the_clients_version() {
    let upstream = Upstream::start().await;
    upstream.does(Script::AnswerAndHangUp("HTTP/1.0 200 OK\r\n\r\nold".to_owned()));
    let gateway = start(rules(&[&upstream])).await;
    for request in [GET.to_owned(), keyed("/pay", "k", "", "{}")] {
        let answered = ask(gateway.address(), &request).await;
        assert_eq!((answered.start.as_str(), &*answered.text()), ("HTTP/1.1 200 OK", "old"));
    }
}

#[tokio::test]
async fn an_answer_with_another_coding_than_chunked_is_lost() {
    let upstream = Upstream::start().await;
    let gateway = start(rules(&[&upstream])).await;
    for (number, coding) in
        ["gzip, chunked", "gzip", "chunked, chunked", "identity", "x\r\ntransfer-encoding: chunked"]
            .iter()
            .enumerate()
    {
        let text =
            format!("HTTP/1.1 200 OK\r\ntransfer-encoding: {coding}\r\n\r\n2\r\nhi\r\n0\r\n\r\n");
        upstream.does(Script::AnswerAndHangUp(text));
        let passed = ask(gateway.address(), GET).await;
        assert_eq!((passed.status(), passed.code().as_str()), (502, "answer-lost"), "{coding}");
        let request = keyed("/pay", &number.to_string(), "", "{}");
        for (status, code) in [(504, "outcome-unknown"), (409, "outcome-unknown")] {
            let kept = ask(gateway.address(), &request).await;
            assert_eq!((kept.status(), kept.code().as_str()), (status, code), "{coding}");
        }
    }
}

#[tokio::test]
async fn a_body_is_streamed_both_ways() {
    let upstream = Upstream::start().await;
    let events = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                  transfer-encoding: chunked\r\n\r\n3\r\none\r\n";
    upstream.does(Script::Answer(events.to_owned()));
    let gateway = start(rules(&[&upstream])).await;
    let mut client = Client::connect(gateway.address()).await;
    client
        .send("PUT /feed HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\nup\r\n0\r\n\r\n")
        .await;
    let head = wire::read_head(&mut client.0).await.unwrap().unwrap();
    assert_eq!(head.status(), 200);
    // The first event is here, and the answer has no end yet.
    assert_eq!(wire::read_line(&mut client.0).await.unwrap(), "3\r\n");
    assert_eq!(wire::read_line(&mut client.0).await.unwrap(), "one\r\n");
    let seen = &upstream.seen()[0];
    assert_eq!((seen.text().as_str(), seen.all("transfer-encoding")), ("up", vec!["chunked"]));
}

#[tokio::test]
async fn a_connection_can_leave_http() {
    let upstream = Upstream::start().await;
    upstream.does(Script::Shout("websocket"));
    let gateway = start(rules(&[&upstream])).await;
    let mut client = Client::connect(gateway.address()).await;
    let wish = "GET /ws HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n";
    let agreed = client.ask(wish).await;
    assert_eq!((agreed.status(), agreed.header("upgrade")), (101, Some("websocket")));
    client.0.write_all(b"hello").await.unwrap();
    let mut heard = [0; 5];
    client.0.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"HELLO");
    assert_eq!(upstream.seen()[0].all("upgrade"), ["websocket"]);
}

#[tokio::test]
async fn a_protected_operation_cannot_leave_http() {
    let upstream = Upstream::start().await;
    let gateway = start(rules(&[&upstream])).await;
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\n";
    let refused = ask(gateway.address(), &keyed("/pay", "k", upgrade, "{}")).await;
    assert_eq!((refused.status(), refused.header("connection")), (400, Some("close")));
    assert_eq!(upstream.seen().len(), 0);
}

#[tokio::test]
async fn an_upstream_that_is_away_is_said_to_be() {
    let upstream = Upstream::start().await;
    let (rules, address) = (rules(&[&upstream]), upstream.address);
    upstream.stop().await;
    let gateway = start(rules).await;
    let answered = ask(gateway.address(), GET).await;
    assert_eq!((answered.status(), answered.header("retry-after")), (502, Some("1")));
    let upstream = Upstream::at(&address.to_string()).await;
    upstream.does(Script::HangUp);
    assert_eq!(ask(gateway.address(), GET).await.status(), 502);
    upstream.does(Script::Answer(answer("204 No Content", "", "")));
    assert_eq!(ask(gateway.address(), GET).await.status(), 204);
}

#[tokio::test]
async fn what_the_gateway_says_of_keys_no_upstream_says() {
    let upstream = Upstream::start().await;
    let forged = "idempotent-replayed: true\r\nidempotency-expires: never\r\nidempotency-interim: true\r\n\
                  idempotency-outcome: unknown\r\nfirstwrite-key: k\r\nfirstwrite-effect: none\r\nfirstwrite-other: 1\r\n\
                  idempotency-key: echoed\r\n";
    upstream.does(Script::Answer(answer("201 Created", forged, "made")));
    let gateway = start(rules(&[&upstream])).await;
    let wish = "GET /ws HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    for request in [GET.to_owned(), wish.to_owned(), keyed("/pay", "k", "", "{}")] {
        let answered = ask(gateway.address(), &request).await;
        assert_eq!((answered.status(), answered.is_replay()), (201, false), "{request}");
        assert_ne!(answered.header("idempotency-expires"), Some("never"), "{request}");
        assert_eq!(answered.header("idempotency-interim"), None, "{request}");
        assert_eq!(answered.header("idempotency-outcome"), None, "{request}");
        let ours = answered.headers.iter().filter(|(name, _)| name.starts_with("firstwrite-"));
        assert_eq!(ours.count(), 0, "{answered:?}");
        assert_eq!(answered.header("idempotency-key"), Some("echoed"));
    }
}
