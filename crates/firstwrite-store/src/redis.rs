//! Redis and Valkey, one server or a cluster.
//!
//! Each move is one step of a script, which compares the fence, reads the server's time, changes the record
//! and notes the change for the indexes. Many callers share a script and one connection to each server.
//! There are no transactions for handlers and there is no outbox. An acknowledged write is as durable as
//! the server's log, and a fail-over can lose it; where the loss can be noticed, unknown keys are refused
//! until an operator has examined it.

mod about;
mod admission;
pub(crate) mod doctor;
mod doubt;
mod fault;
mod flights;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod keys;
mod link;
mod listing;
mod marker;
mod moves;
mod news;
mod options;
mod record;
mod scripts;
mod ways;
mod words;

use std::fmt;
use std::sync::Arc;

use firstwrite_core::{
    AuditEntry, Audited, BoxFuture, Capabilities, Change, Draft, Found, Guard, Inserted, Page,
    Query, RecordId, Store, StoreError, Swapped, Timestamp, UsagePage,
};

use crate::doubt::Doubt;
use crate::{Access, Migrated, OpenError};
use admission::Durable;
use doubt::Memory;
use fault::unsupported;
use flights::Flights;
use options::Address;
pub use options::{AppendFsync, RedisOptions};
use ways::Ways;

/// A store in Redis or Valkey. Clones share it.
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

struct Inner {
    ways: Arc<Ways>,
    flights: Flights,
    memory: Arc<Memory>,
    access: Access,
    durable: Durable,
}

impl RedisStore {
    /// Connects to the server at `url`: `redis://USER:PASSWORD@HOST:PORT`, or `rediss://` for TLS. The store must
    /// have been created there: see [`RedisStore::migrate`].
    ///
    /// Several hosts may be named: of a cluster, any of its servers; of a server with replicas, all of them: the
    /// first that takes writes is used, and the next when it is lost. A server that evicts keys or keeps no log is
    /// refused, unless that is accepted.
    pub async fn connect(url: &str) -> Result<Self, OpenError> {
        Self::connect_with(url, RedisOptions::default()).await
    }

    /// Connects to the server at `url`, with settings. Those in the address take precedence.
    pub async fn connect_with(url: &str, options: RedisOptions) -> Result<Self, OpenError> {
        Self::open(url, options, Access::Write).await
    }

    /// Connects to the server at `url` for reading. Operations that would change something return
    /// [`firstwrite_core::StoreErrorKind::Unsupported`].
    pub async fn connect_read_only(url: &str) -> Result<Self, OpenError> {
        Self::open(url, RedisOptions::default(), Access::ReadOnly).await
    }

    /// Creates the store that `url` names if it is not there: one key that marks it. Several processes may
    /// try at once.
    pub async fn migrate(url: &str, options: RedisOptions) -> Result<Migrated, OpenError> {
        provide_tls();
        let ways = Ways::new(Address::parse(url, options)?);
        admission::admit(&ways).await?;
        let put = marker::put(&ways).await;
        ways.close();
        put.map_err(|trouble| admission::unreachable(&ways, &trouble))
    }

    async fn open(url: &str, options: RedisOptions, access: Access) -> Result<Self, OpenError> {
        provide_tls();
        let ways = Arc::new(Ways::new(Address::parse(url, options)?));
        let durable = match access {
            Access::Write => admission::admit(&ways).await?,
            Access::ReadOnly => Durable(false),
        };
        marker::check(&ways).await?;
        let memory = Arc::default();
        if access == Access::Write
            && let Err(trouble) = doubt::verify(&ways, &memory).await
        {
            // A full server is opened all the same: existing records are answered.
            if trouble.code().is_none() {
                return Err(admission::unreachable(&ways, &trouble));
            }
            tracing::warn!(%trouble, "the server's history cannot be noted");
        }
        tracing::info!(server = %ways.address, ?access, durable = durable.0, "connected");
        let flights = Flights::new(&ways, &memory);
        let inner = Inner { ways, flights, memory, access, durable };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Every time that acknowledged history was found to be missing, oldest first.
    pub async fn doubts(&self) -> Result<Vec<Doubt>, StoreError> {
        doubt::all(&self.inner.ways).await
    }

    /// Clears every open doubt (lost history), so that unknown keys can be written again; call it once an
    /// operator has examined the loss. Returns the number of doubts cleared.
    pub async fn clear_doubts(&self, actor: &str, reason: &str) -> Result<usize, StoreError> {
        let ways = self.writes("clearing doubts")?;
        let cleared = doubt::clear(ways, actor, reason).await?;
        tracing::warn!(server = %ways.address, actor, cleared, "doubts were cleared");
        Ok(cleared)
    }

    /// Closes the connections. Clones answer [`firstwrite_core::StoreErrorKind::Unavailable`] from now on.
    pub fn close(&self) {
        self.inner.ways.close();
    }

    fn writes(&self, doing: &'static str) -> Result<&Ways, StoreError> {
        match self.inner.access {
            Access::Write => Ok(&self.inner.ways),
            Access::ReadOnly => Err(unsupported(doing, "the store was opened read-only")),
        }
    }
}

impl Store for RedisStore {
    fn capabilities(&self) -> Capabilities {
        let durable = self.inner.durable.0;
        Capabilities { transactions: false, outbox: false, durable, server_time: true }
    }

    fn insert<'a>(&'a self, draft: &'a Draft) -> BoxFuture<'a, Result<Inserted, StoreError>> {
        Box::pin(async move {
            let ways = self.writes(moves::INSERTING)?;
            moves::insert((ways, &self.inner.flights), &self.inner.memory, draft).await
        })
    }

    fn swap<'a>(
        &'a self,
        id: RecordId,
        guard: Guard,
        change: Change,
        audit: Option<&'a AuditEntry>,
    ) -> BoxFuture<'a, Result<Swapped, StoreError>> {
        Box::pin(async move {
            let ways = self.writes(moves::SWAPPING)?;
            let at = (ways, &self.inner.flights);
            moves::swap(at, &self.inner.memory, (id, guard), &change, audit).await
        })
    }

    fn get(&self, id: RecordId) -> BoxFuture<'_, Result<Option<Found>, StoreError>> {
        Box::pin(moves::get(&self.inner.ways, id))
    }

    fn list<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Page, StoreError>> {
        Box::pin(listing::list(&self.inner.ways, query))
    }

    fn usage(
        &self,
        after: Option<RecordId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<UsagePage, StoreError>> {
        Box::pin(listing::usage(&self.inner.ways, after, limit))
    }

    fn lapsed(&self, limit: usize) -> BoxFuture<'_, Result<Vec<Found>, StoreError>> {
        Box::pin(async move {
            let Inner { ways, memory, access, .. } = &*self.inner;
            if *access == Access::Write {
                // If it fails, the next sweep asks; a write to another server asks by itself.
                ways.ask_named().await;
                if let Err(trouble) = doubt::verify(ways, memory).await {
                    tracing::warn!(%trouble, "the server cannot be asked for lost history");
                }
            }
            listing::lapsed(ways, limit).await
        })
    }

    fn reap(&self, limit: usize) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(async move { listing::reap(self.writes(listing::REAPING)?, limit).await })
    }

    fn audits(&self, id: RecordId) -> BoxFuture<'_, Result<Vec<Audited>, StoreError>> {
        Box::pin(listing::audits(&self.inner.ways, id))
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        Box::pin(listing::now(&self.inner.ways))
    }

    fn check_history(&self, id: RecordId) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let Inner { ways, memory, access, .. } = &*self.inner;
            match access {
                Access::Write => doubt::check(ways, memory, id).await,
                Access::ReadOnly => doubt::check_noticed(ways).await,
            }
        })
    }
}

/// Installs a rustls crypto provider, which the client leaves to the program. Keeps a provider that is
/// already installed.
fn provide_tls() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means that another thread installed one at the same moment.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("servers", &self.inner.ways.address)
            .field("access", &self.inner.access)
            .finish_non_exhaustive()
    }
}
