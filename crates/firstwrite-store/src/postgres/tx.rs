//! Transactions that handlers hold: business rows, messages and the outcome in one commit.
//!
//! A transaction begins with a lock on the record's number that is only tried for, so a rival is told at
//! once and never waits for a handler. The lock is a courtesy: the primary key decides. The outcome is
//! written by a plain insert, sent together with `COMMIT`: if it fails, the server refuses to commit.
//! What is rare (something stood there and is taken over) is looked at before the commit is sent.
//!
//! - [`statements`]: the SQL. [`outgoing`]: messages until they are written. [`ahead`]: the handler's
//!   first statement in the first flight. [`releases`]: what becomes of transactions that are dropped.

pub(super) mod ahead;
pub(super) mod outgoing;
pub(super) mod releases;
pub(super) mod statements;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use deadpool_postgres::ClientWrapper;
use firstwrite_core::{
    AsyncTransactionalStore, Begun, Change, Draft, DraftState, Found, Guard, Message, RecordId,
    Seen, StateKind, Store as _, StoreError, StoreErrorKind, Swapped, Timestamp, Transacted, Write,
};
use futures_util::future::{join, join3, join4};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::columns::{At, Id};
use super::connect::ROLLBACK;
use super::doubt::{self, Acknowledged, Trust, greet};
use super::fault::{Trouble, definite, failed_commit, no_connection, unavailable, unsupported};
use super::link::{Held, Link};
use super::replays::Mark;
use super::rows::{NewRow, column};
use super::swap::SUPERSEDED_FOR;
use super::{Inner, PostgresStore, Shared};
use outgoing::Outgoing;
use statements::{MessageParameters, Standing};

/// A transaction of a [`PostgresStore`]: a connection of its pool, inside a transaction that the store
/// began and ends.
///
/// It dereferences to the connection, so the handler's own rows are written as usual, with
/// `prepare_cached` and statements joined in one flight. Beginning, committing or rolling back by hand
/// breaks the promise that rows and outcome share a commit. Savepoints of the handler's own are fine.
/// Behind a transaction pooler, use the `query_typed` family: it names no statements.
///
/// Dropped instead of concluded, it is rolled back and its connection is closed.
pub struct PostgresTx {
    /// There until it is concluded or dropped.
    open: Option<Open>,
}

/// What an open transaction consists of.
struct Open {
    held: Held,
    shared: Arc<Shared>,
    id: RecordId,
    now: Timestamp,
    /// What the handler's work will take over, as it looked.
    stands: Option<Seen>,
    outgoing: Outgoing,
}

/// How the writing of a record ended on the server.
enum Written {
    At(Timestamp),
    /// Nothing was committed; a rival may be the reason.
    Undone(Trouble),
    /// What was to be taken over has moved.
    Moved,
}

/// Why an open transaction is there whenever somebody has it in hand.
const OPEN: &str = "a transaction is open until it is concluded";

/// So often a transaction begins anew because the server was not the one that was asked last.
pub(super) const GREETINGS_MAX: usize = 3;
pub(super) const OTHER_SERVERS: &str = "connections lead to different servers";

pub(super) const BEGINNING: &str = "beginning a handler's transaction";
pub(super) const CONCLUDING: &str = "committing a handler's work";

impl AsyncTransactionalStore for PostgresStore {
    type Tx = PostgresTx;

    async fn begin(&self, id: RecordId) -> Result<Begun<PostgresTx>, StoreError> {
        let shared = &self.inner.shared;
        if let Some(found) = shared.replays.get(id, &shared.clock) {
            return Ok(Begun::Stands(Box::new(found)));
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
        let concluding = Concluding { held, shared, row, outgoing };
        let written = match stands {
            None if keeps_rows => concluding.insert().await?,
            None => concluding.insert_alone().await?,
            Some(seen) => concluding.take_over(seen).await?,
        };
        concluding.end(written, &draft).await
    }
}

/// Begins a transaction with a look at the record. A server that was not asked yet whether it has what
/// was acknowledged is asked first.
async fn look(link: &Link<'_>, id: RecordId) -> Result<Standing, StoreError> {
    let (shared, look) = (link.shared, &link.sql().tx.look);
    for _ in 0..GREETINGS_MAX {
        let known = shared.witness.incarnation();
        let begun = link.begin(&shared.server.begins().handler, look, &[&Id(id), &known]).await;
        let standing = Standing::read(&begun.map_err(definite(BEGINNING))?)?;
        if standing.trust != Trust::NotAsked {
            return Ok(standing);
        }
        link.tell(ROLLBACK).await.map_err(definite(BEGINNING))?;
        greet(shared, link.client).await.map_err(definite(BEGINNING))?;
    }
    Err(unavailable(BEGINNING, OTHER_SERVERS))
}

/// Takes a transaction up whose look-up came back.
async fn open(
    shared: &Arc<Shared>,
    held: Held,
    id: RecordId,
    (standing, mark): (Standing, Mark),
) -> Result<Begun<PostgresTx>, StoreError> {
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
        return if is_locked { Err(doubt::refuse(shared, BEGINNING)) } else { Ok(Begun::Busy) };
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
    Ok(Begun::Open(PostgresTx { open: Some(open) }, found.map(Box::new)))
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

/// A transaction on its way to the end.
struct Concluding {
    held: Held,
    shared: Arc<Shared>,
    row: NewRow,
    outgoing: Outgoing,
}

impl Concluding {
    fn link(&self) -> Link<'_> {
        self.held.link(&self.shared)
    }

    /// The record where nothing stood: written and committed in one flight.
    async fn insert(&self) -> Result<Written, StoreError> {
        let link = self.link();
        let (record, given) = (&link.sql().tx.record, statements::record_parameters(&self.row));
        firstwrite_core::crash_point!("postgres-tx-before-flight");
        let (inserted, committed) = if let Some(message) = self.outgoing.only_one() {
            let both = &link.sql().tx.record_and_message;
            let message = MessageParameters::new(message);
            link.prepare(both).await.map_err(definite(CONCLUDING))?;
            join(link.query(both, &given.and(&message)), link.commit()).await
        } else {
            self.outgoing.prepare(&link).await.map_err(definite(CONCLUDING))?;
            link.prepare(record).await.map_err(definite(CONCLUDING))?;
            let sent = self.outgoing.send(&link, self.row.id);
            let (sent, inserted, committed) =
                join3(sent, link.query(record, &given.each()), link.commit()).await;
            (sent.and(inserted), committed)
        };
        firstwrite_core::crash_point!("postgres-tx-after-flight");
        judged(inserted, committed)
    }

    /// The record alone where nothing stood: the handler's rows are undone and the record is written in
    /// a transaction of its own, in one flight. So no request has to pay for a savepoint.
    async fn insert_alone(&self) -> Result<Written, StoreError> {
        let link = self.link();
        let record = &link.sql().tx.record;
        let given = statements::record_parameters(&self.row);
        if link.prepare(record).await.is_err() {
            // In a transaction that a statement of the handler's has failed, nothing can be prepared.
            link.tell(ROLLBACK).await.map_err(definite(CONCLUDING))?;
            link.prepare(record).await.map_err(definite(CONCLUDING))?;
        }
        let (undone, begun, inserted, committed) = join4(
            link.tell(ROLLBACK),
            link.tell(&self.shared.server.begins().rare),
            link.query(record, &given.each()),
            link.commit(),
        )
        .await;
        judged(undone.and(begun).and(inserted), committed)
    }

    /// The record in place of what stood there. The record first, as everybody does who replaces it;
    /// then the ending that shuts the former owner out. Only then is it known whether to commit.
    async fn take_over(&self, seen: Seen) -> Result<Written, StoreError> {
        let link = self.link();
        let _changing = self.shared.replays.changing(self.row.id);
        match self.replace(&link, seen).await {
            Ok(Some(now)) => match link.commit().await {
                Ok(()) => Ok(Written::At(now)),
                Err(trouble) if trouble.is_undone() => Ok(Written::Undone(trouble)),
                Err(trouble) => Err(failed_commit(CONCLUDING)(trouble)),
            },
            Ok(None) => Ok(Written::Moved),
            Err(trouble) if trouble.is_undone() => Ok(Written::Undone(trouble)),
            // Nothing was committed, and nothing will be.
            Err(trouble) => Err(definite(CONCLUDING)(trouble)),
        }
    }

    /// The time of the new record; none if what was seen has moved.
    async fn replace(&self, link: &Link<'_>, seen: Seen) -> Result<Option<Timestamp>, Trouble> {
        self.outgoing.prepare(link).await?;
        self.outgoing.send(link, self.row.id).await?;
        let fence = seen.fence.as_u64().cast_signed();
        let lease_until = lease_column(seen);
        let given = statements::record_parameters(&self.row);
        let replaced =
            link.query(&link.sql().tx.replace, &given.with(&fence, &lease_until)).await?;
        let Some(row) = replaced.first() else { return Ok(None) };
        let now = statements::time(row)?;
        // A completed attempt has ended already.
        if lease_until.is_none() {
            return Ok(Some(now));
        }
        let (id, sql) = (Id(self.row.id), link.sql());
        let (ended_at, kept_until) = (At::Instant(now), At::Instant(now.plus(SUPERSEDED_FOR)));
        let given: [&(dyn ToSql + Sync); 4] = [&id, &fence, &ended_at, &kept_until];
        if !link.query(&sql.supersede, &given).await?.is_empty() {
            return Ok(Some(now));
        }
        // Either the owner completed in between, or an ending of a former life is in the way.
        let ending = link.query(&sql.ending, &[&id, &fence]).await?;
        let is_outcome = match ending.first() {
            Some(row) => column::<bool>(row, 0)?,
            None => true,
        };
        Ok((!is_outcome).then_some(now))
    }

    /// Says how it ended, and what stands where nothing was committed.
    async fn end(self, written: Written, draft: &Draft) -> Result<Transacted<()>, StoreError> {
        let link = self.link();
        let (fence, id) = (draft.fence, draft.id);
        let trouble = match written {
            Written::At(now) => {
                if let DraftState::Completed { retention, .. } = &draft.state {
                    let until = now.plus(retention.replay_for);
                    self.shared.witness.acknowledged(Acknowledged { id, fence, until });
                }
                self.shared.clock.heard(now);
                self.held.settle();
                return Ok(Transacted::Done((), now));
            }
            Written::Undone(trouble) => trouble,
            Written::Moved => {
                Trouble::from(StoreError::definite(StoreErrorKind::Unavailable, CONCLUDING))
            }
        };
        // Where the transaction is over already, the server only remarks on it.
        link.tell(ROLLBACK).await.map_err(definite(CONCLUDING))?;
        let found = if trouble.may_be_rival() { look_again(&link, id).await? } else { None };
        self.held.settle();
        match found {
            Some(found) if found.record.fence != fence => Ok(Transacted::Rival(Box::new(found))),
            Some(_) | None => Err(definite(CONCLUDING)(trouble)),
        }
    }
}

/// How a flight ended whose last word was `COMMIT`. What became of that is of interest only if the insert
/// succeeded: a transaction that failed commits nothing, and the server does not call that an error.
fn judged(
    inserted: Result<Vec<Row>, Trouble>,
    committed: Result<(), Trouble>,
) -> Result<Written, StoreError> {
    match inserted.and_then(|rows| committed.map(|()| rows)) {
        Ok(rows) => Ok(Written::At(statements::time_of(&rows)?)),
        Err(trouble) if trouble.is_undone() => Ok(Written::Undone(trouble)),
        // The commit was under way: nobody knows how far it came.
        Err(trouble) => Err(failed_commit(CONCLUDING)(trouble)),
    }
}

/// What the lease of a record that can still be ended must be; none for a completed one.
pub(super) fn lease_column(seen: Seen) -> Option<At> {
    match seen.state {
        StateKind::Reserved => seen.lease_until.map(At::Instant),
        StateKind::Uncertain => Some(At::Always),
        StateKind::Completed => None,
    }
}

/// What stands now, seen from a transaction of its own.
async fn look_again(link: &Link<'_>, id: RecordId) -> Result<Option<Found>, StoreError> {
    let begin = &link.shared.server.begins().read;
    let rows = link.alone(begin, &link.sql().find, &[&vec![Id(id)]]).await;
    let rows = rows.map_err(definite(CONCLUDING))?;
    let looked = link.read(&rows).await.map_err(definite(CONCLUDING))?.pop();
    Ok(looked.and_then(super::rows::Looked::found))
}

impl PostgresStore {
    /// A connection for a transaction on `id`.
    async fn hold(&self, id: RecordId) -> Result<Held, StoreError> {
        self.writes(BEGINNING)?;
        self.inner.shared.releases.wait(id).await;
        let client = self.inner.pool.get().await;
        Ok(Held::new(client.map_err(|error| no_connection(BEGINNING)(&error))?))
    }

    /// Waits for what must be over before a transaction on `id` begins.
    #[cfg(feature = "sqlx")]
    pub(super) async fn ready_for(&self, id: RecordId) -> Result<(), StoreError> {
        self.writes(BEGINNING)?;
        self.inner.shared.releases.wait(id).await;
        Ok(())
    }

    /// Asks the server whether it has what was acknowledged.
    #[cfg(feature = "sqlx")]
    pub(super) async fn greet(&self) -> Result<(), StoreError> {
        let Inner { shared, pool, .. } = &*self.inner;
        let held = Held::new(pool.get().await.map_err(|error| no_connection(BEGINNING)(&error))?);
        greet(shared, held.link(shared).client).await.map_err(definite(BEGINNING))?;
        held.settle();
        Ok(())
    }

    /// What stands under `id`, as the server has it now.
    #[cfg(feature = "sqlx")]
    pub(super) async fn look_up(&self, id: RecordId) -> Result<Option<Found>, StoreError> {
        let client =
            self.inner.pool.get().await.map_err(|error| no_connection(BEGINNING)(&error))?;
        let held = Held::new(client);
        let found = look_again(&held.link(&self.inner.shared), id).await?;
        held.settle();
        Ok(found)
    }

    /// Replaces what stands by an outcome that came without an effect.
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
            // The lock is given back at once; then the connection is closed, whatever state the handler
            // left it in.
            if let Err(trouble) = held.link(&shared).tell(ROLLBACK).await {
                tracing::debug!(record = %id, %trouble, "a dropped transaction was not rolled back by hand");
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
