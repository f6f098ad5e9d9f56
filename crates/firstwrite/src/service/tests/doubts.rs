//! Attempts whose effect may have happened: server errors after an effect, late beginnings, lost
//! acknowledgements, and a store that is away for longer than a lease.

use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::{Effect, OnConflict, OnLostAnswer, OnServerError, Policy, StateKind, Store};
use firstwrite_wrappers::{BreakerOptions, BreakerStore};
use tokio::sync::Semaphore;

use super::harness::{Door, World, advance, answer, id, paused_store, post};
use crate::{IdempotencyLayer, PolicyMismatch};

/// The first run answers with `status`, later ones with 201; each is an effect.
fn failing(policy: Policy, status: u16, said: Option<Effect>) -> World {
    World::new(policy, move |run, _| async move {
        let mut answer = answer(if run == 1 { status } else { 201 }, &format!("run {run}"));
        if let Some(said) = said {
            answer.extensions_mut().insert(said);
        }
        Ok(answer)
    })
}

async fn state(world: &World, key: &str) -> Option<StateKind> {
    world.store.memory.get(id(key)).await.unwrap().map(|found| found.record.state.kind())
}

/// Returns the answers to the first request and its retry, and the number of runs of the handler.
async fn twice(world: &World) -> (String, String, usize) {
    let first = world.send(post("k", "{}")).await.summary();
    let retry = world.send(post("k", "{}")).await.summary();
    (first, retry, world.runs())
}

#[tokio::test(start_paused = true)]
async fn an_error_that_speaks_of_a_lost_answer_is_passed_on_and_not_run_again() {
    for status in [502, 504, 408] {
        let world = failing(Policy::default(), status, None);
        let unknown = "409 outcome-unknown".to_owned();
        assert_eq!(twice(&world).await, (format!("{status} run 1"), unknown, 1));
        assert_eq!(state(&world, "k").await, Some(StateKind::Uncertain), "{status}");
        // Where running again is safe, it does.
        let resend = Policy::default().on_lost_answer(OnLostAnswer::Resend);
        let world = failing(resend, status, None);
        let again = "201 run 2".to_owned();
        assert_eq!(twice(&world).await, (format!("{status} run 1"), again, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn other_server_errors_release_unless_the_operation_says_lost() {
    for status in [500, 501, 503, 505] {
        let world = failing(Policy::default(), status, None);
        assert_eq!(twice(&world).await, (format!("{status} run 1"), "201 run 2".to_owned(), 2));
        let lost = Policy::default().on_server_error(OnServerError::Lost);
        let world = failing(lost, status, None);
        let unknown = "409 outcome-unknown".to_owned();
        assert_eq!(twice(&world).await, (format!("{status} run 1"), unknown, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_knows_better_says_so_with_its_answer() {
    for status in [408, 429, 500, 502, 503, 504] {
        let world = failing(Policy::default(), status, Some(Effect::None));
        assert_eq!(twice(&world).await, (format!("{status} run 1"), "201 run 2".to_owned(), 2));
        let world = failing(Policy::default(), status, Some(Effect::Happened));
        let unknown = "409 outcome-unknown".to_owned();
        assert_eq!(twice(&world).await, (format!("{status} run 1"), unknown, 1));
    }
    // An answer that is kept needs no word.
    let world = failing(Policy::default(), 402, Some(Effect::Happened));
    assert_eq!(twice(&world).await, ("402 run 1".to_owned(), "402 run 1".to_owned(), 1));
}

#[tokio::test(start_paused = true)]
async fn those_who_waited_for_a_released_attempt_get_its_answer_and_do_not_run() {
    let wait = OnConflict::Wait(Duration::from_secs(8));
    let door = Door::new();
    let handler = door.clone();
    let policy = Policy::default().on_conflict(wait);
    let world = World::new(policy.clone(), move |run, _| {
        let door = handler.clone();
        async move {
            door.pass().await;
            Ok(answer(500, &format!("run {run}")))
        }
    });
    let elsewhere = world.second_process(policy);
    let first = world.send_aside(post("k", "{}"));
    door.entered().await;
    let here: Vec<_> = (0..12).map(|_| world.send_aside(post("k", "{}"))).collect();
    let there: Vec<_> = (0..3).map(|_| elsewhere.send_aside(post("k", "{}"))).collect();
    advance(Duration::from_millis(300)).await;
    door.open();
    assert_eq!(first.await.unwrap().summary(), "500 run 1");
    for waiter in here {
        let answer = waiter.await.unwrap();
        assert_eq!(
            (answer.summary(), answer.header("retry-after")),
            ("500 run 1".into(), Some("1"))
        );
        assert!(!answer.is_replay(), "it is not kept");
    }
    for waiter in there {
        assert_eq!(waiter.await.unwrap().summary(), "409 in-progress");
    }
    assert_eq!(world.runs(), 1);
    door.open();
    assert_eq!(world.send(post("k", "{}")).await.summary(), "500 run 2", "a retry runs afresh");
}

#[tokio::test(start_paused = true)]
async fn those_who_waited_for_an_answer_that_is_cut_do_not_run() {
    for (status, told) in [(429, "500 attempt-failed"), (500, "409 outcome-unknown")] {
        let door = Door::new();
        let handler = door.clone();
        let policy = Policy::default().on_conflict(OnConflict::Wait(Duration::from_secs(8)));
        let world = World::new(policy, move |_, _| {
            let door = handler.clone();
            async move {
                door.pass().await;
                let mut cut = answer(status, "half");
                cut.headers_mut().insert("content-length", 9.into());
                Ok(cut)
            }
        });
        let first = world.send_aside(post("k", "{}"));
        door.entered().await;
        let waiters: Vec<_> = (0..3).map(|_| world.send_aside(post("k", "{}"))).collect();
        advance(Duration::from_millis(300)).await;
        door.open();
        assert!(first.await.unwrap().status.is_server_error(), "{status}");
        for waiter in waiters {
            assert_eq!(waiter.await.unwrap().summary(), told, "{status}");
        }
        assert_eq!(world.runs(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_whose_reservation_is_acknowledged_late_does_not_begin() {
    let world = failing(Policy::default(), 201, None);
    let gate = Arc::new(Semaphore::new(0));
    *world.store.gate.lock().unwrap() = Some(Arc::clone(&gate));
    let late = world.send_aside(post("k", "{}"));
    while world.store.calls() == 0 {
        tokio::task::yield_now().await;
    }
    advance(Policy::LEASE_DEFAULT / 2).await;
    *world.store.gate.lock().unwrap() = None;
    gate.add_permits(1);
    assert_eq!(late.await.unwrap().summary(), "503 store-unavailable");
    assert_eq!(world.runs(), 0);
    let mut waited = Duration::ZERO;
    while state(&world, "k").await.is_some() {
        assert!(waited < Duration::from_mins(1), "it is free again");
        waited += Duration::from_millis(10);
        advance(Duration::from_millis(10)).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(world.send(post("k", "{}")).await.summary(), "201 run 1");
}

#[tokio::test(start_paused = true)]
async fn a_take_over_that_nobody_acknowledged_is_withdrawn_too() {
    let resend = Policy::default().on_lost_answer(OnLostAnswer::Resend);
    let door = Door::new();
    let handler = door.clone();
    let world = World::new(resend.clone(), move |run, _| {
        let door = handler.clone();
        async move {
            door.pass().await;
            Ok(answer(201, &format!("run {run}")))
        }
    });
    // The first process dies while it runs, and its lease lapses.
    let died = world.second_process(resend);
    let first = died.send_aside(post("k", "{}"));
    door.entered().await;
    world.store.fail("swap");
    advance(Policy::LEASE_DEFAULT).await;
    world.store.recover();
    first.abort();
    world.store.lose_acknowledgement("swap");
    world.store.lose_acknowledgement("swap");
    assert_eq!(world.send(post("k", "{}")).await.summary(), "503 store-unavailable");
    assert_eq!(world.runs(), 1);
    let fence = world.store.memory.get(id("k")).await.unwrap().unwrap().record.fence;
    assert_eq!(fence.count(), 2, "it was taken over");
    let mut waited = Duration::ZERO;
    // A successor leaves a note: it may have replaced one.
    while state(&world, "k").await != Some(StateKind::Completed) {
        assert!(waited < Duration::from_secs(2), "it is free again");
        advance(Duration::from_millis(10)).await;
        tokio::task::yield_now().await;
        waited += Duration::from_millis(10);
    }
    door.open();
    door.open();
    assert_eq!(world.send(post("k", "{}")).await.summary(), "201 run 2");
}

#[tokio::test(start_paused = true)]
async fn a_living_process_writes_a_known_outcome_down_when_the_store_is_back() {
    let world = failing(Policy::default(), 201, None);
    world.store.fail("swap");
    let first = world.send(post("k", "{}")).await;
    assert_eq!(first.summary(), "504 outcome-unknown");
    // A sweep finds the lease lapsed meanwhile; the owner knows better.
    advance(Policy::LEASE_DEFAULT * 2).await;
    let swept = firstwrite_core::protocol::sweep_once(&world.store.memory, 9).await.unwrap();
    assert_eq!(swept.uncertain, 1);
    assert_eq!(
        world.send(post("k", "{}")).await.summary(),
        "409 in-progress",
        "it is being written"
    );
    world.store.recover();
    while state(&world, "k").await != Some(StateKind::Completed) {
        advance(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
    }
    let retry = world.send(post("k", "{}")).await;
    assert_eq!((retry.summary(), retry.is_replay()), ("201 run 1".to_owned(), true));
    assert_eq!(world.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_is_given_up_in_the_end() {
    let world = failing(Policy::default(), 201, None);
    world.store.fail("swap");
    assert_eq!(world.send(post("k", "{}")).await.summary(), "504 outcome-unknown");
    for _ in 0..4 * 60 {
        advance(Duration::from_secs(30)).await;
        tokio::task::yield_now().await;
    }
    world.layer.drained().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_shorter_than_the_stores_own_time_limit_is_refused() {
    let store = BreakerStore::new(Arc::new(paused_store()), BreakerOptions::default());
    let limit = store.capabilities().answers_within.unwrap();
    let layer = IdempotencyLayer::new(Arc::new(store));
    let lease = |lease| Policy::default().lease(lease);
    assert_eq!(layer.check(&lease(limit)), Ok(()));
    let short = lease(limit.checked_sub(Duration::from_millis(1)).unwrap());
    assert_eq!(layer.check(&short), Err(PolicyMismatch::LeaseTooShort));
    // A store that names no limit takes any.
    let unleased = IdempotencyLayer::new(Arc::new(paused_store()));
    assert_eq!(unleased.check(&short), Ok(()));
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_store_names_the_limit_of_its_steps_also_behind_a_breaker_that_waits_less() {
    use firstwrite_store::{SqliteOptions, SqliteStore, create, open_within};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.db");
    let url = format!("sqlite:{}", path.display());
    create(&url).await.unwrap();
    let checked = |store: Arc<dyn Store>, lease| {
        IdempotencyLayer::new(store).check(&Policy::default().lease(lease))
    };
    let short = Policy::LEASE_MIN;
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path).unwrap());
    assert_eq!(checked(Arc::clone(&store), short), Err(PolicyMismatch::LeaseTooShort));
    assert_eq!(checked(Arc::clone(&store), SqliteOptions::default().busy_for), Ok(()));
    // What the breaker does not wait for any more may still be carried out.
    let mut hasty = BreakerOptions::default();
    hasty.call_timeout = short;
    let store: Arc<dyn Store> = Arc::new(BreakerStore::new(store, hasty));
    assert_eq!(checked(Arc::clone(&store), short), Err(PolicyMismatch::LeaseTooShort));
    assert_eq!(checked(Arc::clone(&store), Policy::LEASE_DEFAULT), Ok(()));
    drop(store);
    let store = open_within(&url, short).await.unwrap();
    assert_eq!(store.capabilities().answers_within, Some(short));
    assert_eq!(checked(store, short), Ok(()));
}
