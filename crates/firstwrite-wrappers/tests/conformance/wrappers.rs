//! The suite and recorded histories on stores that wrap another, around `SQLite`.

use std::sync::Arc;

use firstwrite_core::{BoxFuture, Store, Tenant};
use firstwrite_store::SqliteStore;
use firstwrite_testkit::conformance::Report;
use firstwrite_testkit::history::{HistoryOptions, check_store};
use firstwrite_testkit::{Subject, WrappedSubject, conformance};
use firstwrite_wrappers::{BreakerOptions, BreakerStore, MovingStore};

use crate::sqlite::SqliteSubject;

/// Runs the suite, and then histories, on what `wrap` makes of a store.
async fn conforms(wrap: impl Fn(Arc<dyn Store>) -> Arc<dyn Store> + Clone + Send + Sync + 'static) {
    let report = conforms_without(wrap).await;
    assert!(report.skipped.is_empty(), "everything is claimed: {:?}", report.skipped);
}

/// The same for a store that does not claim everything.
async fn conforms_without(
    wrap: impl Fn(Arc<dyn Store>) -> Arc<dyn Store> + Clone + Send + Sync + 'static,
) -> Report {
    conforms_as(wrap, None).await
}

/// The same with keys that are bound to principals of this tenant.
async fn conforms_as(
    wrap: impl Fn(Arc<dyn Store>) -> Arc<dyn Store> + Clone + Send + Sync + 'static,
    owner: Option<Tenant>,
) -> Report {
    let fresh = || -> BoxFuture<'static, Arc<dyn Subject>> {
        let (wrap, owner) = (wrap.clone(), owner.clone());
        Box::pin(async move {
            let inner = Arc::new(SqliteSubject::new().await);
            let wrapped = WrappedSubject::new(inner, wrap);
            Arc::new(match owner {
                Some(owner) => wrapped.owned_by(owner),
                None => wrapped,
            }) as Arc<dyn Subject>
        })
    };
    let report = conformance::assert_conforms(&fresh).await;
    println!("{report}");
    let drawn = firstwrite_testkit::seed();
    for seed in (0..20).chain([drawn]) {
        let subject = fresh().await;
        let report = check_store(subject.store(), seed, HistoryOptions::default()).await;
        report.unwrap_or_else(|violation| panic!("{violation}"));
    }
    report
}

/// New keys go into one file after the other, and the store that is looked into besides stays empty, so one
/// is enough. Transactions, and what needs them, are not claimed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_moves_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let other = SqliteStore::open_or_create(folder.path().join("other.db")).unwrap();
    let report =
        conforms_without(move |inner| Arc::new(MovingStore::new(inner, Arc::new(other.clone()))))
            .await;
    let needs_transactions = |name: &str| {
        let durable = "durable/a_committed_transaction";
        let parts = ["transaction/", "outbox/", "documents/", "findings/", durable];
        parts.iter().any(|part| name.starts_with(part))
    };
    let skipped = report.skipped.iter().filter(|name| !needs_transactions(name));
    assert_eq!(skipped.collect::<Vec<_>>(), Vec::<&&str>::new());
    assert!(report.passed.len() >= 100, "most of the suite needs no transactions");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_breaker_around_sqlite_conforms() {
    conforms(|inner| Arc::new(BreakerStore::new(inner, BreakerOptions::default()))).await;
}

#[cfg(feature = "sealed")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sealed_sqlite_conforms() {
    use firstwrite_wrappers::{KeyRing, SealedStore, SealingKey};

    let key = SealingKey::from_hex("k", &"0123456789abcdef".repeat(4)).unwrap();
    // Transactions of the suite write to the file, not through the store in front of it.
    let ring = KeyRing::new(vec![key]).unwrap().reading_plain();
    conforms(move |inner| Arc::new(SealedStore::new(inner, ring.clone()))).await;
}

/// Keys bound to principals of a tenant that has a sealing key of its own (`/acme/alice`).
#[cfg(feature = "sealed")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sealed_sqlite_conforms_for_principals_of_a_tenant_with_a_key_of_its_own() {
    use firstwrite_wrappers::{KeyRing, SealedStore, SealingKey};

    let acme = Tenant::new("acme").unwrap();
    let general = SealingKey::from_hex("k", &"0123456789abcdef".repeat(4)).unwrap();
    let own = SealingKey::from_hex("acme-1", &"fedcba9876543210".repeat(4)).unwrap();
    let ring = KeyRing::new(vec![general, own.only_for(acme.clone())]).unwrap().reading_plain();
    let wrap = move |inner| Arc::new(SealedStore::new(inner, ring.clone())) as Arc<dyn Store>;
    let report = conforms_as(wrap, Some(acme)).await;
    assert!(report.skipped.is_empty(), "everything is claimed: {:?}", report.skipped);
}

#[cfg(feature = "redis-cache")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_in_front_of_sqlite_conforms() {
    use std::env;
    use std::time::Duration;

    use firstwrite_wrappers::{CacheOptions, CacheScope, CachedStore};

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
