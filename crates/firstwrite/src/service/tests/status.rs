//! The status resource.

use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::{AfterRetention, Policy, StoreErrorKind};
use http::{Method, Request};
use http_body_util::Full;

use super::harness::{Door, RequestBody, World, advance_slowly, answer, post, request, tenant};

fn ask(tenant_name: &str, path: &str) -> Request<RequestBody> {
    let uri = format!("/.firstwrite/operations/{path}");
    let request = Request::builder().uri(uri).extension(tenant(tenant_name));
    request.body(Full::default()).unwrap()
}

fn world(door: &Door) -> World {
    world_with(door, Policy::default())
}

fn world_with(door: &Door, policy: Policy) -> World {
    let door = door.clone();
    World::new(policy, move |_, _| {
        let door = door.clone();
        async move {
            door.pass().await;
            Ok(answer(201, "{\"id\":12345678901234567890123}"))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_tenant_sees_its_own_record_and_nobody_elses() {
    let door = Door::new();
    let world = world(&door);
    let first = world.send_aside(post("a/b", "{}"));
    door.entered().await;
    let running = world.send(ask("acme", "a%2Fb")).await;
    assert_eq!(running.status, 200);
    assert_eq!(running.header("retry-after"), Some("1"));
    assert_eq!(running.header("cache-control"), Some("no-store"));
    assert_eq!(running.json()["state"], "reserved");
    assert_eq!(running.json()["operation"], "POST /payments");
    assert_eq!(running.json()["created_at"], "2023-11-14T22:13:20Z");
    door.open();
    first.await.unwrap();
    let ended = world.send(ask("acme", "a/b")).await.json();
    assert_eq!(ended["state"], "completed");
    assert_eq!(ended["expires_at"], "2023-11-15T22:13:20Z");
    assert_eq!(ended["outcome"]["status"], 201);
    assert_eq!(ended["outcome"]["body"], "{\"id\":12345678901234567890123}");
    for (who, key) in [("globex", "a%2Fb"), ("acme", "unknown"), ("acme", ""), ("acme", "%00")] {
        let unknown = world.send(ask(who, key)).await;
        assert_eq!(unknown.status, 404, "{who} {key}");
        assert_eq!(unknown.header("content-type"), Some("application/problem+json"));
    }
    assert_eq!(world.runs(), 1, "asking runs nothing");
}

#[tokio::test(start_paused = true)]
async fn it_is_read_only_and_for_known_callers() {
    let world = world(&Door::new());
    let mut stranger = ask("acme", "k");
    stranger.extensions_mut().clear();
    assert_eq!(world.send(stranger).await.summary(), "401 tenant-unknown");
    assert_eq!(world.store.calls(), 0);
    let mut write = request("acme", "k", "{}");
    *write.uri_mut() = "/.firstwrite/operations/k".parse().unwrap();
    let refused = world.send(write).await;
    assert_eq!((refused.status.as_u16(), refused.header("allow")), (405, Some("GET, HEAD")));
    let mut large = request("acme", "k", &"x".repeat(100_000));
    *large.uri_mut() = "/.firstwrite/operations/k".parse().unwrap();
    let refused = world.send(large).await;
    assert_eq!(refused.header("connection"), Some("close"), "its body was not read");
    let mut head = ask("acme", "k");
    *head.method_mut() = Method::HEAD;
    let head = world.send(head).await;
    assert_eq!((head.status.as_u16(), head.body), (404, Bytes::new()));
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_ends_with_the_attempt_or_with_its_time() {
    let door = Door::new();
    let world = world(&door);
    let elsewhere = world.second_process(Policy::default());
    let first = world.send_aside(post("k", "{}"));
    door.entered().await;
    let began = tokio::time::Instant::now();
    let early = world.send(ask("acme", "k?wait=20s")).await;
    assert_eq!(early.json()["state"], "reserved");
    assert_eq!(began.elapsed(), Duration::from_secs(20));

    let here = world.send_aside(ask("acme", "k?wait=60s"));
    let there = elsewhere.send_aside(ask("acme", "k?wait=60s"));
    advance_slowly(Duration::from_millis(2500)).await;
    let calls = world.store.calls();
    let ended_at = tokio::time::Instant::now();
    door.open();
    assert_eq!(here.await.unwrap().json()["state"], "completed");
    assert_eq!(ended_at.elapsed(), Duration::ZERO, "this process is told at once");
    assert_eq!(there.await.unwrap().json()["state"], "completed");
    assert!(ended_at.elapsed() <= Duration::from_secs(1), "another one asks every second");
    assert!(world.store.calls() - calls <= 4);
    first.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_of_an_unknown_key_does_not_wait() {
    let world = world(&Door::new());
    let began = tokio::time::Instant::now();
    assert_eq!(world.send(ask("acme", "k?wait=20s")).await.status, 404);
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn past_retention_nothing_is_known() {
    let door = Door::new();
    let world = world(&door);
    door.open();
    world.send(post("k", "{}")).await;
    super::harness::advance(Policy::RETENTION_DEFAULT).await;
    assert_eq!(world.send(ask("acme", "k")).await.status, 404);
}

/// As a request under it is answered: it is neither unused nor free.
#[tokio::test(start_paused = true)]
async fn a_spent_key_is_told_as_spent() {
    let policy = Policy::default()
        .retention(Duration::from_secs(100))
        .after_retention(AfterRetention::Refuse(Duration::from_secs(100)));
    let door = Door::new();
    let world = world_with(&door, policy);
    door.open();
    world.send(post("k", "{}")).await;
    super::harness::advance(Duration::from_secs(100)).await;
    assert_eq!(world.send(post("k", "{}")).await.summary(), "410 key-expired");
    assert_eq!(world.send(ask("acme", "k")).await.summary(), "410 key-expired");
    assert_eq!(world.send(ask("globex", "k")).await.status, 404, "to others it is nothing");
}

/// A key that the store does not know may have been used in what it has lost.
#[tokio::test(start_paused = true)]
async fn while_the_store_is_in_doubt_an_unknown_key_is_not_called_unused() {
    let door = Door::new();
    let world = world(&door);
    world.store.fail_as("check_history", StoreErrorKind::HistoryLost);
    let answer = world.send(ask("acme", "k")).await;
    assert_eq!(answer.summary(), "409 outcome-unknown");
    assert_eq!(answer.json()["safe_new_key"], false);
    world.store.recover();
    assert_eq!(world.send(ask("acme", "k")).await.status, 404);
}
