//! A connection in use: runs one statement, or several in one pipeline if nothing is decided in between. It
//! is one of the pool's, or one of the store's own.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Object};
use firstwrite_core::{Found, RecordId, StoreError, Timestamp};
use futures_util::future::{join, join3};
use tokio::time::Instant;
use tokio_postgres::Row;

use super::Shared;
use super::columns::Id;
use super::connect::{COMMIT, PATIENT_COMMIT, ROLLBACK, Role};
use super::driver_error::{DriverError, definite, failed_commit, no_connection};
use super::history_loss::verify_history;
use super::rows::{LookupResult, clock_in, unknown_profiles};
use super::sql::{Parameters, Statement};
use super::statements::Sql;

/// A connection with the store's shared state.
#[derive(Clone, Copy)]
pub(super) struct Link<'a> {
    pub(super) client: &'a ClientWrapper,
    pub(super) shared: &'a Shared,
}

/// A pooled connection in the middle of a transaction. Unless it is settled, dropping it closes it and the
/// server rolls back, so that no caller gets a connection with another's open transaction.
pub(super) struct PooledTransaction {
    client: Option<Object>,
    shared: Arc<Shared>,
}

/// A connection of its own, made when it is needed.
pub(super) struct OwnClient {
    shared: Arc<Shared>,
    role: Role,
    client: Option<Arc<ClientWrapper>>,
    backoff: Option<Backoff>,
}

/// The server could not be reached; not tried again before `until`.
#[derive(Clone, Copy, Debug)]
struct Backoff {
    until: Instant,
    wait: Duration,
}

/// Delay between two attempts to reach an unavailable server: short at first, and never long, since callers
/// are refused meanwhile.
const WAIT_MIN: Duration = Duration::from_millis(50);
const WAIT_MAX: Duration = Duration::from_secs(2);

impl<'a> Link<'a> {
    pub(super) fn sql(&self) -> &'a Sql {
        &self.shared.sql
    }

    /// Waits for the server's answer, up to the longest time that it can take.
    async fn in_time<T>(
        &self,
        pipeline: impl Future<Output = Result<T, DriverError>>,
    ) -> Result<T, DriverError> {
        let limit = self.shared.server.pipeline_for_max();
        tokio::time::timeout(limit, pipeline).await.unwrap_or(Err(DriverError::Silence))
    }

    /// Makes the next [`query`](Self::query) send its request at once, so that several can be sent in one
    /// pipeline.
    pub(super) async fn prepare(&self, statement: &Statement) -> Result<(), DriverError> {
        if self.shared.server.has_sessions() {
            self.client.prepare_typed_cached(&statement.text, &statement.types).await?;
        }
        Ok(())
    }

    /// Runs a statement in the transaction that is open, or in one of its own.
    pub(super) async fn query(
        &self,
        statement: &Statement,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, DriverError> {
        let Statement { text, types } = statement;
        self.in_time(async {
            Ok(if self.shared.server.has_sessions() {
                let prepared = self.client.prepare_typed_cached(text, types).await?;
                self.client.query(&prepared, parameters).await?
            } else {
                // Without a name, since the next transaction may be on another connection.
                let typed: Vec<_> = parameters.iter().copied().zip(types.iter().cloned()).collect();
                self.client.query_typed(text, &typed).await?
            })
        })
        .await
    }

    /// Sends statements that answer nothing.
    pub(super) async fn tell(&self, sql: &str) -> Result<(), DriverError> {
        self.in_time(async { Ok(self.client.batch_execute(sql).await?) }).await
    }

    /// Ends a transaction, however long a standby takes.
    pub(super) async fn commit(&self) -> Result<(), DriverError> {
        let may_wait = self.shared.history.waits_for_standby();
        self.tell(if may_wait { PATIENT_COMMIT } else { COMMIT }).await
    }

    /// Begins a transaction and runs its first statement, in one pipeline.
    pub(super) async fn begin(
        &self,
        begin: &str,
        statement: &Statement,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, DriverError> {
        self.prepare(statement).await?;
        let (begun, rows) = join(self.tell(begin), self.query(statement, parameters)).await;
        begun?;
        rows
    }

    /// Runs one statement in a transaction that begins with `begin`, in one pipeline.
    pub(super) async fn alone(
        &self,
        begin: &str,
        statement: &Statement,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, DriverError> {
        self.prepare(statement).await?;
        let (begun, rows, committed) =
            join3(self.tell(begin), self.query(statement, parameters), self.commit()).await;
        match begun.and(rows) {
            Ok(rows) => committed.map(|()| rows),
            Err(error) => {
                // Where this fails too, the connection is of no use, and closed as such.
                drop(self.tell(ROLLBACK).await);
                Err(error)
            }
        }
    }

    /// Looks up each of `ids` and returns one result per id, in no order, also for ids without a record.
    ///
    /// With sessions, the connections that look up begin in the right isolation by themselves.
    pub(super) async fn look(&self, ids: &[RecordId]) -> Result<Vec<LookupResult>, DriverError> {
        let ids: Vec<Id> = ids.iter().copied().map(Id).collect();
        let find = &self.sql().find;
        let rows = if self.shared.server.has_sessions() {
            self.query(find, &[&ids]).await?
        } else {
            self.alone(&self.shared.server.begins().look, find, &[&ids]).await?
        };
        self.read(&rows).await
    }

    /// Looks up the record under `id` from within the open transaction.
    pub(super) async fn look_inside(&self, id: RecordId) -> Result<Option<Found>, DriverError> {
        let rows = self.query(&self.sql().find, &[&vec![Id(id)]]).await?;
        Ok(self.read(&rows).await?.pop().and_then(LookupResult::found))
    }

    /// Looks up the record under `id` in a transaction of its own.
    pub(super) async fn look_alone(&self, id: RecordId) -> Result<Option<Found>, DriverError> {
        let begin = &self.shared.server.begins().read;
        let rows = self.alone(begin, &self.sql().find, &[&vec![Id(id)]]).await?;
        Ok(self.read(&rows).await?.pop().and_then(LookupResult::found))
    }

    /// Decodes the rows of a look-up.
    pub(super) async fn read(&self, rows: &[Row]) -> Result<Vec<LookupResult>, DriverError> {
        let profiles = &self.shared.profiles;
        let unknown = unknown_profiles(rows, profiles);
        if !unknown.is_empty() {
            profiles.learn(&self.query(&self.sql().profiles.read, &[&unknown]).await?)?;
        }
        let results: Result<Vec<LookupResult>, StoreError> =
            rows.iter().map(|row| LookupResult::read(row, profiles)).collect();
        let results = results?;
        if let Some(last) = results.last() {
            self.shared.clock.heard(last.now);
        }
        Ok(results)
    }
}

impl PooledTransaction {
    /// Takes a connection from the pool.
    pub(super) async fn take(
        shared: &Arc<Shared>,
        doing: &'static str,
    ) -> Result<Self, StoreError> {
        let client = shared.pool.get().await.map_err(|error| no_connection(doing, &error))?;
        Ok(Self { client: Some(client), shared: Arc::clone(shared) })
    }

    pub(super) fn link(&self) -> Link<'_> {
        let client = self.client.as_ref().expect("a connection is there until it is settled");
        Link { client, shared: &self.shared }
    }

    /// Rolls the transaction back, and gives the connection back to the pool.
    pub(super) async fn roll_back(self, doing: &'static str) -> Result<(), StoreError> {
        self.link().tell(ROLLBACK).await.map_err(definite(doing))?;
        self.settle();
        Ok(())
    }

    /// No transaction is open any more: the pool may have it back.
    pub(super) fn settle(mut self) {
        drop(self.client.take());
    }
}

impl Drop for PooledTransaction {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            drop(Object::take(client));
        }
    }
}

impl OwnClient {
    pub(super) fn new(shared: &Arc<Shared>, role: Role, client: Option<ClientWrapper>) -> Self {
        Self { shared: Arc::clone(shared), role, client: client.map(Arc::new), backoff: None }
    }

    /// A connection that was alive a moment ago. If there is none, nothing was sent.
    pub(super) async fn get(&mut self) -> Result<&Arc<ClientWrapper>, DriverError> {
        if self.client.as_ref().is_none_or(|client| client.is_closed()) {
            self.client = None;
            if self.backoff.is_some_and(|backoff| Instant::now() < backoff.until) {
                return Err(DriverError::Away);
            }
            match self.connect().await {
                Ok(client) => {
                    self.backoff = None;
                    self.client = Some(Arc::new(client));
                }
                Err(error) => {
                    let wait = self.backoff.map_or(WAIT_MIN, |last| last.wait.saturating_mul(2));
                    let wait = wait.min(WAIT_MAX);
                    self.backoff = Some(Backoff { until: Instant::now() + wait, wait });
                    tracing::warn!(server = %self.shared.server.address, %error, "cannot connect");
                    return Err(error);
                }
            }
        }
        Ok(self.client.as_ref().expect("there is one, or this has returned"))
    }

    /// The connection is of no use any more.
    pub(super) fn drop_client(&mut self) {
        self.client = None;
    }

    async fn connect(&self) -> Result<ClientWrapper, DriverError> {
        let shared = &self.shared;
        let limit = shared.server.address.options.connect_for.saturating_mul(2);
        let connecting = async {
            let client = shared.server.connect(self.role).await?;
            verify_history(Link { client: &client, shared }).await?;
            Ok(client)
        };
        tokio::time::timeout(limit, connecting).await.unwrap_or(Err(DriverError::Silence))
    }
}

impl Shared {
    /// Runs `work` on a pooled connection. It changes nothing, and leaves no transaction open where it
    /// succeeds.
    pub(super) async fn pooled<T>(
        self: &Arc<Self>,
        doing: &'static str,
        work: impl AsyncFnOnce(Link<'_>) -> Result<T, DriverError>,
    ) -> Result<T, StoreError> {
        let held = PooledTransaction::take(self, doing).await?;
        let done = work(held.link()).await.map_err(definite(doing))?;
        held.settle();
        Ok(done)
    }

    /// Runs one statement that only reads, in a transaction of its own on a pooled connection.
    pub(super) async fn read_alone(
        self: &Arc<Self>,
        doing: &'static str,
        statement: &Statement,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        let begin = &self.server.begins().read;
        self.pooled(doing, async |link| link.alone(begin, statement, parameters).await).await
    }

    /// Reads in one snapshot on a pooled connection, at the time of that snapshot.
    pub(super) async fn snapshot<T>(
        self: &Arc<Self>,
        doing: &'static str,
        read: impl AsyncFnOnce(&Link<'_>, Timestamp) -> Result<T, DriverError>,
    ) -> Result<T, StoreError> {
        let begin = &self.server.begins().snapshot;
        let snapshot = async |link: Link<'_>| {
            let now = clock_in(&link.begin(begin, &self.sql.now, &[]).await?)?;
            let found = read(&link, now).await?;
            link.commit().await?;
            Ok(found)
        };
        self.pooled(doing, snapshot).await
    }

    /// Runs one statement that writes, in a transaction of its own on a pooled connection.
    pub(super) async fn write_alone(
        self: &Arc<Self>,
        doing: &'static str,
        statement: &Statement,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        let held = PooledTransaction::take(self, doing).await?;
        let rows = held.link().alone(&self.server.begins().rare, statement, parameters).await;
        let rows = rows.map_err(failed_commit(doing))?;
        held.settle();
        Ok(rows)
    }
}
