//! Which requests may leave HTTP, and into which protocol.

use std::sync::Arc;
use std::time::Duration;

use firstwrite::memory_store;
use firstwrite_gateway::{Calling, Drained, Gateway, Listening, Rules};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::client::{Client, ask};
use crate::gateway::{anywhere, rules, start};
use crate::upstream::{Script, Upstream, answer};
use crate::wire::Message;

/// Asks for `/ws` with these lines of its head.
fn asking(lines: &str) -> String {
    format!("GET /ws HTTP/1.1\r\nhost: a\r\n{lines}\r\n")
}

/// An agreement to change to `token`.
fn agreed(token: &str) -> String {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: {token}\r\n\
         sec-websocket-accept: yes\r\n\r\n"
    )
}

/// What an upstream that agrees to `token` was asked, and what the client was told.
async fn passed(lines: &str, token: &str) -> (Message, Message) {
    let upstream = Upstream::start().await;
    upstream.does(Script::Answer(agreed(token)));
    let gateway = start(rules(&[&upstream])).await;
    let answered = ask(gateway.address(), &asking(lines)).await;
    (upstream.seen()[0].clone(), answered)
}

#[tokio::test]
async fn one_line_with_one_token_of_the_list_passes_in_any_case() {
    for token in ["websocket", "WebSocket", "WEBSOCKET"] {
        let upstream = Upstream::start().await;
        upstream.does(Script::Shout("WebSocket"));
        let gateway = start(rules(&[&upstream])).await;
        let mut client = Client::connect(gateway.address()).await;
        let lines = format!(
            "connection: keep-alive, Upgrade, http2-settings\r\nupgrade: {token}\r\n\
             http2-settings: AAMAAABk\r\nsec-websocket-key: k\r\n"
        );
        let agreed = client.ask(&asking(&lines)).await;
        assert_eq!(
            (agreed.status(), agreed.header("upgrade")),
            (101, Some("websocket")),
            "{token}"
        );
        client.0.write_all(b"hello").await.unwrap();
        let mut heard = [0; 5];
        client.0.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"HELLO");
        let seen = &upstream.seen()[0];
        assert_eq!(
            (seen.all("upgrade"), seen.all("connection")),
            (vec!["websocket"], vec!["upgrade"])
        );
        assert_eq!(seen.header("sec-websocket-key"), Some("k"));
        assert_eq!(seen.header("http2-settings"), None);
    }
}

#[tokio::test]
async fn any_other_offer_is_not_passed_on_and_the_request_is_served_as_it_is() {
    let upstream = Upstream::start().await;
    let gateway = start(rules(&[&upstream])).await;
    for offer in [
        "upgrade: h2c\r\nupgrade: websocket\r\n",
        "upgrade: websocket\r\nupgrade: h2c\r\n",
        "upgrade: websocket\r\nupgrade: websocket\r\n",
        "upgrade: h2c, websocket\r\n",
        "upgrade: websocket, h2c\r\n",
        "upgrade: websocket,\r\n",
        "upgrade: H2C\r\n",
        "upgrade: h2c\r\n",
        "upgrade: TLS/1.2\r\n",
        "upgrade: websocket/13\r\n",
        "upgrade: \r\n",
    ] {
        let lines = format!("connection: upgrade\r\n{offer}http2-settings: AAMAAABk\r\n");
        let answered = ask(gateway.address(), &asking(&lines)).await;
        assert_eq!(answered.status(), 201, "{offer:?}");
        let seen = upstream.seen().pop().unwrap();
        for name in ["upgrade", "http2-settings", "connection"] {
            assert_eq!(seen.all(name), [""; 0], "{offer:?}");
        }
    }
    // The token alone says nothing without `Connection`.
    let answered = ask(gateway.address(), &asking("upgrade: websocket\r\n")).await;
    assert_eq!(answered.status(), 201);
    assert_eq!(upstream.seen().pop().unwrap().all("upgrade"), [""; 0]);
}

#[tokio::test]
async fn an_upstream_that_agrees_to_another_protocol_gets_no_tunnel() {
    let offer = "connection: upgrade\r\nupgrade: websocket\r\n";
    for token in ["h2c", "websocket, h2c", "websocket\r\nupgrade: h2c", ""] {
        let (_, answered) = passed(offer, token).await;
        assert_eq!((answered.status(), answered.header("upgrade")), (502, None), "{token:?}");
    }
    let (_, answered) = passed(offer, "WEBSOCKET").await;
    assert_eq!((answered.status(), answered.header("upgrade")), (101, Some("websocket")));
}

#[tokio::test]
async fn an_upstream_may_refuse_and_answer_instead() {
    let upstream = Upstream::start().await;
    upstream.does(Script::Answer(answer("403 Forbidden", "", "no")));
    let gateway = start(rules(&[&upstream])).await;
    let offer = "connection: upgrade\r\nupgrade: websocket\r\n";
    let answered = ask(gateway.address(), &asking(offer)).await;
    assert_eq!((answered.status(), answered.text().as_str()), (403, "no"));
}

/// Long enough to be served within, short enough to wait for.
const SHORT: Duration = Duration::from_millis(300);
/// Far longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(30);
const OFFER: &str = "connection: upgrade\r\nupgrade: websocket\r\n";

/// A connection that has left HTTP, over which bytes pass.
async fn tunnel(gateway: &Gateway) -> Client {
    let mut client = Client::connect(gateway.address()).await;
    assert_eq!(client.ask(&asking(OFFER)).await.status(), 101);
    client.0.write_all(b"x").await.unwrap();
    assert_eq!(client.0.read_u8().await.unwrap(), b'X');
    client
}

#[tokio::test]
async fn a_tunnel_is_still_one_of_the_connections() {
    let upstream = Upstream::start().await;
    upstream.does(Script::Shout("websocket"));
    let listening = Listening { connections_max: 2, ..anywhere() };
    let store = Arc::new(memory_store());
    let gateway = Gateway::start(store, &listening, rules(&[&upstream])).await.unwrap();
    let (first, _second) = (tunnel(&gateway).await, tunnel(&gateway).await);
    let mut third = Client::connect(gateway.address()).await;
    third.send(&asking(OFFER)).await;
    assert!(timeout(SHORT, third.read()).await.is_err(), "there is no room for it");
    drop(first);
    assert_eq!(third.read().await.unwrap().status(), 101);
}

#[tokio::test]
async fn a_tunnel_in_which_nothing_passes_is_ended() {
    let upstream = Upstream::start().await;
    upstream.does(Script::Shout("websocket"));
    let usual = rules(&[&upstream]);
    let calling = Calling { tunnel_idle_for_max: SHORT, ..usual.calling.clone() };
    let gateway = start(Rules { calling, ..usual }).await;
    let mut silent = tunnel(&gateway).await;
    assert!(timeout(PATIENCE, silent.is_closed()).await.expect("it is ended"));
}

#[tokio::test]
async fn a_tunnel_ends_when_the_gateway_stops() {
    for threads in [0, 2] {
        let upstream = Upstream::start().await;
        upstream.does(Script::Shout("websocket"));
        let listening = Listening { threads, ..anywhere() };
        let store = Arc::new(memory_store());
        let gateway = Gateway::start(store, &listening, rules(&[&upstream])).await.unwrap();
        let mut client = tunnel(&gateway).await;
        assert_eq!(gateway.stop(PATIENCE).await, Drained::All);
        let is_closed = timeout(PATIENCE, client.is_closed()).await;
        assert_eq!(is_closed, Ok(true), "{threads}");
    }
}
