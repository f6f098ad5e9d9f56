//! Completed records in memory: how much, how right, and what for.

use std::time::Duration;

use firstwrite_core::{Change, Fence, Guard, Inserted, Policy, Store};
use firstwrite_store::{PostgresOptions, PostgresStore};
use firstwrite_testkit::Subject;

use crate::server::{Way, on_database};
use crate::subject::{PostgresSubject, completed, reserved};
use firstwrite_testkit::{Network, Proxy};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_kept_in_memory_stays_below_its_bound() {
    on_database(Way::Direct, &[], async |database| {
        let mut options = PostgresOptions::default();
        options.cache_bytes_max = 256 * 1024;
        let subject = PostgresSubject::new(&database, options).await;
        let store = subject.postgres();
        let mut most = 0;
        for at in 0..60 {
            let draft = completed(&format!("k-{at}"), Fence::first(1), 10_000);
            store.insert(&draft).await.unwrap();
            assert!(store.get(draft.id).await.unwrap().is_some());
            most = most.max(store.cached_bytes());
        }
        assert!(most > 100 * 1024, "something is kept: {most} bytes");
        assert!(most <= 256 * 1024, "{most} bytes are kept");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_out_of_memory_needs_no_server() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let proxy = Proxy::new(&database.url).await.unwrap();
        let mut options = PostgresOptions::default();
        options.schema = subject.schema().parse().unwrap();
        let url = proxy.url(&database.url);
        let store = PostgresStore::connect_with(&url, options).await.unwrap();
        let draft = completed("k", Fence::first(1), 10);
        store.insert(&draft).await.unwrap();
        let first = store.get(draft.id).await.unwrap().unwrap();
        let open = reserved("open", Fence::first(1));
        store.insert(&open).await.unwrap();
        store.get(open.id).await.unwrap().unwrap();

        proxy.set(Network::Down);
        let replayed = store.get(draft.id).await.unwrap().unwrap();
        assert_eq!(replayed.record, first.record);
        assert!(replayed.now >= first.now, "time does not go back");
        let Inserted::Stands(found) = store.insert(&draft).await.unwrap() else {
            panic!("the key is taken")
        };
        assert_eq!(found.record, first.record);
        assert!(store.get(open.id).await.is_err(), "what can still change is asked for");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn near_the_end_of_its_retention_a_record_is_asked_for() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let (store, rival) = (subject.postgres(), subject.rival().await);
        let draft = completed("k", Fence::first(1), 10);
        store.insert(&draft).await.unwrap();
        store.get(draft.id).await.unwrap().unwrap();
        let nearly = Policy::RETENTION_DEFAULT.saturating_sub(Duration::from_secs(30));
        subject.advance(nearly).await;
        // Another process is a little ahead, or ours a little behind.
        let seen = store.get(draft.id).await.unwrap().unwrap().record.seen();
        let next = reserved("k", Fence::first(1).next(2));
        let change = Change::TakeOver(Box::new(next.clone()));
        rival.swap(draft.id, Guard::Seen(seen), change, None).await.unwrap();
        let found = store.get(draft.id).await.unwrap().unwrap();
        assert_eq!(found.record.fence, next.fence, "the take-over is seen at once");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_this_store_removes_is_not_remembered() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let store = subject.postgres();
        for round in 0..20 {
            let draft = completed("k", Fence::first(round), 10);
            assert!(matches!(store.insert(&draft).await.unwrap(), Inserted::Done(_)));
            let record = store.get(draft.id).await.unwrap().unwrap().record;
            let guard = Guard::Seen(record.seen());
            // Somebody looks while it is removed.
            let (removed, _looked) = tokio::join!(
                store.swap(draft.id, guard, Change::Remove, None),
                store.get(draft.id)
            );
            removed.unwrap();
            assert!(store.get(draft.id).await.unwrap().is_none(), "round {round}");
        }
    })
    .await;
}
