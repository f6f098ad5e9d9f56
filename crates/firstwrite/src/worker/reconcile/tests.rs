//! The loop on a paused clock, with a source that counts.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use firstwrite_core::reconcile::Window;
use firstwrite_core::{BoxFuture, MemoryStore};

use super::*;
use crate::reconcile::{Export, SourceError, SourcePage};
use crate::worker::{Schedule, Worker};

#[derive(Debug, Default)]
struct Counting {
    windows: Mutex<Vec<Window>>,
    fails: AtomicBool,
    asked: AtomicUsize,
    is_export: bool,
}

impl Source for Counting {
    fn pull<'a>(
        &'a self,
        window: Window,
        _cursor: Option<&'a str>,
    ) -> BoxFuture<'a, Result<SourcePage, SourceError>> {
        Box::pin(async move {
            self.asked.fetch_add(1, Ordering::SeqCst);
            if self.fails.load(Ordering::SeqCst) {
                return Err(SourceError::new("in a test"));
            }
            self.windows.lock().unwrap().push(window);
            Ok(SourcePage::default())
        })
    }

    fn as_export(&self) -> Option<Export> {
        self.is_export.then(Export::default)
    }
}

fn hours(hours: u64) -> Duration {
    Duration::from_hours(hours)
}

fn reconcile() -> (Reconcile, Arc<Counting>) {
    let start = tokio::time::Instant::now();
    let store = MemoryStore::new(move || {
        Timestamp::from_millis(0).plus(hours(10_000)).plus(start.elapsed())
    });
    let source = Arc::new(Counting::default());
    let mut settings = Settings::new("provider", "provider");
    settings.apply_first_run = true;
    let account = Account { settings, source: Arc::clone(&source) as Arc<dyn Source> };
    (Reconcile::new(Arc::new(store), vec![account]).unwrap(), source)
}

#[tokio::test(start_paused = true)]
async fn a_source_is_compared_once_a_day_and_each_window_meets_the_last() {
    let (reconcile, source) = reconcile();
    for hour in 0..100 {
        let ran = reconcile.run_once().await;
        assert_eq!(ran.len(), usize::from(hour % 24 == 0), "hour {hour}");
        tokio::time::advance(hours(1)).await;
    }
    let windows = source.windows.lock().unwrap().clone();
    assert_eq!(windows.len(), 5);
    for pair in windows.windows(2) {
        // What was asked for in the last grace, and the grace before it, is looked at again.
        assert_eq!(pair[1].from.plus(hours(2)), pair[0].until);
    }
    assert_eq!(windows[0].from.plus(hours(14 * 24)), windows[0].until);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_fails_is_tried_at_every_look_and_its_time_is_not_lost() {
    let (reconcile, source) = reconcile();
    reconcile.run_once().await;
    source.fails.store(true, Ordering::SeqCst);
    tokio::time::advance(hours(24)).await;
    for _ in 0..3 {
        let ran = reconcile.run_once().await;
        let report = ran[0].1.as_ref().unwrap();
        assert!(!report.is_complete && report.flaws[0].detail == "in a test", "{report:?}");
        tokio::time::advance(hours(1)).await;
    }
    source.fails.store(false, Ordering::SeqCst);
    assert!(reconcile.run_once().await[0].1.as_ref().unwrap().is_complete);
    assert!(reconcile.run_once().await.is_empty());
    let windows = source.windows.lock().unwrap().clone();
    assert_eq!(windows[1].from.plus(hours(2)), windows[0].until);
}

#[tokio::test(start_paused = true)]
async fn a_worker_reconciles_until_it_is_stopped() {
    let (reconcile, source) = reconcile();
    let store = Arc::clone(&reconcile.store);
    let worker = Worker::start(store, Schedule::default()).reconciling(reconcile);
    for _ in 0..50 * 60 {
        tokio::task::yield_now().await;
        tokio::time::advance(Duration::from_mins(1)).await;
    }
    // Comparing is done on a thread of its own, which the paused clock does not wait for.
    let asked = source.asked.load(Ordering::SeqCst);
    assert!((1..=3).contains(&asked), "{asked}");
    worker.stop().await;
    let asked = source.asked.load(Ordering::SeqCst);
    for _ in 0..100 {
        tokio::task::yield_now().await;
        tokio::time::advance(hours(1)).await;
    }
    assert_eq!(source.asked.load(Ordering::SeqCst), asked);
}

#[tokio::test(start_paused = true)]
async fn a_source_is_left_alone_until_somebody_has_applied_its_first_run() {
    let (mut reconcile, source) = reconcile();
    let mut account = reconcile.accounts[0].clone();
    account.settings.apply_first_run = false;
    reconcile.accounts = vec![account].into();
    assert!(reconcile.run_once().await.is_empty());
    assert_eq!(source.asked.load(Ordering::SeqCst), 0);
    let now = reconcile.store.now().await.unwrap();
    let applied = firstwrite_core::findings::Run { at: now, until: now, again_from: now };
    let findings = Findings::of(&*reconcile.store).unwrap();
    findings.ran("provider", now, &applied).await.unwrap();
    tokio::time::advance(hours(24)).await;
    assert_eq!(reconcile.run_once().await.len(), 1);
}

#[tokio::test]
async fn settings_that_cannot_hold_are_refused_at_the_start() {
    let (reconcile, source) = reconcile();
    let bad = Account { settings: Settings::new("a b", "provider"), source };
    assert!(Reconcile::new(Arc::clone(&reconcile.store), vec![bad]).is_err());
    let source = Arc::new(Counting { is_export: true, ..Counting::default() });
    let export = Account { settings: Settings::new("provider", "provider"), source };
    assert!(Reconcile::new(Arc::clone(&reconcile.store), vec![export]).is_err());
}
