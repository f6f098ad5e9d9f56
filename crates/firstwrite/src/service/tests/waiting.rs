//! The waiting policy: a duplicate waits for the first answer, for a while.

use std::time::Duration;

use firstwrite_core::{OnConflict, Policy};

use super::harness::{Door, World, advance_slowly, answer, post};

fn patient() -> Policy {
    Policy::default().on_conflict(OnConflict::Wait(Duration::from_secs(5)))
}

/// The first run answers with `status`, later ones with 201.
fn world(door: &Door, first_status: u16) -> World {
    let door = door.clone();
    World::new(patient(), move |run, _| {
        let door = door.clone();
        async move {
            door.pass().await;
            Ok(answer(if run == 1 { first_status } else { 201 }, &format!("run {run}")))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_get_the_first_answer_without_the_store() {
    let door = Door::new();
    let world = world(&door, 201);
    let first = world.send_aside(post("k", "{}"));
    door.entered().await;
    let waiting: Vec<_> = (0..100).map(|_| world.send_aside(post("k", "{}"))).collect();
    tokio::task::yield_now().await;
    door.open();
    assert_eq!(first.await.unwrap().summary(), "201 run 1");
    for waiter in waiting {
        let answer = waiter.await.unwrap();
        assert_eq!(answer.summary(), "201 run 1");
        assert!(answer.is_replay());
    }
    assert_eq!((world.runs(), world.store.calls()), (1, 2), "one reservation, one completion");
}

#[tokio::test(start_paused = true)]
async fn patience_ends_with_a_conflict() {
    let door = Door::new();
    let world = world(&door, 201);
    let first = world.send_aside(post("k", "{}"));
    door.entered().await;
    let began = tokio::time::Instant::now();
    let conflict = world.send(post("k", "{}")).await;
    assert_eq!(conflict.summary(), "409 in-progress");
    assert_eq!(began.elapsed(), Duration::from_secs(5));
    door.open();
    assert_eq!(first.await.unwrap().summary(), "201 run 1");
}

#[tokio::test(start_paused = true)]
async fn when_the_first_is_not_kept_those_who_wait_get_its_answer_and_a_retry_runs() {
    let door = Door::new();
    let world = world(&door, 503);
    let first = world.send_aside(post("k", "{}"));
    door.entered().await;
    let waiting: Vec<_> = (0..10).map(|_| world.send_aside(post("k", "{}"))).collect();
    tokio::task::yield_now().await;
    door.open();
    assert_eq!(first.await.unwrap().summary(), "503 run 1");
    for waiter in waiting {
        assert_eq!(waiter.await.unwrap().summary(), "503 run 1");
    }
    door.open();
    assert_eq!(world.send(post("k", "{}")).await.summary(), "201 run 2");
    assert_eq!(world.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_different_request_does_not_wait() {
    let door = Door::new();
    let world = world(&door, 201);
    let first = world.send_aside(post("k", "{}"));
    door.entered().await;
    let began = tokio::time::Instant::now();
    assert_eq!(world.send(post("k", "other")).await.summary(), "422 key-reused");
    assert_eq!(began.elapsed(), Duration::ZERO);
    door.open();
    first.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn another_processes_attempt_is_waited_for_by_asking_the_store() {
    let door = Door::new();
    let world = world(&door, 201);
    let elsewhere = world.second_process(patient());
    let first = world.send_aside(post("k", "{}"));
    door.entered().await;
    let waiter = elsewhere.send_aside(post("k", "{}"));
    advance_slowly(Duration::from_secs(2)).await;
    door.open();
    assert_eq!(first.await.unwrap().summary(), "201 run 1");
    let answer = waiter.await.unwrap();
    assert_eq!(answer.summary(), "201 run 1");
    assert!(answer.is_replay());
    assert_eq!(world.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn another_processes_attempt_is_not_waited_for_for_ever() {
    let door = Door::new();
    let world = world(&door, 201);
    let elsewhere = world.second_process(patient());
    let first = world.send_aside(post("k", "{}"));
    door.entered().await;
    let began = tokio::time::Instant::now();
    assert_eq!(elsewhere.send(post("k", "{}")).await.summary(), "409 in-progress");
    assert_eq!(began.elapsed(), Duration::from_secs(5));
    door.open();
    first.await.unwrap();
}
