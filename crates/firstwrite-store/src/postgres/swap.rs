//! Rare changes, each in its own transaction that holds the record's lock.
//!
//! An owner's completion does not take that lock: it inserts the ending of its attempt. So a take-over or a
//! removal inserts that ending first, and of two rivals the second finds that the record has moved.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use firstwrite_core::{
    AuditEntry, Change, Found, Guard, Record, RecordId, Retention, State, StoreError, Swapped,
    Timestamp,
};

use super::Shared;
use super::columns::{At, Id};
use super::connect::ROLLBACK;
use super::driver_error::{DriverError, definite, failed_commit, no_connection, unsupported};
use super::history_loss::{self, Acknowledged};
use super::link::{Link, PooledTransaction};
use super::rows::{NewRow, uncertain};
use crate::encoding::encode_outcome;

pub(super) const DOING: &str = "swapping a record";

/// Time for which the ending of a superseded or released attempt stays to block its owner. No completion is
/// still under way after this long: every connection that could carry it has been closed.
pub(super) const SUPERSEDED_FOR: Duration = Duration::from_hours(1);

/// The form in which a record is completed, if it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Open,
    /// In the row itself: only the deadlines of its profile tell how long it is kept.
    Inline,
    /// By the ending of its attempt.
    Ended,
}

/// Result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Applied {
    Yes,
    /// The owner completed in between.
    Overtaken,
}

/// See [`firstwrite_core::Store::swap`].
pub(super) async fn swap(
    shared: &Arc<Shared>,
    pool: &Pool,
    (id, guard): (RecordId, Guard),
    change: Change,
    audit: Option<&AuditEntry>,
) -> Result<Swapped, StoreError> {
    let held =
        PooledTransaction::new(pool.get().await.map_err(|error| no_connection(DOING)(&error))?);
    let link = held.link(shared);
    let row = match &change {
        Change::TakeOver(draft) => {
            Some(NewRow::new(draft, shared.profiles.number_for(shared, draft).await?))
        }
        Change::Note { .. }
        | Change::Renew { .. }
        | Change::Complete { .. }
        | Change::MarkUncertain { .. }
        | Change::Remove => None,
    };
    let _changing = match change {
        Change::Note { .. } | Change::Renew { .. } => None,
        Change::Complete { .. }
        | Change::MarkUncertain { .. }
        | Change::TakeOver(_)
        | Change::Remove => Some(shared.replays.changing(id)),
    };
    let moved = match decide(&link, id, guard, &change).await.map_err(definite(DOING))? {
        Ok((found, form)) => {
            if row.as_ref().is_some_and(|row| row.id != id) {
                return Err(unsupported(DOING, "the draft is for another record"));
            }
            let now = found.now;
            let swap = Swap { link: &link, record: &found.record, form, now };
            match swap.apply(&change, row.as_ref(), audit).await.map_err(definite(DOING))? {
                Applied::Yes => {
                    firstwrite_core::crash_point!("postgres-swap-before-commit");
                    link.commit().await.map_err(failed_commit(DOING))?;
                    held.settle();
                    acknowledge(shared, &found.record, &change, now);
                    return Ok(Swapped::Done(now));
                }
                Applied::Overtaken => link.look_inside(id).await.map_err(definite(DOING))?,
            }
        }
        Err(found) => found,
    };
    link.tell(ROLLBACK).await.map_err(definite(DOING))?;
    held.settle();
    Ok(Swapped::Moved(moved.map(Box::new)))
}

/// Locks the record and returns it, with the form of its completion if the guard holds.
async fn decide(
    link: &Link<'_>,
    id: RecordId,
    guard: Guard,
    change: &Change,
) -> Result<Result<(Found, Form), Option<Found>>, DriverError> {
    let begin = &link.shared.server.begins().rare;
    let locked = link.begin(begin, &link.sql().lock, &[&Id(id)]).await?;
    if locked.is_empty() {
        return Ok(Err(None));
    }
    // A new statement, which sees what was committed while waiting for the lock.
    let Some(found) = link.look_inside(id).await? else { return Ok(Err(None)) };
    if !guard.holds(&found.record, change) {
        return Ok(Err(Some(found)));
    }
    let form = match found.record.state {
        State::Reserved(_) | State::Uncertain { .. } => Form::Open,
        State::Completed { .. } => {
            let fence = found.record.fence.as_u64().cast_signed();
            let ending = link.query(&link.sql().ending, &[&Id(id), &fence]).await?;
            if ending.is_empty() { Form::Inline } else { Form::Ended }
        }
    };
    Ok(Ok((found, form)))
}

struct Swap<'a> {
    link: &'a Link<'a>,
    record: &'a Record,
    form: Form,
    now: Timestamp,
}

impl Swap<'_> {
    async fn apply(
        &self,
        change: &Change,
        row: Option<&NewRow>,
        audit: Option<&AuditEntry>,
    ) -> Result<Applied, DriverError> {
        let (link, sql, id) = (self.link, self.link.sql(), Id(self.record.id));
        let applied = match (change, row) {
            (Change::Note { .. }, _) => Applied::Yes,
            (Change::Renew { lease_for }, _) => {
                let until = At::Instant(self.now.plus(*lease_for));
                link.query(&sql.lease, &[&id, &until]).await?;
                Applied::Yes
            }
            (Change::MarkUncertain { ago }, _) => {
                if self.form == Form::Ended {
                    self.unend().await?;
                }
                link.query(&sql.reopen, &[&id, &uncertain(self.now.minus(*ago))]).await?;
                Applied::Yes
            }
            (Change::Complete { outcome, retention }, _) => {
                if self.form == Form::Inline {
                    link.query(&sql.reopen, &[&id, &uncertain(self.now)]).await?;
                }
                self.end(&encode_outcome(outcome), *retention).await?
            }
            (Change::TakeOver(_), Some(row)) => match self.supersede().await? {
                Applied::Yes => {
                    self.replace(row).await?;
                    Applied::Yes
                }
                Applied::Overtaken => Applied::Overtaken,
            },
            (Change::TakeOver(_), None) => Applied::Overtaken,
            (Change::Remove, _) => match self.supersede().await? {
                Applied::Yes => {
                    link.query(&sql.remove, &[&id]).await?;
                    Applied::Yes
                }
                Applied::Overtaken => Applied::Overtaken,
            },
        };
        if applied == Applied::Yes
            && let Some(AuditEntry { actor, action, reason }) = audit
        {
            let at = At::Instant(self.now.minus(change.audited_ago()));
            link.query(&sql.put_audit, &[&id, &at, actor, action, reason]).await?;
        }
        Ok(applied)
    }

    /// Sees to it that the attempt that wore the record's fence can complete no more.
    async fn supersede(&self) -> Result<Applied, DriverError> {
        let (link, sql) = (self.link, self.link.sql());
        match self.form {
            Form::Inline => return Ok(Applied::Yes),
            Form::Ended => {
                self.unend().await?;
                return Ok(Applied::Yes);
            }
            Form::Open => {}
        }
        let (id, fence) = (Id(self.record.id), self.fence());
        let (ended_at, kept_until) =
            (At::Instant(self.now), At::Instant(self.now.plus(SUPERSEDED_FOR)));
        let written = link.query(&sql.supersede, &[&id, &fence, &ended_at, &kept_until]).await?;
        if !written.is_empty() {
            return Ok(Applied::Yes);
        }
        // Either the owner completed since the look-up, or an ending of a former life is in the way.
        let ending = link.query(&sql.ending, &[&id, &fence]).await?;
        let is_outcome = ending.first().is_some_and(|row| row.try_get(0).unwrap_or(true));
        Ok(if is_outcome { Applied::Overtaken } else { Applied::Yes })
    }

    /// Removes the outcome from the ending, which goes on to block the owner.
    async fn unend(&self) -> Result<(), DriverError> {
        let kept_until = At::Instant(self.now.plus(SUPERSEDED_FOR));
        let given: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
            [&Id(self.record.id), &self.fence(), &kept_until];
        self.link.query(&self.link.sql().unend, &given).await.map(drop)
    }

    async fn end(&self, outcome: &[u8], retention: Retention) -> Result<Applied, DriverError> {
        let retained_until = self.now.plus(retention.replay_for);
        let kept_until = retained_until.plus(retention.linger_for);
        let replaces = self.form == Form::Ended;
        let given: [&(dyn tokio_postgres::types::ToSql + Sync); 7] = [
            &Id(self.record.id),
            &self.fence(),
            &At::Instant(self.now),
            &At::Instant(retained_until),
            &At::Instant(kept_until),
            &outcome,
            &replaces,
        ];
        let written = self.link.query(&self.link.sql().end, &given).await?;
        Ok(if written.is_empty() { Applied::Overtaken } else { Applied::Yes })
    }

    async fn replace(&self, row: &NewRow) -> Result<(), DriverError> {
        let tenant = row.tenant.as_str();
        let given: [&(dyn tokio_postgres::types::ToSql + Sync); 9] = [
            &Id(row.id),
            &row.fence,
            &At::Instant(self.now),
            &row.lease_for,
            &row.profile,
            &tenant,
            &row.key,
            &row.fingerprint,
            &row.outcome,
        ];
        self.link.query(&self.link.sql().replace, &given).await.map(drop)
    }

    fn fence(&self) -> i64 {
        self.record.fence.as_u64().cast_signed()
    }
}

/// Remembers the acknowledged write.
fn acknowledge(shared: &Shared, record: &Record, change: &Change, now: Timestamp) {
    shared.clock.heard(now);
    let id = record.id;
    match change {
        Change::Note { .. } | Change::Renew { .. } | Change::MarkUncertain { .. } => {}
        Change::Complete { retention, .. } => {
            let until = now.plus(retention.replay_for);
            shared.acknowledged_writes.acknowledged(Acknowledged {
                id,
                fence: record.fence,
                until,
            });
        }
        Change::TakeOver(draft) => {
            let until = now.plus(history_loss::stands_for(draft));
            shared.acknowledged_writes.acknowledged(Acknowledged { id, fence: draft.fence, until });
        }
        Change::Remove => shared.acknowledged_writes.forget(id),
    }
}
