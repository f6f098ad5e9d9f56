//! Waiting: as long as the server said, never longer than the caller wants, whatever the clock does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use firstwrite_client::{EndKind, State};
use http::HeaderMap;

use crate::world::{Act, World, always, answer, open, problem, seconds};

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
async fn a_clock_that_steps_back_makes_no_wait_of_hours() {
    let world = World::new([answer(429, &[("retry-after", "60")]), answer(201, &[])]);
    let pay = world.open("cart").await;
    pay.send_for(seconds(1)).await.unwrap_err();
    world.clock.step(-48);
    let started = tokio::time::Instant::now();
    assert_eq!(
        world.open("cart").await.send_for(seconds(999)).await.unwrap().kind(),
        EndKind::Done
    );
    // The whole wait again at most: it is not known how much of it has passed.
    let waited = started.elapsed();
    assert!((seconds(60)..seconds(61)).contains(&waited), "{waited:?}");
    assert_eq!(pay.key(), world.open("cart").await.key());
}

#[tokio::test(start_paused = true)]
async fn a_step_of_the_clock_neither_shortens_nor_lengthens_a_wait_of_this_process() {
    for hours in [-48, -1, 1, 20] {
        let world = World::new([answer(429, &[("retry-after", "60")]), answer(201, &[])]);
        let client = world.builder().give_up_after(Duration::from_hours(99)).build();
        let pay = open(&client, "cart").await;
        pay.send_for(seconds(20)).await.unwrap_err();
        world.clock.step(hours);
        let left = pay.snapshot().await.unwrap().wait_left;
        assert!((seconds(40)..seconds(41)).contains(&left), "{hours}: {left:?}");
        assert!(pay.send_for(seconds(39)).await.unwrap_err().pending().is_some());
        world.clock.step(-hours);
        assert_eq!(pay.send_for(seconds(999)).await.unwrap().kind(), EndKind::Done);
        let times = world.server.times();
        assert!((60_000..60_501).contains(&times[1]), "{hours}: {times:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn dates_of_the_server_are_read_by_its_own_clock() {
    // The client's clock is wrong by so many hours from the start.
    for hours in [-9, 9, 99] {
        let at = |seconds: u64| crate::world::NOON.after(Duration::from_secs(seconds)).to_string();
        let (date, retry, expires) = (at(0), at(40), at(400));
        let told = [
            ("date", date.as_str()),
            ("retry-after", retry.as_str()),
            ("idempotency-expires", expires.as_str()),
            ("idempotency-interim", "true"),
        ];
        let world =
            World::new([answer(202, &told), Act::After(seconds(9999), Box::new(Act::Lost))]);
        world.clock.step(hours);
        let client = world.builder().status(firstwrite_client::StatusUse::Never);
        let client = client.attempt_timeout(Duration::from_hours(1)).build();
        let pay = open(&client, "cart").await;
        let end = pay.send_for(Duration::from_hours(1)).await.unwrap();
        assert_eq!(end.kind(), EndKind::Expired, "{hours}");
        let times = world.server.times();
        assert!((40_000..40_501).contains(&times[1]), "{hours}: {times:?}");
        // The key lives for 400 s, and nothing is under way in its last minute.
        assert_eq!(world.clock.elapsed_seconds(), 340, "{hours}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_steps_back_while_nothing_is_in_doubt_ends_nothing() {
    let world = World::new([answer(429, &[]), answer(201, &[])]);
    let pay = world.open("cart").await;
    pay.send_for(Duration::from_nanos(1)).await.unwrap_err();
    world.clock.step(-1000);
    assert_eq!(pay.send().await.unwrap().kind(), EndKind::Done);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_steps_back_while_it_is_in_doubt_sends_nothing_more() {
    // Behind the first attempt, and behind a later one.
    for (acts, pass, step) in [(1, 0, -1), (2, 3, -2)] {
        let lost = (0..acts).map(|_| Act::Lost);
        let world = World::new(lost.chain([answer(201, &[])]));
        let builder = world.builder().give_up_after(Duration::from_hours(9));
        let client = builder.retention(Duration::from_hours(24)).build();
        let pay = open(&client, "cart").await;
        pay.send_for(Duration::from_nanos(1)).await.unwrap_err();
        if acts > 1 {
            world.clock.pass(Duration::from_hours(pass)).await;
            pay.send_for(Duration::from_nanos(1)).await.unwrap_err();
        }
        world.clock.step(step);
        let end = pay.send().await.unwrap();
        assert_eq!((end.kind(), end.is_new_key_safe()), (EndKind::Unknown, false));
        assert_eq!(world.server.seen().len(), acts);
        // Once the clock is right, it is resumed under the same key.
        world.clock.step(-step);
        assert_eq!(pay.resume().await.unwrap().kind(), EndKind::Done);
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_does_not_last_into_the_last_minute_of_the_key() {
    let expires = crate::world::NOON.after(Duration::from_secs(75)).to_string();
    let interim = [("idempotency-interim", "true"), ("idempotency-expires", expires.as_str())];
    let hangs = Act::After(seconds(9999), Box::new(Act::Lost));
    let world = World::new([answer(202, &interim), hangs]);
    let client = world.builder().status(firstwrite_client::StatusUse::Never).build();
    let started = tokio::time::Instant::now();
    let end = open(&client, "cart").await.send_for(Duration::MAX).await.unwrap();
    assert_eq!(end.kind(), EndKind::Expired);
    assert_eq!(world.server.seen().len(), 2);
    assert!((seconds(15)..seconds(16)).contains(&started.elapsed()), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_token_of_the_budget_that_was_not_used_is_given_back() {
    let world = World::new((0..60).map(|_| Act::NotSent));
    let fails = Arc::new(AtomicBool::new(false));
    let failing = Arc::clone(&fails);
    let credentials = move |_| {
        let fails = failing.load(Ordering::Relaxed);
        async move { if fails { Err("the token service is down".into()) } else { Ok(HeaderMap::new()) } }
    };
    let client = world.builder().credentials(credentials).build();
    let pay = open(&client, "cart").await;
    let moment = Duration::from_nanos(1);
    pay.send_for(moment).await.unwrap_err();
    fails.store(true, Ordering::Relaxed);
    world.clock.pass(seconds(60)).await;
    for _ in 0..30 {
        let error = pay.send_for(seconds(9)).await.unwrap_err();
        assert!(matches!(error, firstwrite_client::Error::Credentials(_)), "{error}");
    }
    // Thirty retries that were not sent cost nothing: the next one goes at once.
    fails.store(false, Ordering::Relaxed);
    pay.send_for(moment).await.unwrap_err();
    assert_eq!(world.server.seen().len(), 2);
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

#[tokio::test(start_paused = true)]
async fn an_end_that_is_done_gives_a_token_back_and_an_interim_answer_does_not() {
    let interim = || answer(202, &[("idempotency-interim", "true")]);
    let world = World::new((0..600).map(|_| interim()));
    let client = world.builder().status(firstwrite_client::StatusUse::Never).build();
    let sends = (0..100).map(|n| {
        let client = client.clone();
        async move {
            open(&client, &format!("cart{n}")).await.send_for(seconds(60)).await.unwrap_err();
        }
    });
    futures_util::future::join_all(sends).await;
    let count = world.server.seen().len();
    assert!((140..=151).contains(&count), "{count} requests");

    // Each of these takes one for its retry and gives it back, so none waits for the next.
    let world = World::new((0..50).flat_map(|_| [Act::NotSent, answer(201, &[])]));
    let client = world.builder().randomness(always(0.0)).build();
    for n in 0..50 {
        let end = open(&client, &format!("cart{n}")).await.send().await.unwrap();
        assert_eq!(end.kind(), EndKind::Done);
    }
    assert!(world.clock.elapsed_seconds() < 5, "{} s", world.clock.elapsed_seconds());
}
