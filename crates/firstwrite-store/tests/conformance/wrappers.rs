//! The suite and recorded histories on stores that wrap another, around `SQLite`.

use std::sync::Arc;

use firstwrite_core::{BoxFuture, Store};
use firstwrite_store::{BreakerOptions, BreakerStore};
use firstwrite_testkit::history::{HistoryOptions, check_store};
use firstwrite_testkit::{Subject, WrappedSubject, conformance};

use crate::sqlite::SqliteSubject;

/// Runs the suite, and then histories, on what `wrap` makes of a store.
async fn conforms(wrap: impl Fn(Arc<dyn Store>) -> Arc<dyn Store> + Clone + Send + Sync + 'static) {
    let fresh = || -> BoxFuture<'static, Arc<dyn Subject>> {
        let wrap = wrap.clone();
        Box::pin(async move {
            let inner = Arc::new(SqliteSubject::new().await);
            Arc::new(WrappedSubject::new(inner, wrap)) as Arc<dyn Subject>
        })
    };
    let report = conformance::assert_conforms(&fresh).await;
    println!("{report}");
    assert!(report.skipped.is_empty(), "everything is claimed: {:?}", report.skipped);
    let drawn = fastrand::u64(..);
    println!("fresh seed {drawn}");
    for seed in (0..20).chain([drawn]) {
        let subject = fresh().await;
        let report = check_store(subject.store(), seed, HistoryOptions::default()).await;
        report.unwrap_or_else(|violation| panic!("{violation}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_breaker_around_sqlite_conforms() {
    conforms(|inner| Arc::new(BreakerStore::new(inner, BreakerOptions::default()))).await;
}

#[cfg(feature = "sealed")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sealed_sqlite_conforms() {
    use firstwrite_store::{KeyRing, SealedStore, SealingKey};

    let key = SealingKey::from_hex("k", &"0123456789abcdef".repeat(4)).unwrap();
    let ring = KeyRing::new(vec![key]).unwrap();
    conforms(move |inner| Arc::new(SealedStore::new(inner, ring.clone()))).await;
}

#[cfg(feature = "redis-cache")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_in_front_of_sqlite_conforms() {
    use std::env;
    use std::time::Duration;

    use firstwrite_store::{CacheOptions, CacheScope, CachedStore};

    let Ok(url) = env::var("FIRSTWRITE_TEST_REDIS") else {
        let is_required = env::var("FIRSTWRITE_TEST_REQUIRE").is_ok_and(|value| value == "all");
        assert!(!is_required, "FIRSTWRITE_TEST_REDIS is not set and everything is required");
        println!("skipped: redis (FIRSTWRITE_TEST_REDIS is not set)");
        return;
    };
    // One database after the other, as with files of their own.
    conforms(move |inner| {
        let scope = CacheScope::named(&format!("conformance {:016x}", fastrand::u64(..)));
        // The machine may be busy.
        let mut options = CacheOptions::default();
        options.timeout = Duration::from_secs(5);
        options.connect_timeout = Duration::from_secs(5);
        Arc::new(CachedStore::new(inner, scope, &url, options).unwrap())
    })
    .await;
}
