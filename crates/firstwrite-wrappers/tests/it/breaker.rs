//! Tests the breaker around a flaky store, on a paused clock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use firstwrite_core::{
    BoxFuture, Certainty, Change, Draft, Fence, Guard, Inserted, OnLostAnswer, Policy, Store,
    StoreError, StoreErrorKind, delegate_store,
};
use firstwrite_testkit::{MemorySubject, Subject, sample};
use firstwrite_wrappers::{BreakerOptions, BreakerStore};
use tokio::time::{Instant, advance, timeout};

type Call<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// A store that fails when it is told to, and counts its calls.
#[derive(Debug)]
struct FlakyStore {
    inner: Arc<dyn Store>,
    mode: Mutex<Mode>,
    call_count: AtomicUsize,
}

#[derive(Clone, Copy, Debug)]
enum Mode {
    Answers,
    Fails(StoreErrorKind),
    Hangs,
}

impl FlakyStore {
    fn counted<'a, T: Send + 'a>(&'a self, _step: &'static str, call: Call<'a, T>) -> Call<'a, T> {
        Box::pin(async move {
            self.call_count.fetch_add(1, Ordering::Relaxed);
            let mode = *self.mode.lock().unwrap();
            match mode {
                Mode::Answers => call.await,
                Mode::Fails(kind) => Err(StoreError::definite(kind, "failing as told")),
                Mode::Hangs => std::future::pending().await,
            }
        })
    }
}

impl Store for FlakyStore {
    delegate_store!(inner: capabilities, list, usage, reap, audits, outbox, documents);
    delegate_store!(inner via counted: insert, swap, get, now, check_history);
}

struct Scene {
    flaky: Arc<FlakyStore>,
    store: BreakerStore,
    draft: Draft,
}

impl Scene {
    fn new() -> Self {
        let inner = MemorySubject::new().store();
        let flaky =
            FlakyStore { inner, mode: Mutex::new(Mode::Answers), call_count: AtomicUsize::new(0) };
        let flaky = Arc::new(flaky);
        let mut options = BreakerOptions::default();
        options.failures_max = 3;
        let store = BreakerStore::new(Arc::<FlakyStore>::clone(&flaky), options);
        let request = sample::request(&sample::tenant("shop"), &sample::key("k"), 1);
        let policy = sample::policy(OnLostAnswer::Uncertain);
        let draft = sample::reserved(&request, &policy, Fence::first(1));
        Self { flaky, store, draft }
    }

    fn set(&self, mode: Mode) {
        *self.flaky.mode.lock().unwrap() = mode;
    }

    fn call_count(&self) -> usize {
        self.flaky.call_count.load(Ordering::Relaxed)
    }

    async fn open(&self) {
        self.set(Mode::Fails(StoreErrorKind::Unavailable));
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
async fn an_open_breaker_refuses_definitely_and_calls_nothing() {
    let scene = Scene::new();
    scene.open().await;
    let call_count = scene.call_count();
    let error = scene.store.insert(&scene.draft).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert_eq!(error.certainty(), Certainty::Definite);
    assert_eq!(scene.call_count(), call_count);
    scene.set(Mode::Answers);
    advance(open_for()).await;
    assert!(matches!(scene.store.insert(&scene.draft).await, Ok(Inserted::Done(_))));
    assert!(!scene.store.is_open());
}

#[tokio::test(start_paused = true)]
async fn one_call_tries_and_the_others_do_not_wait_for_it() {
    let scene = Scene::new();
    scene.open().await;
    advance(open_for()).await;
    scene.set(Mode::Hangs);
    let call_count = scene.call_count();
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
    assert_eq!(scene.call_count(), call_count + 1);
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
        scene.set(Mode::Fails(kind));
        for _ in 0..20 {
            let error = scene.store.get(scene.draft.id).await.unwrap_err();
            assert_eq!(error.kind(), kind, "handed on as it is");
        }
        assert!(!scene.store.is_open(), "{kind:?}");
        // Such an answer shows that it is back, too.
        scene.open().await;
        scene.set(Mode::Fails(kind));
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
    scene.set(Mode::Hangs);
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
async fn a_trial_whose_caller_hangs_up_is_left_to_the_next() {
    let scene = Scene::new();
    scene.open().await;
    advance(open_for()).await;
    scene.set(Mode::Hangs);
    let short = timeout(Duration::from_millis(1), scene.store.get(scene.draft.id)).await;
    assert!(short.is_err(), "the caller gave up");
    scene.set(Mode::Answers);
    assert!(scene.store.get(scene.draft.id).await.is_ok());
    assert!(!scene.store.is_open());
}

#[tokio::test(start_paused = true)]
async fn it_recovers_without_a_call() {
    let scene = Scene::new();
    let mut seen = scene.store.watch();
    scene.open().await;
    let recovered = async {
        seen.wait_for(|is_open| *is_open).await.unwrap();
        advance(open_for() * 5).await;
        scene.set(Mode::Answers);
        seen.wait_for(|is_open| !*is_open).await.unwrap();
    };
    tokio::select! {
        () = scene.store.keep_trying() => panic!("it goes on"),
        () = recovered => {}
    }
    assert!(!scene.store.is_open());
}
