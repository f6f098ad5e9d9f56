//! The loops on a paused clock.

use std::time::Duration;

use firstwrite_core::{
    Draft, DraftState, Fence, Fingerprint, FingerprintRules, Key, MemoryStore, OnLostAnswer, Parts,
    Policy, Query, RecordId, Store as _, Tenant, Timestamp,
};
use http::{HeaderMap, Method};

use super::*;
use crate::service::tests::watched::Watched;

fn store() -> MemoryStore {
    let start = tokio::time::Instant::now();
    MemoryStore::new(move || Timestamp::EPOCH.plus(start.elapsed()))
}

/// Reserves this many keys for one second.
async fn reserve(store: &MemoryStore, count: usize, on_lost_answer: OnLostAnswer) {
    for number in 0..count {
        let (tenant, key) =
            (Tenant::new("acme").unwrap(), Key::new(&format!("k{number}")).unwrap());
        let id = RecordId::of(&tenant, &key);
        let (method, headers) = (Method::POST, HeaderMap::new());
        let asked = Parts {
            method: &method,
            authority: "",
            path: "/",
            query: None,
            headers: &headers,
            body: b"",
        };
        let draft = Draft {
            id,
            tenant,
            key,
            operation: "POST /".into(),
            fingerprint: Fingerprint::of(&asked, &FingerprintRules::default(), None, &id),
            fence: Fence::first(7),
            on_lost_answer,
            retention: Policy::default().record_retention(),
            state: DraftState::reserved(Duration::from_secs(1)),
        };
        store.insert(&draft).await.unwrap();
    }
}

async fn has_lapsed(store: &MemoryStore) -> bool {
    !store.list(&Query::lapsed(1)).await.unwrap().records.is_empty()
}

#[tokio::test(start_paused = true)]
async fn one_turn_does_both_and_says_what_it_did() {
    let store = store();
    reserve(&store, 3, OnLostAnswer::Uncertain).await;
    assert_eq!(Worker::run_once(&store).await.unwrap(), Turn::default());
    tokio::time::advance(Duration::from_secs(1)).await;
    let turn = Worker::run_once(&store).await.unwrap();
    assert_eq!(turn.swept, Swept { uncertain: 3, ..Swept::default() });
}

/// Observer that counts the records marked uncertain and the turns of the reaping.
#[derive(Default)]
struct Told(std::sync::Mutex<(usize, usize)>);

impl TurnObserver for Told {
    fn swept(&self, swept: &Swept) {
        self.0.lock().unwrap().0 += swept.uncertain;
    }

    fn reaped(&self, _reaped: usize) {
        self.0.lock().unwrap().1 += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_is_told_of_every_turn_that_succeeds() {
    let store = Watched::over(store());
    reserve(&store.memory, 3, OnLostAnswer::Uncertain).await;
    store.fail("list");
    let told = Arc::new(Told::default());
    let worker = Worker::observed(Arc::new(store.clone()), Schedule::default(), told.clone());
    let pass = async |seconds: u64| {
        for _ in 0..seconds {
            tokio::task::yield_now().await;
            tokio::time::advance(Duration::from_secs(1)).await;
        }
    };
    pass(600).await;
    let (uncertain, reaps) = *told.0.lock().unwrap();
    assert!(uncertain == 0 && (6..=20).contains(&reaps), "{uncertain}, {reaps}");
    store.recover();
    pass(451).await;
    assert_eq!(told.0.lock().unwrap().0, 3);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_turn_is_followed_by_the_next_at_once() {
    let store = store();
    reserve(&store, SWEEP_LIMIT * 2 + 1, OnLostAnswer::Resend).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    let every = Duration::from_hours(1);
    let schedule = Schedule { sweep_every: every, reap_every: every, upkeep_every: every };
    let worker = Worker::start(Arc::new(store.clone()), schedule);
    // Half to one and a half hours until the first turn; a second pause would be beyond that.
    let began = tokio::time::Instant::now();
    while has_lapsed(&store).await {
        tokio::task::yield_now().await;
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(began.elapsed() < Duration::from_secs(5402), "the batches wait for each other");
    }
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_asked_less_and_less_often_and_served_when_it_is_back() {
    let store = Watched::over(store());
    reserve(&store.memory, 1, OnLostAnswer::Resend).await;
    store.fail("list");
    let never = Duration::from_hours(99);
    let sweep_every = Duration::from_secs(1);
    let schedule = Schedule { sweep_every, reap_every: never, upkeep_every: never };
    let worker = Worker::start(Arc::new(store.clone()), schedule);
    let pass = async |seconds: u64| {
        for _ in 0..seconds {
            tokio::task::yield_now().await;
            tokio::time::advance(Duration::from_secs(1)).await;
        }
    };
    pass(3600).await;
    // Pauses of 1, 2, 4, … 256 and then 300 seconds, each between half and one and a half of that.
    let asked = store.calls();
    assert!((12..=35).contains(&asked), "{asked}");
    store.recover();
    pass(451).await;
    assert!(!has_lapsed(&store.memory).await);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_workers_at_once_free_every_key_once() {
    let store = store();
    reserve(&store, SWEEP_LIMIT / 2, OnLostAnswer::Uncertain).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    let (one, other) = tokio::join!(Worker::run_once(&store), Worker::run_once(&store));
    let (one, other) = (one.unwrap().swept, other.unwrap().swept);
    assert_eq!(one.uncertain + other.uncertain, SWEEP_LIMIT / 2);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_worker_takes_no_further_turn() {
    let store = store();
    let worker = Worker::start(Arc::new(store.clone()), Schedule::default());
    worker.stop().await;
    reserve(&store, 1, OnLostAnswer::Resend).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
        tokio::time::advance(Duration::from_mins(1)).await;
    }
    assert_eq!(format!("{store:?}"), "MemoryStore { record_count: 1, .. }");
}
