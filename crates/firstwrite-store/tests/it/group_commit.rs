//! Everything that waits shares one commit, and is answered after it.

use std::sync::mpsc;

use firstwrite_core::{Inserted, Store, StoreErrorKind};
use firstwrite_store::SqliteStore;

use crate::shop::{Shop, completed, reserved};

/// Keeps the writer busy inside a closure, so that what is asked meanwhile forms one batch.
pub(crate) struct ClaimStatus(mpsc::Sender<()>);

impl ClaimStatus {
    pub(crate) async fn hold(store: &SqliteStore) -> Self {
        let (go, wait) = mpsc::channel();
        let (started, has_started) = mpsc::channel();
        queue_and_forget(store, move || {
            started.send(()).unwrap();
            // An error means that the test has ended.
            wait.recv().unwrap_or(());
        })
        .await;
        has_started.recv().unwrap();
        Self(go)
    }

    pub(crate) fn let_go(self) {
        self.0.send(()).unwrap();
    }
}

/// Queues a write and does not wait for its answer.
pub(crate) async fn queue_and_forget(store: &SqliteStore, work: impl FnOnce() + Send + 'static) {
    let write = store.write(move |_connection| {
        work();
        Ok(())
    });
    tokio::select! {
        biased;
        _ = write => panic!("answered before it was committed"),
        () = std::future::ready(()) => {}
    }
}

/// Starts everything in `asked`, then lets the held writer go, then waits for all answers.
pub(crate) async fn in_one_batch<T: Send + 'static>(
    store: &SqliteStore,
    asked: Vec<impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let held = ClaimStatus::hold(store).await;
    // Tasks of this single-threaded runtime run in order, so each has queued its command by the
    // time the marker has run.
    let tasks: Vec<_> = asked.into_iter().map(tokio::spawn).collect();
    tokio::spawn(async {}).await.unwrap();
    held.let_go();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

#[tokio::test]
async fn a_hundred_commands_that_wait_share_one_commit() {
    let shop = Shop::open();
    let before = shop.store.commit_count();
    let insert = |number: usize| {
        let store = shop.store.clone();
        async move { store.insert(&completed(&format!("k-{number}"), "{}")).await.unwrap() }
    };
    let answers = in_one_batch(&shop.store, (0..100).map(insert).collect()).await;
    assert!(answers.iter().all(|answer| matches!(answer, Inserted::Done(_))));
    // One more for the closure that held the writer.
    assert_eq!(shop.store.commit_count() - before, 1 + 1);
}

#[tokio::test]
async fn a_batch_is_no_larger_than_allowed() {
    let shop = Shop::open_with(|options| options.batch_max = 10);
    let before = shop.store.commit_count();
    let insert = |number: usize| {
        let store = shop.store.clone();
        async move { store.insert(&completed(&format!("k-{number}"), "{}")).await.unwrap() }
    };
    in_one_batch(&shop.store, (0..100).map(insert).collect()).await;
    assert_eq!(shop.store.commit_count() - before, 1 + 10);
}

#[tokio::test]
async fn a_full_queue_refuses_at_once_and_definitely() {
    let shop = Shop::open_with(|options| options.queue_max = 3);
    let held = ClaimStatus::hold(&shop.store).await;
    for _ in 0..3 {
        queue_and_forget(&shop.store, || ()).await;
    }
    let error = shop.store.insert(&reserved("k")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert_eq!(error.certainty(), firstwrite_core::Certainty::Definite);
    assert!(error.to_string().contains("too busy"), "{error}");
    held.let_go();
    while let Err(error) = shop.store.insert(&reserved("k")).await {
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_look_up_does_not_wait_for_the_writer() {
    let shop = Shop::open();
    let draft = completed("k", "{}");
    shop.store.insert(&draft).await.unwrap();
    let held = ClaimStatus::hold(&shop.store).await;
    assert!(shop.store.get(draft.id).await.unwrap().is_some());
    let count: i64 = shop
        .store
        .read(|connection| {
            connection.query_row("SELECT count(*) FROM firstwrite_records", [], |row| row.get(0))
        })
        .await
        .unwrap();
    assert_eq!(count, 1);
    held.let_go();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_thousand_at_once_one_wins_and_all_see_the_same() {
    let shop = Shop::open();
    let tasks: Vec<_> = (0..1000)
        .map(|number| {
            let store = shop.store.clone();
            tokio::spawn(async move {
                let draft = completed("k", &format!("body {number}"));
                store.insert(&draft).await.unwrap()
            })
        })
        .collect();
    let (mut done, mut bodies) = (0, std::collections::HashSet::new());
    for task in tasks {
        match task.await.unwrap() {
            Inserted::Done(_) => done += 1,
            Inserted::Stands(found) => {
                let firstwrite_core::State::Completed { outcome, .. } = found.record.state else {
                    panic!("a completed record stands");
                };
                let firstwrite_core::Body::Bytes(body) = outcome.body else { panic!("whole") };
                bodies.insert(body);
            }
        }
    }
    assert_eq!((done, bodies.len()), (1, 1));
    assert_eq!(shop.column("SELECT count(*) || '' FROM firstwrite_ids").await, ["1"]);
    assert_eq!(shop.column("SELECT count(*) || '' FROM firstwrite_records").await, ["1"]);
}
