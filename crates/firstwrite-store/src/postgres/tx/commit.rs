//! The end of a handler's transaction: its messages and its record are written and committed in one
//! pipeline, or the record replaces an existing one.

use firstwrite_core::{Draft, Seen, StateKind, StoreError, Timestamp, Transacted};
use futures_util::future::{join, join4};
use tokio_postgres::Row;

use super::statements::{messages_values, replace_values};
use crate::postgres::columns::{At, Id};
use crate::postgres::connect::ROLLBACK;
use crate::postgres::driver_error::{DriverError, definite, failed_commit, unavailable};
use crate::postgres::history_loss::stands_for;
use crate::postgres::link::{Link, PooledTransaction};
use crate::postgres::rows::{NewRow, instant, only};
use crate::transactions::{CONCLUDING, Outgoing};

/// A transaction that is being committed.
pub(super) struct Commit {
    pub(super) held: PooledTransaction,
    pub(super) row: NewRow,
    pub(super) outgoing: Outgoing,
}

/// The time at which a record was written, or why nothing was committed; a rival may be the reason.
pub(super) type WriteResult = Result<Timestamp, DriverError>;

impl Commit {
    /// Inserts record and messages and commits, in one pipeline.
    pub(super) async fn insert(&self) -> Result<WriteResult, StoreError> {
        let link = self.held.link();
        let (statement, values) = link.sql().tx.insertion(&self.row, self.outgoing.messages());
        firstwrite_core::crash_point!("postgres-tx-before-send");
        link.prepare(statement).await.map_err(definite(CONCLUDING))?;
        let parameters = values.parameters();
        let (inserted, committed) = join(link.query(statement, &parameters), link.commit()).await;
        firstwrite_core::crash_point!("postgres-tx-after-send");
        pipeline_result(inserted, committed)
    }

    /// Inserts the record alone: rolls back the handler's rows and writes the record in its own
    /// transaction, in one pipeline. So no request has to pay for a savepoint.
    pub(super) async fn insert_alone(&self) -> Result<WriteResult, StoreError> {
        let link = self.held.link();
        let (record, values) = link.sql().tx.insertion(&self.row, &[]);
        if link.prepare(record).await.is_err() {
            // In a transaction that a statement of the handler's has failed, nothing can be prepared.
            link.tell(ROLLBACK).await.map_err(definite(CONCLUDING))?;
            link.prepare(record).await.map_err(definite(CONCLUDING))?;
        }
        let parameters = values.parameters();
        let (undone, begun, inserted, committed) = join4(
            link.tell(ROLLBACK),
            link.tell(&link.shared.server.begins().rare),
            link.query(record, &parameters),
            link.commit(),
        )
        .await;
        pipeline_result(undone.and(begun).and(inserted), committed)
    }

    /// Replaces the record that was seen. Writes the record first, as every replacement does, then the
    /// ending that shuts out the former owner. Only then is it known whether to commit.
    pub(super) async fn take_over(&self, seen: Seen) -> Result<WriteResult, StoreError> {
        let link = self.held.link();
        let _changing = link.shared.replays.changing(self.row.id);
        match self.replace(&link, seen).await {
            Ok(Some(now)) => commit_result(link.commit().await.map(|()| now)),
            Ok(None) => Ok(Err(unavailable(CONCLUDING, "the record has moved").into())),
            Err(error) if error.is_undone() => Ok(Err(error)),
            // Nothing was committed, and nothing will be.
            Err(error) => Err(definite(CONCLUDING)(error)),
        }
    }

    /// Returns the time of the new record; `None` if the record that was seen has moved.
    async fn replace(&self, link: &Link<'_>, seen: Seen) -> Result<Option<Timestamp>, DriverError> {
        let (id, tx) = (self.row.id, &link.sql().tx);
        if !self.outgoing.messages().is_empty() {
            let values = messages_values(id, self.outgoing.messages());
            link.query(&tx.messages, &values.parameters()).await?;
        }
        let fence = seen.fence.as_u64().cast_signed();
        let lease_until = expected_lease(seen);
        let values = replace_values(&self.row, fence, lease_until);
        let replaced = link.query(&tx.replace, &values.parameters()).await?;
        let Some(row) = replaced.first() else { return Ok(None) };
        let now = instant(row, 0)?;
        // A completed attempt has ended already.
        if lease_until.is_none() {
            return Ok(Some(now));
        }
        let ended = link.query(&link.sql().supersede, &[&Id(id), &fence]).await?;
        Ok((!ended.is_empty()).then_some(now))
    }

    /// Returns the result, with the existing record if nothing was committed.
    pub(super) async fn end(
        self,
        written: WriteResult,
        draft: &Draft,
    ) -> Result<Transacted<()>, StoreError> {
        let link = self.held.link();
        let error = match written {
            Ok(now) => {
                link.shared.acknowledged(draft.id, draft.fence, now, stands_for(draft));
                self.held.settle();
                return Ok(Transacted::Done((), now));
            }
            Err(error) => error,
        };
        // Where the transaction is over already, the server only remarks on it.
        link.tell(ROLLBACK).await.map_err(definite(CONCLUDING))?;
        let found = if error.may_be_rival() {
            link.look_alone(draft.id).await.map_err(definite(CONCLUDING))?
        } else {
            None
        };
        self.held.settle();
        match found {
            Some(found) if found.record.fence != draft.fence => {
                Ok(Transacted::Rival(Box::new(found)))
            }
            Some(_) | None => Err(definite(CONCLUDING)(error)),
        }
    }
}

/// Determines the result of a pipeline that ended with `COMMIT`, whose own result matters only if the
/// insert succeeded: a failed transaction commits nothing, and the server does not report that as an error.
fn pipeline_result(
    inserted: Result<Vec<Row>, DriverError>,
    committed: Result<(), DriverError>,
) -> Result<WriteResult, StoreError> {
    match commit_result(inserted.and_then(|rows| committed.map(|()| rows)))? {
        Ok(rows) => Ok(Ok(instant(only(&rows, "a written record does not say when")?, 0)?)),
        Err(error) => Ok(Err(error)),
    }
}

/// Determines the result of a commit that was under way: without the server's word that it was undone, it
/// may or may not have taken effect.
fn commit_result<T>(
    committed: Result<T, DriverError>,
) -> Result<Result<T, DriverError>, StoreError> {
    match committed {
        Err(error) if !error.is_undone() => Err(failed_commit(CONCLUDING)(error)),
        result => Ok(result),
    }
}

/// Returns the expected lease of a record that can still be ended, as [`TxSql::replace`] compares it;
/// `None` for a completed one.
///
/// [`TxSql::replace`]: super::statements::TxSql::replace
pub(in crate::postgres) fn expected_lease(seen: Seen) -> Option<At> {
    match seen.state {
        StateKind::Reserved => seen.lease_until.map(At::Instant),
        StateKind::Uncertain => Some(At::Always),
        StateKind::Completed => None,
    }
}
