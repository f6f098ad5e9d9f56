//! The store of a gateway: the one that was named, behind a breaker, a cache and seals as wanted.

use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use firstwrite_core::Store;
use firstwrite_store::{
    BreakerOptions, BreakerStore, CacheOptions, CacheScope, CachedStore, KeyRing, MovingStore,
    PostgresStore, SealedStore,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::StoreUrl;
use crate::opening;

/// What is put in front of a store.
pub(super) struct Wanted {
    /// What is looked into besides.
    pub(super) other: Option<StoreUrl>,
    /// Where completed records are cached.
    pub(super) cache: Option<String>,
    /// What outcomes are sealed with.
    pub(super) ring: Option<KeyRing>,
}

/// A store, and whoever looks after it.
pub(super) struct Opened {
    pub(super) store: Arc<dyn Store>,
    /// Whether the breaker leaves it alone.
    pub(super) is_away: watch::Receiver<bool>,
    trying: JoinHandle<()>,
}

/// Opens the store. From the inside out: the breaker fails fast while the store is away, the cache saves
/// questions to it, and nothing but sealed outcomes reaches either.
pub(super) async fn open(url: &StoreUrl, wanted: Wanted) -> anyhow::Result<Opened> {
    let mut plain = opening::open_or_create(url).await?;
    if let Some(other) = &wanted.other {
        anyhow::ensure!(
            wanted.cache.is_none(),
            "a cache would answer for one of two stores; leave --cache out while records move"
        );
        plain = Arc::new(MovingStore::new(plain, opening::open_or_create(other).await?));
    }
    let guarded = Arc::new(BreakerStore::new(plain, BreakerOptions::default()));
    let watched = Arc::clone(&guarded);
    let trying = tokio::spawn(async move { watched.keep_trying().await });
    let is_away = guarded.watch();
    let mut store: Arc<dyn Store> = guarded;
    if let Some(redis) = &wanted.cache {
        let scope = scope(url).await?;
        let cached = CachedStore::new(store, scope, redis, CacheOptions::default());
        store = Arc::new(cached.map_err(|error| anyhow!("cannot use the cache: {error}"))?);
    }
    if let Some(ring) = wanted.ring {
        store = Arc::new(SealedStore::new(store, ring));
    }
    Ok(Opened { store, is_away, trying })
}

/// Whose records the cache holds.
async fn scope(url: &StoreUrl) -> anyhow::Result<CacheScope> {
    match url {
        StoreUrl::Postgres(address) => {
            let store = PostgresStore::connect_read_only(address).await;
            let store = store.map_err(|error| opening::unopened(&error))?;
            CacheScope::of_postgres(&store).await.context("cannot tell which database it is")
        }
        StoreUrl::Mysql(_) | StoreUrl::Dynamodb(_) => {
            Err(anyhow!("a cache in Redis is for PostgreSQL alone, so far; leave --cache out"))
        }
        StoreUrl::Redis(_) => Err(anyhow!(
            "a cache in Redis is for PostgreSQL: this store is Redis; leave --cache out"
        )),
        StoreUrl::Sqlite(_) => Err(anyhow!(
            "a cache in Redis is for PostgreSQL: an SQLite file answers faster than Redis; leave \
             --cache out"
        )),
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.trying.abort();
    }
}
