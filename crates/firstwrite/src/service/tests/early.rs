//! `Prefer: respond-async`: an early 202, and the outcome for whoever comes back.

use firstwrite_core::{Policy, RespondAsync};
use http::{HeaderValue, Request};

use super::harness::{Door, RequestBody, World, answer, post};

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
    for attempt in [world.clone(), world.clone(), elsewhere.clone()] {
        let early = attempt.send(prefer(post("a/b", "{}"))).await;
        assert_eq!(early.status, 202);
        assert_eq!(early.header("location"), Some("/.firstwrite/operations/a%2Fb"));
        assert_eq!(early.header("preference-applied"), Some("respond-async"));
        assert!(!early.is_replay());
    }
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
    let policy = Policy { respond_async: RespondAsync::Ignore, ..Policy::default() };
    let world = world(&door, policy);
    door.open();
    assert_eq!(world.send(prefer(post("k", "{}"))).await.summary(), "201 run 1");
}
