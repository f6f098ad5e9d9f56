//! The store of a gateway: the one that was named, behind a breaker, a cache and seals as wanted.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use firstwrite_core::Store;
use firstwrite_store::{PostgresOptions, PostgresStore, open_within};
use firstwrite_wrappers::{
    BreakerOptions, BreakerStore, CacheOptions, CacheScope, CachedStore, KeyRing, MovingStore,
    SealedStore,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::StoreUrl;
use crate::opening::{self, Missing, NamedStore};

/// Options for opening a store, and the layers to put in front of it.
pub(super) struct Wanted {
    /// Behaviour if the store does not exist.
    pub(super) missing: Missing,
    /// Second store to look records up in.
    pub(super) other: Option<StoreUrl>,
    /// Redis server that caches completed records.
    pub(super) cache: Option<String>,
    /// The shortest lease of any operation: no step of the store takes longer than that, nor is waited for.
    pub(super) lease_min: Duration,
}

/// An open store, and the task that retries it while it is unavailable.
pub(super) struct Opened {
    pub(super) store: Arc<dyn Store>,
    /// True if this opening created it.
    pub(super) is_new: bool,
    /// True while the breaker sends it no calls.
    pub(super) is_away: watch::Receiver<bool>,
    /// The cache in front of it, if there is one.
    pub(super) cached: Option<Arc<CachedStore>>,
    /// The second store, in which records are looked up while they move.
    other: Option<Arc<dyn Store>>,
    /// The store that seals outcomes, if they are.
    pub(super) sealed: Option<Arc<SealedStore>>,
    trying: JoinHandle<()>,
}

/// Opens the store. From the inside out: the breaker fails fast while the store is away, the cache saves
/// questions to it, and nothing but sealed outcomes reaches either.
pub(super) async fn open(named: &NamedStore, wanted: Wanted) -> anyhow::Result<Opened> {
    let url = &named.url;
    let opening::Opened { store: mut plain, is_new } =
        opening::open_for_service(url, wanted.missing, wanted.lease_min).await?;
    let mut other = None;
    if let Some(url) = &wanted.other {
        let opened = open_within(&url.address(), wanted.lease_min).await;
        let opened = opened.map_err(|error| opening::unopened(&error))?;
        plain = Arc::new(MovingStore::new(plain, Arc::clone(&opened)));
        other = Some(opened);
    }
    let mut scope = None;
    if wanted.cache.is_some() {
        let serving = postgres(url, wanted.lease_min).await?;
        scope = Some(
            CacheScope::of_postgres(&serving).await.context("cannot tell which database it is")?,
        );
        plain = Arc::new(serving);
    }
    let mut options = BreakerOptions::default();
    options.call_timeout = options.call_timeout.min(wanted.lease_min);
    let guarded = Arc::new(BreakerStore::new(plain, options));
    let watched = Arc::clone(&guarded);
    let trying = tokio::spawn(async move { watched.keep_trying().await });
    let is_away = guarded.watch();
    let mut store: Arc<dyn Store> = guarded;
    let mut cached = None;
    if let (Some(redis), Some(scope)) = (&wanted.cache, scope) {
        let front = CachedStore::new(store, scope, redis, CacheOptions::default());
        let front = Arc::new(front.map_err(|error| anyhow!("cannot use the cache: {error}"))?);
        store = Arc::clone(&front) as Arc<dyn Store>;
        cached = Some(front);
    }
    let sealed =
        named.ring.clone().map(|ring| Arc::new(SealedStore::new(Arc::clone(&store), ring)));
    if let Some(sealed) = &sealed {
        store = Arc::clone(sealed) as Arc<dyn Store>;
    }
    Ok(Opened { store, is_new, is_away, cached, other, sealed, trying })
}

impl Opened {
    /// The stores that know keys: this one, and while records move the other one.
    pub(super) fn all(&self) -> Vec<Arc<dyn Store>> {
        [&self.store].into_iter().chain(&self.other).cloned().collect()
    }

    /// Refuses keys where there were none, and none where there were some: what stands in front of a store
    /// is decided when it is opened.
    pub(super) fn check_keys(&self, ring: Option<&KeyRing>) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.sealed.is_some() == ring.is_some(),
            "[sealing] is switched on and off by a restart alone"
        );
        Ok(())
    }

    /// Goes on with other keys; dropped tenants are dropped at once.
    pub(super) fn replace_keys(&self, ring: Option<KeyRing>) {
        if let (Some(sealed), Some(ring)) = (&self.sealed, ring) {
            sealed.replace_keys(ring);
        }
    }
}

/// The store that serves behind a cache. The cache's scope is taken from this very handle: only the one
/// that is in use learns that its server has another life.
async fn postgres(url: &StoreUrl, lease_min: Duration) -> anyhow::Result<PostgresStore> {
    let mut options = PostgresOptions::default();
    options.statement_timeout = options.statement_timeout.min(lease_min);
    let opened = PostgresStore::connect_with(&url.address(), options).await;
    opened.map_err(|error| opening::unopened(&error))
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.trying.abort();
    }
}
