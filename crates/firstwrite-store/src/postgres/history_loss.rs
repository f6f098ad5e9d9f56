//! Detects the loss of acknowledged history: a fail-over to a standby that was behind, or a backup restored
//! under a running application. A key that the server does not know may have been used in what was lost:
//! the statement that would write it refuses it, until an operator has examined and cleared the loss.
//!
//! - **Writes.** The store remembers the newest writes that were acknowledged to it, and checks that they
//!   are still there on every new connection, and on every incarnation of the server, which a pooler may put
//!   behind an old connection.
//! - **Sweeps.** A process has its own row in `firstwrite.history`, raises its count in every sweep, and
//!   remembers the highest count that was acknowledged. Commits of other processes before a sweep precede it
//!   in the server's log and in every backup. So a count below the remembered one means that commits are
//!   missing, even if this process wrote none of them. Every statement that writes an unknown key compares
//!   the count, because restoring a dump breaks no connection. Only its own process changes a count, and it
//!   never goes down, so no change to records looks like a loss.
//! - **The mark.** A process that was started since remembers nothing. For its sake the tables hold a mark:
//!   the line of history that was written last, and whether a standby was sure to have all of it. If the
//!   server writes another line and the standby was not sure, that counts as a loss too.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use firstwrite_core::{
    Draft, DraftState, Fence, HistoryClearance, HistoryLoss, RecordId, StoreError, StoreErrorKind,
    Timestamp, lock, lost_again,
};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::columns::{At, Id, Values};
use super::driver_error::DriverError;
use super::link::Link;
use super::profiles::whole_millis;
use super::rows::{column, instant, only};
use super::sql::statements;
use super::swap::SUPERSEDED_FOR;
use super::{Inner, PostgresStore, Shared};
use crate::Access;
use crate::history_loss::mark;
use crate::rows::history_loss;

/// Writes of this process that the server acknowledged, and what is known of that server.
#[derive(Debug)]
pub(super) struct History {
    /// The newest writes, oldest first. One would suffice if acknowledgements came in the order of commits.
    /// Those of different connections may not, and a loss affects the last commits.
    newest: Mutex<VecDeque<AcknowledgedWrite>>,
    sweeps: Mutex<SweepCount>,
    /// Incarnation of the server that was asked last.
    incarnation: AtomicI64,
    /// True if commits to that server may have to wait for a standby.
    waits_for_standby: AtomicBool,
}

/// A write that must be there until `until`, by the server's clock: after that, it may have been taken
/// over or reaped in good order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AcknowledgedWrite {
    id: RecordId,
    fence: Fence,
    until: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SweepCount {
    /// The process's row; a new one after a loss, so that it is not confused with a row that a backup
    /// brings back.
    writer: i64,
    /// Zero before there is a row.
    sweeps: i64,
    /// The server's time of the last sweep.
    at: Timestamp,
}

/// Parameters by which a statement checks that the server was verified and that its tables are not older
/// since.
#[derive(Clone, Copy, Debug)]
pub(super) struct HistoryCheck {
    pub(super) incarnation: i64,
    pub(super) writer: i64,
    pub(super) sweeps: i64,
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

/// Rows of processes that have not swept for this long are deleted.
const KEPT_FOR: Duration = Duration::from_hours(7 * 24);

/// A row that was last raised this long ago may have been deleted.
const MISSED_FOR: Duration = Duration::from_hours(6 * 24);

/// The mark of tables that were made where the server does not tell its history.
const UNKNOWN: &str = "unknown";

statements! {
    /// Every statement about the history.
    pub(super) struct HistorySql() {
        verify: VERIFY, [UUID_ARRAY, INT8_ARRAY, TIMESTAMPTZ_ARRAY, INT8];
        count: COUNT, [INT8, INT8];
        raise: "INSERT INTO firstwrite.history_losses (noticed_at, detail)
                SELECT firstwrite.now(), $1
                WHERE NOT EXISTS (SELECT FROM firstwrite.history_losses d
                                  WHERE d.cleared_at IS NULL OR d.noticed_at >= $2)",
            [TEXT, TIMESTAMPTZ];
        mark: MARK, [TEXT, BOOL, TEXT, TEXT];
        losses: "SELECT noticed_at, detail, cleared_at, cleared_by, reason FROM firstwrite.history_losses
                 ORDER BY loss",
            [];
        open: "SELECT loss FROM firstwrite.history_losses WHERE cleared_at IS NULL", [];
        clear: CLEAR, [TEXT, TEXT, INT8_ARRAY, INT8, INT8];
    }
}

/// Reads the server's identity, its current and recorded history, this process's count of sweeps, and one
/// write that should be there and is not.
const VERIFY: &str = "
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

/// Raises the count of `$1`, and deletes a few rows that are older than `$2` milliseconds.
const COUNT: &str = "
    WITH clock AS MATERIALIZED (SELECT firstwrite.now() AS now),
    gone AS (
        DELETE FROM firstwrite.history o WHERE o.writer IN (
            SELECT h.writer FROM firstwrite.history h, clock c
            WHERE h.at < c.now - $2 * interval '1 millisecond' AND h.writer <> $1
            LIMIT 100 FOR UPDATE OF h SKIP LOCKED))
    INSERT INTO firstwrite.history AS h (writer, sweeps, at) SELECT $1, 1, c.now FROM clock c
    ON CONFLICT (writer) DO UPDATE SET sweeps = h.sweeps + 1, at = excluded.at
    RETURNING h.sweeps, h.at";

/// Only the process that changes the mark first inserts the loss.
const MARK: &str = "
    WITH marked AS (
        UPDATE firstwrite.mark SET epoch = $1, is_synchronous = $2 WHERE epoch = $3 RETURNING epoch)
    INSERT INTO firstwrite.history_losses (noticed_at, detail)
    SELECT firstwrite.now(), $4 FROM marked WHERE $4::text IS NOT NULL";

/// Clears the losses `$3` if they are all that are open, and if the tables still have the `$5` sweeps that the
/// process `$4` had counted before messages and records were marked for them: otherwise an older copy may have been
/// put back since.
const CLEAR: &str = "
    UPDATE firstwrite.history_losses
    SET cleared_at = firstwrite.now(), cleared_by = $1, reason = $2
    WHERE cleared_at IS NULL AND loss = ANY($3)
      AND EXISTS (SELECT FROM firstwrite.history h WHERE h.writer = $4 AND h.sweeps >= $5)
      AND (SELECT count(*) FILTER (WHERE d.loss = ANY($3)) = cardinality($3)
                  AND count(*) = cardinality($3)
           FROM firstwrite.history_losses d WHERE d.cleared_at IS NULL)
    RETURNING loss";

/// Returns the time for which a written draft stands at least, whatever is put in its place: an outcome that
/// another process writes can be reaped once the draft's retention is over.
pub(super) fn stands_for(draft: &Draft) -> Duration {
    let replay_for = draft.retention.replay_for;
    match &draft.state {
        DraftState::Reserved { .. } => replay_for.min(SUPERSEDED_FOR / 2),
        DraftState::Completed { .. } => replay_for,
    }
}

impl Trust {
    pub(super) fn of(history_lost: bool, is_known: bool) -> Self {
        match (is_known, history_lost) {
            (false, _) => Self::Unverified,
            (true, true) => Self::HistoryLost,
            (true, false) => Self::Whole,
        }
    }
}

impl HistoryCheck {
    /// Returns the parameters of a look-up of one record.
    pub(super) fn values<'a>(self, id: RecordId) -> Values<'a> {
        Values::default().and(Id(id)).and(self.incarnation).and(self.writer).and(self.sweeps)
    }
}

impl SweepCount {
    fn new() -> Self {
        Self { writer: fastrand::i64(..), sweeps: 0, at: Timestamp::EPOCH }
    }

    /// Returns true if a server whose row for this process says `found` has lost acknowledged writes.
    fn is_lost(&self, found: Option<i64>, now: Timestamp) -> bool {
        let may_be_deleted = found.is_none() && now.since(self.at) >= MISSED_FOR;
        found.unwrap_or(0) < self.sweeps && !may_be_deleted
    }
}

impl Default for History {
    fn default() -> Self {
        Self {
            newest: Mutex::default(),
            sweeps: Mutex::new(SweepCount::new()),
            incarnation: AtomicI64::new(0),
            waits_for_standby: AtomicBool::new(true),
        }
    }
}

impl History {
    /// Returns the parameters for statements that write to the server that was verified last: it has all
    /// acknowledged writes, or a loss that says otherwise.
    pub(super) fn check(&self) -> HistoryCheck {
        let SweepCount { writer, sweeps, .. } = *lock(&self.sweeps);
        HistoryCheck { incarnation: self.incarnation.load(Ordering::Acquire), writer, sweeps }
    }

    /// Returns true if a commit may have to wait for a standby; every sweep updates this.
    pub(super) fn waits_for_standby(&self) -> bool {
        self.waits_for_standby.load(Ordering::Relaxed)
    }

    /// Forgets a record that was removed in good order.
    pub(super) fn forget(&self, id: RecordId) {
        lock(&self.newest).retain(|write| write.id != id);
    }
}

impl Shared {
    /// Remembers an acknowledged write, which stands for at least `stands_for` from `now` on, in place of
    /// earlier ones of the same record: the end of a reservation decides how long the record is kept.
    pub(super) fn acknowledged(
        &self,
        id: RecordId,
        fence: Fence,
        now: Timestamp,
        stands_for: Duration,
    ) {
        self.clock.heard(now);
        let mut newest = lock(&self.history.newest);
        newest.retain(|earlier| earlier.id != id);
        if newest.len() >= REMEMBERED_MAX {
            newest.pop_front();
        }
        newest.push_back(AcknowledgedWrite { id, fence, until: now.plus(stands_for) });
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
pub(super) async fn verify_history(link: Link<'_>) -> Result<(), DriverError> {
    let (shared, history) = (link.shared, &link.shared.history);
    if shared.server.access != Access::Write {
        return Ok(());
    }
    let newest = Vec::from(lock(&history.newest).clone());
    let check = history.check();
    let values = Values::default()
        .and_each(&newest, |write| Id(write.id))
        .and_each(&newest, |write| write.fence.as_u64().cast_signed())
        .and_each(&newest, |write| At::Instant(write.until))
        .and(check.writer);
    let (begin, verify) = (&shared.server.begins().read, &link.sql().history.verify);
    let rows = link.alone(begin, verify, &values.parameters()).await?;
    let row = only(&rows, "a verification is not answered")?;
    compare_marks(&link, row).await?;
    // A standby may be behind without a loss, as long as it is none.
    let is_standby: bool = column(row, 7)?;
    let is_older =
        !is_standby && compare_counts(&link, check, column(row, 8)?, instant(row, 6)?).await?;
    if let Some(Id(missing)) = column(row, 9)? {
        if !is_older {
            let detail = format!("the acknowledged write of record {missing} is missing");
            raise(&link, &detail, None).await?;
        }
        // Reported once: from now on the loss is recorded in its row, and an operator may clear it.
        lock(&history.newest).retain(|write| !newest.contains(write));
    }
    history.waits_for_standby.store(column(row, 5)?, Ordering::Relaxed);
    history.incarnation.store(column(row, 0)?, Ordering::Release);
    Ok(())
}

/// Verifies a server before new keys are written to it, and sees to it that this process has a row there.
pub(super) async fn verify_history_to_write(link: Link<'_>) -> Result<(), DriverError> {
    verify_history(link).await?;
    register(&link).await
}

/// Sees to it that this process has a row.
pub(super) async fn register(link: &Link<'_>) -> Result<(), DriverError> {
    if link.shared.history.check().sweeps > 0 { Ok(()) } else { count_sweep(link).await }
}

/// Raises the count of this process.
pub(super) async fn count_sweep(link: &Link<'_>) -> Result<(), DriverError> {
    let sweeps = &link.shared.history.sweeps;
    let (writer, kept_for) = (lock(sweeps).writer, whole_millis(KEPT_FOR));
    let begin = &link.shared.server.begins().rare;
    let rows = link.alone(begin, &link.sql().history.count, &[&writer, &kept_for]).await?;
    let row = only(&rows, "a count is not there")?;
    let counted = SweepCount { writer, sweeps: column(row, 0)?, at: instant(row, 1)? };
    let mut known = lock(sweeps);
    if known.writer == writer && known.sweeps < counted.sweeps {
        *known = counted;
    }
    Ok(())
}

/// Compares the count that a verification found with the one known when it was sent. Returns true if the
/// tables are older.
async fn compare_counts(
    link: &Link<'_>,
    check: HistoryCheck,
    found: Option<i64>,
    now: Timestamp,
) -> Result<bool, DriverError> {
    let sweeps = &link.shared.history.sweeps;
    let known = *lock(sweeps);
    // There is nothing to compare, or another connection of this process has noticed since.
    if check.sweeps == 0 || known.writer != check.writer {
        return Ok(false);
    }
    let is_lost = SweepCount { sweeps: check.sweeps, ..known }.is_lost(found, now);
    if !is_lost && found.is_some() {
        return Ok(false);
    }
    if is_lost {
        let detail = "commits that were acknowledged are missing";
        raise(link, detail, Some(known.at)).await?;
    }
    // Reported once: from now on the loss is recorded in its row, and an operator may clear it.
    let mut known = lock(sweeps);
    if known.writer == check.writer {
        *known = SweepCount::new();
    }
    Ok(is_lost)
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
    link.alone(begin, &link.sql().history.mark, &values.parameters()).await.map(drop)
}

/// Writes down that history is missing, unless that is known: a loss is open, or one was noticed since
/// `known_at`, when everything was still there.
async fn raise(
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
    link.alone(begin, &link.sql().history.raise, &[&detail, &known_at]).await.map(drop)
}

impl Inner {
    /// See [`firstwrite_core::Store::check_history`].
    pub(super) async fn check_history(&self, _id: RecordId) -> Result<(), StoreError> {
        const DOING: &str = "checking the history";
        let shared = &self.shared;
        let losses = async |link: Link<'_>| {
            verify_history(link).await?;
            link.alone(&shared.server.begins().read, &link.sql().history.losses, &[]).await
        };
        for row in &shared.pooled(DOING, losses).await? {
            if history_loss(row)?.cleared.is_none() {
                return Err(refuse(shared, DOING));
            }
        }
        Ok(())
    }
}

impl PostgresStore {
    /// Every time that acknowledged history was found to be missing, oldest first.
    pub async fn history_losses(&self) -> Result<Vec<HistoryLoss>, StoreError> {
        let losses = &self.shared().sql.history.losses;
        let rows = self.shared().read_alone("reading history losses", losses, &[]).await?;
        rows.iter().map(history_loss).collect()
    }

    /// Clears every open history loss, so that unknown keys can be written again; call it once an
    /// operator has examined the loss.
    ///
    /// Before that it marks every message that is not settled as one that may have been sent, and every
    /// uncertain record as given up now: the lost history may have sent it. If it fails halfway, or if history
    /// is lost again meanwhile, the loss stays open.
    pub async fn clear_history_losses(
        &self,
        actor: &str,
        reason: &str,
    ) -> Result<HistoryClearance, StoreError> {
        const DOING: &str = "clearing history losses";
        self.writes(DOING)?;
        let shared = self.shared();
        // What was lost before now is an open loss, or becomes one.
        shared.pooled(DOING, async |link| verify_history_to_write(link).await).await?;
        let HistoryCheck { writer, sweeps, .. } = shared.history.check();
        let open = shared.read_alone(DOING, &shared.sql.history.open, &[]).await?;
        let open = open.iter().map(|row| column(row, 0)).collect::<Result<Vec<i64>, _>>()?;
        if open.is_empty() {
            return Ok(HistoryClearance::default());
        }
        let marked = mark(self, (actor, reason)).await?;
        let clear = &shared.sql.history.clear;
        let given: [&(dyn ToSql + Sync); 5] = [&actor, &reason, &open, &writer, &sweeps];
        let losses = shared.write_alone(DOING, clear, &given).await?.len();
        if losses != open.len() {
            return Err(lost_again(DOING));
        }
        let clearance = marked.of(losses);
        let server = &shared.server.address;
        tracing::warn!(%server, actor, ?clearance, "history losses were cleared");
        Ok(clearance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_went_down_or_is_gone_is_a_loss() {
        let at = Timestamp::from_millis(10);
        let known = SweepCount { writer: 1, sweeps: 5, at };
        for (found, is_lost) in [(Some(5), false), (Some(9), false), (Some(4), true), (None, true)]
        {
            assert_eq!(known.is_lost(found, at), is_lost, "{found:?}");
        }
        assert!(!SweepCount::new().is_lost(None, at), "nothing was acknowledged yet");
    }

    #[test]
    fn a_process_that_was_away_for_days_may_have_been_forgotten() {
        let at = Timestamp::from_millis(10);
        let known = SweepCount { writer: 1, sweeps: 5, at };
        assert!(!known.is_lost(None, at.plus(MISSED_FOR)));
        assert!(known.is_lost(Some(4), at.plus(MISSED_FOR)), "a row that is there was not deleted");
    }
}
