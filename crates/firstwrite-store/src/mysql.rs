//! MySQL and MariaDB, one server or a Galera cluster with one writer.
//!
//! Reservations and completions of all waiting callers share one transaction, sent as one pipeline by one
//! dispatcher. All other operations take a pooled connection, and lock the rows that must not change
//! between being read and being written. No look-up relies on a snapshot: every transaction of ours is READ
//! COMMITTED, and the primary key of a record is the arbiter. Time is the server's.

mod batch;
mod connect;
pub(crate) mod doctor;
mod documents;
mod driver_error;
mod history_loss;
mod inbox;
mod listing;
mod options;
mod outbox;
mod pipeline;
mod pool;
mod reap;
mod rows;
mod schema;
mod swap;
mod tx;
mod writer;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use firstwrite_core::encoding::encode_outcome;
use firstwrite_core::{
    AuditEntry, Capabilities, Change, Draft, Guard, Inserted, RecordId, Store, StoreError, Swapped,
    delegate_store, store_methods,
};

use crate::dispatcher::{Boxed as _, Dispatcher};
use crate::transactions::Releases;
use crate::{Access, Migrated, OpenError};
use batch::{COMPLETING, Command, Completion, INSERTING, NewRow};
use connect::Server;
use driver_error::unsupported;
use options::Address;
pub use options::MysqlOptions;
use outbox::Delivering;
use pool::Pool;
use reap::ReapCursor;
pub use tx::MysqlTx;

/// A store in a MySQL or MariaDB database. Clones share it; when the last one is dropped, waiting commands
/// are finished and the connections are closed.
#[derive(Clone)]
pub struct MysqlStore {
    inner: Arc<Inner>,
}

struct Inner {
    pool: Arc<Pool>,
    /// None if the store only reads.
    writes: Option<Dispatcher<Command>>,
    releases: Releases,
    reaping: tokio::sync::Mutex<ReapCursor>,
    delivering: Delivering,
}

impl MysqlStore {
    /// Connects to the server at `url`, whose tables must be there: see [`MysqlStore::migrate`].
    ///
    /// `url` is `mysql://USER:PASSWORD@HOST:PORT/DATABASE` with `sslmode=disable|prefer|require`,
    /// `sslrootcert=FILE` and `fail_over=untrusted|trusted`. Several hosts may be named: the store uses the
    /// first that can be reached and takes writes, and the next when it is lost. It refuses several servers
    /// that take writes.
    pub async fn connect(url: &str) -> Result<Self, OpenError> {
        Self::connect_with(url, MysqlOptions::default()).await
    }

    /// Connects to the server at `url`, with settings.
    pub async fn connect_with(url: &str, options: MysqlOptions) -> Result<Self, OpenError> {
        Self::open(url, options, Access::Write).await
    }

    /// Connects to the server at `url` for reading. Operations that would change something return
    /// [`Unsupported`](firstwrite_core::StoreErrorKind::Unsupported).
    pub async fn connect_read_only(url: &str) -> Result<Self, OpenError> {
        Self::open(url, MysqlOptions::default(), Access::ReadOnly).await
    }

    /// Brings the database that `url` names to this build's version. Several may try at once.
    pub async fn migrate(url: &str, options: MysqlOptions) -> Result<Migrated, OpenError> {
        schema::migrate(url, options).await
    }

    /// Returns the SQL that creates all tables, for users who may not run [`MysqlStore::migrate`]
    /// themselves.
    pub fn dump() -> String {
        schema::dump()
    }

    /// The SQL that lets `user`, from any host, use the tables that `url` leads to: all it needs, and
    /// nothing more.
    pub fn grants(url: &str, user: &str) -> Result<String, OpenError> {
        let address = Address::parse(url, MysqlOptions::default())?;
        Ok(schema::grants(address.database(), user))
    }

    async fn open(url: &str, options: MysqlOptions, access: Access) -> Result<Self, OpenError> {
        let server = Server::new(Address::parse(url, options)?, access)?;
        // The first connection tells whether any will do.
        let mut connection = server.connect().await.map_err(|error| server.unreachable(&error))?;
        let found = schema::version(&mut connection).await;
        schema::check(&server, found.map_err(|error| server.unreachable(&error))?)?;
        tracing::info!(server = %server.address, ?access, "connected");
        if access == Access::Write
            && let Some(names) = connect::rivals(&server).await
        {
            return Err(OpenError::new(format!(
                "several of the named hosts take writes: {names}; make all but one of them \
                 read-only, or keys are kept in two places"
            )));
        }
        let pool = Pool::new(server);
        let verified = pool.verify(&pool.history.slot(), &mut connection).await;
        verified.map_err(|error| pool.server.unreachable(&error))?;
        pool.give(connection);
        let writes = (access == Access::Write).then(|| writer::start(&pool));
        let reaping = tokio::sync::Mutex::default();
        let (releases, delivering) = (Releases::default(), Delivering::default());
        let inner = Inner { pool, writes, releases, reaping, delivering };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns a pool of the driver's own to the server that is in use, for the application's queries
    /// outside of handlers. It opens its first connection on demand.
    pub fn own_pool(&self) -> mysql_async::Pool {
        mysql_async::Pool::new(self.pool().server.driver_options())
    }

    /// Returns the number of transactions the dispatcher has sent: with many callers, far fewer than
    /// commands.
    pub fn commit_count(&self) -> u64 {
        self.pool().commit_count.load(Ordering::Relaxed)
    }

    /// Finishes waiting commands and closes the connections. Clones return
    /// [`Unavailable`](firstwrite_core::StoreErrorKind::Unavailable) from now on.
    pub async fn close(self) {
        if let Some(writes) = &self.inner.writes {
            writes.close().await;
        }
        self.inner.pool.close();
    }

    fn pool(&self) -> &Arc<Pool> {
        &self.inner.pool
    }

    fn writes(&self, doing: &'static str) -> Result<&Dispatcher<Command>, StoreError> {
        self.inner.writes(doing)
    }
}

impl Inner {
    fn writes(&self, doing: &'static str) -> Result<&Dispatcher<Command>, StoreError> {
        let read_only = || unsupported(doing, "the store was opened read-only");
        self.writes.as_ref().ok_or_else(read_only)
    }

    async fn insert(&self, draft: &Draft) -> Result<Inserted, StoreError> {
        let writes = self.writes(INSERTING)?;
        if let Some(refusal) = self.pool.refusal(INSERTING) {
            let found = self.get(draft.id).await?;
            return found.map_or(Err(refusal), |found| Ok(Inserted::Stands(Box::new(found))));
        }
        let row = NewRow::new(draft);
        writes.ask(INSERTING, |reply| Command::Insert { row, reply }).await
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
            let (fence, retention, is_interim) = (*fence, *retention, outcome.is_interim);
            let outcome = encode_outcome(outcome);
            let completion = Completion { id, fence, outcome, is_interim, retention };
            let written = writes.ask(COMPLETING, |reply| Command::Complete { completion, reply });
            if let Some(now) = written.await? {
                return Ok(Swapped::Done(now));
            }
            // Looked at closely, under a lock.
        }
        swap::swap(&self.pool, id, guard, &change, audit).await
    }
}

impl Store for MysqlStore {
    store_methods!(self;
        capabilities() => Capabilities {
            transactions: true,
            outbox: true,
            durable: true,
            server_time: true,
            answers_within: Some(self.pool().server.address.options.statement_timeout),
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
    Address::parse(text, MysqlOptions::default()).map(|read| format!("{read} {read:?}"))
}

impl fmt::Debug for MysqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlStore")
            .field("server", &self.inner.pool.server.address)
            .field("writes", &self.inner.writes.is_some())
            .field("commit_count", &self.commit_count())
            .finish_non_exhaustive()
    }
}
