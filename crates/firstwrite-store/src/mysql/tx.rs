//! Transactions that handlers hold: business rows, messages and the outcome in one commit.
//!
//! A transaction begins by inserting a row into `firstwrite_locks`, without waiting: a rival meets the
//! row's lock and is told at once. Only then is the record looked up, so that the commits of every former
//! holder of the lock are seen. The lock is a courtesy: the record's primary key decides. The outcome is
//! written by a plain insert in the same pipeline as `COMMIT`, which the server does not reach if the
//! insert fails.
//!
//! While a handler works, `autocommit` is off. If a deadlock made the server roll back the transaction and
//! the handler went on all the same, its later statements would otherwise be committed one by one. With
//! `autocommit` off they form a new transaction, which is recognised by its missing savepoint and rolled
//! back.

use std::ops::{Deref, DerefMut};

use firstwrite_core::{
    AsyncTransactionalStore, BeginResult, Draft, Found, Message, RecordId, Seen, StoreError,
    StoreErrorKind, Timestamp, Transacted, Write,
};
use mysql_async::Conn;

use super::batch::{NewRow, record_in, time_in};
use super::connect::Kind;
use super::driver_error::{code, unavailable};
use super::outbox::pending;
use super::pipeline::{Pipeline, SendError, Value};
use super::pool::PooledConnection;
use super::rows::record_columns;
use super::swap::replace;
use super::{Inner, MysqlStore, history_loss};
use crate::transactions::{
    BEGINNING, CONCLUDING, OPEN, Open, Outgoing, Releases, conclusion, is_final,
};

/// A transaction of a [`MysqlStore`]: a connection of its pool, inside a READ COMMITTED transaction that the
/// store began and ends.
///
/// It dereferences to the driver's connection, so the handler's own rows are written as usual. Statements
/// that end a transaction (`COMMIT`, `ROLLBACK`, `START TRANSACTION`, and everything that makes or changes a
/// table) break the promise that rows and outcome share a commit; the store notices, and refuses to
/// conclude. Savepoints of the handler's own are fine.
///
/// Dropped instead of concluded, it is rolled back and its connection is closed.
#[derive(Debug)]
pub struct MysqlTx {
    /// `None` once it is concluded or dropped.
    open: Option<Open<(PooledConnection, Releases)>>,
}

/// Savepoint that exists only as long as the transaction is still the one that was begun.
const MARK: &str = "firstwrite_begun";

impl AsyncTransactionalStore for MysqlStore {
    type Tx = MysqlTx;

    async fn begin(&self, id: RecordId) -> Result<BeginResult<MysqlTx>, StoreError> {
        self.writes(BEGINNING)?;
        self.inner.releases.wait(id).await;
        let mut pooled = self.pool().get(BEGINNING).await?;
        let mut looked = look(&mut pooled, id).await;
        if matches!(&looked, Err(error) if error.cause.is_history_missing())
            && pooled.roll_back().await
            && pooled.verify().await.is_ok()
        {
            looked = look(&mut pooled, id).await;
        }
        let (found, now) = match looked {
            Ok(Ok(looked)) => looked,
            Ok(Err(error)) => {
                pooled.undo().await;
                return Err(error);
            }
            Err(error) => {
                let is_busy = error.cause.is_blocked() || error.may_repeat();
                pooled.fail(&error).await;
                return if is_busy { Ok(BeginResult::Busy) } else { Err(error.error(BEGINNING)) };
            }
        };
        if let Some(found) = found.as_ref().filter(|found| is_final(found)) {
            pooled.undo().await;
            return Ok(BeginResult::Stands(Box::new(found.clone())));
        }
        let open = Open::new((pooled, self.inner.releases.clone()), id, now, found.as_ref());
        Ok(BeginResult::Open(MysqlTx { open: Some(open) }, found.map(Box::new)))
    }

    async fn conclude(&self, mut tx: MysqlTx, write: Write) -> Result<Transacted<()>, StoreError> {
        let open = tx.open.take().expect(OPEN);
        let (draft, keeps_rows) = match conclusion(write, open.id) {
            Ok(Some(conclusion)) => conclusion,
            nothing => {
                open.on.0.undo().await;
                return nothing.map(|_| Transacted::Done((), open.now));
            }
        };
        let Open { on: (pooled, _), id, stands, outgoing, .. } = open;
        let has_messages = keeps_rows && !outgoing.messages().is_empty();
        let commit = Commit { pooled, id, stands, outgoing, draft: &draft, keeps_rows };
        let ended = commit.run(&self.inner).await;
        if has_messages && matches!(ended, Ok(Transacted::Done(..))) {
            self.inner.delivering.notify();
        }
        ended
    }
}

/// Begins, locks without waiting, and looks up the record.
async fn look(
    pooled: &mut PooledConnection,
    id: RecordId,
) -> Result<Result<(Option<Found>, Timestamp), StoreError>, SendError> {
    let lock = [Value::Bytes(id.as_bytes())];
    let insert = "INSERT INTO firstwrite_locks (id) VALUES (?) \
                  ON DUPLICATE KEY UPDATE id = firstwrite_locks.id";
    let mut pipeline = Pipeline::new();
    pipeline.add("SET SESSION autocommit = 0", &[]);
    pipeline.add("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", &[]);
    pipeline.add("START TRANSACTION", &[]);
    match pooled.shared().kind {
        Kind::MariaDb => {
            pipeline.add("SET STATEMENT innodb_lock_wait_timeout = 0 FOR ", &[]);
            pipeline.write(insert, &lock);
        }
        // It can refuse to wait when it reads, and not when it inserts. Between the two a rival can slip
        // in, for which this one then waits: for the length of the lock timeout at most.
        Kind::MySql => {
            pipeline.add("SELECT id FROM firstwrite_locks WHERE id = ? FOR UPDATE NOWAIT", &lock);
            pipeline.add(insert, &lock);
        }
    }
    pipeline.add("SAVEPOINT firstwrite_begun", &[]);
    pipeline.time();
    let time = pipeline.add("SELECT @firstwrite_now", &[]);
    let sql = concat!("SELECT ", record_columns!(), " FROM firstwrite_records r WHERE r.id = ?");
    let place = pipeline.add(sql, &lock);
    let loss = pipeline.add(history_loss::STANDS, &[]);
    pooled.slot().stop_unless_whole(&mut pipeline);
    let answers = pooled.send(&pipeline).await?;
    firstwrite_core::crash_point!("mysql-tx-looked");
    Ok(record_in(&answers[place]).and_then(|found| {
        if found.is_none() && history_loss::stands(&answers[loss])? {
            return Err(history_loss::refuse(BEGINNING));
        }
        if let (None, Some(refusal)) = (&found, pooled.refusal(BEGINNING)) {
            return Err(refusal);
        }
        Ok((found, time_in(&answers[time])?))
    }))
}

impl MysqlTx {
    /// Enqueues a message: it is written with the outcome, and delivered if and only if the transaction commits.
    ///
    /// A step is enqueued at most once in a transaction: the destination tells messages apart by their
    /// derived keys.
    pub fn enqueue(&mut self, message: &Message) -> Result<(), StoreError> {
        pending::check(message)?;
        self.open_mut().outgoing.push(message)
    }

    /// The store's time at which this transaction began.
    pub fn now(&self) -> Timestamp {
        self.open().now
    }

    fn open(&self) -> &Open<(PooledConnection, Releases)> {
        self.open.as_ref().expect(OPEN)
    }

    fn open_mut(&mut self) -> &mut Open<(PooledConnection, Releases)> {
        self.open.as_mut().expect(OPEN)
    }
}

impl Drop for MysqlTx {
    fn drop(&mut self) {
        let Some(Open { on: (mut pooled, releases), id, .. }) = self.open.take() else { return };
        releases.start(id, async move {
            // The lock is released at once; then the connection is closed, whatever state the handler left
            // it in.
            if !pooled.roll_back().await {
                tracing::debug!(record = %id, "a dropped transaction was not rolled back by hand");
            }
            drop(pooled);
        });
    }
}

impl Deref for MysqlTx {
    type Target = Conn;

    fn deref(&self) -> &Conn {
        &self.open().on.0.shared().conn
    }
}

impl DerefMut for MysqlTx {
    fn deref_mut(&mut self) -> &mut Conn {
        &mut self.open_mut().on.0.connection().conn
    }
}

/// Maximum size of the messages in one pipeline; further ones are sent ahead in the same transaction.
const PIPELINE_BYTES_MAX: usize = 1024 * 1024;

/// Returns the pipelines that write `messages`, beginning with `first`. The caller appends to the last.
fn pipelines(first: Pipeline, messages: &[Message]) -> Vec<Pipeline> {
    let (mut pipelines, mut last) = (Vec::new(), first);
    for message in messages {
        if last.bytes() > PIPELINE_BYTES_MAX {
            pipelines.push(std::mem::take(&mut last));
        }
        pending::put(&mut last, message);
    }
    pending::put_tallies(&mut last, messages);
    pipelines.push(last);
    pipelines
}

/// A transaction about to be committed.
struct Commit<'a> {
    pooled: PooledConnection,
    id: RecordId,
    stands: Option<Seen>,
    outgoing: Outgoing,
    draft: &'a Draft,
    keeps_rows: bool,
}

impl Commit<'_> {
    async fn run(mut self, store: &Inner) -> Result<Transacted<()>, StoreError> {
        let id = self.id;
        firstwrite_core::crash_point!("mysql-tx-before-pipeline");
        let ended = match self.stands {
            None => self.write_fresh().await,
            Some(_) => self.take_over().await,
        };
        let pooled = self.pooled;
        let error = match ended {
            Ok(Some(now)) => {
                firstwrite_core::crash_point!("mysql-tx-after-pipeline");
                pooled.settle();
                return Ok(Transacted::Done((), now));
            }
            // The record to be taken over has moved.
            Ok(None) => {
                pooled.undo().await;
                None
            }
            Err(error) if error.is_unknown => {
                pooled.fail(&error).await;
                return Err(error.error(CONCLUDING));
            }
            Err(error) => {
                let is_gone = error.cause.code() == Some(code::SP_DOES_NOT_EXIST);
                let may_be_rival = error.cause.may_be_rival();
                pooled.fail(&error).await;
                if is_gone {
                    let why = "the transaction was ended before its end: by a deadlock, or by a \
                               statement of the handler's";
                    return Err(unavailable(CONCLUDING, why));
                }
                if !may_be_rival {
                    return Err(error.error(CONCLUDING));
                }
                Some(error)
            }
        };
        // A rival came first, or its lock was in the way.
        match (store.get(id).await?, error) {
            (Some(found), _) => Ok(Transacted::Rival(Box::new(found))),
            (None, Some(error)) => Err(error.error(CONCLUDING)),
            (None, None) => Err(StoreError::definite(StoreErrorKind::Unavailable, CONCLUDING)),
        }
    }

    /// Sends everything in one pipeline: a plain insert, whose failure keeps the server from committing.
    async fn write_fresh(&mut self) -> Result<Option<Timestamp>, SendError> {
        let mut pipeline = self.begun().await?;
        NewRow::insert(&mut pipeline, &[&NewRow::new(self.draft)]);
        let time = self.end(&mut pipeline);
        let answers = self.pooled.send(&pipeline).await?;
        self.pooled.slot().acknowledged(&answers[time]).map(Some)
    }

    /// Replaces the record if it is still as it was seen, and only then commits.
    async fn take_over(&mut self) -> Result<Option<Timestamp>, SendError> {
        let mut pipeline = self.begun().await?;
        let place = replace(&mut pipeline, &NewRow::new(self.draft), self.stands);
        let answers = self.pooled.send(&pipeline).await?;
        if answers[place].affected != 1 {
            return Ok(None);
        }
        let mut pipeline = Pipeline::new();
        let time = self.end(&mut pipeline);
        let answers = self.pooled.send(&pipeline).await?;
        self.pooled.slot().acknowledged(&answers[time]).map(Some)
    }

    /// Begins a pipeline that fails if the transaction is not the one that was begun, with the handler's
    /// messages in it; rolls back the handler's writes unless they are kept.
    async fn begun(&mut self) -> Result<Pipeline, SendError> {
        let mut pipeline = Pipeline::new();
        let keep = if self.keeps_rows { "RELEASE SAVEPOINT" } else { "ROLLBACK TO SAVEPOINT" };
        pipeline.add(&format!("{keep} {MARK}"), &[]);
        pipeline.time();
        if !self.keeps_rows {
            return Ok(pipeline);
        }
        let mut pipelines = pipelines(pipeline, self.outgoing.messages());
        let last = pipelines.pop().unwrap_or_default();
        for ahead in pipelines {
            self.pooled.send(&ahead).await?;
        }
        Ok(last)
    }

    /// Gives the lock back, commits, and leaves the session as it was. Returns the place of the time.
    fn end(&self, pipeline: &mut Pipeline) -> usize {
        let id = Value::Bytes(self.id.as_bytes());
        pipeline.add("DELETE FROM firstwrite_locks WHERE id = ?", &[id]);
        let time = self.pooled.slot().count(pipeline);
        pipeline.commit();
        pipeline.add("SET SESSION autocommit = 1", &[]);
        time
    }
}
