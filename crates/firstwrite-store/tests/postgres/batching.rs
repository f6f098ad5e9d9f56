//! Commands that share a transaction, and what one of them can do to the others.

use std::sync::Arc;

use firstwrite_core::{Certainty, Fence, Guard, Inserted, Store, StoreErrorKind, Swapped};
use firstwrite_store::PostgresOptions;
use firstwrite_store::tokio_postgres::Client;
use firstwrite_testkit::Subject;

use crate::server::{Way, client, on_database};
use crate::subject::{PostgresSubject, done, reserved};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_that_wait_at_once_share_transactions() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let store = subject.postgres();
        store.insert(&reserved("first", Fence::first(1))).await.unwrap();
        let before = store.commit_count();
        let tasks: Vec<_> = (0..400)
            .map(|at| {
                let store = store.clone();
                tokio::spawn(async move {
                    let fence = Fence::first(at);
                    let draft = reserved(&format!("k-{at}"), fence);
                    let inserted = store.insert(&draft).await.unwrap();
                    assert!(matches!(inserted, Inserted::Done(_)));
                    store.swap(draft.id, Guard::Owner(fence), done(), None).await.unwrap()
                })
            })
            .collect();
        for task in tasks {
            assert!(matches!(task.await.unwrap(), Swapped::Done(_)));
        }
        let commits = store.commit_count() - before;
        assert!(commits < 100, "{commits} transactions for 800 commands");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_a_stranger_holds_does_not_fail_its_neighbours() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let store = subject.postgres();
        let stranger = client(&database.url).await;
        hold(&stranger, subject.schema(), "held").await;
        let held = {
            let store = store.clone();
            tokio::spawn(async move { store.insert(&reserved("held", Fence::first(9))).await })
        };
        let tasks: Vec<_> = (0..50)
            .map(|at| {
                let store = store.clone();
                let draft = reserved(&format!("k-{at}"), Fence::first(at));
                tokio::spawn(async move { store.insert(&draft).await })
            })
            .collect();
        for task in tasks {
            assert!(matches!(task.await.unwrap().unwrap(), Inserted::Done(_)));
        }
        // The stranger gives up: whoever waited for it gets the key, without having been refused.
        stranger.batch_execute("ROLLBACK").await.unwrap();
        assert!(matches!(held.await.unwrap().unwrap(), Inserted::Done(_)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_held_for_too_long_is_refused_for_certain() {
    on_database(Way::Direct, &[], async |database| {
        let mut options = PostgresOptions::default();
        options.lock_timeout = std::time::Duration::from_millis(200);
        let subject = PostgresSubject::new(&database, options).await;
        let store = subject.postgres();
        let stranger = client(&database.url).await;
        hold(&stranger, subject.schema(), "held").await;
        let draft = reserved("held", Fence::first(9));
        let error = store.insert(&draft).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        assert_eq!(error.certainty(), Certainty::Definite, "{error}");
        stranger.batch_execute("ROLLBACK").await.unwrap();
        assert!(store.get(draft.id).await.unwrap().is_none(), "nothing was written");
        assert!(matches!(store.insert(&draft).await.unwrap(), Inserted::Done(_)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_refuses_at_once_and_for_certain() {
    on_database(Way::Direct, &[], async |database| {
        let mut options = PostgresOptions::default();
        (options.queue_max, options.batch_max) = (4, 1);
        let subject = PostgresSubject::new(&database, options).await;
        let store = subject.store();
        let tasks: Vec<_> = (0..200)
            .map(|at| {
                let store = Arc::clone(&store);
                let draft = reserved(&format!("k-{at}"), Fence::first(at));
                tokio::spawn(async move { (draft.id, store.insert(&draft).await) })
            })
            .collect();
        let (mut done, mut refused) = (0, Vec::new());
        for task in tasks {
            let (id, inserted) = task.await.unwrap();
            match inserted {
                Ok(inserted) => done += usize::from(matches!(inserted, Inserted::Done(_))),
                Err(error) => {
                    assert_eq!(error.certainty(), Certainty::Definite, "{error}");
                    assert!(error.to_string().contains("too busy"), "{error}");
                    refused.push(id);
                }
            }
        }
        assert!(done >= 4 && !refused.is_empty(), "{done} done, {} refused", refused.len());
        for id in refused.into_iter().take(20) {
            assert!(store.get(id).await.is_ok_and(|found| found.is_none()));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_found_by_their_keys_though_the_statements_were_planned_on_a_small_table() {
    on_database(Way::Direct, &[], async |database| {
        let mut options = PostgresOptions::default();
        options.cache_bytes_max = 0;
        let subject = PostgresSubject::new(&database, options).await;
        let (store, admin) = (subject.postgres(), subject.admin());
        // Now the planner knows for certain that a scan is the cheapest.
        for sql in ["VACUUM ANALYZE records", "VACUUM ANALYZE endings"] {
            admin.batch_execute(sql).await.unwrap();
        }
        admin.batch_execute("SELECT pg_stat_force_next_flush()").await.unwrap();
        let scans = "SELECT sum(seq_scan)::int8 FROM pg_stat_user_tables
                     WHERE schemaname = $1 AND relname IN ('records', 'endings')";
        let before: i64 = admin.query_one(scans, &[&subject.schema()]).await.unwrap().get(0);
        // More than often enough for a plan that is kept.
        for at in 0..40 {
            attempt(&store, at).await;
        }
        let fill = "INSERT INTO records
            SELECT gen_random_uuid(), 1, pg_catalog.now(), '-infinity', 1, 'filler', '', '', 'x'
            FROM generate_series(1, 20000)";
        admin.batch_execute(fill).await.unwrap();
        for at in 100..140 {
            attempt(&store, at).await;
        }
        // What the store's sessions counted is told when they end.
        store.close().await;
        wait_until_gone(admin).await;
        let after: i64 = admin.query_one(scans, &[&subject.schema()]).await.unwrap().get(0);
        assert_eq!(after - before, 0, "the tables were scanned whole");
    })
    .await;
}

/// Every statement of the common path, once.
async fn attempt(store: &dyn Store, at: u64) {
    let fence = Fence::first(at);
    let draft = reserved(&format!("planned-{at}"), fence);
    store.insert(&draft).await.unwrap();
    store.insert(&draft).await.unwrap();
    store.get(draft.id).await.unwrap().unwrap();
    let swapped = store.swap(draft.id, Guard::Owner(fence), done(), None).await.unwrap();
    assert!(matches!(swapped, Swapped::Done(_)));
}

async fn wait_until_gone(admin: &Client) {
    let sql = "SELECT count(*) FROM pg_stat_activity
               WHERE datname = current_database() AND application_name = 'firstwrite'";
    for _ in 0..10_000 {
        let count: i64 = admin.query_one(sql, &[]).await.unwrap().get(0);
        if count == 0 {
            return;
        }
    }
    panic!("the store's connections stay open");
}

/// Inserts `key`'s record in a transaction that is left open.
pub(crate) async fn hold(stranger: &Client, schema: &str, key: &str) {
    let id = reserved(key, Fence::first(1)).id;
    let sql = format!(
        "BEGIN; INSERT INTO {schema}.records
         VALUES ('{id}', 1, pg_catalog.now(), '-infinity', 1, 'stranger', '', '', 'x')"
    );
    stranger.batch_execute(&sql).await.unwrap();
}
