//! Redis and Valkey, one server or a cluster.
//!
//! Each move is one step of a script, which compares the fence, reads the server's time, changes the record
//! and notes the change for the indexes. Many callers share a script and one connection to each server.
//! There are no transactions for handlers and there is no outbox. An acknowledged write is as durable as
//! the server's log, and a fail-over can lose it; where the loss can be noticed, unknown keys are refused
//! until an operator has examined it.

mod admission;
pub(crate) mod doctor;
mod driver_error;
mod history_loss;
mod keys;
mod link;
mod listing;
mod moves;
mod options;
mod pipeline;
mod record;
mod routing;
mod scripts;

use std::fmt;
use std::sync::Arc;

use firstwrite_core::{
    Capabilities, HistoryClearance, HistoryLoss, Page, Query, RecordId, StateFilter, Store,
    StoreError, store_methods,
};

use crate::history_loss::mark;
use crate::{Access, Migrated, OpenError, tls};
use admission::Durable;
use driver_error::unsupported;
use history_loss::Memory;
use options::Address;
pub use options::{AppendFsync, RedisOptions};
use pipeline::Pipeline;
use routing::Router;

/// A store in Redis or Valkey. Clones share it.
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

struct Inner {
    router: Arc<Router>,
    pipeline: Pipeline,
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
        // The driver takes the provider that is installed.
        tls::provider();
        let router = Router::new(Address::parse(url, options)?);
        admission::admit(&router).await?;
        let put = admission::create(&router).await;
        router.close();
        put.map_err(|error| admission::unreachable(&router, &error))
    }

    async fn open(url: &str, options: RedisOptions, access: Access) -> Result<Self, OpenError> {
        // The driver takes the provider that is installed.
        tls::provider();
        let router = Arc::new(Router::new(Address::parse(url, options)?));
        let durable = match access {
            Access::Write => admission::admit(&router).await?,
            Access::ReadOnly => Durable(false),
        };
        admission::check_created(&router).await?;
        let memory = Arc::default();
        if access == Access::Write
            && let Err(error) = history_loss::verify(&router, &memory).await
        {
            // A full server is opened all the same: existing records are answered.
            if error.code().is_none() {
                return Err(admission::unreachable(&router, &error));
            }
            tracing::warn!(%error, "the server's history cannot be noted");
        }
        tracing::info!(server = %router.address, ?access, durable = durable.0, "connected");
        let pipeline = Pipeline::new(&router, &memory);
        let inner = Inner { router, pipeline, memory, access, durable };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Every time that acknowledged history was found to be missing, oldest first.
    pub async fn history_losses(&self) -> Result<Vec<HistoryLoss>, StoreError> {
        history_loss::all(&self.inner.router).await
    }

    /// Clears every open history loss, so that unknown keys can be written again; call it once an
    /// operator has examined the loss.
    ///
    /// Before that it marks every uncertain record as given up now: the lost history may have sent its request. If
    /// it fails halfway, or if history is lost again meanwhile, the loss stays open. There are no messages to mark.
    pub async fn clear_history_losses(
        &self,
        actor: &str,
        reason: &str,
    ) -> Result<HistoryClearance, StoreError> {
        let router = self.writes("clearing history losses")?;
        let lives = history_loss::lives(router, &self.inner.memory).await?;
        if !history_loss::stands(router).await? {
            return Ok(HistoryClearance::default());
        }
        let marked = mark(self, (actor, reason)).await?;
        history_loss::compare(&lives, &history_loss::lives(router, &self.inner.memory).await?)?;
        let losses = history_loss::clear(router, &lives, (actor, reason)).await?;
        let clearance = marked.of(losses);
        tracing::warn!(server = %router.address, actor, ?clearance, "history losses were cleared");
        Ok(clearance)
    }

    /// Closes the connections. Clones answer [`firstwrite_core::StoreErrorKind::Unavailable`] from now on.
    pub fn close(&self) {
        self.inner.router.close();
    }

    fn writes(&self, doing: &'static str) -> Result<&Router, StoreError> {
        match self.inner.access {
            Access::Write => Ok(&self.inner.router),
            Access::ReadOnly => Err(unsupported(doing, "the store was opened read-only")),
        }
    }
}

impl Inner {
    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let Self { router, memory, access, .. } = self;
        if query.state == Some(StateFilter::Lapsed) && *access == Access::Write {
            // If it fails, the next sweep asks; a write to another server asks by itself.
            router.ask_named().await;
            if let Err(error) = history_loss::verify(router, memory).await {
                tracing::warn!(%error, "the server cannot be asked for lost history");
            }
        }
        listing::list(router, query).await
    }

    async fn check_history(&self, id: RecordId) -> Result<(), StoreError> {
        match self.access {
            Access::Write => history_loss::check(&self.router, &self.memory, id).await,
            Access::ReadOnly => history_loss::check_noticed(&self.router).await,
        }
    }
}

impl Store for RedisStore {
    store_methods!(self;
        capabilities() => Capabilities {
            transactions: false,
            outbox: false,
            durable: self.inner.durable.0,
            server_time: true,
            answers_within: Some(self.inner.router.address.options.answer_for),
        },
        insert(draft) => async move {
            let router = self.writes(moves::INSERTING)?;
            moves::insert((router, &self.inner.pipeline), &self.inner.memory, draft).await
        },
        swap(id, guard, change, audit) => async move {
            let at = (self.writes(moves::SWAPPING)?, &self.inner.pipeline);
            moves::swap(at, &self.inner.memory, (id, guard), &change, audit).await
        },
        get(id) => moves::get(&self.inner.router, id),
        list(query) => self.inner.list(query),
        usage(after, limit) => listing::usage(&self.inner.router, after, limit),
        reap(limit) => async move { listing::reap(self.writes(listing::REAPING)?, limit).await },
        audits(id) => listing::audits(&self.inner.router, id),
        now() => listing::now(&self.inner.router),
        check_history(id) => self.inner.check_history(id),
    );
}

/// Reads an address, and shows it.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn show_address(text: &str) -> Result<String, OpenError> {
    Address::parse(text, RedisOptions::default()).map(|read| format!("{read} {read:?}"))
}

/// Decodes a value of the server, for [`crate::fuzzing`]: a record, an audit entry, or the head of a record that
/// a walk reads.
#[cfg(feature = "fuzzing")]
pub(crate) fn decode_value(bytes: &[u8]) {
    drop(record::decode(RecordId::from_bytes([7; 16]), bytes));
    drop(record::decode_audit(bytes));
    drop(record::count(bytes, 7));
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("servers", &self.inner.router.address)
            .field("access", &self.inner.access)
            .finish_non_exhaustive()
    }
}
