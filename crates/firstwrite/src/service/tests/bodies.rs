//! Bodies: caps on requests and answers, streams, tombstones, and what passes through untouched.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use firstwrite_core::{BoxError, Policy};
use http::{HeaderValue, Method, Request, Response, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tower::{Layer, ServiceExt, service_fn};

use super::harness::{World, answer, post, tenant};
use crate::{IdempotencyLayer, ResponseBody};

/// A body that comes in these pieces; after them it ends, breaks or stalls.
struct Pieces {
    left: std::vec::IntoIter<&'static str>,
    then: Then,
    declared: Option<u64>,
}

#[derive(Clone, Copy, PartialEq)]
enum Then {
    End,
    Break,
    Stall,
}

fn pieces(pieces: &[&'static str], then: Then) -> Pieces {
    Pieces { left: Vec::from(pieces).into_iter(), then, declared: None }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match (self.left.next(), self.then) {
            (Some(piece), _) => Poll::Ready(Some(Ok(Frame::data(Bytes::from(piece))))),
            (None, Then::End) => Poll::Ready(None),
            (None, Then::Break) => Poll::Ready(Some(Err("the connection broke".into()))),
            (None, Then::Stall) => Poll::Pending,
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.declared.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

impl From<Bytes> for Pieces {
    fn from(bytes: Bytes) -> Self {
        let text: &'static str = String::from_utf8(bytes.to_vec()).unwrap().leak();
        pieces(&[text], Then::End)
    }
}

fn streaming(policy: Policy, make: fn() -> Response<ResponseBody>) -> World {
    World::new(policy, move |_, _| async move { Ok(make()) })
}

fn small_answers() -> Policy {
    Policy::default().response_bytes_max(8)
}

#[tokio::test(start_paused = true)]
async fn an_answer_over_the_cap_is_passed_on_whole_and_not_run_again() {
    let world = streaming(small_answers(), || {
        let body = ResponseBody::passed(pieces(&["12345", "67890", "abc"], Then::End));
        Response::builder().status(201).header("location", "/files/1").body(body).unwrap()
    });
    let first = world.send(post("k", "{}")).await;
    assert_eq!(first.summary(), "201 1234567890abc");
    assert!(first.header("idempotency-expires").is_some());
    let retry = world.send(post("k", "{}")).await;
    assert_eq!(retry.summary(), "409 answer-not-kept");
    assert_eq!(retry.json()["first_status"], 201);
    assert_eq!(retry.header("location"), Some("/files/1"));
    assert_eq!(retry.json()["retryable"], false);
    assert_eq!(world.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_exactly_the_cap_is_kept() {
    let world = streaming(small_answers(), || answer(201, "12345678"));
    world.send(post("k", "{}")).await;
    assert_eq!(world.send(post("k", "{}")).await.summary(), "201 12345678");
}

#[tokio::test(start_paused = true)]
async fn a_stream_goes_out_as_it_comes() {
    let world = streaming(Policy::default(), || {
        let body = ResponseBody::passed(pieces(&["data: 1\n\n"], Then::Stall));
        let builder =
            Response::builder().header("content-type", "text/event-stream; charset=utf-8");
        builder.body(body).unwrap()
    });
    let response = world.respond(post("k", "{}")).await.unwrap();
    let mut body = response.into_body();
    let frame = body.frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "data: 1\n\n");
    assert_eq!(world.send(post("k", "{}")).await.summary(), "409 answer-not-kept");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_declares_too_much_is_not_waited_for() {
    let world = streaming(small_answers(), || {
        let body = Pieces { declared: Some(1 << 40), ..pieces(&["first"], Then::Stall) };
        Response::new(ResponseBody::passed(body))
    });
    let response = world.respond(post("k", "{}")).await.unwrap();
    let frame = response.into_body().frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "first");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_breaks_off_is_lost() {
    let world = streaming(Policy::default(), || {
        Response::new(ResponseBody::passed(pieces(&["half"], Then::Break)))
    });
    assert_eq!(world.send(post("k", "{}")).await.summary(), "504 outcome-unknown");
    assert_eq!(world.send(post("k", "{}")).await.summary(), "409 outcome-unknown");
}

/// A first answer with this status that breaks off, or is shorter than it said, and a second one that is whole.
fn cut_once(status: u16, then: Then, policy: Policy) -> World {
    World::new(policy, move |run, _| async move {
        if run > 1 {
            return Ok(answer(201, "whole"));
        }
        let body = ResponseBody::passed(pieces(&["half"], then));
        let builder = Response::builder().status(status).header("content-encoding", "gzip");
        let builder = builder.header("content-length", "9").header("retry-after", "7");
        Ok(builder.body(body).unwrap())
    })
}

#[tokio::test(start_paused = true)]
async fn whatever_its_status_an_answer_that_is_cut_is_never_passed_on() {
    for then in [Then::Break, Then::End] {
        for status in [201, 303, 404, 408, 500, 502, 503, 504] {
            let world = cut_once(status, then, Policy::default());
            let first = world.send(post("k", "{}")).await;
            assert_eq!(first.summary(), "504 outcome-unknown", "{status}");
            assert_eq!(world.send(post("k", "{}")).await.summary(), "409 outcome-unknown");
            assert_eq!(world.runs(), 1);
        }
        for status in [401, 407, 421, 425, 429, 431] {
            let world = cut_once(status, then, Policy::default());
            let first = world.send(post("k", "{}")).await;
            assert_eq!(first.summary(), "500 attempt-failed", "{status}");
            assert_eq!(first.header("content-encoding"), None);
            assert_eq!(first.header("retry-after"), Some("7"));
            assert_eq!(
                (&first.json()["retryable"], &first.json()["first_status"]),
                (&true.into(), &status.into())
            );
            assert_eq!(world.send(post("k", "{}")).await.summary(), "201 whole");
            assert_eq!(world.runs(), 2);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_length_of_a_head_is_not_missing() {
    let world = cut_once(200, Then::End, Policy::default());
    let mut head = post("k", "{}");
    *head.method_mut() = Method::HEAD;
    assert_eq!(world.send(head).await.status, 200);
}

/// Sends a request with this body to a layer whose handler echoes; says what came back and whether
/// the connection is to be closed.
async fn upload(policy: Policy, body: Pieces, version: Version) -> (String, bool) {
    let store = std::sync::Arc::new(crate::memory_store());
    let echo = service_fn(|request: Request<Pieces>| async move {
        let bytes = request.into_body().collect().await?.to_bytes();
        Ok::<_, BoxError>(Response::new(ResponseBody::whole(bytes)))
    });
    let service = IdempotencyLayer::new(store.clone()).policy(policy).unwrap().layer(echo);
    let request = Request::builder()
        .method(Method::POST)
        .uri("/files")
        .version(version)
        .header("idempotency-key", "k")
        .extension(tenant("acme"));
    let response = service.oneshot(request.body(body).unwrap()).await.unwrap();
    let closes = response.headers().get("connection") == Some(&HeaderValue::from_static("close"));
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    if status >= 400 {
        assert!(format!("{store:?}").contains("record_count: 0"), "nothing is stored: {store:?}");
    }
    let text = String::from_utf8(body.to_vec()).unwrap();
    let said = serde_json::from_str::<serde_json::Value>(&text)
        .map(|json| json["code"].as_str().unwrap_or("").to_owned());
    (format!("{status} {}", said.unwrap_or(text)), closes)
}

#[tokio::test(start_paused = true)]
async fn a_request_over_the_cap_is_refused_before_anything_is_reserved() {
    let policy = || Policy::default().request_bytes_max(8);
    let whole = pieces(&["abcd", "efgh"], Then::End);
    assert_eq!(upload(policy(), whole, Version::HTTP_11).await, ("200 abcdefgh".into(), false));
    let streamed = pieces(&["1234", "56789"], Then::Stall);
    let refused = ("413 body-too-large".into(), true);
    assert_eq!(upload(policy(), streamed, Version::HTTP_11).await, refused);
    let declared = Pieces { declared: Some(9), ..pieces(&[], Then::Stall) };
    assert_eq!(upload(policy(), declared, Version::HTTP_11).await, refused);
    let declared = Pieces { declared: Some(9), ..pieces(&[], Then::Stall) };
    let refused = ("413 body-too-large".into(), false);
    assert_eq!(upload(policy(), declared, Version::HTTP_2).await, refused);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_breaks_off_or_stalls_reserves_nothing() {
    let broken = pieces(&["half"], Then::Break);
    let (said, closes) = upload(Policy::default(), broken, Version::HTTP_11).await;
    assert_eq!((said.as_str(), closes), ("400 request-malformed", true));
    // Paused time jumps to the deadline.
    let stalled = pieces(&["half"], Then::Stall);
    let (said, closes) = upload(Policy::default(), stalled, Version::HTTP_11).await;
    assert_eq!((said.as_str(), closes), ("408 request-timeout", true));
}

/// Sends a request without a key.
async fn keyless(body: Pieces, expects_continue: bool) -> bool {
    let store = std::sync::Arc::new(crate::memory_store());
    let never = service_fn(|_: Request<Pieces>| async {
        Err::<Response<ResponseBody>, BoxError>("must not run".into())
    });
    let service = IdempotencyLayer::new(store).layer(never);
    let mut request = Request::builder().method(Method::POST).extension(tenant("acme"));
    if expects_continue {
        request = request.header("expect", "100-continue");
    }
    let response = service.oneshot(request.body(body).unwrap()).await.unwrap();
    assert_eq!(response.status(), 400);
    response.headers().contains_key("connection")
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_refused_request_is_drained_or_the_connection_closed() {
    assert!(!keyless(pieces(&["small"], Then::End), false).await, "drained");
    assert!(keyless(pieces(&["small"], Then::Stall), false).await, "stalled");
    assert!(keyless(pieces(&["small"], Then::Break), false).await, "broken");
    let large = "x".repeat(100_000).leak();
    assert!(keyless(pieces(&[large], Then::End), false).await, "too much to drain");
    let declared = Pieces { declared: Some(10_000_000), ..pieces(&[], Then::Stall) };
    assert!(keyless(declared, false).await, "too much to begin with");
    assert!(keyless(pieces(&["small"], Then::End), true).await, "never asked to go on");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_protected_streams_through_untouched() {
    let echo = service_fn(|request: Request<Pieces>| async move {
        Ok::<_, BoxError>(Response::new(request.into_body()))
    });
    let store = std::sync::Arc::new(crate::memory_store());
    let service = IdempotencyLayer::new(store).layer(echo);
    let body = pieces(&["one", "two"], Then::Stall);
    let request = Request::builder().method(Method::PUT).uri("/files").body(body).unwrap();
    let response = service.oneshot(request).await.unwrap();
    assert!(response.headers().is_empty());
    let mut body = response.into_body();
    for expected in ["one", "two"] {
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), expected);
    }
}
