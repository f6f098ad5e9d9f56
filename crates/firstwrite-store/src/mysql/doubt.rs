//! Noticing that acknowledged history was lost: a fail-over to a replica that was behind, or a backup put back
//! under a running application.
//!
//! The store remembers the newest writes that were acknowledged to it, and asks every new connection whether they
//! are still there. If one is not, keys that the server does not know may have been used in what is missing: they
//! are refused, in the flight that would write them, until an operator has looked and cleared the doubt.
//!
//! A process that was started since remembers nothing. For its sake the tables hold a mark: which server, or which
//! cluster, was written to last. If it is another one now, that is a doubt too.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use firstwrite_core::{
    Draft, DraftState, Fence, RecordId, Retention, StoreError, StoreErrorKind, Timestamp,
};
use mysql_async::Row;

use super::batch::time_in;
use super::connect::{Connection, Server};
use super::fault::{Trouble, corrupt};
use super::flight::{Answer, Crash, Flight, NOW, Value};
use super::rows::{self, COMPLETED, bytes, integer, owned_text};
use crate::doubt::{ClearedDoubt, Doubt};

/// The newest writes that the server acknowledged to this store, oldest first.
///
/// One would do if acknowledgements came in the order of commits. Those of different connections may not, and what
/// is lost is whatever was committed last.
#[derive(Debug, Default)]
pub(super) struct Witness {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    newest: VecDeque<Acknowledged>,
    /// What was removed or replaced through this store. The word that it was written may come after that.
    gone: VecDeque<(RecordId, Fence)>,
}

/// A write that must be there until `until`, by the server's clock: after that, it may have been taken over or
/// reaped in good order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Acknowledged {
    id: RecordId,
    fence: Fence,
    until: Timestamp,
    is_completed: bool,
}

/// More than commit at once.
const REMEMBERED_MAX: usize = 128;

/// Fails if history is missing: one more than the largest number there is.
pub(super) const STOP_IN_DOUBT: &str =
    "SELECT ~0 + EXISTS (SELECT 1 FROM firstwrite_doubts WHERE cleared_at IS NULL)";

/// Whether history is missing.
pub(super) const STANDS: &str =
    "SELECT EXISTS (SELECT 1 FROM firstwrite_doubts WHERE cleared_at IS NULL)";

impl Witness {
    /// The server acknowledged a new record at `now`.
    pub(super) fn wrote(&self, draft: &Draft, now: Timestamp) {
        let (until, is_completed) = match &draft.state {
            DraftState::Reserved { lease_for } => (now.plus(*lease_for), false),
            DraftState::Completed { retention, .. } => (now.plus(retention.replay_for), true),
        };
        self.push(Acknowledged { id: draft.id, fence: draft.fence, until, is_completed });
    }

    /// The server acknowledged an outcome at `now`.
    pub(super) fn completed(
        &self,
        id: RecordId,
        fence: Fence,
        retention: Retention,
        now: Timestamp,
    ) {
        let until = now.plus(retention.replay_for);
        self.push(Acknowledged { id, fence, until, is_completed: true });
    }

    /// What stands under `id` and `fence` is about to be changed in good order: it bears witness no more. Said before
    /// the change is sent, so that nobody who asks meanwhile can miss it.
    pub(super) fn forget(&self, id: RecordId, fence: Fence) {
        let mut known = self.known();
        known.newest.retain(|write| (write.id, write.fence) != (id, fence));
        keep(&mut known.gone, (id, fence));
    }

    fn push(&self, write: Acknowledged) {
        let mut known = self.known();
        if known.gone.contains(&(write.id, write.fence)) {
            return;
        }
        known.newest.retain(|older| older.id != write.id);
        keep(&mut known.newest, write);
    }

    /// Nothing here panics while it holds the lock, so a poisoned one is still whole.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keep<T>(queue: &mut VecDeque<T>, newest: T) {
    if queue.len() >= REMEMBERED_MAX {
        queue.pop_front();
    }
    queue.push_back(newest);
}

/// Refuses a key that is not known while history is missing.
pub(super) fn refuse(doing: &'static str) -> StoreError {
    StoreError::definite(StoreErrorKind::InDoubt, doing)
        .caused_by("the server has lost acknowledged writes; an operator must clear the doubt")
}

/// Whether an answer to [`STANDS`] says so.
pub(super) fn stands(answer: &Answer) -> Result<bool, StoreError> {
    let row = answer.rows.first().ok_or_else(|| corrupt("a question is not answered"))?;
    Ok(integer(row, 0)? != 0)
}

/// Asks a server whether what was acknowledged is still there, before anything is written to it.
pub(super) async fn greet(
    server: &Server,
    witness: &Witness,
    connection: &mut Connection,
) -> Result<(), Trouble> {
    let mut newest = witness.known().newest.clone();
    let mut flight = Flight::reading();
    let time = flight.add("SELECT @firstwrite_now", &[]);
    let who = flight.add("SELECT @@server_id", &[]);
    let cluster = flight.add("SHOW GLOBAL STATUS LIKE 'wsrep\\_cluster\\_state\\_uuid'", &[]);
    let marked = flight.add("SELECT epoch FROM firstwrite_mark", &[]);
    let records = ask_for(&mut flight, &newest);
    let answers = connection.fly(&flight).await.map_err(|crash| crash.trouble)?;
    let epoch = epoch(&answers[who], &answers[cluster])?;
    let marked = answers[marked].rows.first().map(|row| owned_text(row, 0)).transpose()?;
    compare_marks(server, connection, &epoch, marked).await.map_err(|crash| crash.trouble)?;
    let Some(records) = records else { return Ok(()) };
    let now = time_in(&answers[time])?;
    // What was forgotten while the server was asked may be gone in good order.
    let still = witness.known().newest.clone();
    newest.retain(|write| still.contains(write));
    if let Some(missing) = missing(&newest, &answers[records].rows, now)? {
        tracing::error!(
            record = %missing,
            server = %server.address,
            "an acknowledged write is missing: unknown keys are refused until an operator clears it"
        );
        let detail = format!("the acknowledged write of record {missing} is missing");
        let mut flight = Flight::transaction();
        raise(&mut flight, &detail);
        flight.commit();
        connection.fly(&flight).await.map_err(|crash| crash.trouble)?;
        // Said once: the row stands for itself from now on, and an operator may clear it.
        witness.known().newest.retain(|write| !newest.contains(write));
    }
    Ok(())
}

/// Adds the question how the remembered ones stand, if there are any.
fn ask_for(flight: &mut Flight, newest: &VecDeque<Acknowledged>) -> Option<usize> {
    let mut place = None;
    for write in newest {
        if place.is_none() {
            let sql = "SELECT id, fence, state FROM firstwrite_records WHERE id IN (";
            place = Some(flight.add(sql, &[]));
        } else {
            flight.write(", ", &[]);
        }
        flight.write("?", &[Value::Bytes(write.id.as_bytes())]);
    }
    if place.is_some() {
        flight.write(")", &[]);
    }
    place
}

/// One that should be there and is not.
fn missing(
    newest: &VecDeque<Acknowledged>,
    found: &[Row],
    now: Timestamp,
) -> Result<Option<RecordId>, StoreError> {
    let mut there = Vec::with_capacity(found.len());
    for row in found {
        there.push((bytes(row, 0)?, integer(row, 1)?, integer(row, 2)?));
    }
    let is_there = |write: &Acknowledged| {
        there.iter().any(|(id, fence, state)| {
            *id == write.id.as_bytes()
                && fence.cast_unsigned() == write.fence.as_u64()
                && (!write.is_completed || *state == COMPLETED)
        })
    };
    let lost = newest.iter().find(|write| write.until > now && !is_there(write));
    Ok(lost.map(|write| write.id))
}

/// Which server this is; of a cluster whose nodes all have what one acknowledged, which cluster.
fn epoch(who: &Answer, cluster: &Answer) -> Result<String, StoreError> {
    let cluster = cluster.rows.first().map(|row| owned_text(row, 1)).transpose()?;
    // A server that could be a node and is none says nothing, or zeros.
    if let Some(cluster) = cluster.filter(|name| name.contains(|c| !matches!(c, '0' | '-'))) {
        return Ok(format!("cluster {cluster}"));
    }
    let row = who.rows.first().ok_or_else(|| corrupt("a server does not say which it is"))?;
    Ok(format!("server {}", integer(row, 0)?))
}

/// Sees to it that the mark says who is written to now.
async fn compare_marks(
    server: &Server,
    connection: &mut Connection,
    epoch: &str,
    marked: Option<String>,
) -> Result<(), Crash> {
    if marked.as_deref() == Some(epoch) {
        return Ok(());
    }
    let mut flight = Flight::transaction();
    if let Some(marked) = marked {
        tracing::warn!(server = %server.address, epoch, marked, "another server is written to");
        if !server.address.options.trusts_fail_over {
            let detail = format!(
                "{epoch} is written to instead of {marked}: a replica that may have been behind took \
                 over, or a backup was put back elsewhere"
            );
            raise(&mut flight, &detail);
        }
    }
    flight.add(
        "INSERT INTO firstwrite_mark (mark, epoch) VALUES (1, ?) \
         ON DUPLICATE KEY UPDATE epoch = ?",
        &[Value::Text(epoch), Value::Text(epoch)],
    );
    flight.commit();
    connection.fly(&flight).await.map(drop)
}

/// Adds the statement that writes down that history is missing, unless that is known.
fn raise(flight: &mut Flight, detail: &str) {
    flight.add(
        "INSERT INTO firstwrite_doubts (noticed_at, detail) SELECT ?, ? FROM DUAL \
         WHERE NOT EXISTS (SELECT 1 FROM firstwrite_doubts d WHERE d.cleared_at IS NULL)",
        &[Value::Sql(NOW), Value::Text(detail)],
    );
}

/// The flight that finds every doubt.
pub(super) fn all() -> Flight {
    let mut flight = Flight::new();
    flight.add(
        "SELECT noticed_at, detail, cleared_at, cleared_by, reason FROM firstwrite_doubts \
         ORDER BY doubt",
        &[],
    );
    flight
}

/// The flight that clears every open doubt, and the place of its answer.
pub(super) fn clear(actor: &str, reason: &str) -> (Flight, usize) {
    let mut flight = Flight::transaction();
    let place = flight.add(
        "UPDATE firstwrite_doubts SET cleared_at = ?, cleared_by = ?, reason = ? \
         WHERE cleared_at IS NULL",
        &[Value::Sql(NOW), Value::Text(actor), Value::Text(reason)],
    );
    flight.commit();
    (flight, place)
}

pub(super) fn read(row: &Row) -> Result<Doubt, StoreError> {
    let cleared = if rows::is_null(row, 2) {
        None
    } else {
        let at = rows::instant(row, 2)?;
        Some(ClearedDoubt { at, by: owned_text(row, 3)?, reason: owned_text(row, 4)? })
    };
    Ok(Doubt { noticed_at: rows::instant(row, 0)?, detail: owned_text(row, 1)?, cleared })
}
