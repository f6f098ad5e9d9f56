//! Transactions that handlers hold: business rows, messages and the outcome in one commit.
//!
//! A transaction begins by trying an advisory lock on the record's number without waiting, so a rival is
//! told at once and never waits for a handler. The lock is a courtesy: the primary key decides. The outcome
//! is written by a plain insert, sent together with `COMMIT`: if it fails, the server refuses to commit.
//! Only in the rare case of a take-over is the result of the write examined before the commit is sent.
//!
//! - [`statements`]: the SQL. [`concluding`]: the end. [`outgoing`]: messages until they are written.
//!   [`ahead`]: the handler's first statement in the first pipeline. `releases`: dropped transactions
//!   that are being rolled back.

mod concluding;
pub(super) mod outgoing;
pub(super) mod pipelined_begin;

pub(super) mod statements;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use deadpool_postgres::ClientWrapper;
use firstwrite_core::{
    AsyncTransactionalStore, BeginResult, Change, Draft, DraftState, Guard, Message, RecordId,
    Seen, Store as _, StoreError, StoreErrorKind, Swapped, Timestamp, Transacted, Write,
};

use super::columns::Id;
use super::connect::ROLLBACK;
use super::driver_error::{definite, no_connection, unavailable, unsupported};
use super::history_loss::{self, Trust, verify_history_to_write};
use super::link::{Link, PooledTransaction};
use super::replays::Mark;
use super::rows::NewRow;
use super::{PostgresStore, Shared};
use concluding::Concluding;
#[cfg(feature = "sqlx")]
pub(super) use concluding::{lease_column, look_again};
use outgoing::Outgoing;
use statements::Standing;

/// A transaction of a [`PostgresStore`]: a connection of its pool, inside a transaction that the store
/// began and ends.
///
/// It dereferences to the connection, so the handler's own rows are written as usual, with `prepare_cached`
/// and pipelined statements. Beginning, committing or rolling back by hand breaks the promise that rows and
/// outcome share a commit. The handler's own savepoints are fine. Behind a transaction pooler, use the
/// `query_typed` family: it names no statements.
///
/// If it is dropped instead of concluded, it is rolled back and its connection is closed.
pub struct PostgresTx {
    /// `None` once it is concluded or dropped.
    open: Option<Open>,
}

/// State of an open transaction.
struct Open {
    held: PooledTransaction,
    shared: Arc<Shared>,
    id: RecordId,
    now: Timestamp,
    /// The record that the handler's work will take over, as last read.
    stands: Option<Seen>,
    outgoing: Outgoing,
}

/// Message of the `expect` on the open transaction.
const OPEN: &str = "a transaction is open until it is concluded";

/// Maximum number of times that a transaction begins again because the server was not the one asked last.
pub(super) const GREETINGS_MAX: usize = 3;
pub(super) const OTHER_SERVERS: &str = "connections lead to different servers";

pub(super) const BEGINNING: &str = "beginning a handler's transaction";
pub(super) const CONCLUDING: &str = "committing a handler's work";

impl AsyncTransactionalStore for PostgresStore {
    type Tx = PostgresTx;

    async fn begin(&self, id: RecordId) -> Result<BeginResult<PostgresTx>, StoreError> {
        let shared = &self.inner.shared;
        if let Some(found) = shared.replays.get(id, &shared.clock) {
            return Ok(BeginResult::Stands(Box::new(found)));
        }
        let mark = shared.replays.mark();
        let held = self.hold(id).await?;
        let standing = look(&held.link(shared), id).await?;
        firstwrite_core::crash_point!("postgres-tx-looked");
        open(shared, held, id, (standing, mark)).await
    }

    async fn conclude(
        &self,
        mut tx: PostgresTx,
        write: Write,
    ) -> Result<Transacted<()>, StoreError> {
        let Open { held, shared, id, now, stands, outgoing } = tx.open.take().expect(OPEN);
        let (draft, keeps_rows) = match write {
            Write::All(draft) => (draft, true),
            Write::RecordOnly(draft) => (draft, false),
            Write::Nothing => {
                held.link(&shared).tell(ROLLBACK).await.map_err(definite(CONCLUDING))?;
                held.settle();
                return Ok(Transacted::Done((), now));
            }
        };
        check(&draft, id)?;
        if let (false, Some(seen)) = (keeps_rows, stands) {
            held.link(&shared).tell(ROLLBACK).await.map_err(definite(CONCLUDING))?;
            held.settle();
            return self.take_over_alone(seen, draft).await;
        }
        let row = NewRow::new(&draft, self.profile_of(&draft).await?);
        let writes_messages = keeps_rows && outgoing.len() > 0;
        let concluding = Concluding { held, shared, row, outgoing };
        let written = match stands {
            None if keeps_rows => concluding.insert().await?,
            None => concluding.insert_alone().await?,
            Some(seen) => concluding.take_over(seen).await?,
        };
        let ended = concluding.end(written, &draft).await?;
        if writes_messages && matches!(ended, Transacted::Done(..)) {
            self.wrote_messages();
        }
        Ok(ended)
    }
}

/// Begins a transaction with a look-up of the record. First verifies a server for which that was not done
/// yet.
async fn look(link: &Link<'_>, id: RecordId) -> Result<Standing, StoreError> {
    let (shared, look) = (link.shared, &link.sql().tx.look);
    for _ in 0..GREETINGS_MAX {
        let (asked, id) = (shared.asked(), Id(id));
        let given = asked.about(&id);
        let begun = link.begin(&shared.server.begins().handler, look, &given).await;
        let standing = Standing::read(&begun.map_err(definite(BEGINNING))?)?;
        if standing.trust != Trust::NotAsked {
            return Ok(standing);
        }
        link.tell(ROLLBACK).await.map_err(definite(BEGINNING))?;
        verify_history_to_write(shared, link.client).await.map_err(definite(BEGINNING))?;
    }
    Err(unavailable(BEGINNING, OTHER_SERVERS))
}

/// Continues a transaction whose look-up has been answered.
async fn open(
    shared: &Arc<Shared>,
    held: PooledTransaction,
    id: RecordId,
    (standing, mark): (Standing, Mark),
) -> Result<BeginResult<PostgresTx>, StoreError> {
    let link = held.link(shared);
    let Standing { is_locked, stands, trust, now } = standing;
    let found = match (is_locked, stands) {
        (true, true) => link.look_inside(id).await.map_err(definite(BEGINNING))?,
        (true, false) | (false, _) => None,
    };
    if let Some(found) = &found {
        shared.replays.keep(found, mark);
    }
    if !is_locked || (trust != Trust::Whole && found.is_none()) {
        link.tell(ROLLBACK).await.map_err(definite(BEGINNING))?;
        held.settle();
        return if is_locked {
            Err(history_loss::refuse(shared, BEGINNING))
        } else {
            Ok(BeginResult::Busy)
        };
    }
    shared.clock.heard(now);
    let open = Open {
        held,
        shared: Arc::clone(shared),
        id,
        now,
        stands: found.as_ref().map(|found| found.record.seen()),
        outgoing: Outgoing::default(),
    };
    Ok(BeginResult::Open(PostgresTx { open: Some(open) }, found.map(Box::new)))
}

/// Refuses a draft that a handler's work cannot be concluded with.
pub(super) fn check(draft: &Draft, id: RecordId) -> Result<(), StoreError> {
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

impl PostgresStore {
    /// A connection for a transaction on `id`.
    async fn hold(&self, id: RecordId) -> Result<PooledTransaction, StoreError> {
        self.writes(BEGINNING)?;
        self.inner.shared.releases.wait(id).await;
        let client = self.inner.pool.get().await;
        Ok(PooledTransaction::new(client.map_err(|error| no_connection(BEGINNING)(&error))?))
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

impl Drop for PostgresTx {
    fn drop(&mut self) {
        let Some(Open { held, shared, id, .. }) = self.open.take() else { return };
        let releases = shared.releases.clone();
        releases.start(id, async move {
            // The lock is released at once; then the connection is closed, whatever state the handler left
            // it in.
            if let Err(error) = held.link(&shared).tell(ROLLBACK).await {
                tracing::debug!(record = %id, %error, "a dropped transaction was not rolled back by hand");
            }
            drop(held);
        });
    }
}

impl Deref for PostgresTx {
    type Target = ClientWrapper;

    fn deref(&self) -> &ClientWrapper {
        let open = self.open();
        open.held.link(&open.shared).client
    }
}

impl fmt::Debug for PostgresTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresTx")
            .field("record", &self.open.as_ref().map(|open| open.id))
            .field("message_count", &self.open.as_ref().map(|open| open.outgoing.len()))
            .finish_non_exhaustive()
    }
}
