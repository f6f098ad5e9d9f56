//! Detects the loss of acknowledged history: a fail-over to a standby that was behind, or a backup restored
//! under a running application.
//!
//! The store remembers the newest writes that were acknowledged to it. It checks that they are still there
//! on every new connection, and on every incarnation of the server, which a pooler may put behind an old
//! connection. If one is missing, keys that the server does not know may have been used in the lost
//! history: the statement that would write them refuses them, until an operator has examined and cleared
//! the loss.
//!
//! Losses of other processes' writes are noticed by its own sweeps: see [`super::history`].
//!
//! A process that was started since remembers nothing. For its sake the tables hold a mark: the line of
//! history that was written last, and whether a standby was sure to have all of it. If the server writes
//! another line and the standby was not sure, that counts as a loss too.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deadpool_postgres::ClientWrapper;
use firstwrite_core::{Draft, DraftState, Fence, RecordId, StoreError, StoreErrorKind, Timestamp};
use tokio_postgres::Row;

use super::columns::{At, Id, Values};
use super::driver_error::DriverError;
use super::history;
use super::link::Link;
use super::rows::{column, instant, only};
use super::swap::SUPERSEDED_FOR;
use super::{PostgresStore, Shared};
use crate::Access;
use crate::history_loss::{ClearedLoss, HistoryLoss};

/// The newest writes that the server acknowledged to this store, oldest first.
///
/// One would suffice if acknowledgements came in the order of commits. Those of different connections may
/// not, and a loss affects the last commits.
#[derive(Debug)]
pub(super) struct AcknowledgedWrites {
    newest: Mutex<VecDeque<AcknowledgedWrite>>,
    /// Incarnation of the server that was asked last.
    incarnation: AtomicI64,
    /// True if commits to that server may have to wait for a standby.
    waits_for_standby: AtomicBool,
}

/// Trust in a server's history, which decides whether new keys may be written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// The server has all acknowledged writes.
    Whole,
    /// The server was not verified yet.
    Unverified,
    /// History is missing, and no operator has cleared that.
    HistoryLost,
}

/// Number of writes to remember: more than commit at once.
const REMEMBERED_MAX: usize = 128;

/// A write that must be there until `until`, by the server's clock: after that, it may have been taken
/// over or reaped in good order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AcknowledgedWrite {
    id: RecordId,
    fence: Fence,
    until: Timestamp,
}

/// Returns the time for which a written draft stands at least, whatever is put in its place: an outcome that
/// another process writes can be reaped once the draft's retention is over.
pub(super) fn stands_for(draft: &Draft) -> Duration {
    let replay_for = draft.retention.replay_for;
    match &draft.state {
        DraftState::Reserved { .. } => replay_for.min(SUPERSEDED_FOR / 2),
        DraftState::Completed { .. } => replay_for,
    }
}

/// Reads the server's identity, its current and recorded history, this process's count of sweeps, and one
/// write that should be there and is not.
pub(super) const VERIFY_HISTORY: &str = "
    SELECT firstwrite.incarnation(), firstwrite.epoch(), firstwrite.is_synchronous(),
           m.epoch, m.is_synchronous, current_setting('synchronous_standby_names') <> '',
           firstwrite.now(), pg_is_in_recovery(),
           (SELECT h.sweeps FROM firstwrite.history h WHERE h.writer = $4),
           (SELECT w.id FROM unnest($1::uuid[], $2::int8[], $3::timestamptz[]) AS w(id, fence, until)
            WHERE w.until > firstwrite.now()
              AND NOT EXISTS (SELECT FROM firstwrite.records r
                              WHERE r.id = w.id AND r.fence = w.fence)
              AND NOT EXISTS (SELECT FROM firstwrite.endings e
                              WHERE e.id = w.id AND e.fence = w.fence)
            LIMIT 1)
    FROM firstwrite.mark m";

/// The mark of tables that were made where the server does not tell its history.
const UNKNOWN: &str = "unknown";

/// Only the process that changes the mark first inserts the loss.
pub(super) const MARK: &str = "
    WITH marked AS (
        UPDATE firstwrite.mark SET epoch = $1, is_synchronous = $2 WHERE epoch = $3 RETURNING epoch)
    INSERT INTO firstwrite.history_losses (noticed_at, detail)
    SELECT firstwrite.now(), $4 FROM marked WHERE $4::text IS NOT NULL";

pub(super) const PUT: &str = "
    INSERT INTO firstwrite.history_losses (noticed_at, detail)
    SELECT firstwrite.now(), $1
    WHERE NOT EXISTS (SELECT FROM firstwrite.history_losses d
                      WHERE d.cleared_at IS NULL OR d.noticed_at >= $2)";

pub(super) const ALL: &str = "
    SELECT noticed_at, detail, cleared_at, cleared_by, reason FROM firstwrite.history_losses
    ORDER BY loss";

pub(super) const CLEAR: &str = "
    UPDATE firstwrite.history_losses SET cleared_at = firstwrite.now(), cleared_by = $1, reason = $2
    WHERE cleared_at IS NULL RETURNING loss";

impl Trust {
    pub(super) fn of(history_lost: bool, is_known: bool) -> Self {
        match (is_known, history_lost) {
            (false, _) => Self::Unverified,
            (true, true) => Self::HistoryLost,
            (true, false) => Self::Whole,
        }
    }
}

impl Default for AcknowledgedWrites {
    fn default() -> Self {
        Self {
            newest: Mutex::default(),
            incarnation: AtomicI64::new(0),
            waits_for_standby: AtomicBool::new(true),
        }
    }
}

impl AcknowledgedWrites {
    /// Remembers a write that the server acknowledged, in place of earlier ones of the same record: the end
    /// of a reservation decides how long the record is kept.
    fn add(&self, write: AcknowledgedWrite) {
        let mut newest = self.newest();
        newest.retain(|earlier| earlier.id != write.id);
        if newest.len() >= REMEMBERED_MAX {
            newest.pop_front();
        }
        newest.push_back(write);
    }

    /// Returns the server to which new keys may be written: it has all acknowledged writes, or a loss that
    /// says otherwise.
    pub(super) fn incarnation(&self) -> i64 {
        self.incarnation.load(Ordering::Acquire)
    }

    /// Returns true if a commit may have to wait for a standby; every sweep updates this.
    pub(super) fn waits_for_standby(&self) -> bool {
        self.waits_for_standby.load(Ordering::Relaxed)
    }

    /// Forgets a record that was removed in good order.
    pub(super) fn forget(&self, id: RecordId) {
        self.newest().retain(|write| write.id != id);
    }

    /// Nothing here panics while it holds the lock, so a poisoned one is still whole.
    fn newest(&self) -> MutexGuard<'_, VecDeque<AcknowledgedWrite>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Remembers an acknowledged write, which stands for at least `stands_for` from `now` on.
    pub(super) fn acknowledged(
        &self,
        id: RecordId,
        fence: Fence,
        now: Timestamp,
        stands_for: Duration,
    ) {
        self.clock.heard(now);
        self.acknowledged_writes.add(AcknowledgedWrite { id, fence, until: now.plus(stands_for) });
    }
}

/// Refuses a key that is not known while history is missing.
pub(super) fn refuse(shared: &Shared, doing: &'static str) -> StoreError {
    // The cache may hold records of the lost history, which must not be answered from here either.
    shared.replays.forget_all();
    StoreError::definite(StoreErrorKind::HistoryLost, doing)
        .caused_by("the server has lost acknowledged writes; an operator must clear the loss")
}

/// Checks that a server still has all acknowledged writes. Writes only the loss that it notices, so that
/// records can be read where nothing can be written.
pub(super) async fn verify_history(
    shared: &Shared,
    client: &ClientWrapper,
) -> Result<(), DriverError> {
    if shared.server.access != Access::Write {
        return Ok(());
    }
    let newest = Vec::from(shared.acknowledged_writes.newest().clone());
    let link = Link { client, shared };
    let check = shared.history_check();
    let values = Values::default()
        .and_each(&newest, |write| Id(write.id))
        .and_each(&newest, |write| write.fence.as_u64().cast_signed())
        .and_each(&newest, |write| At::Instant(write.until))
        .and(check.writer);
    let (begin, verify) = (&shared.server.begins().read, &link.sql().verify_history);
    let rows = link.alone(begin, verify, &values.parameters()).await?;
    let row = only(&rows, "a verification is not answered")?;
    compare_marks(&link, row).await?;
    // A standby may be behind without a loss, as long as it is none.
    let is_standby: bool = column(row, 7)?;
    let is_older =
        !is_standby && history::compare(&link, check, column(row, 8)?, instant(row, 6)?).await?;
    if let Some(Id(missing)) = column(row, 9)? {
        if !is_older {
            let detail = format!("the acknowledged write of record {missing} is missing");
            raise(&link, &detail, None).await?;
        }
        // Reported once: from now on the loss is recorded in its row, and an operator may clear it.
        shared.acknowledged_writes.newest().retain(|write| !newest.contains(write));
    }
    shared.acknowledged_writes.waits_for_standby.store(column(row, 5)?, Ordering::Relaxed);
    shared.acknowledged_writes.incarnation.store(column(row, 0)?, Ordering::Release);
    Ok(())
}

/// See [`firstwrite_core::Store::check_history`].
pub(super) async fn check(shared: &Arc<Shared>) -> Result<(), StoreError> {
    const DOING: &str = "checking the history";
    let losses = async |link: Link<'_>| {
        verify_history(shared, link.client).await?;
        link.alone(&shared.server.begins().read, &link.sql().history_losses, &[]).await
    };
    for row in &shared.pooled(DOING, losses).await? {
        if read(row)?.cleared.is_none() {
            return Err(refuse(shared, DOING));
        }
    }
    Ok(())
}

impl PostgresStore {
    /// Every time that acknowledged history was found to be missing, oldest first.
    pub async fn history_losses(&self) -> Result<Vec<HistoryLoss>, StoreError> {
        let losses = &self.shared().sql.history_losses;
        let rows = self.shared().read_alone("reading history losses", losses, &[]).await?;
        rows.iter().map(read).collect()
    }

    /// Clears every open history loss, so that unknown keys can be written again; call it once an
    /// operator has examined the loss. Returns the number of losses cleared.
    pub async fn clear_history_losses(
        &self,
        actor: &str,
        reason: &str,
    ) -> Result<usize, StoreError> {
        const DOING: &str = "clearing history losses";
        self.writes(DOING)?;
        let shared = self.shared();
        let clear = &shared.sql.clear_history_losses;
        let cleared = shared.write_alone(DOING, clear, &[&actor, &reason]).await?.len();
        tracing::warn!(server = %shared.server.address, actor, cleared, "history losses were cleared");
        Ok(cleared)
    }
}

/// Asks a server before new keys are written to it: see [`verify_history`].
pub(super) async fn verify_history_to_write(
    shared: &Shared,
    client: &ClientWrapper,
) -> Result<(), DriverError> {
    verify_history(shared, client).await?;
    history::register(&Link { client, shared }).await
}

/// Updates the mark to the history that is written now.
async fn compare_marks(link: &Link<'_>, row: &Row) -> Result<(), DriverError> {
    let shared = link.shared;
    let (epoch, is_synchronous): (Option<String>, bool) = (column(row, 1)?, column(row, 2)?);
    let (marked, was_synchronous): (String, bool) = (column(row, 3)?, column(row, 4)?);
    // A standby writes nothing, so nothing is written to it either; and a server that hides its history is
    // not compared.
    let Some(epoch) = epoch else { return Ok(()) };
    if (&epoch, is_synchronous) == (&marked, was_synchronous) {
        return Ok(());
    }
    let is_other = epoch != marked && marked != UNKNOWN;
    let trusts = was_synchronous || shared.server.address.options.trusts_fail_over;
    let detail = (is_other && !trusts).then(|| {
        format!(
            "history goes on at {epoch} instead of {marked}: a standby that may have been behind took \
             over, or a backup was put back"
        )
    });
    if is_other {
        let server = &shared.server.address;
        tracing::warn!(%server, epoch, marked, was_synchronous, "the server writes another history");
    }
    if detail.is_some() {
        shared.replays.forget_all();
    }
    let values = Values::default().and(epoch).and(is_synchronous).and(marked).and(detail);
    let begin = &shared.server.begins().rare;
    link.alone(begin, &link.sql().put_mark, &values.parameters()).await.map(drop)
}

/// Writes down that history is missing, unless that is known: a loss is open, or one was noticed since
/// `known_at`, when everything was still there.
pub(super) async fn raise(
    link: &Link<'_>,
    detail: &str,
    known_at: Option<Timestamp>,
) -> Result<(), DriverError> {
    let shared = link.shared;
    tracing::error!(
        server = %shared.server.address,
        detail,
        "history was lost: unknown keys are refused until an operator clears it"
    );
    shared.replays.forget_all();
    shared.profiles.forget_all();
    let begin = &shared.server.begins().rare;
    let known_at = known_at.map(At::Instant);
    link.alone(begin, &link.sql().put_history_loss, &[&detail, &known_at]).await.map(drop)
}

fn read(row: &Row) -> Result<HistoryLoss, StoreError> {
    let at = |index| column::<Option<At>>(row, index).map(|at| at.and_then(At::instant));
    let cleared = match (at(2)?, column(row, 3)?, column(row, 4)?) {
        (Some(at), Some(by), Some(reason)) => Some(ClearedLoss { at, by, reason }),
        _ => None,
    };
    Ok(HistoryLoss { noticed_at: at(0)?.unwrap_or_default(), detail: column(row, 1)?, cleared })
}
