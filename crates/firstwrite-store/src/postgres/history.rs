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

use firstwrite_core::{StoreError, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::columns::{At, Id};
use super::driver_error::{DriverError, corrupt};
use super::history_loss;
use super::link::Link;
use super::rows::column;

/// The count of sweeps that the server acknowledged to this process.
#[derive(Debug)]
pub(super) struct History {
    known: Mutex<Known>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
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
pub(super) struct Asked {
    pub(super) incarnation: i64,
    pub(super) writer: i64,
    pub(super) sweeps: i64,
}

impl Asked {
    /// Returns the parameters of a look-up of one record.
    pub(super) fn about<'a>(&'a self, id: &'a Id) -> [&'a (dyn ToSql + Sync); 4] {
        [id, &self.incarnation, &self.writer, &self.sweeps]
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
        Self { known: Mutex::new(Known::new()) }
    }
}

impl Known {
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
    pub(super) fn asked(&self, incarnation: i64) -> Asked {
        let Known { writer, sweeps, .. } = *self.known();
        Asked { incarnation, writer, sweeps }
    }

    /// Forgets the count of `writer`.
    fn begin_anew(&self, writer: i64) {
        let mut known = self.known();
        if known.writer == writer {
            *known = Known::new();
        }
    }

    /// Nothing here panics while it holds the lock, so a poisoned one is still whole.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Compares the count that a verification found with the one known when it was sent. Returns true if the
/// tables are older.
pub(super) async fn compare(
    link: &Link<'_>,
    asked: Asked,
    found: Option<i64>,
    now: Timestamp,
) -> Result<bool, DriverError> {
    let known = *link.shared.history.known();
    // There is nothing to compare, or another connection of this process has noticed since.
    if asked.sweeps == 0 || known.writer != asked.writer {
        return Ok(false);
    }
    let is_lost = Known { sweeps: asked.sweeps, ..known }.is_lost(found, now);
    if !is_lost && found.is_some() {
        return Ok(false);
    }
    if is_lost {
        let detail = "commits that were acknowledged are missing";
        history_loss::raise(link, detail, Some(known.at)).await?;
    }
    // Reported once: from now on the loss is recorded in its row, and an operator may clear it.
    link.shared.history.begin_anew(asked.writer);
    Ok(is_lost)
}

/// Sees to it that this process has a row.
pub(super) async fn register(link: &Link<'_>) -> Result<(), DriverError> {
    if link.shared.history.known().sweeps > 0 { Ok(()) } else { count(link).await }
}

/// Raises the count of this process.
pub(super) async fn count(link: &Link<'_>) -> Result<(), DriverError> {
    let writer = link.shared.history.known().writer;
    let kept_for = i64::try_from(KEPT_FOR.as_millis()).unwrap_or(i64::MAX);
    let begin = &link.shared.server.begins().rare;
    let rows = link.alone(begin, &link.sql().count_sweep, &[&writer, &kept_for]).await?;
    let row = rows.first().ok_or_else(|| corrupt("a count is not there"))?;
    let (sweeps, at) = read(row)?;
    let mut known = link.shared.history.known();
    if known.writer == writer && known.sweeps < sweeps {
        *known = Known { writer, sweeps, at };
    }
    Ok(())
}

fn read(row: &Row) -> Result<(i64, Timestamp), StoreError> {
    let at = column::<At>(row, 1)?.instant().ok_or_else(|| corrupt("the clock has stopped"))?;
    Ok((column(row, 0)?, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_went_down_or_is_gone_is_a_loss() {
        let at = Timestamp::from_millis(10);
        let known = Known { writer: 1, sweeps: 5, at };
        for (found, is_lost) in [(Some(5), false), (Some(9), false), (Some(4), true), (None, true)]
        {
            assert_eq!(known.is_lost(found, at), is_lost, "{found:?}");
        }
        assert!(!Known::new().is_lost(None, at), "nothing was acknowledged yet");
    }

    #[test]
    fn a_process_that_was_away_for_days_may_have_been_forgotten() {
        let at = Timestamp::from_millis(10);
        let known = Known { writer: 1, sweeps: 5, at };
        assert!(!known.is_lost(None, at.plus(MISSED_FOR)));
        assert!(known.is_lost(Some(4), at.plus(MISSED_FOR)), "a row that is there was not deleted");
    }
}
