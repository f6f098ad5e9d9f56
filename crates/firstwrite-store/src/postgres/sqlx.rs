//! Transactions on a handler's own `sqlx` pool, with the same protocol.
//!
//! The records stay with a [`PostgresStore`]; a handler's rows, its messages and its outcome go through one
//! `sqlx` transaction. `sqlx` sends one statement at a time, so this costs two round trips more than
//! [`PostgresTx`](crate::PostgresTx).

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytes::BytesMut;
use firstwrite_core::{
    AsyncTransactionalStore, BeginResult, Draft, Found, Inserted, Message, RecordId, Seen, Store,
    StoreError, Timestamp, Transacted, Write, delegate_store,
};
use sqlx::encode::{Encode, IsNull};
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgRow, PgTypeInfo};
use sqlx::{AssertSqlSafe, Error, PgConnection, PgPool, Postgres, Row as _, Transaction};
use tokio_postgres::types::{self, FromSql, ToSql};

use super::PostgresStore;
use super::columns::{At, Id, Values};
use super::driver_error::{DriverError, definite, failed_commit, unavailable};
use super::history_loss::{Trust, stands_for, verify_history_to_write};
use super::rows::NewRow;
use super::sql::Statement;
use super::tx::commit::expected_lease;
use super::tx::statements::{KeyStatus, messages_values, replace_values};
use super::tx::{OTHER_SERVERS, VERIFICATIONS_MAX};
use crate::transactions::{BEGINNING, CONCLUDING, OPEN, Open, conclusion};

/// A [`PostgresStore`] whose handlers work with transactions of an `sqlx` pool. Both must lead to the
/// same database.
#[derive(Clone)]
pub struct SqlxPostgresStore {
    store: PostgresStore,
    pool: PgPool,
}

/// A transaction of a [`SqlxPostgresStore`].
///
/// It dereferences to the connection, which is an executor: `query.execute(&mut **tx)`. Nested
/// transactions are savepoints. Dropped instead of concluded, it is rolled back.
#[derive(Debug)]
pub struct SqlxTx {
    open: Option<Open<On>>,
}

/// A transaction of a pool, and the store that keeps the records.
struct On {
    tx: Transaction<'static, Postgres>,
    store: PostgresStore,
}

impl SqlxPostgresStore {
    /// Joins a store and a pool.
    pub fn new(store: PostgresStore, pool: PgPool) -> Self {
        Self { store, pool }
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
    ) -> Result<(Transaction<'static, Postgres>, KeyStatus), StoreError> {
        let shared = self.store.shared();
        for _ in 0..VERIFICATIONS_MAX {
            let mut tx = self.pool.begin().await.map_err(definite(BEGINNING))?;
            let values = shared.history.check().values(id);
            let row = self.query(&mut tx, &shared.sql.tx.look, &values).await;
            let status = row.and_then(key_status).map_err(definite(BEGINNING))?;
            if status.trust != Trust::Unverified {
                return Ok((tx, status));
            }
            tx.rollback().await.map_err(definite(BEGINNING))?;
            shared.pooled(BEGINNING, verify_history_to_write).await?;
        }
        Err(unavailable(BEGINNING, OTHER_SERVERS))
    }

    /// Looks up the record under `id` on a connection of the store's own, as it is now.
    async fn look_up(&self, id: RecordId) -> Result<Option<Found>, StoreError> {
        self.store.shared().pooled(CONCLUDING, async |link| link.look_alone(id).await).await
    }

    /// Runs a statement of ours, and returns the first row of its answer.
    async fn query(
        &self,
        connection: &mut PgConnection,
        statement: &Statement,
        values: &Values<'_>,
    ) -> Result<Option<PgRow>, DriverError> {
        let is_persistent = self.store.shared().server.has_sessions();
        // Ours but for the schema's name, which is plain by its type.
        let mut query =
            sqlx::query(AssertSqlSafe(Arc::clone(&statement.text))).persistent(is_persistent);
        for (value, kind) in values.parameters().into_iter().zip(&statement.types) {
            query = query.bind(Argument { value, kind });
        }
        Ok(query.fetch_optional(connection).await?)
    }

    /// Inserts the record and the messages, or replaces the record that was seen; returns no time if that
    /// record has moved.
    async fn write(
        &self,
        tx: &mut PgConnection,
        row: &NewRow,
        stands: Option<Seen>,
        messages: &[Message],
    ) -> Result<Option<Timestamp>, DriverError> {
        let sql = &self.store.shared().sql;
        let Some(seen) = stands else {
            let (statement, values) = sql.tx.insertion(row, messages);
            let written = self.query(tx, statement, &values).await?;
            return Ok(Some(time(&written.ok_or(Error::RowNotFound)?, 0)?));
        };
        if !messages.is_empty() {
            self.query(tx, &sql.tx.messages, &messages_values(row.id, messages)).await?;
        }
        let (fence, lease_until) = (seen.fence.as_u64().cast_signed(), expected_lease(seen));
        let values = replace_values(row, fence, lease_until);
        let Some(written) = self.query(tx, &sql.tx.replace, &values).await? else {
            return Ok(None);
        };
        let now = time(&written, 0)?;
        // A completed attempt has ended already.
        if lease_until.is_none() {
            return Ok(Some(now));
        }
        let values = Values::default().and(Id(row.id)).and(fence);
        Ok(self.query(tx, &sql.supersede, &values).await?.map(|_ended| now))
    }

    /// Writes everything in `open`, and commits.
    async fn commit(&self, open: Open<On>, draft: &Draft) -> Result<Transacted<()>, StoreError> {
        let Open { on: On { mut tx, .. }, id, stands, outgoing, .. } = open;
        let (shared, messages) = (self.store.shared(), outgoing.messages());
        let row = NewRow::new(draft, self.store.profile_of(draft).await?);
        // A cached outcome that is being replaced is not kept meanwhile.
        let _changing = stands.map(|_| shared.replays.changing(id));
        if shared.history.waits_for_standby() {
            // See [`PATIENT_COMMIT`](super::connect::PATIENT_COMMIT).
            let patient = sqlx::raw_sql("SET LOCAL statement_timeout = 0").execute(&mut *tx).await;
            patient.map_err(definite(CONCLUDING))?;
        }
        let now = match self.write(&mut tx, &row, stands, messages).await {
            Ok(Some(now)) => now,
            moved_or_failed => {
                // Undone by now or about to be; nothing of it was committed.
                roll_back(tx, id).await;
                let moved = unavailable(CONCLUDING, "the record has moved").into();
                return self.rival_or(draft, moved_or_failed.err().unwrap_or(moved)).await;
            }
        };
        match tx.commit().await.map_err(DriverError::from) {
            Ok(()) => {
                shared.acknowledged(id, draft.fence, now, stands_for(draft));
                if !messages.is_empty() {
                    self.store.wrote_messages();
                }
                Ok(Transacted::Done((), now))
            }
            Err(error) if error.is_undone() => self.rival_or(draft, error).await,
            Err(error) => Err(failed_commit(CONCLUDING)(error)),
        }
    }

    /// Returns the rival record that stands in the way of `draft`, or else the error.
    async fn rival_or(
        &self,
        draft: &Draft,
        error: DriverError,
    ) -> Result<Transacted<()>, StoreError> {
        if error.may_be_rival()
            && let Some(found) = self.look_up(draft.id).await?
            && found.record.fence != draft.fence
        {
            return Ok(Transacted::Rival(Box::new(found)));
        }
        Err(definite(CONCLUDING)(error))
    }
}

/// A parameter as `tokio-postgres` encodes it, so that both drivers share statements and values.
struct Argument<'a> {
    value: &'a (dyn ToSql + Sync),
    kind: &'a types::Type,
}

impl sqlx::Type<Postgres> for Argument<'_> {
    /// Unused: every argument says its own type.
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(0))
    }
}

impl Encode<'_, Postgres> for Argument<'_> {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let mut bytes = BytesMut::new();
        let is_null = self.value.to_sql_checked(self.kind, &mut bytes)?;
        buffer.extend_from_slice(&bytes);
        Ok(match is_null {
            types::IsNull::Yes => IsNull::Yes,
            types::IsNull::No => IsNull::No,
        })
    }

    fn produces(&self) -> Option<PgTypeInfo> {
        Some(PgTypeInfo::with_oid(Oid(self.kind.oid())))
    }
}

fn key_status(row: Option<PgRow>) -> Result<KeyStatus, DriverError> {
    let row = row.ok_or(Error::RowNotFound)?;
    Ok(KeyStatus {
        is_locked: row.try_get(0)?,
        has_record: row.try_get(1)?,
        trust: Trust::of(row.try_get(2)?, row.try_get(4)?),
        now: time(&row, 3)?,
    })
}

fn time(row: &PgRow, index: usize) -> Result<Timestamp, Error> {
    let bytes = row.try_get_raw(index)?.as_bytes().map_err(Error::Decode)?;
    let at = At::from_sql(&types::Type::TIMESTAMPTZ, bytes).map_err(Error::Decode)?;
    at.instant().ok_or_else(|| Error::Decode("an instant is missing".into()))
}

async fn roll_back(tx: Transaction<'static, Postgres>, id: RecordId) {
    if let Err(error) = tx.rollback().await.map_err(DriverError::from) {
        tracing::debug!(record = %id, %error, "a roll-back failed");
    }
}

impl AsyncTransactionalStore for SqlxPostgresStore {
    type Tx = SqlxTx;

    async fn begin(&self, id: RecordId) -> Result<BeginResult<SqlxTx>, StoreError> {
        let shared = self.store.shared();
        if let Some(found) = shared.replays.get(id, &shared.clock) {
            return Ok(BeginResult::Stands(Box::new(found)));
        }
        let mark = shared.replays.mark();
        self.store.writes(BEGINNING)?;
        shared.releases.wait(id).await;
        let (tx, status) = self.look(id).await?;
        // An existing record is committed, so another connection sees it too.
        let found =
            if status.is_locked && status.has_record { self.look_up(id).await? } else { None };
        if let Some(found) = &found {
            shared.replays.keep(found, mark);
        }
        if let Some(refusal) = status.refusal(shared, found.as_ref()) {
            tx.rollback().await.map_err(definite(BEGINNING))?;
            return refusal;
        }
        let on = On { tx, store: self.store.clone() };
        let open = Open::new(on, id, status.now, found.as_ref());
        Ok(BeginResult::Open(SqlxTx { open: Some(open) }, found.map(Box::new)))
    }

    async fn conclude(&self, mut tx: SqlxTx, write: Write) -> Result<Transacted<()>, StoreError> {
        let open = tx.open.take().expect(OPEN);
        let (id, stands, now) = (open.id, open.stands, open.now);
        let conclusion = conclusion(write, id)?;
        if let Some((draft, true)) = &conclusion {
            return self.commit(open, draft).await;
        }
        open.on.tx.rollback().await.map_err(definite(CONCLUDING))?;
        match (conclusion, stands) {
            (None, _) => Ok(Transacted::Done((), now)),
            (Some((draft, _)), Some(seen)) => self.store.take_over_alone(seen, draft).await,
            (Some((draft, _)), None) => match self.store.insert(&draft).await? {
                Inserted::Done(now) => Ok(Transacted::Done((), now)),
                Inserted::Stands(found) => Ok(Transacted::Rival(found)),
            },
        }
    }
}

impl SqlxTx {
    /// Enqueues a message: it is written with the outcome, and delivered if and only if the transaction commits.
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
        &self.open.as_ref().expect(OPEN).on.tx
    }
}

impl DerefMut for SqlxTx {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.open.as_mut().expect(OPEN).on.tx
    }
}

impl Drop for SqlxTx {
    fn drop(&mut self) {
        let Some(Open { on: On { tx, store }, id, .. }) = self.open.take() else { return };
        store.shared().releases.start(id, roll_back(tx, id));
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
            capabilities, insert, swap, get, list, usage, reap, audits, now,
            check_history, outbox, documents
    );
}
