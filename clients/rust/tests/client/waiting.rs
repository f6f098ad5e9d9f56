//! Waiting: as long as the server said, never longer than the caller wants, whatever the clock does.

use std::time::Duration;

use firstwrite_client::{EndKind, State};

use crate::world::{Act, World, answer, open, problem, seconds};

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_before_the_time_that_the_server_named() {
    let date = crate::world::NOON.after(seconds(100)).to_string();
    let world = World::new([
        answer(503, &[("retry-after", "7")]),
        answer(429, &[("retry-after", &date)]),
        problem(503, "overloaded", true),
        answer(201, &[]),
    ]);
    let end = world.open("cart").await.send_for(seconds(999)).await.unwrap();
    assert_eq!(end.kind(), EndKind::Done);
    let times = world.server.times();
    assert!((7000..7500).contains(&times[1]), "{times:?}");
    assert!((100_000..101_000).contains(&times[2]), "{times:?}");
    assert!((times[2] + 1000..times[2] + 3000).contains(&times[3]), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn the_caller_gets_pending_when_its_time_is_up_and_the_next_call_keeps_the_servers_time() {
    let world = World::new([answer(503, &[("retry-after", "60")]), answer(201, &[])]);
    let pay = world.open("cart").await;
    let error = pay.send().await.unwrap_err();
    let pending = error.pending().unwrap();
    assert_eq!((pending.attempts, pending.is_in_doubt), (1, true));
    assert!(error.to_string().contains("\"cart\" has no end yet after 1 attempts"), "{error}");
    assert_eq!(tokio::time::Instant::now().elapsed(), Duration::ZERO);
    // Another process, at once: it waits for what is left.
    let again = world.open("cart").await;
    assert!(again.send_for(seconds(5)).await.is_err());
    assert_eq!(again.send_for(seconds(60)).await.unwrap().kind(), EndKind::Done);
    let times = world.server.times();
    assert!(times.len() == 2 && (60_000..60_500).contains(&times[1]), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn send_blocks_for_thirty_seconds_and_no_longer_whatever_the_server_does() {
    let hangs = || Act::After(seconds(9999), Box::new(Act::Lost));
    let world = World::new([hangs(), hangs(), answer(201, &[])]);
    let pay = world.open("cart").await;
    let started = tokio::time::Instant::now();
    pay.send().await.unwrap_err();
    assert_eq!(started.elapsed(), seconds(30));
    // Without an end of its own, an attempt is cut after half a minute.
    let started = tokio::time::Instant::now();
    let end = pay.send_for(seconds(999)).await.unwrap();
    assert_eq!(end.kind(), EndKind::Done);
    assert!((seconds(30)..seconds(32)).contains(&started.elapsed()), "{:?}", started.elapsed());
    assert_eq!(world.server.seen().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_caller_without_time_sends_nothing() {
    let world = World::new([]);
    let pay = world.open("cart").await;
    pay.send_for(Duration::ZERO).await.unwrap_err();
    assert_eq!(pay.snapshot().await.unwrap().state, State::Open);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_steps_back_makes_nobody_wait_for_hours() {
    let world = World::new([answer(503, &[("retry-after", "60")]), answer(201, &[])]);
    let pay = world.open("cart").await;
    pay.send_for(seconds(1)).await.unwrap_err();
    world.clock.step(-48);
    let started = tokio::time::Instant::now();
    assert_eq!(
        world.open("cart").await.send_for(seconds(999)).await.unwrap().kind(),
        EndKind::Done
    );
    // The whole wait again at most: nobody knows how much of it has passed.
    let waited = started.elapsed();
    assert!((seconds(60)..seconds(61)).contains(&waited), "{waited:?}");
    assert_eq!(pay.key(), world.open("cart").await.key());
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_steps_back_behind_the_first_attempt_ends_nothing() {
    let world = World::new([Act::Lost, answer(201, &[])]);
    let pay = world.open("cart").await;
    pay.send_for(Duration::from_nanos(1)).await.unwrap_err();
    world.clock.step(-1000);
    assert_eq!(pay.send().await.unwrap().kind(), EndKind::Done);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_steps_forward_ends_what_may_be_over_and_sends_nothing() {
    for (hours, kind) in [(2, EndKind::Unknown), (24, EndKind::Expired)] {
        let world = World::new([Act::Lost]);
        let pay = world.open("cart").await;
        pay.send_for(Duration::from_nanos(1)).await.unwrap_err();
        world.clock.step(hours);
        assert_eq!(pay.send().await.unwrap().kind(), kind);
        assert_eq!(world.server.seen().len(), 1);
    }
    // Before the first attempt the clock says nothing about the intent.
    let world = World::new([answer(201, &[])]);
    let pay = world.open("cart").await;
    world.clock.step(99_999);
    assert_eq!(pay.send().await.unwrap().kind(), EndKind::Done);
}

#[tokio::test(start_paused = true)]
async fn a_fleet_of_intents_in_one_client_shares_a_budget_of_retries() {
    let world = World::new((0..600).map(|_| Act::NotSent));
    let client = world.client();
    let sends = (0..100).map(|n| {
        let client = client.clone();
        async move {
            open(&client, &format!("cart{n}")).await.send_for(seconds(60)).await.unwrap_err();
        }
    });
    futures_util::future::join_all(sends).await;
    // A hundred first attempts, twenty retries at once, and one in two seconds since.
    let count = world.server.seen().len();
    assert!((140..=151).contains(&count), "{count} requests");
}
