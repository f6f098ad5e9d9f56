//! The cache in Redis in front of PostgreSQL: the suite, and which database an entry belongs to.

mod late;

use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::{Fence, Inserted, Store, StoreErrorKind};
use firstwrite_store::{PostgresOptions, PostgresStore};
use firstwrite_testkit::history::{HistoryOptions, check_store};
use firstwrite_testkit::{Subject, WrappedSubject, conformance};
use firstwrite_wrappers::{CacheOptions, CacheScope, CachedStore};

use crate::server::{Database, Way, address, on_database};
use crate::subject::{PostgresSubject, Tables, completed, replace_server, reserved};
use late::Late;

/// Without memory of its own, so that all replays come out of Redis.
fn without_memory() -> PostgresOptions {
    let mut options = PostgresOptions::default();
    options.cache_bytes_max = 0;
    options
}

/// The machine may be busy.
fn patient() -> CacheOptions {
    let mut options = CacheOptions::default();
    options.timeout = Duration::from_secs(5);
    options.connect_timeout = Duration::from_secs(5);
    options
}

async fn cached(store: &PostgresStore, url: &str) -> CachedStore {
    let scope = CacheScope::of_postgres(store).await.unwrap();
    let inner = Arc::new(store.clone());
    let cached = CachedStore::new(inner, scope, url, patient()).unwrap();
    cached.now().await.unwrap();
    cached
}

async fn conforms(database: Database, redis: String) {
    let tables = Tables::new(&database).await;
    let wrapped = async |tables: Tables, redis: String| {
        let inner = tables.subject(without_memory()).await;
        let scope = CacheScope::of_postgres(&inner.postgres()).await.unwrap();
        WrappedSubject::new(Arc::new(inner), move |store| {
            Arc::new(CachedStore::new(store, scope.clone(), &redis, patient()).unwrap())
        })
    };
    let report = conformance::assert_conforms(|| {
        let made = wrapped(tables.clone(), redis.clone());
        Box::pin(async move { Arc::new(made.await) as Arc<dyn Subject> })
    })
    .await;
    println!("{report}");
    assert!(report.passed.len() > 80, "{report}");
    let subject = wrapped(tables, redis).await;
    let fresh = firstwrite_testkit::seed();
    for seed in (0..20).chain([fresh]) {
        let report = check_store(subject.store(), seed, HistoryOptions::default()).await;
        report.unwrap_or_else(|violation| panic!("{violation}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_in_front_of_postgres_conforms() {
    let Some(redis) = address("redis", "FIRSTWRITE_TEST_REDIS") else { return };
    on_database(Way::Direct, &[], |database| conforms(database, redis)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_start_of_the_server_begins_with_an_empty_cache() {
    let Some(redis) = address("redis", "FIRSTWRITE_TEST_REDIS") else { return };
    on_database(Way::Direct, &[], async move |database| {
        let subject = PostgresSubject::new(&database, without_memory()).await;
        let store = cached(&subject.postgres(), &redis).await;
        let rival = cached(&subject.rival().await, &redis).await;
        let draft = completed("k", Fence::first(1), 10);
        assert!(matches!(store.insert(&draft).await.unwrap(), Inserted::Done(_)));
        store.get(draft.id).await.unwrap().unwrap();
        rival.get(draft.id).await.unwrap().unwrap();
        assert_eq!((store.counts().hits, rival.counts().hits), (0, 1), "one scope for both");

        // The server is another one, on another line of history perhaps: what is cached may be lost.
        replace_server(&subject).await;
        subject.cut().await;
        let later = cached(&subject.rival().await, &redis).await;
        later.get(draft.id).await.unwrap().unwrap();
        assert_eq!(later.counts().hits, 0);
        later.get(draft.id).await.unwrap().unwrap();
        assert_eq!(later.counts().hits, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_are_made_anew_know_nothing_of_the_old_ones() {
    let Some(redis) = address("redis", "FIRSTWRITE_TEST_REDIS") else { return };
    on_database(Way::Direct, &[], async move |database| {
        let draft = completed("k", Fence::first(1), 10);
        let one = PostgresSubject::new(&database, without_memory()).await;
        let store = cached(&one.postgres(), &redis).await;
        store.insert(&draft).await.unwrap();
        store.get(draft.id).await.unwrap().unwrap();
        // The same tenant and key in another schema of the same database.
        let other = PostgresSubject::new(&database, without_memory()).await;
        let other = cached(&other.postgres(), &redis).await;
        assert!(other.get(draft.id).await.unwrap().is_none());
        // The same schema, dropped and made again under its old name.
        let schema = one.schema().to_owned();
        let anew = format!("DROP SCHEMA {schema} CASCADE");
        one.admin().batch_execute(&anew).await.unwrap();
        let dump = PostgresStore::dump(&schema.parse().unwrap());
        one.admin().batch_execute(&dump).await.unwrap();
        let again = cached(&one.rival().await, &redis).await;
        assert!(again.get(draft.id).await.unwrap().is_none());
        assert_eq!(again.counts().hits, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_told_before_it_was_replaced_is_not_kept_for_its_successor() {
    let Some(redis) = address("redis", "FIRSTWRITE_TEST_REDIS") else { return };
    on_database(Way::Direct, &[], async move |database| {
        let subject = Arc::new(PostgresSubject::new(&database, without_memory()).await);
        let store = subject.postgres();
        let scope = CacheScope::of_postgres(&store).await.unwrap();
        let lost = completed("lost", Fence::first(1), 10);
        store.insert(&lost).await.unwrap();
        // While the answer is on its way, a standby without the record takes over, and the store meets it.
        let (seen, replaced, id) = (store.clone(), Arc::clone(&subject), lost.id);
        let fail_over = async move {
            let lose = format!("DELETE FROM records WHERE id = '{id}'");
            replaced.admin().batch_execute(&lose).await.unwrap();
            replace_server(&replaced).await;
            let refused = seen.insert(&reserved("new", Fence::first(2))).await.unwrap_err();
            assert_eq!(refused.kind(), StoreErrorKind::HistoryLost, "{refused}");
        };
        let late = Arc::new(Late::new(store, Box::pin(fail_over)));
        let cached = CachedStore::new(late, scope, &redis, patient()).unwrap();
        cached.now().await.unwrap();
        assert!(cached.get(lost.id).await.unwrap().is_some(), "it was there when it was asked for");
        assert_eq!(cached.get(lost.id).await.unwrap(), None, "the server has lost it");
        assert_eq!(cached.counts().hits, 0);
    })
    .await;
}
