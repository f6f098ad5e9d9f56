//! Clients that send what costs them little and others much: their connection ends, and nobody else notices.

use std::sync::Arc;
use std::time::Duration;

use firstwrite::memory_store;
use firstwrite_gateway::{Calling, Gateway, Listening, Rules, Target};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::client::{Client, ask, post};
use crate::frames::{
    ACK, CONTINUATION, Came, DATA, END_HEADERS, END_STREAM, Frames, HEADERS, PING, PREFACE,
    RST_STREAM, SETTINGS, WINDOW_UPDATE, block, frame, get, put,
};
use crate::gateway::{anywhere, rules, start};
use crate::upstream::{Script, Upstream, answer};
use crate::wire;

/// Thousands of frames, and more than any of them may send.
const MANY: u32 = 2000;
const CALM_DOWN: u32 = 11;
const REFUSED: u32 = 7;
/// How long somebody may take nothing of what it is sent.
const SHORT: Duration = Duration::from_millis(300);

async fn started() -> (Upstream, Gateway) {
    let upstream = Upstream::start().await;
    let listening = Listening { taken_within: SHORT, ..anywhere() };
    let store = Arc::new(memory_store());
    let gateway = Gateway::start(store, &listening, rules(&[&upstream])).await.unwrap();
    (upstream, gateway)
}

/// Sends frames until nobody takes them any more, and says how that came about. Others are served
/// meanwhile, on their own connections.
async fn flood(gateway: &Gateway, begun: &[u8], frames: impl Fn(u32) -> Vec<u8>) -> Came {
    let mut connection = Frames::connect(gateway.address()).await;
    connection.send(&[begun]).await;
    let mut count = 0;
    for number in 0..MANY {
        // A thousand at once, as whoever wants to flood would.
        let many: Vec<u8> = (0..1000).flat_map(|step| frames(number * 1000 + step)).collect();
        if connection.0.write_all(&many).await.is_err() {
            break;
        }
        count = number + 1;
        if count % 5 == 1 {
            let other = ask(gateway.address(), "GET /other HTTP/1.1\r\nhost: a\r\n\r\n").await;
            assert_eq!(other.status(), 201);
        }
    }
    assert!(count < MANY, "it may go on for ever");
    connection.came(u32::MAX).await
}

/// Uploads that never end, many on one connection of HTTP/2, took all descriptors of the process.
#[tokio::test]
async fn uploads_that_never_end() {
    let upstream = Upstream::start().await;
    let usual = rules(&[&upstream]);
    // Half of it is for attempts.
    let calling = Calling { upstream_connections_max: 8, ..usual.calling.clone() };
    let gateway = start(Rules { calling, ..usual }).await;
    // Connections that are not used make room for those that are.
    for number in 0..4 {
        let request = post(&format!("before-{number}"), "{}");
        assert_eq!(ask(gateway.address(), &request).await.status(), 201);
    }
    upstream.does(Script::AnswerEarly(String::new()));
    let mut connection = Frames::connect(gateway.address()).await;
    for stream in 0..100 {
        let head = frame(HEADERS, END_HEADERS, stream * 2 + 1, &block(&put(&[])));
        connection.send(&[&head, &frame(DATA, 0, stream * 2 + 1, b"x")]).await;
    }
    // Those for which there is no room are answered, and the others never are.
    let mut refused_count = 0;
    while refused_count < 96 {
        refused_count += usize::from(connection.read().await.unwrap().kind == HEADERS);
    }
    upstream.does(Script::Answer(answer("201 Created", "", "made")));
    let refused = ask(gateway.address(), "GET /other HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!((refused.status(), refused.code().as_str()), (503, "overloaded"));
    assert_eq!(
        (refused.header("retry-after"), refused.header("connection")),
        (Some("1"), Some("close"))
    );
    assert_eq!(ask(gateway.address(), &post("k", "{}")).await.status(), 201, "attempts have room");
    drop(connection);
    is_let_in(&gateway, "GET /other HTTP/1.1\r\nhost: a\r\n\r\n").await;
}

/// Asks until what has ended has made room.
async fn is_let_in(gateway: &Gateway, request: &str) {
    let asking = async { while ask(gateway.address(), request).await.status() == 503 {} };
    timeout(Duration::from_secs(20), asking).await.expect("there is room again");
}

/// A connection that left HTTP counts until it ends.
#[tokio::test]
async fn tunnels_that_stay() {
    let upstream = Upstream::start().await;
    upstream.does(Script::Shout("websocket"));
    let usual = rules(&[&upstream]);
    let calling = Calling { upstream_connections_max: 4, ..usual.calling.clone() };
    let gateway = start(Rules { calling, ..usual }).await;
    let wish = "GET /ws HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    let mut tunnels = Vec::new();
    for _ in 0..2 {
        let mut client = Client::connect(gateway.address()).await;
        assert_eq!(client.ask(wish).await.status(), 101);
        tunnels.push(client);
    }
    assert_eq!(ask(gateway.address(), wish).await.status(), 503);
    drop(tunnels.pop());
    is_let_in(&gateway, wish).await;
}

/// A client that gives its streams no window holds every answer, and acknowledges a PING all the same.
#[tokio::test]
async fn answers_that_nobody_takes() {
    let upstream = Upstream::start().await;
    let usual = rules(&[&upstream]);
    let calling = Calling { upstream_connections_max: 8, ..usual.calling.clone() };
    let listening = Listening { taken_within: SHORT, ..anywhere() };
    let rules = Rules { calling, ..usual };
    let gateway = Gateway::start(Arc::new(memory_store()), &listening, rules).await.unwrap();
    // The second takes the first byte of each answer.
    for window in [0, 1] {
        let mut honest = Frames::connect(gateway.address()).await;
        honest.send(&[&get(1)]).await;
        assert_eq!(honest.came(1).await, Came::Answer);
        let mut connection = Frames::silent(gateway.address()).await;
        let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, window]);
        connection.send(&[PREFACE, &settings, &frame(SETTINGS, ACK, 0, &[])]).await;
        let gets: Vec<u8> = (0..128).flat_map(|number| get(number * 2 + 1)).collect();
        connection.send(&[&gets]).await;
        assert_eq!(connection.came(127).await, Came::Answer);
        is_let_in(&gateway, "GET /other HTTP/1.1\r\nhost: a\r\n\r\n").await;
        assert!(matches!(connection.came(u32::MAX).await, Came::GoAway(_) | Came::End));
        // A connection whose answers were taken stays.
        honest.send(&[&get(3)]).await;
        assert_eq!(honest.came(3).await, Came::Answer);
    }
}

#[tokio::test]
async fn an_answer_that_is_taken_in_small_windows_arrives_whole() {
    let numbers: Vec<String> = (0..10_000).map(|number| format!("{number:04}")).collect();
    let body = numbers.concat();
    let upstream = Upstream::start().await;
    upstream.does(Script::Answer(answer("200 OK", "", &body)));
    let gateway = start(rules(&[&upstream])).await;
    let mut connection = Frames::silent(gateway.address()).await;
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1]);
    connection.send(&[PREFACE, &settings, &frame(SETTINGS, ACK, 0, &[]), &get(1)]).await;
    let mut taken = Vec::new();
    while taken.len() < body.len() {
        let came = connection.read().await.expect("more of the answer");
        if came.kind == DATA {
            taken.extend(came.payload);
            connection.send(&[&frame(WINDOW_UPDATE, 0, 1, &[0, 0, 4, 0])]).await;
        }
    }
    assert!(taken == body.as_bytes());
}

/// The upstream keeps the rest of an answer to itself, which is no fault of the client.
#[tokio::test]
async fn an_answer_that_stops_coming_is_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (goes_on, may_go_on) = oneshot::channel();
    tokio::spawn(async move {
        let (first, _) = listener.accept().await.unwrap();
        let mut first = BufReader::new(first);
        wire::read(&mut first).await.unwrap().unwrap();
        first.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nma").await.unwrap();
        let (second, _) = listener.accept().await.unwrap();
        let mut second = BufReader::new(second);
        wire::read(&mut second).await.unwrap().unwrap();
        second.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nmade").await.unwrap();
        may_go_on.await.unwrap();
        first.write_all(b"de").await.unwrap();
        assert_eq!(first.read(&mut [0]).await.unwrap_or(0), 0);
    });
    let upstreams = vec![Target::new(&format!("http://{address}")).unwrap()];
    let listening = Listening { taken_within: SHORT, ..anywhere() };
    let rules = Rules { upstreams, ..rules(&[]) };
    let gateway = Gateway::start(Arc::new(memory_store()), &listening, rules).await.unwrap();
    let mut connection = Frames::connect(gateway.address()).await;
    connection.send(&[&get(1)]).await;
    assert_eq!(connection.came(1).await, Came::Answer);
    assert_eq!(data(&mut connection).await, b"ma");
    // It takes the time that nothing may be taken for.
    let mut other = Frames::silent(gateway.address()).await;
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    other.send(&[PREFACE, &settings, &frame(SETTINGS, ACK, 0, &[]), &get(1)]).await;
    assert!(matches!(other.came(u32::MAX).await, Came::GoAway(_) | Came::End));
    goes_on.send(()).unwrap();
    assert_eq!(data(&mut connection).await, b"de");
}

/// What comes next of a body.
async fn data(connection: &mut Frames) -> Vec<u8> {
    loop {
        let frame = connection.read().await.expect("more of the answer");
        if frame.kind == DATA {
            return frame.payload;
        }
    }
}

#[tokio::test]
async fn streams_begun_and_reset() {
    let (_upstream, gateway) = started().await;
    let rapid = |number: u32| {
        let stream = number * 2 + 1;
        [get(stream), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
    };
    let came = flood(&gateway, &[], rapid).await;
    assert_eq!(came, Came::GoAway(CALM_DOWN));
}

#[tokio::test]
async fn streams_that_must_be_reset_for_a_mistake() {
    let (upstream, gateway) = started().await;
    let wrong = |number: u32| {
        let head = block(&put(&[("content-length", "3")]));
        frame(HEADERS, END_HEADERS | END_STREAM, number * 2 + 1, &head)
    };
    let came = flood(&gateway, &[], wrong).await;
    assert_eq!(came, Came::GoAway(CALM_DOWN));
    assert!(upstream.seen().iter().all(|seen| seen.start.contains("/other")));
}

#[tokio::test]
async fn a_head_that_never_ends() {
    let (upstream, gateway) = started().await;
    let begun = frame(HEADERS, END_STREAM, 1, &block(&put(&[])));
    for piece in [vec![], block(&[("x", "y")]), block(&[("x", &"y".repeat(10_000))])] {
        let came = flood(&gateway, &begun, |_| frame(CONTINUATION, 0, 1, &piece)).await;
        assert!(matches!(came, Came::GoAway(_) | Came::End), "{} {came:?}", piece.len());
    }
    assert!(upstream.seen().iter().all(|seen| seen.start.contains("/other")));
}

#[tokio::test]
async fn a_body_of_nothing() {
    let (_upstream, gateway) = started().await;
    let begun = frame(HEADERS, END_HEADERS, 1, &block(&put(&[])));
    let came = flood(&gateway, &begun, |_| frame(DATA, 0, 1, &[])).await;
    assert_eq!(came, Came::GoAway(CALM_DOWN));
}

/// Each must be acknowledged, and nobody reads that: nothing more is read then, and after a while the
/// connection is let go.
#[tokio::test]
async fn pings_and_settings_whose_acknowledgements_nobody_takes() {
    let (_upstream, gateway) = started().await;
    for asked in [frame(PING, 0, 0, &[0; 8]), frame(SETTINGS, 0, 0, &[])] {
        let came = flood(&gateway, &[], |_| asked.clone()).await;
        assert!(matches!(came, Came::GoAway(_) | Came::End), "{came:?}");
    }
}

#[tokio::test]
async fn streams_that_never_end_are_few() {
    let (_upstream, gateway) = started().await;
    let mut connection = Frames::connect(gateway.address()).await;
    let head = block(&put(&[]));
    let begun: Vec<u8> =
        (0..129).flat_map(|number| frame(HEADERS, END_HEADERS, number * 2 + 1, &head)).collect();
    connection.send(&[&begun]).await;
    assert_eq!(connection.came(128 * 2 + 1).await, Came::Reset(REFUSED));
    let other = ask(gateway.address(), "GET /other HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(other.status(), 201);
}
