//! A store with a cache in front, and Redis as its operator sees it.

use std::env;
use std::time::Duration;

use firstwrite_core::{
    Change, Fence, Guard, Inserted, OnLostAnswer, Policy, Record, RecordId, Request, Store, Tenant,
};
use firstwrite_testkit::{MemorySubject, Subject, sample};
use firstwrite_wrappers::{CacheOptions, CacheScope, CachedStore};
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, cmd};

/// One that is killed is not missed for long.
pub(crate) fn quick() -> CacheOptions {
    let mut options = CacheOptions::default();
    options.open_for = Duration::ZERO;
    // The machine may be busy; what is slow on purpose sets its own.
    options.timeout = Duration::from_secs(5);
    options.connect_timeout = Duration::from_secs(5);
    options
}

pub(crate) struct Scene {
    pub(crate) subject: MemorySubject,
    pub(crate) scope: CacheScope,
    pub(crate) store: CachedStore,
    pub(crate) url: String,
    /// Of this scene alone, so that ids are too.
    pub(crate) tenant: Tenant,
    redis: MultiplexedConnection,
}

/// The address of Redis. Skipped where none is named, unless everything is required.
pub(crate) fn address() -> Option<String> {
    let address = env::var("FIRSTWRITE_TEST_REDIS").ok();
    if address.is_none() {
        let is_required = env::var("FIRSTWRITE_TEST_REQUIRE").is_ok_and(|value| value == "all");
        assert!(!is_required, "FIRSTWRITE_TEST_REDIS is not set and everything is required");
        println!("skipped: redis (FIRSTWRITE_TEST_REDIS is not set)");
    }
    address
}

impl Scene {
    pub(crate) async fn new() -> Option<Self> {
        let url = address()?;
        Some(Self::with(&url, &url, quick()).await)
    }

    /// The cache goes to `way`, the operator to `url`.
    pub(crate) async fn with(url: &str, way: &str, options: CacheOptions) -> Self {
        let client = redis::Client::open(url).unwrap();
        let redis = client.get_multiplexed_async_connection().await.unwrap();
        let scope = CacheScope::named(&format!("test {:016x}", fastrand::u64(..)));
        let subject = MemorySubject::new();
        let store = CachedStore::new(subject.store(), scope.clone(), way, options).unwrap();
        // The store tells its time before anything can be certain.
        store.now().await.unwrap();
        let tenant = sample::tenant(&format!("shop-{:016x}", fastrand::u64(..)));
        Self { subject, scope, store, url: url.to_owned(), tenant, redis }
    }

    /// A second process in front of the same store.
    pub(crate) async fn rival(&self) -> CachedStore {
        let inner = self.subject.store();
        let rival = CachedStore::new(inner, self.scope.clone(), &self.url, quick()).unwrap();
        rival.now().await.unwrap();
        rival
    }

    pub(crate) fn request(&self, key: &str) -> Request {
        sample::request(&self.tenant, &sample::key(key), 1)
    }

    /// Reserves and completes behind the cache.
    pub(crate) async fn complete(&self, key: &str) -> Record {
        self.complete_with(key, sample::outcome(201, key)).await
    }

    pub(crate) async fn complete_with(
        &self,
        key: &str,
        outcome: firstwrite_core::Outcome,
    ) -> Record {
        let request = self.request(key);
        let policy = sample::policy(OnLostAnswer::Uncertain);
        let draft = sample::reserved(&request, &policy, Fence::first(1));
        assert!(matches!(self.store.insert(&draft).await.unwrap(), Inserted::Done(_)));
        let change = Change::Complete { outcome, retention: Policy::default().record_retention() };
        let guard = Guard::Owner(draft.fence);
        self.store.swap(draft.id, guard, change, None).await.unwrap();
        self.behind(draft.id).await.unwrap()
    }

    /// What the store behind the cache has.
    pub(crate) async fn behind(&self, id: RecordId) -> Option<Record> {
        self.subject.store().get(id).await.unwrap().map(|found| found.record)
    }

    /// What a caller is told.
    pub(crate) async fn told(&self, id: RecordId) -> Option<Record> {
        self.store.get(id).await.unwrap().map(|found| found.record)
    }

    pub(crate) async fn advance(&self, by: Duration) {
        self.subject.advance(by).await;
        self.store.now().await.unwrap();
    }

    pub(crate) fn hits(&self) -> u64 {
        self.store.counts().hits
    }

    pub(crate) async fn redis<T: FromRedisValue>(&self, words: &[&[u8]]) -> T {
        let mut command = cmd(std::str::from_utf8(words[0]).unwrap());
        for word in &words[1..] {
            command.arg(*word);
        }
        command.query_async(&mut self.redis.clone()).await.unwrap()
    }

    /// The keys in Redis that are about a record.
    pub(crate) async fn keys(&self, id: RecordId) -> Vec<String> {
        self.redis(&[b"KEYS", format!("firstwrite:*:{id}").as_bytes()]).await
    }

    /// The only one, which must be there.
    pub(crate) async fn key(&self, id: RecordId) -> String {
        let keys = self.keys(id).await;
        assert_eq!(keys.len(), 1, "{keys:?}");
        keys[0].clone()
    }
}
