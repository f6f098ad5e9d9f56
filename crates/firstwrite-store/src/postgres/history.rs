//! Counts the sweeps of every process, so that each notices when the tables are older than its own memory.
//!
//! A process has its own row in `firstwrite.history`, raises its count in every sweep, and remembers the
//! highest count that was acknowledged. Commits of other processes before a sweep precede it in the
//! server's log and in every backup. So a count below the remembered one means that commits are missing,
//! even if this process wrote none of them. Every statement that writes an unknown key compares the count,
//! because restoring a dump breaks no connection. Only its own process changes a count, and it never goes
//! down, so no change to records looks like a loss.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use firstwrite_core::{RecordId, Timestamp};

use super::columns::{Id, Values};
use super::driver_error::DriverError;
use super::history_loss;
use super::link::Link;
use super::profiles::whole_millis;
use super::rows::{column, instant, only};

/// The count of sweeps that the server acknowledged to this process.
#[derive(Debug)]
pub(super) struct History {
    known: Mutex<SweepCount>,
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

impl HistoryCheck {
    /// Returns the parameters of a look-up of one record.
    pub(super) fn values<'a>(self, id: RecordId) -> Values<'a> {
        Values::default().and(Id(id)).and(self.incarnation).and(self.writer).and(self.sweeps)
    }
}

/// Rows of processes that have not swept for this long are deleted.
const KEPT_FOR: Duration = Duration::from_hours(7 * 24);

/// A row that was last raised this long ago may have been deleted.
const MISSED_FOR: Duration = Duration::from_hours(6 * 24);

/// Raises the count of `$1`, and deletes a few rows that are older than `$2` milliseconds.
pub(super) const COUNT: &str = "
    WITH clock AS MATERIALIZED (SELECT firstwrite.now() AS now),
    gone AS (
        DELETE FROM firstwrite.history o WHERE o.writer IN (
            SELECT h.writer FROM firstwrite.history h, clock c
            WHERE h.at < c.now - $2 * interval '1 millisecond' AND h.writer <> $1
            LIMIT 100 FOR UPDATE OF h SKIP LOCKED))
    INSERT INTO firstwrite.history AS h (writer, sweeps, at) SELECT $1, 1, c.now FROM clock c
    ON CONFLICT (writer) DO UPDATE SET sweeps = h.sweeps + 1, at = excluded.at
    RETURNING h.sweeps, h.at";

impl Default for History {
    fn default() -> Self {
        Self { known: Mutex::new(SweepCount::new()) }
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

impl History {
    /// Returns the parameters for statements that write to the server that was verified last.
    pub(super) fn check(&self, incarnation: i64) -> HistoryCheck {
        let SweepCount { writer, sweeps, .. } = *self.known();
        HistoryCheck { incarnation, writer, sweeps }
    }

    /// Forgets the count of `writer`.
    fn begin_anew(&self, writer: i64) {
        let mut known = self.known();
        if known.writer == writer {
            *known = SweepCount::new();
        }
    }

    /// Nothing here panics while it holds the lock, so a poisoned one is still whole.
    fn known(&self) -> MutexGuard<'_, SweepCount> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Compares the count that a verification found with the one known when it was sent. Returns true if the
/// tables are older.
pub(super) async fn compare(
    link: &Link<'_>,
    check: HistoryCheck,
    found: Option<i64>,
    now: Timestamp,
) -> Result<bool, DriverError> {
    let known = *link.shared.history.known();
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
        history_loss::raise(link, detail, Some(known.at)).await?;
    }
    // Reported once: from now on the loss is recorded in its row, and an operator may clear it.
    link.shared.history.begin_anew(check.writer);
    Ok(is_lost)
}

/// Sees to it that this process has a row.
pub(super) async fn register(link: &Link<'_>) -> Result<(), DriverError> {
    if link.shared.history.known().sweeps > 0 { Ok(()) } else { count(link).await }
}

/// Raises the count of this process.
pub(super) async fn count(link: &Link<'_>) -> Result<(), DriverError> {
    let writer = link.shared.history.known().writer;
    let kept_for = whole_millis(KEPT_FOR);
    let begin = &link.shared.server.begins().rare;
    let rows = link.alone(begin, &link.sql().count_sweep, &[&writer, &kept_for]).await?;
    let row = only(&rows, "a count is not there")?;
    let (sweeps, at) = (column(row, 0)?, instant(row, 1)?);
    let mut known = link.shared.history.known();
    if known.writer == writer && known.sweeps < sweeps {
        *known = SweepCount { writer, sweeps, at };
    }
    Ok(())
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
