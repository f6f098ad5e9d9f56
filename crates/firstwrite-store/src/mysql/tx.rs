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

mod concluding;
mod outgoing;

use std::fmt;
use std::ops::{Deref, DerefMut};

use firstwrite_core::{
    AsyncTransactionalStore, BeginResult, Draft, DraftState, Found, Message, RecordId, Seen, State,
    StoreError, Timestamp, Transacted, Write,
};
use mysql_async::Conn;

use super::MysqlStore;
use super::batch::{standing, time_in};
use super::connect::Kind;
use super::driver_error::unsupported;
use super::history_loss;
use super::pipeline::{Pipeline, SendError, Value};
use super::pool::PooledConnection;
use super::rows::record_columns;
use crate::releases::Releases;
use concluding::Concluding;
use outgoing::Outgoing;

/// A transaction of a [`MysqlStore`]: a connection of its pool, inside a READ COMMITTED transaction that the
/// store began and ends.
///
/// It dereferences to the driver's connection, so the handler's own rows are written as usual. Statements
/// that end a transaction (`COMMIT`, `ROLLBACK`, `START TRANSACTION`, and everything that makes or changes a
/// table) break the promise that rows and outcome share a commit; the store notices, and refuses to
/// conclude. Savepoints of the handler's own are fine.
///
/// Dropped instead of concluded, it is rolled back and its connection is closed.
pub struct MysqlTx {
    /// `None` once it is concluded or dropped.
    open: Option<Open>,
}

/// State of an open transaction.
struct Open {
    held: PooledConnection,
    releases: Releases,
    id: RecordId,
    now: Timestamp,
    /// The record that the handler's work will take over, as last read.
    stands: Option<Seen>,
    outgoing: Outgoing,
}

/// Message of the `expect` on the open transaction.
const OPEN: &str = "a transaction is open until it is concluded";

const BEGINNING: &str = "beginning a handler's transaction";
const CONCLUDING: &str = "committing a handler's work";

/// Savepoint that exists only as long as the transaction is still the one that was begun.
const MARK: &str = "firstwrite_begun";

impl AsyncTransactionalStore for MysqlStore {
    type Tx = MysqlTx;

    async fn begin(&self, id: RecordId) -> Result<BeginResult<MysqlTx>, StoreError> {
        self.writes(BEGINNING)?;
        self.inner.releases.wait(id).await;
        let mut held = self.pool().get(BEGINNING).await?;
        let mut looked = look(&mut held, id).await;
        if matches!(&looked, Err(error) if error.cause.is_history_missing())
            && held.roll_back().await
            && held.verify().await.is_ok()
        {
            looked = look(&mut held, id).await;
        }
        let (found, now) = match looked {
            Ok(Ok(looked)) => looked,
            Ok(Err(error)) => {
                if held.roll_back().await {
                    held.settle();
                }
                return Err(error);
            }
            Err(error) => {
                let is_busy = error.cause.is_blocked() || error.may_repeat();
                held.fail(&error).await;
                return if is_busy { Ok(BeginResult::Busy) } else { Err(error.error(BEGINNING)) };
            }
        };
        if let Some(found) = found.as_ref().filter(|found| is_final(found)) {
            if held.roll_back().await {
                held.settle();
            }
            return Ok(BeginResult::Stands(Box::new(found.clone())));
        }
        let stands = found.as_ref().map(|found| found.record.seen());
        let releases = self.inner.releases.clone();
        let open = Open { held, releases, id, now, stands, outgoing: Outgoing::default() };
        Ok(BeginResult::Open(MysqlTx { open: Some(open) }, found.map(Box::new)))
    }

    async fn conclude(&self, mut tx: MysqlTx, write: Write) -> Result<Transacted<()>, StoreError> {
        let open = tx.open.take().expect(OPEN);
        let (draft, keeps_rows) = match write {
            Write::Nothing => return concluding::nothing(open).await,
            Write::All(draft) => (draft, true),
            Write::RecordOnly(draft) => (draft, false),
        };
        if let Err(error) = check(&draft, open.id) {
            concluding::nothing(open).await?;
            return Err(error);
        }
        let has_messages = keeps_rows && open.outgoing.len() > 0;
        let ended = Concluding { open, draft: &draft, keeps_rows }.run(self.pool()).await;
        if has_messages && matches!(ended, Ok(Transacted::Done(..))) {
            self.inner.delivering.notify();
        }
        ended
    }
}

/// Begins, locks without waiting, and looks up the record.
async fn look(
    held: &mut PooledConnection,
    id: RecordId,
) -> Result<Result<(Option<Found>, Timestamp), StoreError>, SendError> {
    let lock = [Value::Bytes(id.as_bytes())];
    let insert = "INSERT INTO firstwrite_locks (id) VALUES (?) \
                  ON DUPLICATE KEY UPDATE id = firstwrite_locks.id";
    let mut pipeline = Pipeline::new();
    pipeline.add("SET SESSION autocommit = 0", &[]);
    pipeline.add("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", &[]);
    pipeline.add("START TRANSACTION", &[]);
    match held.shared().kind {
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
    held.slot().stop_unless_whole(&mut pipeline);
    let answers = held.send(&pipeline).await?;
    firstwrite_core::crash_point!("mysql-tx-looked");
    Ok(standing(&answers[place]).and_then(|found| {
        if found.is_none() && history_loss::stands(&answers[loss])? {
            return Err(history_loss::refuse(BEGINNING));
        }
        if let (None, Some(refusal)) = (&found, held.refusal(BEGINNING)) {
            return Err(refusal);
        }
        Ok((found, time_in(&answers[time])?))
    }))
}

/// Returns true if no attempt can run on the record that was found.
fn is_final(found: &Found) -> bool {
    matches!(&found.record.state, State::Completed { retained_until, .. } if found.now < *retained_until)
}

/// Refuses a draft that a handler's work cannot be concluded with.
fn check(draft: &Draft, id: RecordId) -> Result<(), StoreError> {
    if draft.id != id {
        return Err(unsupported(CONCLUDING, "the draft is for another record"));
    }
    match &draft.state {
        DraftState::Completed { .. } => Ok(()),
        DraftState::Reserved { .. } => {
            Err(unsupported(CONCLUDING, "a handler's work ends in an outcome"))
        }
    }
}

impl MysqlTx {
    /// Has a message written with the outcome, to be delivered if and only if the transaction commits.
    ///
    /// A step is enqueued at most once in a transaction: the destination tells messages apart by their
    /// derived keys.
    pub fn enqueue(&mut self, message: &Message) -> Result<(), StoreError> {
        self.open_mut().outgoing.push(message)
    }

    /// The store's time at which this transaction began.
    pub fn now(&self) -> Timestamp {
        self.open().now
    }

    fn open(&self) -> &Open {
        self.open.as_ref().expect(OPEN)
    }

    fn open_mut(&mut self) -> &mut Open {
        self.open.as_mut().expect(OPEN)
    }
}

impl Drop for MysqlTx {
    fn drop(&mut self) {
        let Some(Open { mut held, releases, id, .. }) = self.open.take() else { return };
        releases.start(id, async move {
            // The lock is released at once; then the connection is closed, whatever state the handler left
            // it in.
            if !held.roll_back().await {
                tracing::debug!(record = %id, "a dropped transaction was not rolled back by hand");
            }
            drop(held);
        });
    }
}

impl Deref for MysqlTx {
    type Target = Conn;

    fn deref(&self) -> &Conn {
        &self.open().held.shared().conn
    }
}

impl DerefMut for MysqlTx {
    fn deref_mut(&mut self) -> &mut Conn {
        &mut self.open_mut().held.connection().conn
    }
}

impl fmt::Debug for MysqlTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlTx")
            .field("record", &self.open.as_ref().map(|open| open.id))
            .field("message_count", &self.open.as_ref().map(|open| open.outgoing.len()))
            .finish_non_exhaustive()
    }
}
