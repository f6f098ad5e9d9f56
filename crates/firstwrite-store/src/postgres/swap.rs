//! Rare changes, each in its own transaction that holds the record's lock.
//!
//! An owner's completion does not take that lock: it inserts the ending of its attempt. So a take-over or a
//! removal inserts that ending first, and of two rivals the second finds that the record has moved.

use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::encoding::encode_outcome;
use firstwrite_core::{
    AuditEntry, Change, Found, Guard, Record, RecordId, Retention, State, StoreError, Swapped,
    Timestamp,
};

use super::Shared;
use super::columns::{At, Id, Values};
use super::driver_error::{DriverError, definite, failed_commit, unsupported};
use super::history_loss::stands_for;
use super::link::{Link, PooledTransaction};
use super::rows::{NewRow, uncertain};

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
enum ChangeResult {
    Applied,
    /// The owner completed in between.
    Overtaken,
}

/// See [`firstwrite_core::Store::swap`].
pub(super) async fn swap(
    shared: &Arc<Shared>,
    (id, guard): (RecordId, Guard),
    change: Change,
    audit: Option<&AuditEntry>,
) -> Result<Swapped, StoreError> {
    let held = PooledTransaction::take(shared, DOING).await?;
    let link = held.link();
    let row = if let Change::TakeOver(draft) = &change {
        Some(NewRow::new(draft, shared.profiles.number_for(shared, draft).await?))
    } else {
        None
    };
    let keeps_outcome = matches!(change, Change::Note { .. } | Change::Renew { .. });
    let _changing = (!keeps_outcome).then(|| shared.replays.changing(id));
    let moved = match lock(&link, id, guard, &change).await.map_err(definite(DOING))? {
        Ok((found, form)) => {
            if row.as_ref().is_some_and(|row| row.id != id) {
                return Err(unsupported(DOING, "the draft is for another record"));
            }
            let now = found.now;
            let swap = Swap { link: &link, record: &found.record, form, now };
            match swap.apply(&change, row.as_ref(), audit).await.map_err(definite(DOING))? {
                ChangeResult::Applied => {
                    firstwrite_core::crash_point!("postgres-swap-before-commit");
                    link.commit().await.map_err(failed_commit(DOING))?;
                    held.settle();
                    acknowledge(shared, &found.record, &change, now);
                    return Ok(Swapped::Done(now));
                }
                ChangeResult::Overtaken => link.look_inside(id).await.map_err(definite(DOING))?,
            }
        }
        Err(found) => found,
    };
    held.roll_back(DOING).await?;
    Ok(Swapped::Moved(moved.map(Box::new)))
}

/// Locks the record and returns it, with the form of its completion if the guard holds.
async fn lock(
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
            let ending = link.query(&link.sql().has_ending, &[&Id(id), &fence]).await?;
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
    ) -> Result<ChangeResult, DriverError> {
        let (link, sql, id) = (self.link, self.link.sql(), Id(self.record.id));
        let applied = match (change, row) {
            (Change::Note { .. }, _) => ChangeResult::Applied,
            (Change::Renew { lease_for }, _) => {
                let until = At::Instant(self.now.plus(*lease_for));
                link.query(&sql.lease, &[&id, &until]).await?;
                ChangeResult::Applied
            }
            (Change::MarkUncertain { ago }, _) => {
                if self.form == Form::Ended {
                    self.unend().await?;
                }
                link.query(&sql.reopen, &[&id, &uncertain(self.now.minus(*ago))]).await?;
                ChangeResult::Applied
            }
            (Change::Complete { outcome, retention }, _) => {
                if self.form == Form::Inline {
                    link.query(&sql.reopen, &[&id, &uncertain(self.now)]).await?;
                }
                self.end(&encode_outcome(outcome), *retention).await?
            }
            (Change::TakeOver(_), Some(row)) => {
                let superseded = self.supersede().await?;
                if superseded == ChangeResult::Applied {
                    self.replace(row).await?;
                }
                superseded
            }
            (Change::TakeOver(_), None) => ChangeResult::Overtaken,
            (Change::Remove, _) => {
                let superseded = self.supersede().await?;
                if superseded == ChangeResult::Applied {
                    link.query(&sql.remove, &[&id]).await?;
                }
                superseded
            }
        };
        if applied == ChangeResult::Applied
            && let Some(AuditEntry { actor, action, reason }) = audit
        {
            let at = At::Instant(self.now.minus(change.audited_ago()));
            link.query(&sql.put_audit, &[&id, &at, actor, action, reason]).await?;
        }
        Ok(applied)
    }

    /// Sees to it that the attempt that wore the record's fence can complete no more.
    async fn supersede(&self) -> Result<ChangeResult, DriverError> {
        match self.form {
            Form::Inline => {}
            Form::Ended => self.unend().await?,
            Form::Open => {
                let supersede = &self.link.sql().supersede;
                if self.link.query(supersede, &self.attempt().parameters()).await?.is_empty() {
                    return Ok(ChangeResult::Overtaken);
                }
            }
        }
        Ok(ChangeResult::Applied)
    }

    /// Removes the outcome from the ending, which goes on to block the owner.
    async fn unend(&self) -> Result<(), DriverError> {
        let kept_until = At::Instant(self.now.plus(SUPERSEDED_FOR));
        let values = self.attempt().and(kept_until);
        self.link.query(&self.link.sql().unend, &values.parameters()).await.map(drop)
    }

    async fn end(&self, outcome: &[u8], retention: Retention) -> Result<ChangeResult, DriverError> {
        let retained_until = self.now.plus(retention.replay_for);
        let kept_until = retained_until.plus(retention.linger_for);
        let values = self
            .attempt()
            .and(At::Instant(self.now))
            .and(At::Instant(retained_until))
            .and(At::Instant(kept_until))
            .and(outcome)
            .and(self.form == Form::Ended);
        let written = self.link.query(&self.link.sql().end, &values.parameters()).await?;
        Ok(if written.is_empty() { ChangeResult::Overtaken } else { ChangeResult::Applied })
    }

    async fn replace(&self, row: &NewRow) -> Result<(), DriverError> {
        let values = Values::default()
            .and(Id(row.id))
            .and(row.fence)
            .and(At::Instant(self.now))
            .and(row.lease_for)
            .and(row.profile)
            .and(row.tenant.as_str())
            .and(&row.key[..])
            .and(&row.fingerprint[..])
            .and(&row.outcome[..]);
        self.link.query(&self.link.sql().replace, &values.parameters()).await.map(drop)
    }

    fn fence(&self) -> i64 {
        self.record.fence.as_u64().cast_signed()
    }

    fn attempt<'v>(&self) -> Values<'v> {
        Values::default().and(Id(self.record.id)).and(self.fence())
    }
}

/// Remembers the acknowledged write.
fn acknowledge(shared: &Shared, record: &Record, change: &Change, now: Timestamp) {
    let id = record.id;
    match change {
        Change::Note { .. } | Change::Renew { .. } | Change::MarkUncertain { .. } => {
            shared.clock.heard(now);
        }
        Change::Complete { retention, .. } => {
            shared.acknowledged(id, record.fence, now, retention.replay_for);
        }
        Change::TakeOver(draft) => shared.acknowledged(id, draft.fence, now, stands_for(draft)),
        Change::Remove => {
            shared.clock.heard(now);
            shared.history.forget(id);
        }
    }
}
