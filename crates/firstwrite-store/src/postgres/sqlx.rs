//! Transactions on a handler's own `sqlx` pool, with the same protocol.
//!
//! The records stay with a [`PostgresStore`]; a handler's rows, its messages and its outcome go through one
//! `sqlx` transaction. `sqlx` sends one statement at a time, so this costs two round trips more than
//! [`PostgresTx`](crate::PostgresTx).

mod own;
mod statements;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use firstwrite_core::{
    AsyncTransactionalStore, BeginResult, Draft, DraftState, Inserted, Message, RecordId, Seen,
    Store, StoreError, StoreErrorKind, Timestamp, Transacted, Write, delegate_store,
};
use sqlx::postgres::PgDatabaseError;
use sqlx::{PgConnection, PgPool, Postgres, Transaction};

use super::PostgresStore;
use super::driver_error::unavailable;
use super::history_loss::{self, Acknowledged, Trust};
use super::rows::NewRow;
use super::tx::outgoing::Outgoing;
use super::tx::{BEGINNING, CONCLUDING, GREETINGS_MAX, OTHER_SERVERS, check};
use statements::{Looked, SqlxSql};

/// A [`PostgresStore`] whose handlers work with transactions of an `sqlx` pool. Both must lead to the
/// same database.
#[derive(Clone)]
pub struct SqlxPostgresStore {
    store: PostgresStore,
    pool: PgPool,
    sql: Arc<SqlxSql>,
}

/// A transaction of a [`SqlxPostgresStore`].
///
/// It dereferences to the connection, which is an executor: `query.execute(&mut **tx)`. Nested
/// transactions are savepoints. Dropped instead of concluded, it is rolled back.
pub struct SqlxTx {
    open: Option<Open>,
}

struct Open {
    tx: Transaction<'static, Postgres>,
    store: PostgresStore,
    id: RecordId,
    now: Timestamp,
    stands: Option<Seen>,
    outgoing: Outgoing,
}

/// Message of the `expect` on the open transaction.
const OPEN: &str = "a transaction is open until it is concluded";

impl SqlxPostgresStore {
    /// Joins a store and a pool.
    pub fn new(store: PostgresStore, pool: PgPool) -> Self {
        let options = &store.inner.shared.server.address.options;
        let sql = SqlxSql::new(&options.schema, store.inner.shared.server.has_sessions());
        Self { store, pool, sql: Arc::new(sql) }
    }

    /// The store that keeps the records.
    pub fn store(&self) -> &PostgresStore {
        &self.store
    }

    /// Returns the pool that handlers' transactions come from.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Begins a transaction with a look-up of the record, on a server that was verified to have all
    /// acknowledged writes.
    async fn look(
        &self,
        id: RecordId,
    ) -> Result<(Transaction<'static, Postgres>, Looked), StoreError> {
        for _ in 0..GREETINGS_MAX {
            let mut tx = self.pool.begin().await.map_err(|error| not_begun(&error))?;
            let known = self.store.inner.shared.asked();
            let looked =
                self.sql.look(&mut tx, id, known).await.map_err(|error| not_begun(&error))?;
            if looked.trust != Trust::NotAsked {
                return Ok((tx, looked));
            }
            tx.rollback().await.map_err(|error| not_begun(&error))?;
            self.store.verify_history().await?;
        }
        Err(unavailable(BEGINNING, OTHER_SERVERS))
    }

    /// Writes everything in `open`, and commits.
    async fn commit(&self, open: Open, draft: &Draft) -> Result<Transacted<()>, StoreError> {
        let Open { mut tx, id, stands, outgoing, .. } = open;
        let row = NewRow::new(draft, self.store.profile_of(draft).await?);
        // A cached outcome that is being replaced is not kept meanwhile.
        let _changing = stands.map(|_| self.store.inner.shared.replays.changing(id));
        if self.store.inner.shared.acknowledged_writes.waits_for_standby() {
            self.sql.be_patient(&mut tx).await.map_err(|error| {
                StoreError::definite(kind_of(&error), CONCLUDING).caused_by(text_of(&error))
            })?;
        }
        let written = match stands {
            None => self.sql.insert(&mut tx, &row, &outgoing).await.map(Some),
            Some(seen) => self.sql.replace(&mut tx, &row, seen, &outgoing).await,
        };
        let (now, lost) = match written {
            Ok(now) => (now, None),
            Err(error) => (None, Some(error)),
        };
        let Some(now) = now else {
            // Undone by now or about to be; nothing of it was committed.
            if let Err(error) = tx.rollback().await {
                tracing::debug!(record = %id, error = %text_of(&error), "a roll-back failed");
            }
            return self.rival_or(draft, lost).await;
        };
        match tx.commit().await {
            Ok(()) => {
                if let DraftState::Completed { .. } = &draft.state {
                    let (fence, until) = (draft.fence, now.plus(draft.retention.replay_for));
                    let write = Acknowledged { id, fence, until };
                    self.store.inner.shared.acknowledged_writes.acknowledged(write);
                }
                self.store.inner.shared.clock.heard(now);
                if outgoing.len() > 0 {
                    self.store.wrote_messages();
                }
                Ok(Transacted::Done((), now))
            }
            Err(error) if is_undone(&error) => self.rival_or(draft, Some(error)).await,
            Err(error) => {
                Err(StoreError::indeterminate(kind_of(&error), CONCLUDING)
                    .caused_by(text_of(&error)))
            }
        }
    }

    /// Returns the rival record that stands in the way of `draft`, or else the error.
    async fn rival_or(
        &self,
        draft: &Draft,
        error: Option<sqlx::Error>,
    ) -> Result<Transacted<()>, StoreError> {
        let may_be_rival = error.as_ref().is_none_or(|error| {
            code_of(error).is_some_and(|code| super::driver_error::is_rivals_code(&code))
        });
        if may_be_rival
            && let Some(found) = self.store.look_up(draft.id).await?
            && found.record.fence != draft.fence
        {
            return Ok(Transacted::Rival(Box::new(found)));
        }
        Err(match error {
            Some(error) => {
                StoreError::definite(kind_of(&error), CONCLUDING).caused_by(text_of(&error))
            }
            None => StoreError::definite(StoreErrorKind::Unavailable, CONCLUDING),
        })
    }
}

/// A transaction that did not begin, so nothing of it was done.
fn not_begun(error: &sqlx::Error) -> StoreError {
    StoreError::definite(kind_of(error), BEGINNING).caused_by(text_of(error))
}

impl AsyncTransactionalStore for SqlxPostgresStore {
    type Tx = SqlxTx;

    async fn begin(&self, id: RecordId) -> Result<BeginResult<SqlxTx>, StoreError> {
        let shared = &self.store.inner.shared;
        if let Some(found) = shared.replays.get(id, &shared.clock) {
            return Ok(BeginResult::Stands(Box::new(found)));
        }
        let mark = shared.replays.mark();
        self.store.ready_for(id).await?;
        let (tx, Looked { is_locked, stands, trust, now }) = self.look(id).await?;
        // An existing record is committed, so another connection sees it too.
        let found = match (is_locked, stands) {
            (true, true) => self.store.look_up(id).await?,
            (true, false) | (false, _) => None,
        };
        if let Some(found) = &found {
            shared.replays.keep(found, mark);
        }
        if !is_locked || (trust != Trust::Whole && found.is_none()) {
            tx.rollback().await.map_err(|error| not_begun(&error))?;
            return if is_locked {
                Err(history_loss::refuse(shared, BEGINNING))
            } else {
                Ok(BeginResult::Busy)
            };
        }
        let stands = found.as_ref().map(|found| found.record.seen());
        let (store, outgoing) = (self.store.clone(), Outgoing::default());
        let open = Open { tx, store, id, now, stands, outgoing };
        Ok(BeginResult::Open(SqlxTx { open: Some(open) }, found.map(Box::new)))
    }

    async fn conclude(&self, mut tx: SqlxTx, write: Write) -> Result<Transacted<()>, StoreError> {
        let open = tx.open.take().expect(OPEN);
        let (id, stands, now) = (open.id, open.stands, open.now);
        let undone = |error: sqlx::Error| {
            StoreError::definite(kind_of(&error), CONCLUDING).caused_by(text_of(&error))
        };
        match write {
            Write::All(draft) => {
                check(&draft, id)?;
                self.commit(open, &draft).await
            }
            Write::RecordOnly(draft) => {
                check(&draft, id)?;
                open.tx.rollback().await.map_err(undone)?;
                match stands {
                    Some(seen) => self.store.take_over_alone(seen, draft).await,
                    None => match self.store.insert(&draft).await? {
                        Inserted::Done(now) => Ok(Transacted::Done((), now)),
                        Inserted::Stands(found) => Ok(Transacted::Rival(found)),
                    },
                }
            }
            Write::Nothing => {
                open.tx.rollback().await.map_err(undone)?;
                Ok(Transacted::Done((), now))
            }
        }
    }
}

/// A server's error, with its code.
fn code_of(error: &sqlx::Error) -> Option<String> {
    error.as_database_error()?.code().map(std::borrow::Cow::into_owned)
}

/// Returns true if the server reported that it rolled back, and the session is still alive.
fn is_undone(error: &sqlx::Error) -> bool {
    let database =
        error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
    database.is_some_and(|error| error.severity() == sqlx::postgres::PgSeverity::Error)
}

fn kind_of(error: &sqlx::Error) -> StoreErrorKind {
    match code_of(error) {
        Some(code) => super::driver_error::kind_of_code(&code),
        None => StoreErrorKind::Unavailable,
    }
}

/// The error in words. A server's message and code; never its detail, which may hold values.
fn text_of(error: &sqlx::Error) -> String {
    match (error.as_database_error(), code_of(error)) {
        (Some(database), Some(code)) => format!("{} ({code})", database.message()),
        (Some(_), None) | (None, _) => error.to_string(),
    }
}

impl SqlxTx {
    /// Has a message written with the outcome, to be delivered if and only if the transaction commits.
    ///
    /// A step is enqueued at most once in a transaction: the destination tells messages apart by their
    /// derived keys.
    pub fn enqueue(&mut self, message: &Message) -> Result<(), StoreError> {
        self.open.as_mut().expect(OPEN).outgoing.push(message)
    }

    /// The store's time at which this transaction began.
    pub fn now(&self) -> Timestamp {
        self.open.as_ref().expect(OPEN).now
    }
}

impl Deref for SqlxTx {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.open.as_ref().expect(OPEN).tx
    }
}

impl DerefMut for SqlxTx {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.open.as_mut().expect(OPEN).tx
    }
}

impl Drop for SqlxTx {
    fn drop(&mut self) {
        let Some(Open { tx, store, id, .. }) = self.open.take() else { return };
        store.inner.shared.releases.start(id, async move {
            if let Err(error) = tx.rollback().await {
                tracing::debug!(record = %id, error = %text_of(&error), "a roll-back failed");
            }
        });
    }
}

impl fmt::Debug for SqlxTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlxTx")
            .field("record", &self.open.as_ref().map(|open| open.id))
            .field("message_count", &self.open.as_ref().map(|open| open.outgoing.len()))
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SqlxPostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlxPostgresStore").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Store for SqlxPostgresStore {
    delegate_store!(
        store:
            capabilities, insert, swap, get, list, usage, lapsed, reap, audits, now,
            check_history, outbox, documents
    );
}
