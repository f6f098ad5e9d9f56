//! The end of a handler's transaction: its record is written and committed in one pipeline, or replaces an
//! existing one.

use std::sync::Arc;

use firstwrite_core::{
    Draft, DraftState, Found, RecordId, Seen, StateKind, StoreError, StoreErrorKind, Timestamp,
    Transacted,
};
use futures_util::future::{join, join3, join4};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::CONCLUDING;
use super::outgoing::Outgoing;
use super::statements::{self, MessageParameters};
use crate::postgres::Shared;
use crate::postgres::columns::{At, Id};
use crate::postgres::connect::ROLLBACK;
use crate::postgres::driver_error::{DriverError, definite, failed_commit};
use crate::postgres::history_loss::Acknowledged;
use crate::postgres::link::{Link, PooledTransaction};
use crate::postgres::rows::{Looked, NewRow, column};
use crate::postgres::swap::SUPERSEDED_FOR;

/// A transaction on its way to the end.
pub(super) struct Concluding {
    pub(super) held: PooledTransaction,
    pub(super) shared: Arc<Shared>,
    pub(super) row: NewRow,
    pub(super) outgoing: Outgoing,
}

/// Result of writing a record on the server.
pub(super) enum Written {
    At(Timestamp),
    /// Nothing was committed; a rival may be the reason.
    Undone(DriverError),
    /// The record to be taken over has moved.
    Moved,
}

impl Concluding {
    fn link(&self) -> Link<'_> {
        self.held.link(&self.shared)
    }

    /// Inserts the record and commits, in one pipeline.
    pub(super) async fn insert(&self) -> Result<Written, StoreError> {
        let link = self.link();
        let (record, given) = (&link.sql().tx.record, statements::record_parameters(&self.row));
        firstwrite_core::crash_point!("postgres-tx-before-send");
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
        firstwrite_core::crash_point!("postgres-tx-after-send");
        judged(inserted, committed)
    }

    /// Inserts the record alone: rolls back the handler's rows and writes the record in its own
    /// transaction, in one pipeline. So no request has to pay for a savepoint.
    pub(super) async fn insert_alone(&self) -> Result<Written, StoreError> {
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

    /// Replaces the record that was seen. Writes the record first, as every replacement does, then the
    /// ending that shuts out the former owner. Only then is it known whether to commit.
    pub(super) async fn take_over(&self, seen: Seen) -> Result<Written, StoreError> {
        let link = self.link();
        let _changing = self.shared.replays.changing(self.row.id);
        match self.replace(&link, seen).await {
            Ok(Some(now)) => match link.commit().await {
                Ok(()) => Ok(Written::At(now)),
                Err(error) if error.is_undone() => Ok(Written::Undone(error)),
                Err(error) => Err(failed_commit(CONCLUDING)(error)),
            },
            Ok(None) => Ok(Written::Moved),
            Err(error) if error.is_undone() => Ok(Written::Undone(error)),
            // Nothing was committed, and nothing will be.
            Err(error) => Err(definite(CONCLUDING)(error)),
        }
    }

    /// Returns the time of the new record; `None` if the record that was seen has moved.
    async fn replace(&self, link: &Link<'_>, seen: Seen) -> Result<Option<Timestamp>, DriverError> {
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

    /// Returns the result, with the existing record if nothing was committed.
    pub(super) async fn end(
        self,
        written: Written,
        draft: &Draft,
    ) -> Result<Transacted<()>, StoreError> {
        let link = self.link();
        let (fence, id) = (draft.fence, draft.id);
        let error = match written {
            Written::At(now) => {
                if let DraftState::Completed { .. } = &draft.state {
                    let until = now.plus(draft.retention.replay_for);
                    self.shared.acknowledged_writes.acknowledged(Acknowledged { id, fence, until });
                }
                self.shared.clock.heard(now);
                self.held.settle();
                return Ok(Transacted::Done((), now));
            }
            Written::Undone(error) => error,
            Written::Moved => {
                DriverError::from(StoreError::definite(StoreErrorKind::Unavailable, CONCLUDING))
            }
        };
        // Where the transaction is over already, the server only remarks on it.
        link.tell(ROLLBACK).await.map_err(definite(CONCLUDING))?;
        let found = if error.may_be_rival() { look_again(&link, id).await? } else { None };
        self.held.settle();
        match found {
            Some(found) if found.record.fence != fence => Ok(Transacted::Rival(Box::new(found))),
            Some(_) | None => Err(definite(CONCLUDING)(error)),
        }
    }
}

/// Judges a pipeline that ended with `COMMIT`. The result of `COMMIT` matters only if the insert succeeded:
/// a failed transaction commits nothing, and the server does not report that as an error.
fn judged(
    inserted: Result<Vec<Row>, DriverError>,
    committed: Result<(), DriverError>,
) -> Result<Written, StoreError> {
    match inserted.and_then(|rows| committed.map(|()| rows)) {
        Ok(rows) => Ok(Written::At(statements::time_of(&rows)?)),
        Err(error) if error.is_undone() => Ok(Written::Undone(error)),
        // The commit was under way: it may or may not have taken effect.
        Err(error) => Err(failed_commit(CONCLUDING)(error)),
    }
}

/// Returns the expected lease of a record that can still be ended; `None` for a completed one.
pub(in crate::postgres) fn lease_column(seen: Seen) -> Option<At> {
    match seen.state {
        StateKind::Reserved => seen.lease_until.map(At::Instant),
        StateKind::Uncertain => Some(At::Always),
        StateKind::Completed => None,
    }
}

/// Looks up the current record in a transaction of its own.
pub(in crate::postgres) async fn look_again(
    link: &Link<'_>,
    id: RecordId,
) -> Result<Option<Found>, StoreError> {
    let begin = &link.shared.server.begins().read;
    let rows = link.alone(begin, &link.sql().find, &[&vec![Id(id)]]).await;
    let rows = rows.map_err(definite(CONCLUDING))?;
    let looked = link.read(&rows).await.map_err(definite(CONCLUDING))?.pop();
    Ok(looked.and_then(Looked::found))
}
