//! Two stores on one schema, as two processes have them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use firstwrite_core::{Change, Fence, Guard, Inserted, Store, Swapped, delegate_store};
use firstwrite_store::{PostgresOptions, PostgresStore};
use firstwrite_testkit::history::{HistoryOptions, check_store};

use crate::server::{Way, on_database};
use crate::subject::{PostgresSubject, done, reserved};

/// Each call goes to the next of two stores.
#[derive(Debug)]
struct InTurn {
    stores: [PostgresStore; 2],
    turn: AtomicUsize,
}

impl InTurn {
    fn next(&self) -> &PostgresStore {
        &self.stores[self.turn.fetch_add(1, Ordering::Relaxed) % 2]
    }
}

impl Store for InTurn {
    delegate_store!(
        next():
            capabilities, insert, swap, get, list, usage, reap, audits, now,
            check_history
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_over_two_stores_are_explained() {
    on_database(Way::Direct, &[], async |database| {
        let mut options = PostgresOptions::default();
        // A history removes completed records within their retention, which nobody does: only a
        // store that did it itself forgets them in memory.
        options.cache_bytes_max = 0;
        let subject = PostgresSubject::new(&database, options).await;
        let stores = [subject.postgres(), subject.rival().await];
        let store = Arc::new(InTurn { stores, turn: AtomicUsize::new(0) });
        let busy = HistoryOptions { tasks: 6, steps: 20, keys: 2 };
        let mut written = 0;
        for seed in 0..60 {
            let report = check_store(Arc::clone(&store) as Arc<dyn Store>, seed, busy).await;
            written += report.unwrap_or_else(|violation| panic!("{violation}")).written;
        }
        assert!(written > 900, "{written}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_reservations_of_one_key_on_two_stores_one_is_granted() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let stores = [subject.postgres(), subject.rival().await];
        for round in 0..20_u64 {
            let tasks: Vec<_> = (0..16)
                .map(|nonce| {
                    let store = stores[nonce % 2].clone();
                    let draft = reserved(&format!("k-{round}"), Fence::first(nonce as u64));
                    tokio::spawn(async move { store.insert(&draft).await.unwrap() })
                })
                .collect();
            let (mut granted, mut fences) = (0, Vec::new());
            for task in tasks {
                match task.await.unwrap() {
                    Inserted::Done(_) => granted += 1,
                    Inserted::Stands(found) => fences.push(found.record.fence),
                }
            }
            assert_eq!(granted, 1, "round {round}");
            fences.dedup();
            assert_eq!(fences.len(), 1, "everybody else is shown the one that won");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completion_and_a_take_over_at_once_have_one_winner() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let (owner, taker) = (subject.postgres(), subject.rival().await);
        let mut winners = [0, 0];
        for round in 0..100_u64 {
            let key = format!("k-{round}");
            let fence = Fence::first(round);
            let draft = reserved(&key, fence);
            owner.insert(&draft).await.unwrap();
            let seen = taker.get(draft.id).await.unwrap().unwrap().record.seen();
            let next = Box::new(reserved(&key, fence.next(7)));
            let guard = Guard::Seen(seen);
            let (completed, taken) = tokio::join!(
                owner.swap(draft.id, Guard::Owner(fence), done(), None),
                taker.swap(draft.id, guard, Change::TakeOver(next), None),
            );
            let completed = matches!(completed.unwrap(), Swapped::Done(_));
            let taken = matches!(taken.unwrap(), Swapped::Done(_));
            assert!(completed != taken, "round {round}: completed {completed}, taken {taken}");
            winners[usize::from(taken)] += 1;
            let stands = owner.get(draft.id).await.unwrap().unwrap().record;
            assert_eq!(stands.fence == fence, completed, "round {round}");
        }
        println!("completed {}, taken over {}", winners[0], winners[1]);
    })
    .await;
}
