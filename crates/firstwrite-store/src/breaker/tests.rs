//! Tests the breaker around a flaky store, on a paused clock.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use firstwrite_core::{Fence, OnLostAnswer, Policy};
use firstwrite_testkit::{MemorySubject, Subject, sample};
use tokio::time::{Instant, advance};

use super::*;

/// A store that answers as it is told, and counts how often it is asked.
#[derive(Debug)]
struct Moody {
    inner: Arc<dyn Store>,
    mood: Mutex<Mood>,
    asked: AtomicUsize,
}

#[derive(Clone, Copy, Debug)]
enum Mood {
    Well,
    Fails(StoreErrorKind),
    Hangs,
}

impl Moody {
    async fn ask<T>(&self, call: Call<'_, T>) -> Result<T, StoreError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let mood = *self.mood.lock().unwrap();
        match mood {
            Mood::Well => call.await,
            Mood::Fails(kind) => Err(StoreError::definite(kind, "being moody")),
            Mood::Hangs => std::future::pending().await,
        }
    }
}

impl Store for Moody {
    delegate_store!(inner: capabilities, list, usage, reap, audits, outbox, documents);

    fn insert<'a>(&'a self, draft: &'a Draft) -> BoxFuture<'a, Result<Inserted, StoreError>> {
        Box::pin(self.ask(self.inner.insert(draft)))
    }

    fn swap<'a>(
        &'a self,
        id: RecordId,
        guard: Guard,
        change: Change,
        audit: Option<&'a AuditEntry>,
    ) -> BoxFuture<'a, Result<Swapped, StoreError>> {
        Box::pin(self.ask(self.inner.swap(id, guard, change, audit)))
    }

    fn get(&self, id: RecordId) -> BoxFuture<'_, Result<Option<Found>, StoreError>> {
        Box::pin(self.ask(self.inner.get(id)))
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        Box::pin(self.ask(self.inner.now()))
    }

    fn check_history(&self, id: RecordId) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.ask(self.inner.check_history(id)))
    }
}

struct Scene {
    moody: Arc<Moody>,
    store: BreakerStore,
    draft: Draft,
}

impl Scene {
    fn new() -> Self {
        let inner = MemorySubject::new().store();
        let moody = Moody { inner, mood: Mutex::new(Mood::Well), asked: AtomicUsize::new(0) };
        let moody = Arc::new(moody);
        let options = BreakerOptions { failures_max: 3, ..BreakerOptions::default() };
        let store = BreakerStore::new(Arc::<Moody>::clone(&moody), options);
        let request = sample::request(&sample::tenant("shop"), &sample::key("k"), 1);
        let policy = sample::policy(OnLostAnswer::Uncertain);
        let draft = sample::reserved(&request, &policy, Fence::first(1));
        Self { moody, store, draft }
    }

    fn set(&self, mood: Mood) {
        *self.moody.mood.lock().unwrap() = mood;
    }

    fn asked(&self) -> usize {
        self.moody.asked.load(Ordering::Relaxed)
    }

    async fn open(&self) {
        self.set(Mood::Fails(StoreErrorKind::Unavailable));
        for _ in 0..3 {
            assert!(self.store.get(self.draft.id).await.is_err());
        }
        assert!(self.store.is_open());
    }
}

fn open_for() -> Duration {
    BreakerOptions::default().open_for
}

#[tokio::test(start_paused = true)]
async fn an_open_breaker_refuses_definitely_and_asks_nobody() {
    let scene = Scene::new();
    scene.open().await;
    let asked = scene.asked();
    let error = scene.store.insert(&scene.draft).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert_eq!(error.certainty(), Certainty::Definite);
    assert_eq!(scene.asked(), asked);
    scene.set(Mood::Well);
    advance(open_for()).await;
    assert!(matches!(scene.store.insert(&scene.draft).await, Ok(Inserted::Done(_))));
    assert!(!scene.store.is_open());
}

#[tokio::test(start_paused = true)]
async fn one_call_tries_and_the_others_do_not_wait_for_it() {
    let scene = Scene::new();
    scene.open().await;
    advance(open_for()).await;
    scene.set(Mood::Hangs);
    let asked = scene.asked();
    let trial = scene.store.get(scene.draft.id);
    let others = async {
        for _ in 0..10 {
            assert!(scene.store.get(scene.draft.id).await.is_err());
        }
        Instant::now()
    };
    let started = Instant::now();
    let (tried, ended) = tokio::join!(trial, others);
    assert!(tried.is_err());
    assert_eq!(ended, started, "refused at once");
    assert_eq!(scene.asked(), asked + 1);
    assert!(scene.store.is_open(), "the trial failed");
}

#[tokio::test(start_paused = true)]
async fn only_a_store_that_is_away_counts() {
    for kind in [
        StoreErrorKind::Full,
        StoreErrorKind::Corrupt,
        StoreErrorKind::Unsupported,
        StoreErrorKind::Panicked,
        StoreErrorKind::HistoryLost,
    ] {
        let scene = Scene::new();
        scene.set(Mood::Fails(kind));
        for _ in 0..20 {
            let error = scene.store.get(scene.draft.id).await.unwrap_err();
            assert_eq!(error.kind(), kind, "handed on as it is");
        }
        assert!(!scene.store.is_open(), "{kind:?}");
        // Such an answer shows that it is back, too.
        scene.open().await;
        scene.set(Mood::Fails(kind));
        advance(open_for()).await;
        assert!(scene.store.get(scene.draft.id).await.is_err());
        assert!(!scene.store.is_open(), "{kind:?}");
    }
    let scene = Scene::new();
    scene.store.insert(&scene.draft).await.unwrap();
    for _ in 0..20 {
        assert!(matches!(scene.store.insert(&scene.draft).await, Ok(Inserted::Stands(_))));
    }
    assert!(!scene.store.is_open(), "a conflict is an answer");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_is_an_error_and_a_write_may_have_been_done() {
    let scene = Scene::new();
    scene.set(Mood::Hangs);
    let started = Instant::now();
    let error = scene.store.get(scene.draft.id).await.unwrap_err();
    assert_eq!(error.certainty(), Certainty::Definite);
    assert_eq!(started.elapsed(), BreakerOptions::default().call_timeout);
    let error = scene.store.insert(&scene.draft).await.unwrap_err();
    assert_eq!(error.certainty(), Certainty::Indeterminate);
    let done = Change::Complete {
        outcome: sample::outcome(201, "done"),
        retention: Policy::default().record_retention(),
    };
    let guard = Guard::Owner(scene.draft.fence);
    let error = scene.store.swap(scene.draft.id, guard, done, None).await.unwrap_err();
    assert_eq!(error.certainty(), Certainty::Indeterminate);
    assert!(scene.store.is_open(), "three in a row");
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_hangs_up_during_the_trial_leaves_it_to_the_next() {
    let scene = Scene::new();
    scene.open().await;
    advance(open_for()).await;
    scene.set(Mood::Hangs);
    let short = timeout(Duration::from_millis(1), scene.store.get(scene.draft.id)).await;
    assert!(short.is_err(), "the caller gave up");
    scene.set(Mood::Well);
    assert!(scene.store.get(scene.draft.id).await.is_ok());
    assert!(!scene.store.is_open());
}

#[tokio::test(start_paused = true)]
async fn it_recovers_although_nobody_calls() {
    let scene = Scene::new();
    let mut seen = scene.store.watch();
    scene.open().await;
    let recovered = async {
        seen.wait_for(|is_open| *is_open).await.unwrap();
        advance(open_for() * 5).await;
        scene.set(Mood::Well);
        seen.wait_for(|is_open| !*is_open).await.unwrap();
    };
    tokio::select! {
        () = scene.store.keep_trying() => panic!("it goes on"),
        () = recovered => {}
    }
    assert!(!scene.store.is_open());
}
