//! Ends of an attempt: hung up on, panicked, failed, late, or with the store gone.

use std::time::Duration;

use firstwrite_core::{
    AuditEntry, Effect, Fence, KeptHeaders, OnLostAnswer, Outcome, Policy, StateKind, Store,
    StoreErrorKind, protocol,
};
use firstwrite_testkit::sample;
use http::StatusCode;

use super::harness::{Door, World, advance, advance_slowly, answer, id, post, tenant};
use crate::withdrawal::Withdrawal;

fn behind(door: &Door, policy: Policy) -> World {
    let door = door.clone();
    World::new(policy, move |run, _| {
        let door = door.clone();
        async move {
            door.pass().await;
            Ok(answer(201, &format!("run {run}")))
        }
    })
}

async fn state(world: &World, key: &str) -> Option<StateKind> {
    world.store.memory.get(id(key)).await.unwrap().map(|found| found.record.state.kind())
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_hangs_up_does_not_end_the_attempt() {
    let door = Door::new();
    let world = behind(&door, Policy::default());
    let caller = world.send_aside(post("k", "{}"));
    door.entered().await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    door.open();
    while state(&world, "k").await != Some(StateKind::Completed) {
        tokio::task::yield_now().await;
    }
    let retry = world.send(post("k", "{}")).await;
    assert_eq!(retry.summary(), "201 run 1");
    assert_eq!(world.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_shorter_than_it_said_is_not_kept() {
    let world = World::new(Policy::default(), |_, _| async {
        let mut cut = answer(201, "abc");
        cut.headers_mut().insert("content-length", http::HeaderValue::from_static("10"));
        Ok(cut)
    });
    assert_eq!(world.send(post("k", "{}")).await.summary(), "504 outcome-unknown");
    assert_eq!(state(&world, "k").await, Some(StateKind::Uncertain));
    assert_eq!(world.send(post("k", "{}")).await.summary(), "409 outcome-unknown");
    assert_eq!(world.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_length_where_no_body_can_be_is_no_cut() {
    for status in [204, 205, 304] {
        let world = World::new(Policy::default(), move |_, _| async move {
            let mut bare = answer(status, "");
            bare.headers_mut().insert("content-length", http::HeaderValue::from_static("5"));
            Ok(bare)
        });
        for _ in 0..2 {
            assert_eq!(world.send(post("k", "{}")).await.summary(), format!("{status} "));
        }
        assert_eq!(state(&world, "k").await, Some(StateKind::Completed));
        assert_eq!(world.runs(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn only_an_answer_that_is_in_doubt_says_that_its_outcome_is_unknown() {
    let resend = Policy::default().on_lost_answer(OnLostAnswer::Resend);
    for (policy, status, effect, said) in [
        (Policy::default(), 502, None, Some("unknown")),
        (resend, 502, None, Some("unknown")),
        (Policy::default(), 429, Some(Effect::Happened), Some("unknown")),
        (Policy::default(), 502, Some(Effect::None), None),
        (Policy::default(), 500, None, None),
        (Policy::default(), 201, None, None),
        (Policy::default(), 201, Some(Effect::Happened), None),
    ] {
        let world = World::new(policy, move |_, _| async move {
            let mut answered = answer(status, "said");
            let own = http::HeaderValue::from_static("unknown");
            answered.headers_mut().insert("idempotency-outcome", own);
            if let Some(effect) = effect {
                answered.extensions_mut().insert(effect);
            }
            Ok(answered)
        });
        let answered = world.send(post("k", "{}")).await;
        let found = (answered.header("idempotency-outcome"), answered.summary());
        assert_eq!(found, (said, format!("{status} said")), "{effect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopping_server_can_wait_for_attempts_whose_callers_are_gone() {
    let door = Door::new();
    let world = behind(&door, Policy::default());
    world.layer.drained().await;
    let caller = world.send_aside(post("k", "{}"));
    door.entered().await;
    caller.abort();
    let layer = world.layer.clone();
    let drained = tokio::spawn(async move { layer.drained().await });
    advance(Duration::from_mins(5)).await;
    assert!(!drained.is_finished());
    door.open();
    drained.await.unwrap();
    assert_eq!(state(&world, "k").await, Some(StateKind::Completed));
}

#[tokio::test(start_paused = true)]
async fn after_a_panic_nobody_knows_and_nobody_runs_again() {
    let world = World::new(Policy::default(), |_, _| async { panic!("a bug") });
    let first = world.send(post("k", "{}")).await;
    assert_eq!(first.summary(), "504 outcome-unknown");
    assert_eq!(first.json()["safe_new_key"], false);
    assert_eq!(state(&world, "k").await, Some(StateKind::Uncertain));
    let retry = world.send(post("k", "{}")).await;
    assert_eq!(retry.summary(), "409 outcome-unknown");
    assert!(retry.header("retry-after").is_some());
    assert_eq!(world.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_handler_is_uncertain_or_runs_again_as_the_policy_says() {
    let failing = |run, _| async move {
        if run == 1 { Err("the connection broke".into()) } else { Ok(answer(201, "second")) }
    };
    let world = World::new(Policy::default(), failing);
    assert_eq!(world.send(post("k", "{}")).await.summary(), "504 outcome-unknown");
    assert_eq!(world.send(post("k", "{}")).await.summary(), "409 outcome-unknown");

    let resend = Policy::default().on_lost_answer(OnLostAnswer::Resend);
    let world = World::new(resend, failing);
    let first = world.send(post("k", "{}")).await;
    assert_eq!(first.summary(), "504 outcome-unknown");
    assert!(first.header("retry-after").is_some());
    assert_eq!(world.send(post("k", "{}")).await.summary(), "201 second");
}

#[tokio::test(start_paused = true)]
async fn a_live_owner_keeps_its_key_however_slow_it_is() {
    let door = Door::new();
    let world = behind(&door, Policy::default());
    let elsewhere = world.second_process(Policy::default());
    let first = world.send_aside(post("k", "{}"));
    door.entered().await;
    for _ in 0..20 {
        advance(Policy::LEASE_DEFAULT / 2).await;
        let other = elsewhere.send(post("k", "{}")).await;
        assert_eq!(other.summary(), "409 in-progress");
    }
    door.open();
    assert_eq!(first.await.unwrap().summary(), "201 run 1");
    assert_eq!(world.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn renewing_stops_when_the_key_is_lost() {
    let door = Door::new();
    let world = behind(&door, Policy::default());
    let first = world.send_aside(post("k", "{}"));
    door.entered().await;
    settle(&world, protocol::Settlement::NotHappened).await;
    advance(Policy::LEASE_DEFAULT).await;
    tokio::task::yield_now().await;
    let calls = world.store.calls();
    for _ in 0..10 {
        advance(Policy::LEASE_DEFAULT).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(world.store.calls(), calls, "a lost lease is not asked about again");
    door.open();
    assert_eq!(first.await.unwrap().summary(), "504 outcome-unknown");
}

/// An operator says that it did not happen, and frees the key under a live owner.
pub(super) async fn settle(world: &World, settlement: protocol::Settlement) {
    let audit =
        AuditEntry { actor: "ops".into(), action: "settle".into(), reason: "a test".into() };
    let store = &world.store.memory;
    let seen = store.get(id("k")).await.unwrap().unwrap().record;
    let settled = protocol::settle(store, &seen, settlement, protocol::Force::Yes, &audit);
    assert_eq!(settled.await.unwrap(), protocol::Settled::Done);
}

#[tokio::test(start_paused = true)]
async fn a_late_owner_answers_with_what_stands_and_never_with_its_own() {
    let door = Door::new();
    let world = behind(&door, Policy::default());
    let late = world.send_aside(post("k", "{}"));
    door.entered().await;
    let outcome = Outcome::new(StatusCode::OK, KeptHeaders::default(), "the operator's".into());
    settle(&world, protocol::Settlement::Happened { outcome }).await;
    door.open();
    let late = late.await.unwrap();
    assert_eq!(late.summary(), "200 the operator's");
    assert!(!late.is_replay(), "nobody had it before");
}

#[tokio::test(start_paused = true)]
async fn a_late_owner_gets_its_successors_answer() {
    let resend = Policy::default().on_lost_answer(OnLostAnswer::Resend);
    let door = Door::new();
    let world = behind(&door, resend.clone());
    let elsewhere = world.second_process(resend);
    let late = world.send_aside(post("k", "{}"));
    door.entered().await;
    // The first process is cut off from the store while its lease runs out.
    world.store.fail("swap");
    advance(Policy::LEASE_DEFAULT).await;
    tokio::task::yield_now().await;
    world.store.recover();
    let successor = elsewhere.send_aside(post("k", "{}"));
    door.entered().await;
    door.open();
    door.open();
    // Both handlers leave; whichever completes, the late owner's fence is refused.
    assert_eq!(successor.await.unwrap().summary(), "201 run 2");
    let late = late.await.unwrap();
    assert!(matches!(late.summary().as_str(), "201 run 2" | "409 in-progress"), "{late:?}");
    assert_eq!(world.send(post("k", "{}")).await.summary(), "201 run 2");
}

#[tokio::test(start_paused = true)]
async fn when_the_store_is_down_nothing_runs() {
    let world = World::new(Policy::default(), |_, _| async { Ok(answer(201, "paid")) });
    world.store.fail("insert");
    let refused = world.send(post("k", "{}")).await;
    assert_eq!(refused.summary(), "503 store-unavailable");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(world.runs(), 0);
    world.store.recover();
    assert_eq!(world.send(post("k", "{}")).await.summary(), "201 paid");
}

#[tokio::test(start_paused = true)]
async fn when_the_store_has_lost_history_nothing_runs_and_nobody_claims_to_know() {
    let world = World::new(Policy::default(), |_, _| async { Ok(answer(201, "paid")) });
    world.store.fail_as("insert", StoreErrorKind::HistoryLost);
    let refused = world.send(post("k", "{}")).await;
    assert_eq!(refused.summary(), "409 outcome-unknown");
    assert_eq!(refused.json()["safe_new_key"], false);
    assert_eq!(world.runs(), 0);
    world.store.recover();
    assert_eq!(world.send(post("k", "{}")).await.summary(), "201 paid");
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_cannot_be_written_is_tried_again_while_the_lease_holds() {
    let world = World::new(Policy::default(), |_, _| async { Ok(answer(201, "paid")) });
    world.store.fail("swap");
    let first = world.send_aside(post("k", "{}"));
    while world.store.calls() < 3 {
        advance(Duration::from_millis(100)).await;
        tokio::task::yield_now().await;
    }
    world.store.recover();
    assert_eq!(first.await.unwrap().summary(), "201 paid");
    assert_eq!(world.send(post("k", "{}")).await.summary(), "201 paid");
    assert_eq!(world.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_was_never_written_is_never_answered_with() {
    let world = World::new(Policy::default(), |_, _| async { Ok(answer(201, "paid")) });
    world.store.fail("swap");
    let first = world.send(post("k", "{}")).await;
    assert_eq!(first.summary(), "504 outcome-unknown");
    // Another process knows nothing of it.
    let elsewhere = world.second_process(Policy::default());
    advance(Policy::LEASE_DEFAULT).await;
    assert_eq!(elsewhere.send(post("k", "{}")).await.summary(), "409 outcome-unknown");
    assert_eq!(world.runs(), 1);
}

/// Lets time pass until no attempt stands under the key; none if one still does when the lease would end.
pub(super) async fn freed_after(world: &World, key: &str) -> Option<Duration> {
    let mut waited = Duration::ZERO;
    let stands = |kind| matches!(kind, Some(StateKind::Reserved | StateKind::Uncertain));
    while stands(state(world, key).await) {
        if waited >= Policy::LEASE_DEFAULT {
            return None;
        }
        let step = Duration::from_millis(10);
        advance(step).await;
        tokio::task::yield_now().await;
        waited += step;
    }
    Some(waited)
}

#[tokio::test(start_paused = true)]
async fn a_key_that_could_not_be_freed_is_freed_when_the_store_is_back() {
    let world = World::new(Policy::default(), |run, _| async move {
        Ok(answer(if run == 1 { 503 } else { 201 }, &format!("run {run}")))
    });
    world.store.fail("swap");
    // The answer does not wait for it.
    assert_eq!(world.send(post("k", "{}")).await.summary(), "503 run 1");
    assert_eq!(world.send(post("k", "{}")).await.summary(), "409 in-progress");
    world.store.recover();
    assert!(freed_after(&world, "k").await.unwrap() < Duration::from_secs(2));
    assert_eq!(world.send(post("k", "{}")).await.summary(), "201 run 2");
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_nobody_acknowledged_is_withdrawn() {
    let world =
        World::new(
            Policy::default(),
            |run, _| async move { Ok(answer(201, &format!("run {run}"))) },
        );
    // It is written, and neither the first word of that arrives nor the second.
    world.store.lose_acknowledgement("insert");
    world.store.lose_acknowledgement("insert");
    assert_eq!(world.send(post("k", "{}")).await.summary(), "503 store-unavailable");
    assert_eq!((state(&world, "k").await, world.runs()), (Some(StateKind::Reserved), 0));
    assert!(freed_after(&world, "k").await.unwrap() < Duration::from_secs(2));
    assert_eq!(world.send(post("k", "{}")).await.summary(), "201 run 1");
}

/// A service that stood still for longer than the lease carries out what it was sent before, in any order.
#[tokio::test(start_paused = true)]
async fn a_reservation_that_arrives_after_the_store_is_back_is_withdrawn() {
    let world = World::new(Policy::default(), |_, _| async { Ok(answer(201, "never")) });
    let lease = Duration::from_secs(2);
    let request = sample::request(&tenant("acme"), &sample::key("k"), 1);
    let policy = Policy::default().lease(lease);
    let draft = sample::reserved(&request, &policy, Fence::first(1));
    let withdrawal = Withdrawal::unbegun(draft.id, vec![draft.fence], &policy);
    world.store.fail("swap");
    let store = world.store.clone();
    let withdrawn = tokio::spawn(async move { withdrawal.run(&*store, lease).await });
    advance_slowly(lease * 4).await;
    world.store.recover();
    advance_slowly(lease / 2).await;
    world.store.memory.insert(&draft).await.unwrap();
    advance_slowly(lease * 2).await;
    assert_eq!(state(&world, "k").await, None);
    assert!(withdrawn.is_finished(), "it has been looked for long enough");
}

/// Both writes of a reservation are given up and arrive, the second behind the withdrawal of the first.
#[tokio::test(start_paused = true)]
async fn a_reservation_that_arrives_twice_is_withdrawn_twice() {
    let world =
        World::new(
            Policy::default(),
            |run, _| async move { Ok(answer(201, &format!("run {run}"))) },
        );
    world.store.lose_inserts(2);
    assert_eq!(world.send(post("k", "{}")).await.summary(), "503 store-unavailable");
    for _ in 0..2 {
        world.store.arrive().await;
        assert!(freed_after(&world, "k").await.is_some(), "nothing ran under it");
    }
    assert_eq!(world.send(post("k", "{}")).await.summary(), "201 run 1");
}

/// The first of two writes of a reservation arrives when the second was used and its key freed.
#[tokio::test(start_paused = true)]
async fn a_reservation_that_arrives_after_its_attempt_was_released_is_withdrawn() {
    let world = World::new(Policy::default(), |run, _| async move {
        Ok(answer(if run == 1 { 500 } else { 201 }, &format!("run {run}")))
    });
    world.store.lose_inserts(1);
    assert_eq!(world.send(post("k", "{}")).await.summary(), "500 run 1");
    assert_eq!(state(&world, "k").await, None);
    advance_slowly(Duration::from_secs(3)).await;
    world.store.arrive().await;
    assert!(freed_after(&world, "k").await.is_some(), "nobody runs under it");
    assert_eq!(world.send(post("k", "{}")).await.summary(), "201 run 2");
}

/// The withdrawal of a write that may still arrive must not end the doubt about the attempt that ran.
#[tokio::test(start_paused = true)]
async fn an_uncertain_attempt_whose_first_write_was_lost_stays_uncertain() {
    let world = World::new(Policy::default(), |_, _| async { Err("lost".into()) });
    world.store.lose_inserts(1);
    assert_eq!(world.send(post("k", "{}")).await.summary(), "504 outcome-unknown");
    world.store.arrive().await;
    advance_slowly(Policy::LEASE_DEFAULT * 3).await;
    assert_eq!(state(&world, "k").await, Some(StateKind::Uncertain));
    assert_eq!(world.send(post("k", "{}")).await.summary(), "409 outcome-unknown");
    assert_eq!(world.runs(), 1);
}

/// The time for which a store answers begins with its first answer, however long ago it failed last.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_just_back_is_asked_for_a_whole_lease() {
    // The pauses are drawn; these are the same in every run.
    fastrand::seed(1);
    let world = World::new(Policy::default(), |_, _| async { Ok(answer(201, "never")) });
    let lease = Duration::from_secs(2);
    let request = sample::request(&tenant("acme"), &sample::key("k"), 1);
    let policy = Policy::default().lease(lease);
    let draft = sample::reserved(&request, &policy, Fence::first(1));
    let withdrawal = Withdrawal::unbegun(draft.id, vec![draft.fence], &policy);
    world.store.fail("swap");
    let store = world.store.clone();
    let withdrawn = tokio::spawn(async move { withdrawal.run(&*store, lease).await });
    // Until the pauses have grown to a second, and to a moment at which the store has just failed.
    advance_slowly(lease * 2).await;
    let failures = world.store.calls();
    while world.store.calls() == failures {
        advance(Duration::from_millis(1)).await;
        tokio::task::yield_now().await;
    }
    // The store is back a pause later, and answers once: nothing has arrived yet.
    advance(Duration::from_secs(1)).await;
    world.store.recover();
    // Just before the end of a lease behind that answer, and more than one behind the failure, the write arrives.
    advance_slowly(lease * 99 / 100).await;
    assert!(!withdrawn.is_finished(), "the store has not answered for as long as a lease");
    world.store.memory.insert(&draft).await.unwrap();
    advance_slowly(lease).await;
    assert_eq!(state(&world, "k").await, None);
    assert!(withdrawn.is_finished());
}

#[tokio::test(start_paused = true)]
async fn the_handler_knows_its_attempt() {
    let world = World::new(Policy::default(), |_, request| async move {
        let attempt = request.extensions().get::<crate::Attempt>().unwrap();
        let fence = attempt.fence().unwrap();
        let said = format!(
            "{} {} {} {}",
            attempt.tenant(),
            attempt.key().as_str(),
            attempt.derived_key("card"),
            fence.count()
        );
        Ok(answer(200, &said))
    });
    assert_eq!(world.send(post("k-1", "{}")).await.summary(), "200 acme k-1 k-1:card 1");
}

#[tokio::test(start_paused = true)]
async fn callers_who_hang_up_cannot_pile_up_attempts() {
    let door = Door::new();
    let world = World::with(
        {
            let door = door.clone();
            move |run, _| {
                let door = door.clone();
                async move {
                    door.pass().await;
                    Ok(answer(201, &format!("run {run}")))
                }
            }
        },
        |layer| layer.attempts_max(2),
    );
    for key in ["a", "b"] {
        let caller = world.send_aside(post(key, "{}"));
        door.entered().await;
        caller.abort();
    }
    let refused = world.send(post("c", "{}")).await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (503, Some("1")));
    let duplicate = world.send(post("a", "{}")).await;
    assert_eq!(duplicate.summary(), "409 in-progress", "what is under way is known as ever");
    assert_eq!(world.runs(), 2);
    door.open();
    door.open();
    world.layer.drained().await;
    door.open();
    assert_eq!(world.send(post("c", "{}")).await.summary(), "201 run 3");
}
