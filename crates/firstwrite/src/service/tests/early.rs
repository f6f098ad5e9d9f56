//! `Prefer: respond-async`: an early 202, and the outcome for clients that come back.

use std::time::Duration;

use firstwrite_core::protocol::Settlement;
use firstwrite_core::{Key, Policy, RespondAsync, StateKind, Store as _, StoreErrorKind};
use http::{HeaderValue, Request};
use url::Url;

use super::attempts::{freed_after, settle};
use super::harness::{Door, RequestBody, World, advance, answer, id, post};

fn prefer(mut request: Request<RequestBody>) -> Request<RequestBody> {
    request.headers_mut().insert("prefer", HeaderValue::from_static("respond-async, wait=1"));
    request
}

fn world(door: &Door, policy: Policy) -> World {
    let door = door.clone();
    World::new(policy, move |run, _| {
        let door = door.clone();
        async move {
            door.pass().await;
            Ok(answer(201, &format!("run {run}")))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn whoever_prefers_it_is_answered_as_soon_as_the_reservation_stands() {
    let door = Door::new();
    let world = world(&door, Policy::default());
    let elsewhere = world.second_process(Policy::default());
    for attempt in [world.clone(), world.clone()] {
        let early = attempt.send(prefer(post("a/b", "{}"))).await;
        assert_eq!(early.status, 202);
        assert_eq!(early.header("location"), Some("/.firstwrite/operations/a%2Fb"));
        assert_eq!(early.header("preference-applied"), Some("respond-async"));
        assert_eq!(early.header("idempotency-interim"), Some("true"));
        assert!(!early.is_replay());
    }
    // Another process does not know whether this end will be told.
    let other = elsewhere.send(prefer(post("a/b", "{}"))).await;
    assert_eq!(other.summary(), "409 in-progress");
    assert_eq!(world.send(post("a/b", "{}")).await.summary(), "409 in-progress");
    assert_eq!(elsewhere.send(post("a/b", "{}")).await.summary(), "409 in-progress");
    assert_eq!(world.send(prefer(post("a/b", "other"))).await.summary(), "422 key-reused");
    door.entered().await;
    door.open();
    let mut retry = world.send(prefer(post("a/b", "{}"))).await;
    while retry.status == 202 {
        tokio::task::yield_now().await;
        retry = world.send(prefer(post("a/b", "{}"))).await;
    }
    assert_eq!(retry.summary(), "201 run 1");
    assert!(retry.is_replay());
    assert_eq!(world.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_202_is_given_for_what_could_not_be_reserved() {
    let world = world(&Door::new(), Policy::default());
    world.store.fail("insert");
    assert_eq!(world.send(prefer(post("k", "{}"))).await.summary(), "503 store-unavailable");
}

#[tokio::test(start_paused = true)]
async fn a_policy_may_ignore_the_preference() {
    let door = Door::new();
    let policy = Policy::default().respond_async(RespondAsync::Ignore);
    let world = world(&door, policy);
    door.open();
    assert_eq!(world.send(prefer(post("k", "{}"))).await.summary(), "201 run 1");
}

#[tokio::test(start_paused = true)]
async fn whoever_polls_learns_that_the_attempt_failed_and_a_retry_runs() {
    let world = World::new(Policy::default(), |run, _| async move {
        Ok(answer(if run == 1 { 500 } else { 201 }, &format!("run {run}")))
    });
    let early = world.send(prefer(post("k", "{}"))).await;
    assert_eq!(early.status, 202);
    world.layer.drained().await;
    let location = early.header("location").unwrap().to_owned();
    let ask = || {
        let mut request = post("k", "");
        *request.method_mut() = http::Method::GET;
        *request.uri_mut() = location.parse().unwrap();
        request
    };
    let told = world.send(ask()).await;
    assert_eq!((told.status.as_u16(), &told.json()["state"]), (200, &"released".into()));
    assert_eq!(told.json()["status"], 500);
    assert!(told.json().get("outcome").is_none(), "a server error is not kept");
    let retry = world.send(post("k", "other body")).await;
    assert_eq!((retry.summary(), retry.is_replay()), ("201 run 2".to_owned(), false));
    assert_eq!(world.send(ask()).await.json()["state"], "completed");
}

/// A note is no outcome: what a policy does to outcomes that are past their time does not shorten it.
#[tokio::test(start_paused = true)]
async fn whoever_polls_learns_of_a_released_attempt_for_an_hour_also_without_slack() {
    let policy = Policy::default().slack(Duration::ZERO);
    let world = World::new(policy, |_, _| async { Ok(answer(500, "failed")) });
    let early = world.send(prefer(post("k", "{}"))).await;
    assert_eq!(early.status, 202);
    world.layer.drained().await;
    advance(Duration::from_mins(59)).await;
    world.store.memory.reap(10).await.unwrap();
    let mut ask = post("k", "");
    *ask.method_mut() = http::Method::GET;
    *ask.uri_mut() = early.header("location").unwrap().parse().unwrap();
    let told = world.send(ask).await;
    assert_eq!((told.status.as_u16(), &told.json()["state"]), (200, &"released".into()));
}

/// An operator frees the key under a live owner, whose outcome then comes too late.
#[tokio::test(start_paused = true)]
async fn whoever_polls_learns_that_an_operator_freed_the_key() {
    let door = Door::new();
    let world = world(&door, Policy::default());
    let early = world.send(prefer(post("k", "{}"))).await;
    assert_eq!(early.status, 202);
    door.entered().await;
    settle(&world, Settlement::NotHappened).await;
    let ask = || {
        let mut request = post("k", "");
        *request.method_mut() = http::Method::GET;
        *request.uri_mut() = early.header("location").unwrap().parse().unwrap();
        request
    };
    let told = world.send(ask()).await;
    assert_eq!((told.status.as_u16(), &told.json()["state"]), (200, &"released".into()));
    door.open();
    world.layer.drained().await;
    assert_eq!(world.send(ask()).await.json()["state"], "released", "the owner was too late");
}

/// The note may be older than what was acknowledged since.
#[tokio::test(start_paused = true)]
async fn while_history_is_missing_a_key_with_a_note_is_as_unknown_as_one_without() {
    let world = World::new(Policy::default(), |run, _| async move {
        Ok(answer(if run == 1 { 500 } else { 201 }, &format!("run {run}")))
    });
    assert_eq!(world.send(prefer(post("k", "{}"))).await.status, 202);
    world.layer.drained().await;
    world.store.fail_as("check_history", StoreErrorKind::HistoryLost);
    assert_eq!(world.send(post("k", "{}")).await.json()["code"], "outcome-unknown");
    assert_eq!(world.runs(), 1);
    world.store.recover();
    assert!(freed_after(&world, "k").await.is_some(), "what did not run is withdrawn");
    assert_eq!(world.send(post("k", "{}")).await.summary(), "201 run 2");
}

/// Keys that a parser of addresses would take for a way to somewhere else.
#[tokio::test(start_paused = true)]
async fn whoever_follows_the_location_finds_the_key_whatever_it_is() {
    let world = World::new(Policy::default(), |_, _| async { Ok(answer(201, "made")) });
    let api = Url::parse("https://api.example/shop/payments").unwrap();
    for key in [".", "..", "%2e%2e", "a/../b", "..;a", "a\\..", "...", "a?b#c", "+", "&key=x"] {
        let quoted = Key::new(key).unwrap().to_header_value();
        let mut named = post("k", "{}");
        named.headers_mut().insert("idempotency-key", quoted);
        let early = world.send(prefer(named)).await;
        assert_eq!(early.status, 202, "{key}");
        world.layer.drained().await;
        let location = early.header("location").unwrap();
        assert_eq!(early.json()["location"], location);
        // As a client resolves it, and with a wait.
        for wait in [None, Some("1s")] {
            let mut url = api.join(location).unwrap();
            if let Some(wait) = wait {
                url.query_pairs_mut().append_pair("wait", wait);
            }
            let mut ask = post("k", "");
            *ask.method_mut() = http::Method::GET;
            *ask.uri_mut() = url.as_str().parse().unwrap();
            let told = world.send(ask).await;
            assert_eq!(told.status, 200, "{key}: {url}");
            assert_eq!(told.json()["state"], "completed", "{key}: {url}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_is_not_accepted_early_where_the_first_was_not() {
    let door = Door::new();
    let world = world(&door, Policy::default());
    let first = world.send_aside(post("k", "{}"));
    door.entered().await;
    assert_eq!(world.send(prefer(post("k", "{}"))).await.summary(), "409 in-progress");
    door.open();
    assert_eq!(first.await.unwrap().summary(), "201 run 1");
}

#[tokio::test(start_paused = true)]
async fn a_failed_end_is_told_also_if_it_could_not_be_written_at_once() {
    let world = World::new(Policy::default(), |_, _| async { Ok(answer(503, "not now")) });
    world.store.fail("swap");
    assert_eq!(world.send(prefer(post("k", "{}"))).await.status, 202);
    world.layer.drained().await;
    world.store.recover();
    let released = |found: Option<firstwrite_core::Found>| {
        found.is_some_and(|found| found.record.state.kind() == StateKind::Completed)
    };
    // A minute is more than the pauses between two tries.
    for _ in 0..1200 {
        if released(world.store.memory.get(id("k")).await.unwrap()) {
            return;
        }
        tokio::time::advance(Duration::from_millis(50)).await;
        tokio::task::yield_now().await;
    }
    panic!("nobody is told that the attempt failed");
}
