//! Transactions that handlers hold: business rows, messages and the outcome in one commit.
//!
//! A transaction begins by trying an advisory lock on the record's number without waiting, so a rival is
//! told at once and never waits for a handler. The lock is a courtesy: the primary key decides. The outcome
//! is written by a plain insert, sent together with `COMMIT`: if it fails, the server refuses to commit.
//! Only in the rare case of a take-over is the result of the write examined before the commit is sent.
//!
//! A handler's first statement can be sent in the pipeline that begins its transaction. The look-up is then
//! a statement that fails unless the key is free. The server refuses the statements sent after it without
//! running them, so sending them before the verdict is known does no harm.

pub(super) mod commit;
pub(super) mod statements;

use std::ops::Deref;

use deadpool_postgres::ClientWrapper;
use firstwrite_core::{
    AsyncTransactionalStore, BeginResult, Change, Draft, Found, Guard, Message, RecordId, Seen,
    Store as _, StoreError, StoreErrorKind, Swapped, Timestamp, Transacted, Write,
};
use futures_util::future::join3;
use tokio_postgres::{Error, Row};

use super::connect::ROLLBACK;
use super::driver_error::{DriverError, definite, unavailable};
use super::history_loss::{self, Trust, verify_history_to_write};
use super::link::{Link, PooledTransaction};
use super::replays::Mark;
use super::rows::{NewRow, column, instant, only};
use super::{PostgresStore, Shared};
use crate::transactions::{BEGINNING, CONCLUDING, OPEN, Open, conclusion};
use commit::Commit;
use statements::KeyStatus;

/// A transaction of a [`PostgresStore`]: a connection of its pool, inside a transaction that the store
/// began and ends.
///
/// It dereferences to the connection, so the handler's own rows are written as usual, with `prepare_cached`
/// and pipelined statements. Beginning, committing or rolling back by hand breaks the promise that rows and
/// outcome share a commit. The handler's own savepoints are fine. Behind a transaction pooler, use the
/// `query_typed` family: it names no statements.
///
/// If it is dropped instead of concluded, it is rolled back and its connection is closed.
#[derive(Debug)]
pub struct PostgresTx {
    /// `None` once it is concluded or dropped.
    open: Option<Open<PooledTransaction>>,
}

/// Result of beginning a transaction with its first statement pipelined.
#[derive(Debug)]
pub struct PipelinedBegin<T> {
    /// The transaction, as [`begin`](AsyncTransactionalStore::begin) gives it.
    pub begun: BeginResult<PostgresTx>,
    /// Result of the statement. `None` if the key was not free: then the server did not run it, and a
    /// caller that may run all the same (a take-over) sends it again.
    pub first: Option<Result<T, Error>>,
}

/// Maximum number of times that a transaction begins again because the server was not the one asked last.
pub(super) const VERIFICATIONS_MAX: usize = 3;
pub(super) const OTHER_SERVERS: &str = "connections lead to different servers";

impl AsyncTransactionalStore for PostgresStore {
    type Tx = PostgresTx;

    async fn begin(&self, id: RecordId) -> Result<BeginResult<PostgresTx>, StoreError> {
        let shared = self.shared();
        if let Some(found) = shared.replays.get(id, &shared.clock) {
            return Ok(BeginResult::Stands(Box::new(found)));
        }
        let mark = shared.replays.mark();
        let held = self.take_connection(id).await?;
        let status = look(&held.link(), id).await.map_err(definite(BEGINNING))?;
        firstwrite_core::crash_point!("postgres-tx-looked");
        open(held, id, status, mark).await
    }

    async fn conclude(
        &self,
        mut tx: PostgresTx,
        write: Write,
    ) -> Result<Transacted<()>, StoreError> {
        let Open { on: held, id, now, stands, outgoing } = tx.open.take().expect(OPEN);
        let Some((draft, keeps_rows)) = conclusion(write, id)? else {
            held.roll_back(CONCLUDING).await?;
            return Ok(Transacted::Done((), now));
        };
        if let (false, Some(seen)) = (keeps_rows, stands) {
            held.roll_back(CONCLUDING).await?;
            return self.take_over_alone(seen, draft).await;
        }
        let row = NewRow::new(&draft, self.profile_of(&draft).await?);
        let writes_messages = keeps_rows && !outgoing.messages().is_empty();
        let commit = Commit { held, row, outgoing };
        let written = match stands {
            None if keeps_rows => commit.insert().await?,
            None => commit.insert_alone().await?,
            Some(seen) => commit.take_over(seen).await?,
        };
        let result = commit.end(written, &draft).await?;
        if writes_messages && matches!(result, Transacted::Done(..)) {
            self.wrote_messages();
        }
        Ok(result)
    }
}

/// Begins a transaction with a look-up of the record. First verifies a server for which that was not done
/// yet.
async fn look(link: &Link<'_>, id: RecordId) -> Result<KeyStatus, DriverError> {
    let (shared, look) = (link.shared, &link.sql().tx.look);
    for _ in 0..VERIFICATIONS_MAX {
        let values = shared.history.check().values(id);
        let begin = &shared.server.begins().handler;
        let rows = link.begin(begin, look, &values.parameters()).await?;
        let status = KeyStatus::read(only(&rows, "a look-up answers nothing")?)?;
        if status.trust != Trust::Unverified {
            return Ok(status);
        }
        link.tell(ROLLBACK).await?;
        verify_history_to_write(*link).await?;
    }
    Err(unavailable(BEGINNING, OTHER_SERVERS).into())
}

/// Begins a transaction with a look-up that fails unless the key is free, and `first` behind it.
async fn look_ahead<T>(
    link: &Link<'_>,
    id: RecordId,
    first: impl AsyncFnOnce(&ClientWrapper) -> Result<T, Error>,
) -> Result<(KeyStatus, Option<Result<T, Error>>), DriverError> {
    let (shared, tx) = (link.shared, &link.sql().tx);
    // Both now: nothing can be prepared in a transaction that failed.
    link.prepare(&tx.only_if_free).await?;
    link.prepare(&tx.look).await?;
    let values = shared.history.check().values(id);
    let parameters = values.parameters();
    // In this order: each is sent when it is first polled.
    let free = link.query(&tx.only_if_free, &parameters);
    let begin = link.tell(&shared.server.begins().handler);
    let (begun, free, first) = join3(begin, free, first(link.client)).await;
    begun?;
    match free {
        Ok(rows) => {
            let now = instant(only(&rows, "a look-up answers nothing")?, 1)?;
            let (is_locked, has_record, trust) = (true, false, Trust::Whole);
            Ok((KeyStatus { is_locked, has_record, trust, now }, Some(first)))
        }
        Err(error) if error.is_division_by_zero() => {
            // Not free: the ordinary look-up says why.
            link.tell(ROLLBACK).await?;
            Ok((look(link, id).await?, None))
        }
        Err(error) => Err(error),
    }
}

/// Continues a transaction whose look-up has been answered.
async fn open(
    held: PooledTransaction,
    id: RecordId,
    status: KeyStatus,
    mark: Mark,
) -> Result<BeginResult<PostgresTx>, StoreError> {
    let (link, shared) = (held.link(), held.link().shared);
    let found = if status.is_locked && status.has_record {
        link.look_inside(id).await.map_err(definite(BEGINNING))?
    } else {
        None
    };
    if let Some(found) = &found {
        shared.replays.keep(found, mark);
    }
    if let Some(refusal) = status.refusal(shared, found.as_ref()) {
        held.roll_back(BEGINNING).await?;
        return refusal;
    }
    shared.clock.heard(status.now);
    let open = Open::new(held, id, status.now, found.as_ref());
    Ok(BeginResult::Open(PostgresTx { open: Some(open) }, found.map(Box::new)))
}

impl KeyStatus {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            is_locked: column(row, 0)?,
            has_record: column(row, 1)?,
            trust: Trust::of(column(row, 2)?, column(row, 4)?),
            now: instant(row, 3)?,
        })
    }

    /// Returns the answer if the handler may not run: a rival holds the key, or it is unknown and history
    /// is missing.
    pub(super) fn refusal<T>(
        &self,
        shared: &Shared,
        found: Option<&Found>,
    ) -> Option<Result<BeginResult<T>, StoreError>> {
        if !self.is_locked {
            Some(Ok(BeginResult::Busy))
        } else if self.trust != Trust::Whole && found.is_none() {
            Some(Err(history_loss::refuse(shared, BEGINNING)))
        } else {
            None
        }
    }
}

impl PostgresStore {
    /// Begins a transaction on `id` as [`begin`](AsyncTransactionalStore::begin) does, with the handler's
    /// `first` statement in the same pipeline: for handlers whose first statement does not depend on the
    /// existing record. It saves a round trip.
    ///
    /// `first` is given the connection and must do nothing but send statements over it. If the key is not
    /// free, the server refuses them without running them.
    pub async fn begin_ahead<T, F>(
        &self,
        id: RecordId,
        first: F,
    ) -> Result<PipelinedBegin<T>, StoreError>
    where
        F: AsyncFnOnce(&ClientWrapper) -> Result<T, Error>,
    {
        let shared = self.shared();
        if let Some(found) = shared.replays.get(id, &shared.clock) {
            return Ok(PipelinedBegin { begun: BeginResult::Stands(Box::new(found)), first: None });
        }
        let mark = shared.replays.mark();
        let held = self.take_connection(id).await?;
        let looked = look_ahead(&held.link(), id, first).await;
        let (status, first) = looked.map_err(definite(BEGINNING))?;
        Ok(PipelinedBegin { begun: open(held, id, status, mark).await?, first })
    }

    /// Takes a connection for a transaction on `id`, once no dropped one of this process holds its lock.
    async fn take_connection(&self, id: RecordId) -> Result<PooledTransaction, StoreError> {
        self.writes(BEGINNING)?;
        self.shared().releases.wait(id).await;
        PooledTransaction::take(self.shared(), BEGINNING).await
    }

    /// Replaces the existing record by an outcome without an effect.
    pub(super) async fn take_over_alone(
        &self,
        seen: Seen,
        draft: Box<Draft>,
    ) -> Result<Transacted<()>, StoreError> {
        let (id, change) = (draft.id, Change::TakeOver(draft));
        match self.swap(id, Guard::Seen(seen), change, None).await? {
            Swapped::Done(now) => Ok(Transacted::Done((), now)),
            Swapped::Moved(Some(found)) => Ok(Transacted::Rival(found)),
            Swapped::Moved(None) => {
                Err(StoreError::definite(StoreErrorKind::Unavailable, CONCLUDING))
            }
        }
    }
}

impl PostgresTx {
    /// Enqueues a message: it is written with the outcome, and delivered if and only if the transaction commits.
    ///
    /// A step is enqueued at most once in a transaction: the destination tells messages apart by their
    /// derived keys.
    pub fn enqueue(&mut self, message: &Message) -> Result<(), StoreError> {
        self.open.as_mut().expect(OPEN).outgoing.push(message)
    }

    /// The store's time at which this transaction began.
    pub fn now(&self) -> Timestamp {
        self.open().now
    }

    fn open(&self) -> &Open<PooledTransaction> {
        self.open.as_ref().expect(OPEN)
    }
}

impl Drop for PostgresTx {
    fn drop(&mut self) {
        let Some(Open { on: held, id, .. }) = self.open.take() else { return };
        let releases = held.link().shared.releases.clone();
        releases.start(id, async move {
            // The lock is released at once; then the connection is closed, whatever state the handler left
            // it in.
            if let Err(error) = held.link().tell(ROLLBACK).await {
                tracing::debug!(record = %id, %error, "a dropped transaction was not rolled back by hand");
            }
            drop(held);
        });
    }
}

impl Deref for PostgresTx {
    type Target = ClientWrapper;

    fn deref(&self) -> &ClientWrapper {
        self.open().on.link().client
    }
}
