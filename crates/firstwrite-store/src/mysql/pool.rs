//! Connection pool of a store: a bounded number, lent for one pipeline or for a handler's transaction.
//!
//! A connection returns to the pool only if its user declares that no transaction is open on it. Otherwise
//! it is closed and the server rolls back, so that no caller gets another's transaction.
//!
//! A step may take several pipelines in one transaction, and is retried if the server rolled it back because
//! of another transaction.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use firstwrite_core::{StoreError, Timestamp, lock};
use mysql_async::prelude::Queryable;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::batch::time_in;
use super::connect::{self, Connection, Server};
use super::driver_error::{DriverError, unavailable};
use super::history_loss::{self, History, Slot};
use super::pipeline::{Answer, Pipeline, SendError};
use crate::Access;

/// Idle connections, and the number of connections that may be open.
pub(super) struct Pool {
    pub(super) server: Server,
    pub(super) history: Arc<History>,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Idle>>,
    /// The named hosts that take writes, if the last sweep found several.
    rivals: Mutex<Option<String>>,
    is_closed: AtomicBool,
    /// Number of transactions that the writer has sent.
    pub(super) commit_count: AtomicU64,
}

struct Idle {
    connection: Connection,
    since: Instant,
}

/// A connection in use.
pub(super) struct PooledConnection {
    /// `None` once it is settled.
    connection: Option<Connection>,
    /// Counts the commits on this connection; returned before the permit is.
    slot: Slot,
    pool: Arc<Pool>,
    _permit: OwnedSemaphorePermit,
}

/// Age up to which an idle connection is assumed to be alive; an older one is checked first. The driver
/// does not notice that a connection was closed before it is used.
const FRESH: Duration = Duration::from_millis(500);

/// Maximum number of attempts of a step that the server rolled back because of another transaction.
const TRIES_MAX: usize = 4;

/// Retries a step until it is done or cannot be: `$step` is an expression that sends pipelines in `$session`.
macro_rules! take {
    ($pool:expr, $doing:expr, |$session:ident| $step:expr) => {{
        let (mut $session, mut tried) = ($pool.get($doing).await?, 0);
        loop {
            match $step.await {
                Ok(done) => {
                    $session.settle();
                    break Ok::<_, firstwrite_core::StoreError>(done);
                }
                Err(error) => $session = $session.again(error, $doing, &mut tried).await?,
            }
        }
    }};
}
pub(super) use take;

impl Pool {
    pub(super) fn new(server: Server) -> Arc<Self> {
        let size = server.address.options.pool_size_max.max(1);
        let permits = Arc::new(Semaphore::new(size));
        Arc::new(Self {
            server,
            history: History::new(fastrand::i64(..), size),
            permits,
            idle: Mutex::default(),
            rivals: Mutex::default(),
            is_closed: AtomicBool::new(false),
            commit_count: AtomicU64::new(0),
        })
    }

    /// A connection, which is alive.
    pub(super) async fn get(
        self: &Arc<Self>,
        doing: &'static str,
    ) -> Result<PooledConnection, StoreError> {
        let wait = self.server.address.options.pool_wait_for;
        let permit = tokio::time::timeout(wait, Arc::clone(&self.permits).acquire_owned()).await;
        let permit = match permit {
            Ok(Ok(permit)) => permit,
            Ok(Err(_closed)) => return Err(unavailable(doing, "the store is closed")),
            Err(_elapsed) => {
                return Err(unavailable(doing, "too busy: no connection became free in time"));
            }
        };
        let (pool, slot) = (Arc::clone(self), self.history.slot());
        let connection = self.connection(&slot).await.map_err(|error| error.definite(doing))?;
        Ok(PooledConnection { connection: Some(connection), slot, pool, _permit: permit })
    }

    /// Runs a pipeline on its own connection. Sends it again if the server rolled it back because of
    /// another transaction.
    pub(super) async fn send(
        self: &Arc<Self>,
        doing: &'static str,
        pipeline: &Pipeline,
    ) -> Result<Vec<Answer>, StoreError> {
        take!(self, doing, |session| session.send(pipeline))
    }

    /// Checks, once in each sweep, that acknowledged writes are there and that only one host takes writes.
    pub(super) async fn sweep(self: &Arc<Self>, doing: &'static str) -> Result<(), StoreError> {
        let mut pooled = self.get(doing).await?;
        pooled.verify().await.map_err(|error| error.definite(doing))?;
        pooled.settle();
        let found = connect::rivals(&self.server).await;
        if let Some(hosts) = &found {
            tracing::error!(%hosts, "several of the named hosts take writes: unknown keys are refused");
        }
        *lock(&self.rivals) = found;
        Ok(())
    }

    /// If several hosts take writes, returns the error that refuses unknown keys for now.
    pub(super) fn refusal(&self, doing: &'static str) -> Option<StoreError> {
        let rivals = lock(&self.rivals);
        let why = |hosts| format!("several of the named hosts take writes: {hosts}");
        rivals.as_ref().map(|hosts| unavailable(doing, why(hosts)))
    }

    /// Takes a connection in that was made elsewhere.
    pub(super) fn give(&self, connection: Connection) {
        lock(&self.idle).push(Idle { connection, since: Instant::now() });
    }

    /// Refuses new users and closes idle connections.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.permits.close();
        lock(&self.idle).clear();
    }

    async fn connection(&self, slot: &Slot) -> Result<Connection, DriverError> {
        loop {
            let Some(Idle { mut connection, since }) = lock(&self.idle).pop() else {
                let mut connection = self.server.connect().await?;
                self.verify(slot, &mut connection).await?;
                return Ok(connection);
            };
            if since.elapsed() < FRESH {
                return Ok(connection);
            }
            let limit = self.server.address.options.connect_for;
            if let Ok(Ok(())) = tokio::time::timeout(limit, connection.conn.ping()).await {
                return Ok(connection);
            }
            // Most often all of them are gone.
            lock(&self.idle).retain(|idle| idle.since.elapsed() < FRESH);
        }
    }

    /// Checks that the server behind a connection has all acknowledged writes.
    pub(super) async fn verify(
        &self,
        slot: &Slot,
        connection: &mut Connection,
    ) -> Result<(), DriverError> {
        if self.server.access == Access::Write {
            history_loss::verify(&self.server, slot, connection).await?;
        }
        Ok(())
    }
}

/// Message of the `expect` on the connection.
const CONNECTED: &str = "a connection is there until it is settled";

impl PooledConnection {
    pub(super) fn connection(&mut self) -> &mut Connection {
        self.connection.as_mut().expect(CONNECTED)
    }

    pub(super) fn shared(&self) -> &Connection {
        self.connection.as_ref().expect(CONNECTED)
    }

    pub(super) fn slot(&self) -> &Slot {
        &self.slot
    }

    pub(super) async fn send(&mut self, pipeline: &Pipeline) -> Result<Vec<Answer>, SendError> {
        self.connection().send(pipeline).await
    }

    /// Begins a transaction with the statements of `rest`, whose first answer of interest holds the time.
    /// Stops if history is missing.
    pub(super) async fn begin(
        &mut self,
        rest: impl FnOnce(&mut Pipeline),
    ) -> Result<(Timestamp, Vec<Answer>), SendError> {
        let mut pipeline = Pipeline::transaction();
        self.slot.stop_unless_whole(&mut pipeline);
        let time = pipeline.add("SELECT @firstwrite_now", &[]);
        rest(&mut pipeline);
        let mut answers = self.send(&pipeline).await?;
        let now = time_in(&answers[time])?;
        Ok((now, answers.split_off(time + 1)))
    }

    /// Rolls back a step that failed. Returns the reason if it may not be retried.
    pub(super) async fn again(
        mut self,
        error: SendError,
        doing: &'static str,
        tried: &mut usize,
    ) -> Result<Self, StoreError> {
        *tried += 1;
        let is_missing = error.cause.is_history_missing();
        if (is_missing || error.may_repeat())
            && *tried < TRIES_MAX
            && self.roll_back().await
            && (!is_missing || self.verify().await.is_ok())
        {
            return Ok(self);
        }
        self.fail(&error).await;
        Err(match error {
            SendError { cause: DriverError::Read(error), is_unknown: false } => error,
            error => error.error(doing),
        })
    }

    pub(super) fn refusal(&self, doing: &'static str) -> Option<StoreError> {
        self.pool.refusal(doing)
    }

    /// Checks that the server has all acknowledged writes.
    pub(super) async fn verify(&mut self) -> Result<(), DriverError> {
        let connection = self.connection.as_mut().expect(CONNECTED);
        self.pool.verify(&self.slot, connection).await
    }

    /// Rolls back; returns false if the connection can no longer be used.
    pub(super) async fn roll_back(&mut self) -> bool {
        self.connection().roll_back().await
    }

    /// Gives the connection back: nothing is open in it.
    pub(super) fn settle(mut self) {
        let Some(connection) = self.connection.take() else { return };
        self.slot.is_settled = true;
        if !self.pool.is_closed.load(Ordering::SeqCst) && !connection.conn.is_disconnected() {
            self.pool.give(connection);
        }
    }

    /// Rolls back and gives the connection back. If the server is gone, so is the transaction.
    pub(super) async fn undo(mut self) {
        if self.roll_back().await {
            self.settle();
        }
    }

    /// Ends after a pipeline that failed: rolls back, if the server is still there.
    pub(super) async fn fail(self, error: &SendError) {
        if error.cause.is_about_server() {
            lock(&self.pool.idle).clear();
        } else {
            self.undo().await;
        }
    }
}
