//! The reference store: PostgreSQL, directly or behind a pooler.
//!
//! Reservations and completions of all waiting callers share one transaction, sent as one pipeline by one
//! dispatcher; look-ups share one statement, sent by another. Rare operations take a pooled connection and
//! a row lock. Completed records are cached in memory, since they do not change. Time is the server's.

mod batch;
mod columns;
mod connect;
pub(crate) mod doctor;
mod documents;
mod driver_error;
mod history_loss;
mod inbox;
mod link;
mod listing;
mod options;
mod outbox;
mod profiles;
mod reader;
mod reap;
mod replays;
mod rows;
mod schema;
mod sql;
#[cfg(feature = "sqlx")]
mod sqlx;
mod statements;
mod swap;
mod sweep;
mod tls;
mod tx;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use deadpool_postgres::{Hook, HookError, Pool};
use firstwrite_core::encoding::encode_outcome;
use firstwrite_core::server_clock::ServerClock;
use firstwrite_core::{
    AuditEntry, Capabilities, Change, Draft, Found, Guard, Inserted, RecordId, Store, StoreError,
    Swapped, delegate_store, store_methods,
};

use crate::dispatcher::{Boxed as _, Dispatcher};
use crate::transactions::Releases;
use crate::{Access, Migrated, OpenError};
use batch::{COMPLETING, Command, Completion, CompletionResult, INSERTING};
use connect::{Role, Server};
use driver_error::{definite, unsupported};
use history_loss::{History, verify_history};
use link::Link;
use options::Address;
pub use options::{Pooler, PostgresOptions, SchemaName};
use outbox::Delivering;
use profiles::Profiles;
use reader::LookupRequest;
use reap::ReapCursors;
use replays::Replays;
use rows::NewRow;
#[cfg(feature = "sqlx")]
pub use sqlx::{SqlxPostgresStore, SqlxTx};
use statements::Sql;
use sweep::Sweep;
pub use tx::{PipelinedBegin, PostgresTx};

/// A store in a PostgreSQL schema. Clones share it; when the last one is dropped, waiting commands are
/// finished and the connections are closed.
#[derive(Clone)]
pub struct PostgresStore {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    /// None if the store only reads.
    writes: Option<Dispatcher<Command>>,
    reads: Dispatcher<LookupRequest>,
    delivering: Delivering,
}

/// State shared by everything that uses a connection.
struct Shared {
    server: Server,
    pool: Pool,
    sql: Sql,
    /// Number of transactions that the writer has sent.
    commit_count: AtomicU64,
    profiles: Profiles,
    clock: ServerClock,
    replays: Replays,
    history: History,
    releases: Releases,
    sweep: Sweep,
    reaping: tokio::sync::Mutex<ReapCursors>,
}

impl PostgresStore {
    /// Connects to the server at `url`, whose schema must be there: see [`migrate`].
    ///
    /// `url` is `postgres://USER:PASSWORD@HOST:PORT/DATABASE` with the driver's parameters and our own:
    /// `schema=NAME`, `pooler=transaction`, `fail_over=trusted`, `sslrootcert=FILE`. Several hosts may be named.
    pub async fn connect(url: &str) -> Result<Self, OpenError> {
        Self::connect_with(url, PostgresOptions::default()).await
    }

    /// Connects to the server at `url`, with settings.
    pub async fn connect_with(url: &str, options: PostgresOptions) -> Result<Self, OpenError> {
        Self::open(url, options, Access::Write).await
    }

    /// Connects to the server at `url` for reading. Operations that would change something return
    /// [`Unsupported`](firstwrite_core::StoreErrorKind::Unsupported).
    pub async fn connect_read_only(url: &str) -> Result<Self, OpenError> {
        Self::open(url, PostgresOptions::default(), Access::ReadOnly).await
    }

    /// Brings the schema that `url` names to this build's version. Several may try at once: one does it.
    pub async fn migrate(url: &str, options: PostgresOptions) -> Result<Migrated, OpenError> {
        schema::migrate(url, options).await
    }

    /// Returns the SQL that creates all tables, for users who may not run [`PostgresStore::migrate`]
    /// themselves.
    pub fn dump(schema: &SchemaName) -> String {
        schema::dump(schema)
    }

    /// Returns the SQL that lets `role` use the tables as an application: all it needs, and nothing more.
    pub fn grants(schema: &SchemaName, role: &str) -> String {
        schema::grants(schema, role)
    }

    async fn open(url: &str, options: PostgresOptions, access: Access) -> Result<Self, OpenError> {
        let server = Server::new(Address::parse(url, options)?, access)?;
        let shared = Arc::new_cyclic(|shared| Shared {
            pool: server.pool(on_connect(shared)),
            sql: Sql::new(&server.address.options.schema),
            commit_count: AtomicU64::new(0),
            profiles: Profiles::default(),
            clock: ServerClock::new(replays::read_host),
            replays: Replays::new(server.address.options.cache_bytes_max),
            history: History::default(),
            releases: Releases::default(),
            sweep: Sweep::default(),
            reaping: tokio::sync::Mutex::default(),
            server,
        });
        let server = &shared.server;
        // The first connection tells whether the server can be used, and then serves look-ups.
        let client =
            server.connect(Role::Reader).await.map_err(|error| server.unreachable(&error))?;
        let found = schema::content(&client, &server.address.options.schema).await;
        schema::check(server, found.map_err(|error| server.unreachable(&error))?)?;
        let link = Link { client: &client, shared: &shared };
        verify_history(link).await.map_err(|error| {
            OpenError::new(format!("{} cannot be asked: {error}", server.address))
        })?;
        if access == Access::Write
            && let Err(error) = history_loss::register(&link).await
        {
            // Records can still be read; each write returns the reason for its refusal.
            tracing::warn!(server = %server.address, %error, "nothing can be written");
        }
        let all = None::<Vec<i16>>;
        link.alone(&server.begins().read, &shared.sql.profiles.read, &[&all])
            .await
            .map_err(definite("reading profiles"))
            .and_then(|rows| shared.profiles.learn(&rows))
            .map_err(|error| {
                let text = format!("{} cannot be read; check the user's rights", server.address);
                OpenError::new(text).caused_by(error)
            })?;
        let writes = (access == Access::Write).then(|| batch::start(&shared));
        let reads = reader::start(&shared, client);
        tracing::info!(server = %server.address, ?access, "connected");
        let delivering = Delivering::new(&shared);
        let inner = Inner { shared, writes, reads, delivering };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The pool, which the application's own queries may share. Its connections have the store's
    /// timeouts, and the database's own defaults in everything else.
    pub fn pool(&self) -> &Pool {
        &self.shared().pool
    }

    /// The schema that holds the tables.
    pub fn schema_name(&self) -> &str {
        self.shared().server.address.options.schema.as_str()
    }

    /// Returns the identity of the database and of the tables in it.
    pub async fn identity(&self) -> Result<String, StoreError> {
        const DOING: &str = "asking which database it is";
        let schema = &self.shared().server.address.options.schema;
        let ask = async |link: Link<'_>| Ok(schema::identity(link.client, schema).await?);
        let identity = self.shared().pooled(DOING, ask).await?;
        identity.ok_or_else(|| driver_error::corrupt("tables without an identity"))
    }

    /// Returns the incarnation (start) of the server that was asked last; 0 before the first.
    pub fn incarnation(&self) -> i64 {
        self.shared().history.check().incarnation
    }

    /// Returns the number of transactions the dispatcher has sent: with many callers, far fewer than
    /// commands.
    pub fn commit_count(&self) -> u64 {
        self.shared().commit_count.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes of completed records cached in memory.
    pub fn cached_bytes(&self) -> u64 {
        self.shared().replays.bytes()
    }

    /// Finishes waiting commands and closes the connections. Clones return
    /// [`Unavailable`](firstwrite_core::StoreErrorKind::Unavailable) from now on.
    pub async fn close(self) {
        if let Some(writes) = &self.inner.writes {
            writes.close().await;
        }
        self.inner.reads.close().await;
        self.inner.delivering.close().await;
        self.shared().pool.close();
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    fn writes(&self, doing: &'static str) -> Result<&Dispatcher<Command>, StoreError> {
        self.inner.writes(doing)
    }

    /// Returns the number of the profile of `draft`, which is written first if there is none.
    async fn profile_of(&self, draft: &Draft) -> Result<i16, StoreError> {
        self.shared().profiles.number_for(self.shared(), draft).await
    }
}

impl Inner {
    fn writes(&self, doing: &'static str) -> Result<&Dispatcher<Command>, StoreError> {
        let read_only = || unsupported(doing, "the store was opened read-only");
        self.writes.as_ref().ok_or_else(read_only)
    }

    async fn insert(&self, draft: &Draft) -> Result<Inserted, StoreError> {
        let (writes, shared) = (self.writes(INSERTING)?, &self.shared);
        if let Some(found) = shared.replays.get(draft.id, &shared.clock) {
            return Ok(Inserted::Stands(Box::new(found)));
        }
        let mark = shared.replays.mark();
        let row = NewRow::new(draft, shared.profiles.number_for(shared, draft).await?);
        let stands_for = history_loss::stands_for(draft);
        let insert = |reply| Command::Insert { row, stands_for, reply, tries: 0 };
        let inserted = writes.ask(INSERTING, insert).await?;
        if let Inserted::Stands(found) = &inserted {
            shared.replays.keep(found, mark);
        }
        Ok(inserted)
    }

    async fn swap(
        &self,
        id: RecordId,
        guard: Guard,
        change: Change,
        audit: Option<&AuditEntry>,
    ) -> Result<Swapped, StoreError> {
        let writes = self.writes(swap::DOING)?;
        if let (Guard::Owner(fence), Change::Complete { outcome, retention }, None) =
            (&guard, &change, audit)
        {
            let (fence, retention) = (*fence, *retention);
            let completion = Completion { id, fence, retention, outcome: encode_outcome(outcome) };
            match writes.ask(COMPLETING, |reply| Command::Complete { completion, reply }).await? {
                CompletionResult::Swapped(swapped) => return Ok(swapped),
                CompletionResult::Undecided => {}
            }
        }
        // Boxed: few calls come here, and its space would be moved with every completion.
        Box::pin(swap::swap(&self.shared, (id, guard), change, audit)).await
    }

    async fn get(&self, id: RecordId) -> Result<Option<Found>, StoreError> {
        let Self { shared, reads, .. } = self;
        if let Some(found) = shared.replays.get(id, &shared.clock) {
            return Ok(Some(found));
        }
        reads.ask(reader::DOING, |reply| LookupRequest { id, reply }).await
    }
}

/// Verifies on every connection of the pool that acknowledged writes are still there.
fn on_connect(shared: &Weak<Shared>) -> Hook {
    let shared = Weak::clone(shared);
    Hook::async_fn(move |client, _metrics| {
        let shared = shared.upgrade();
        Box::pin(async move {
            let Some(shared) = shared else { return Ok(()) };
            let verified = verify_history(Link { client, shared: &shared }).await;
            verified.map_err(|error| HookError::message(error.to_string()))
        })
    })
}

impl Store for PostgresStore {
    store_methods!(self;
        capabilities() => Capabilities {
            transactions: true,
            outbox: true,
            durable: true,
            server_time: true,
            answers_within: Some(self.shared().server.address.options.statement_timeout),
        },
        outbox() => Some(self),
        documents() => Some(self),
    );

    delegate_store!(
        inner via boxed: insert, swap, get, list, usage, reap, audits, now, check_history
    );
}

/// Reads an address, and shows it.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn show_address(text: &str) -> Result<String, OpenError> {
    Address::parse(text, PostgresOptions::default()).map(|read| format!("{read} {read:?}"))
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("server", &self.shared().server.address)
            .field("writes", &self.inner.writes.is_some())
            .field("commit_count", &self.commit_count())
            .finish_non_exhaustive()
    }
}
