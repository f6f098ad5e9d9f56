//! Noticing that acknowledged history was lost: a fail-over to a standby that was behind, or a backup
//! put back under a running application.
//!
//! The store remembers the newest writes that were acknowledged to it. It asks every new connection
//! whether they are still there, and every incarnation of the server, which a pooler may put behind an
//! old connection. If one is not, keys that the server does not know may have been used in what is
//! missing: they are refused, in the statement that would write them, until an operator has looked and
//! cleared the doubt.
//!
//! What other processes wrote, it notices by its own sweeps: see [`super::history`].
//!
//! A process that was started since remembers nothing. For its sake the tables hold a mark: the line of
//! history that was written last, and whether a standby was sure to have all of it. If the server writes
//! another line and the standby was not sure, that is a doubt too.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use deadpool_postgres::{ClientWrapper, Pool};
use firstwrite_core::{Fence, RecordId, StoreError, StoreErrorKind, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::Shared;
use super::columns::{At, Id};
use super::fault::{Trouble, corrupt, definite, no_connection};
use super::history;
use super::link::{Held, Link};
use super::rows::column;
use crate::Access;
use crate::doubt::{ClearedDoubt, Doubt};

/// The newest writes that the server acknowledged to this store, oldest first.
///
/// One would do if acknowledgements came in the order of commits. Those of different connections may
/// not, and what is lost is whatever was committed last.
#[derive(Debug)]
pub(super) struct Witness {
    newest: Mutex<VecDeque<Acknowledged>>,
    /// Of the server that was asked last.
    incarnation: AtomicI64,
    /// Whether commits may have to wait for a standby there.
    waits_for_standby: AtomicBool,
}

/// Whether new keys may be written to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// It has what was acknowledged.
    Whole,
    /// It was not asked yet.
    NotAsked,
    /// History is missing, and no operator has cleared that.
    InDoubt,
}

/// More than commit at once.
const REMEMBERED_MAX: usize = 128;

/// A write that must be there until `until`, by the server's clock: after that, it may have been taken
/// over or reaped in good order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Acknowledged {
    pub(super) id: RecordId,
    pub(super) fence: Fence,
    pub(super) until: Timestamp,
}

/// Which server this is, what history it writes and wrote, how often this process has swept, and one write
/// that should be there and is not.
pub(super) const GREETING: &str = "
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

/// Whoever changes the mark first says that there is a doubt.
pub(super) const MARK: &str = "
    WITH marked AS (
        UPDATE firstwrite.mark SET epoch = $1, is_synchronous = $2 WHERE epoch = $3 RETURNING epoch)
    INSERT INTO firstwrite.doubts (noticed_at, detail)
    SELECT firstwrite.now(), $4 FROM marked WHERE $4::text IS NOT NULL";

pub(super) const PUT: &str = "
    INSERT INTO firstwrite.doubts (noticed_at, detail)
    SELECT firstwrite.now(), $1
    WHERE NOT EXISTS (SELECT FROM firstwrite.doubts d
                      WHERE d.cleared_at IS NULL OR d.noticed_at >= $2)";

pub(super) const ALL: &str = "
    SELECT noticed_at, detail, cleared_at, cleared_by, reason FROM firstwrite.doubts
    ORDER BY doubt";

pub(super) const CLEAR: &str = "
    UPDATE firstwrite.doubts SET cleared_at = firstwrite.now(), cleared_by = $1, reason = $2
    WHERE cleared_at IS NULL RETURNING doubt";

impl Trust {
    pub(super) fn of(in_doubt: bool, is_known: bool) -> Self {
        match (is_known, in_doubt) {
            (false, _) => Self::NotAsked,
            (true, true) => Self::InDoubt,
            (true, false) => Self::Whole,
        }
    }
}

impl Default for Witness {
    fn default() -> Self {
        Self {
            newest: Mutex::default(),
            incarnation: AtomicI64::new(0),
            waits_for_standby: AtomicBool::new(true),
        }
    }
}

impl Witness {
    /// The server acknowledged a write.
    pub(super) fn acknowledged(&self, write: Acknowledged) {
        let mut newest = self.newest();
        if newest.len() >= REMEMBERED_MAX {
            newest.pop_front();
        }
        newest.push_back(write);
    }

    /// The server that new keys may be written to: it has what was acknowledged, or a doubt that says
    /// otherwise.
    pub(super) fn incarnation(&self) -> i64 {
        self.incarnation.load(Ordering::Acquire)
    }

    /// Whether a commit may have to wait for a standby; a sweep looks again.
    pub(super) fn waits_for_standby(&self) -> bool {
        self.waits_for_standby.load(Ordering::Relaxed)
    }

    /// The record under `id` was removed in good order: it bears witness no more.
    pub(super) fn forget(&self, id: RecordId) {
        self.newest().retain(|write| write.id != id);
    }

    /// Nothing here panics while it holds the lock, so a poisoned one is still whole.
    fn newest(&self) -> MutexGuard<'_, VecDeque<Acknowledged>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses a key that is not known while history is missing.
pub(super) fn refuse(shared: &Shared, doing: &'static str) -> StoreError {
    // What is kept in memory may be of what is missing: it must not be answered from here either.
    shared.replays.forget_all();
    StoreError::definite(StoreErrorKind::InDoubt, doing)
        .caused_by("the server has lost acknowledged writes; an operator must clear the doubt")
}

/// Asks a server whether what was acknowledged is still there. Writes only what it notices, so that records can
/// be read where nothing can be written.
pub(super) async fn greet(shared: &Shared, client: &ClientWrapper) -> Result<(), Trouble> {
    let newest = shared.witness.newest().clone();
    if shared.server.access != Access::Write {
        return Ok(());
    }
    let link = Link { client, shared };
    let asked = shared.asked();
    let (sql, begins) = (link.sql(), shared.server.begins());
    let ids: Vec<Id> = newest.iter().map(|write| Id(write.id)).collect();
    let fences: Vec<i64> = newest.iter().map(|write| write.fence.as_u64().cast_signed()).collect();
    let untils: Vec<At> = newest.iter().map(|write| At::Instant(write.until)).collect();
    let rows =
        link.alone(&begins.read, &sql.greeting, &[&ids, &fences, &untils, &asked.writer]).await?;
    let row = rows.first().ok_or_else(|| corrupt("a greeting is not answered"))?;
    compare_marks(&link, row).await?;
    let now = column::<At>(row, 6)?.instant().ok_or_else(|| corrupt("the clock has stopped"))?;
    // A standby may be behind without a loss, as long as it is none.
    let is_standby: bool = column(row, 7)?;
    let is_older = !is_standby && history::compare(&link, asked, column(row, 8)?, now).await?;
    if let Some(Id(missing)) = column(row, 9)? {
        if !is_older {
            let detail = format!("the acknowledged write of record {missing} is missing");
            raise(&link, &detail, None).await?;
        }
        // Said once: the row stands for itself from now on, and an operator may clear it.
        shared.witness.newest().retain(|write| !newest.contains(write));
    }
    shared.witness.waits_for_standby.store(column(row, 5)?, Ordering::Relaxed);
    shared.witness.incarnation.store(column(row, 0)?, Ordering::Release);
    Ok(())
}

/// See [`firstwrite_core::Store::check_history`].
pub(super) async fn check(shared: &Shared, pool: &Pool) -> Result<(), StoreError> {
    const DOING: &str = "checking the history";
    let held = Held::new(pool.get().await.map_err(|error| no_connection(DOING)(&error))?);
    let link = held.link(shared);
    greet(shared, link.client).await.map_err(definite(DOING))?;
    let doubts = link.alone(&shared.server.begins().read, &link.sql().doubts, &[]).await;
    let doubts = doubts.map_err(definite(DOING))?;
    held.settle();
    for row in &doubts {
        if read(row)?.cleared.is_none() {
            return Err(refuse(shared, DOING));
        }
    }
    Ok(())
}

/// Asks a server before new keys are written to it: see [`greet`].
pub(super) async fn greet_to_write(shared: &Shared, client: &ClientWrapper) -> Result<(), Trouble> {
    greet(shared, client).await?;
    history::register(&Link { client, shared }).await
}

/// Sees to it that the mark says what is written now.
async fn compare_marks(link: &Link<'_>, row: &Row) -> Result<(), Trouble> {
    let shared = link.shared;
    let (epoch, is_synchronous): (Option<String>, bool) = (column(row, 1)?, column(row, 2)?);
    let (marked, was_synchronous): (String, bool) = (column(row, 3)?, column(row, 4)?);
    // A standby writes nothing, so nothing is written to it either; and who does not tell is not asked.
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
    let begin = &shared.server.begins().rare;
    let given: [&(dyn ToSql + Sync); 4] = [&epoch, &is_synchronous, &marked, &detail];
    link.alone(begin, &link.sql().put_mark, &given).await.map(drop)
}

/// Writes down that history is missing, unless that is known: a doubt is open, or one was noticed since
/// `known_at`, when everything was still there.
pub(super) async fn raise(
    link: &Link<'_>,
    detail: &str,
    known_at: Option<Timestamp>,
) -> Result<(), Trouble> {
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
    link.alone(begin, &link.sql().put_doubt, &[&detail, &known_at]).await.map(drop)
}

pub(super) fn read(row: &Row) -> Result<Doubt, StoreError> {
    let at = |index| column::<Option<At>>(row, index).map(|at| at.and_then(At::instant));
    let cleared = match (at(2)?, column(row, 3)?, column(row, 4)?) {
        (Some(at), Some(by), Some(reason)) => Some(ClearedDoubt { at, by, reason }),
        _ => None,
    };
    Ok(Doubt { noticed_at: at(0)?.unwrap_or_default(), detail: column(row, 1)?, cleared })
}
