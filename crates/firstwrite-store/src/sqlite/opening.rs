//! Steps that the writer takes once before it serves commands: it takes over from the process that had the
//! file before.

use std::time::Duration;

use firstwrite_core::encoding::as_i64;
use firstwrite_core::host_clock::{ClockJump, is_step};
use firstwrite_core::{AuditEntry, RecordId, StoreError, judge_orphan};
use rusqlite::params;

use super::history_loss::Trust;
use super::rows::find;
use super::schema::put_life;
use super::session::Session;
use super::store_clock::put_seen;

/// Time is written down this often, in a commit that is made anyway, and once so long after the last change.
const NOTED_EVERY: Duration = Duration::from_secs(1);

/// Interval at which the time is written in its own commit when there is no other: time after that counts
/// as downtime, so this is well below `DOWNTIME_BELIEVED`.
const NOTED_WHEN_IDLE: Duration = Duration::from_mins(1);

/// A jump is forgotten after so much time that was seen passing, if no record is older than it. Longer than
/// messages and consumed ones are kept.
const JUMP_KEPT_FOR: Duration = Duration::from_hours(365 * 24);

/// Counts of the reservations left by an earlier process: freed, and now uncertain.
#[derive(Debug, Default)]
struct Orphans {
    freed: usize,
    uncertain: usize,
}

impl Session {
    /// Writes in one commit the id of the life that begins, a new jump of the clock, the note of a lost
    /// file, and the end of the reservations of an earlier process, whose owners cannot be alive because the
    /// file has one writer.
    pub(super) fn begin_life(
        &self,
        life: &str,
        jump: Option<ClockJump>,
        loss: Option<&str>,
    ) -> Result<(), StoreError> {
        const DOING: &str = "opening the file";
        let failed = super::driver_error::definite(DOING);
        self.begin().map_err(&failed)?;
        let opened = || {
            put_life(&self.connection, life)?;
            if let Some(jump) = jump {
                self.put_jump(jump)?;
            }
            self.forget_old_jumps()?;
            self.note_time()?;
            if let Some(loss) = loss {
                self.raise_history_loss(loss)?;
            }
            self.trust.replace(Trust::of(&self.connection)?);
            self.sweep_orphans()
        };
        let Orphans { freed, uncertain } = opened().map_err(&failed)?;
        self.commit().map_err(&failed)?;
        if freed + uncertain > 0 {
            tracing::warn!(
                freed,
                uncertain,
                "an earlier process left reservations; they are swept"
            );
        }
        if let Trust::HistoryLost(detail) = &*self.trust.borrow() {
            tracing::error!(
                detail,
                "history may be missing: unknown keys are refused until an \
                 operator clears it with `firstwrite doctor --clear-history-loss`"
            );
        }
        let ahead = self.clock.seen().wall_ahead();
        if is_step(ahead) && ahead < 0 {
            tracing::warn!(
                behind_ms = ahead.unsigned_abs(),
                "the host's clock is behind what the file has seen; the store's time goes on from there"
            );
        }
        self.wall_ahead.set(ahead);
        Ok(())
    }

    /// Writes the time into the open batch, if that was not done for a while. A batch that changes nothing
    /// stays without a write: it is answered even when the disk is full.
    pub(super) fn keep_time(&self) -> rusqlite::Result<()> {
        let change_count = self.connection.total_changes();
        let has_changed = self.change_count.replace(change_count) != change_count;
        if !has_changed {
            return Ok(());
        }
        if !self.is_note_due() {
            self.lacks_note.set(true);
            return Ok(());
        }
        self.notice_step();
        self.note_time()
    }

    /// Writes the time down behind the last change, in a commit of its own: a copy from before that change is known
    /// by it. Under load the time goes with a batch, and nothing is left to do here.
    pub(super) fn note_last_change(&self) {
        if self.lacks_note.get() && self.is_note_due() {
            self.note_time_alone();
        }
    }

    fn is_note_due(&self) -> bool {
        self.now().since(self.noted_at.get()) >= NOTED_EVERY
    }

    /// For a writer that has nothing to do.
    pub(super) fn idle(&self) {
        self.look_at_files();
        self.notice_step();
        self.note_last_change();
        if self.now().since(self.noted_at.get()) >= NOTED_WHEN_IDLE {
            self.note_time_alone();
        }
    }

    /// Writes the time down in a commit of its own.
    pub(super) fn note_time_alone(&self) {
        let noted = self.begin().and_then(|()| self.note_time()).and_then(|()| self.commit());
        if let Err(error) = noted {
            tracing::debug!(%error, "the time is not written down");
            if let Err(error) = self.roll_back() {
                tracing::debug!(%error, "nothing was rolled back");
            }
        }
    }

    /// Counts every jump as time that has passed, because an operator says so.
    pub(super) fn confirm_clock(&self, actor: &str, reason: &str) -> rusqlite::Result<usize> {
        let sql = "UPDATE firstwrite_jumps SET confirmed_at = ?1, confirmed_by = ?2, reason = ?3
                   WHERE confirmed_at IS NULL";
        self.connection.execute(sql, params![self.now().as_millis(), actor, reason])
    }

    fn note_time(&self) -> rusqlite::Result<()> {
        let seen = self.clock.seen();
        self.noted_at.set(seen.at);
        self.noting.set(Some(seen.at));
        self.lacks_note.set(false);
        put_seen(&self.connection, seen)?;
        self.change_count.set(self.connection.total_changes());
        Ok(())
    }

    /// Warns of a step of the host's clock, once for each.
    fn notice_step(&self) {
        let ahead = self.clock.seen().wall_ahead();
        let step = ahead.saturating_sub(self.wall_ahead.get());
        if is_step(step) {
            self.wall_ahead.set(ahead);
            tracing::warn!(
                step_ms = step,
                "the host's clock was set, or the machine slept; the store's time goes on as before"
            );
        }
    }

    fn put_jump(&self, jump: ClockJump) -> rusqlite::Result<()> {
        let uncounted = as_i64(jump.uncounted.as_millis());
        tracing::warn!(
            uncounted_s = jump.uncounted.as_secs(),
            "the host's clock is far ahead of what the file has seen: the machine was off, or the clock is \
             wrong. Earlier outcomes are kept for that much longer, unless `firstwrite doctor \
             --confirm-clock` says that the clock is right"
        );
        let sql = "INSERT INTO firstwrite_jumps (at, uncounted) VALUES (?1, ?2)
                   ON CONFLICT DO UPDATE SET uncounted = uncounted + excluded.uncounted";
        self.connection.execute(sql, params![jump.at.as_millis(), uncounted]).map(drop)
    }

    fn forget_old_jumps(&self) -> rusqlite::Result<()> {
        let kept = as_i64(JUMP_KEPT_FOR.as_millis());
        let sql = "DELETE FROM firstwrite_jumps WHERE at <= ?1 AND NOT EXISTS
                       (SELECT 1 FROM firstwrite_records
                        WHERE record = (SELECT min(record) FROM firstwrite_records)
                          AND created_at < firstwrite_jumps.at)";
        let limit = self.clock.counted_now().as_millis().saturating_sub(kept);
        self.connection.execute(sql, [limit]).map(drop)
    }

    /// Sweeps every reservation there is. One that cannot be read stays: its key is refused as damaged.
    fn sweep_orphans(&self) -> rusqlite::Result<Orphans> {
        let mut orphans = Orphans::default();
        let ids = self
            .connection
            .prepare("SELECT id FROM firstwrite_reservations WHERE lease_until IS NOT NULL")?
            .query_map([], |row| row.get::<_, [u8; 16]>(0))?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        for id in ids.into_iter().map(RecordId::from_bytes) {
            let standing = match find(&self.connection, (&self.dictionary, &self.clock), id) {
                Ok(Some(standing)) => standing,
                Ok(None) => continue,
                Err(error) => {
                    tracing::warn!(record = %id, %error, "a reservation cannot be swept");
                    continue;
                }
            };
            let Some(change) = judge_orphan(&standing.record) else { continue };
            let now = self.now();
            if change.frees() {
                orphans.freed += 1;
            } else {
                orphans.uncertain += 1;
                let why = AuditEntry::uncertain(AuditEntry::OWNER_DIED);
                self.put_audit(id.as_bytes(), &why, now)?;
            }
            self.apply(standing, change, now)?;
        }
        Ok(orphans)
    }
}
