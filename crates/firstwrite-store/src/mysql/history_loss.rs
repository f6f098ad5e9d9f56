//! Detects the loss of acknowledged history: a fail-over to a replica that was behind, or a backup restored
//! under running processes.
//!
//! Every commit of ours raises a count in `firstwrite_history`. Each open store (a *writer*) has a row for
//! each connection that it uses at the same time (a *slot*), so no two commits wait for the same row. Only
//! its own writer changes a count, and no count goes down. So a count below one that was acknowledged means
//! that commits are missing, and no change that other processes make to records looks like a loss.
//!
//! In every pipeline that writes an unknown key, a writer compares the count of its slot and the one that was
//! acknowledged last, whichever slot it is of: what a loss takes is the end of the history. It compares all of
//! its counts on each new connection and in each sweep. A sweep raises a count too: commits of other writers before it precede
//! it in the server's log, so a writer that has swept since also notices the loss of other writers'
//! commits.
//!
//! A row records each loss. While one is open, the pipeline that would write an unknown key refuses it, until
//! an operator has examined and cleared the loss. For processes that were started since, the tables hold a
//! mark: the server or cluster that was written to last. If it is another one now, that counts as a loss too.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use firstwrite_core::encoding::as_i64;
use firstwrite_core::{
    HistoryClearance, HistoryLoss, RecordId, StoreError, StoreErrorKind, Timestamp, lock,
    lost_again,
};
use mysql_async::Row;

use super::connect::{Connection, Server};
use super::driver_error::{DriverError, unavailable};
use super::pipeline::{Answer, NOW, Pipeline, SendError, Value};
use super::pool::PooledConnection;
use super::{Inner, MysqlStore};
use crate::history_loss::mark;
use crate::rows::{Columns as _, history_loss};

/// Counts that the server acknowledged to this store.
#[derive(Debug)]
pub(super) struct History {
    writer: i64,
    /// Counts by slot.
    known: Mutex<BTreeMap<i64, Count>>,
    /// Slots that are not in use.
    free: Mutex<VecDeque<i64>>,
}

/// A count of commits, and the server's time at which it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Count {
    commits: i64,
    at: Timestamp,
}

/// One of a writer's counts, owned while in use. Dropping it returns it.
#[derive(Debug)]
pub(super) struct Slot {
    history: Arc<History>,
    number: i64,
    /// True if nothing of this slot can still be under way at the server.
    pub(super) is_settled: bool,
}

/// Counts of a writer that has written nothing for this long are deleted.
const KEPT_FOR: Duration = Duration::from_hours(7 * 24);

/// Counts that were read this long ago may have been deleted.
const MISSED_FOR: Duration = Duration::from_hours(6 * 24);

/// Writers whose counts are deleted in one step.
const DELETED_MAX: i64 = 100;

impl History {
    pub(super) fn new(writer: i64, slot_count: usize) -> Arc<Self> {
        let free = (0..as_i64(slot_count)).collect();
        Arc::new(Self { writer, known: Mutex::default(), free: Mutex::new(free) })
    }

    /// A slot of its own for a connection in use. There are as many as connections.
    pub(super) fn slot(self: &Arc<Self>) -> Slot {
        let free = lock(&self.free).pop_front();
        let number = free.expect("there is a slot for each connection");
        Slot { history: Arc::clone(self), number, is_settled: false }
    }
}

impl Slot {
    /// Adds the statements that raise this count with the pipeline's commit. Returns the index of the
    /// answer for [`Slot::acknowledged`], whose first value is the time.
    pub(super) fn count(&self, pipeline: &mut Pipeline) -> usize {
        let (writer, slot) = (Value::Int(self.history.writer), Value::Int(self.number));
        pipeline.add(
            "INSERT INTO firstwrite_history (writer, slot, commits, at) VALUES (?, ?, 1, ?) \
             ON DUPLICATE KEY UPDATE commits = commits + 1, at = ?",
            &[writer, slot, Value::Sql(NOW), Value::Sql(NOW)],
        );
        pipeline.add(
            "SELECT @firstwrite_now, commits FROM firstwrite_history WHERE writer = ? AND slot = ?",
            &[writer, slot],
        )
    }

    /// Adds statements that fail, with [`super::driver_error::code::SUBQUERY_NO_1_ROW`], if this count or the
    /// one that was acknowledged last is below its known value.
    ///
    /// A copy that lacks anything lacks the last. Commits of the same instant may be in a copy without each
    /// other, so the slot's own is compared too.
    pub(super) fn stop_unless_whole(&self, pipeline: &mut Pipeline) {
        let all = lock(&self.history.known);
        let newest = all.iter().max_by_key(|(_, count)| count.at);
        let own = all.get_key_value(&self.number).filter(|own| Some(*own) != newest);
        for (slot, known) in newest.into_iter().chain(own) {
            self.stop_below(*slot, *known, pipeline);
        }
    }

    /// The same, for every count of this writer in `known`.
    fn stop_unless_all(&self, known: &BTreeMap<i64, Count>, pipeline: &mut Pipeline) {
        for (slot, known) in known {
            self.stop_below(*slot, *known, pipeline);
        }
    }

    fn stop_below(&self, slot: i64, known: Count, pipeline: &mut Pipeline) {
        let (writer, slot) = (Value::Int(self.history.writer), Value::Int(slot));
        pipeline.add(
            "SELECT (SELECT 1 FROM (SELECT 1 UNION ALL SELECT 2) two WHERE NOT EXISTS (\
             SELECT 1 FROM firstwrite_history WHERE writer = ? AND slot = ? AND commits >= ?))",
            &[writer, slot, Value::Int(known.commits)],
        );
    }

    /// The commit that raised this count was acknowledged. Returns its time.
    pub(super) fn acknowledged(&self, answer: &Answer) -> Result<Timestamp, SendError> {
        let count = answer.row("a count is not there").and_then(|row| read_count(row, 1, 0));
        let count = count.map_err(SendError::unread)?;
        let mut known = lock(&self.history.known);
        let known = known.entry(self.number).or_insert(count);
        // A count that went down is left to the next pipeline that compares it.
        if count.commits > known.commits {
            *known = count;
        }
        Ok(count.at)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut free = lock(&self.history.free);
        // A pipeline that got no answer may still hold the row's lock: its slot is used last.
        if self.is_settled {
            free.push_front(self.number);
        } else {
            free.push_back(self.number);
        }
    }
}

/// Checks that a server still has all acknowledged writes, and raises the count of `slot`.
pub(super) async fn verify(
    server: &Server,
    slot: &Slot,
    connection: &mut Connection,
) -> Result<(), DriverError> {
    let history = &slot.history;
    let known = lock(&history.known).clone();
    compare_marks(server, connection).await?;
    let mut pipeline = Pipeline::transaction();
    let counts = pipeline.add(
        "SELECT slot, commits, at FROM firstwrite_history WHERE writer = ?",
        &[Value::Int(history.writer)],
    );
    let counted = slot.count(&mut pipeline);
    pipeline.commit();
    let answers = connection.send(&pipeline).await?;
    let now = answers[counted].row("a count is not there")?.instant(0)?;
    let mut found = BTreeMap::new();
    for row in &answers[counts].rows {
        found.insert(row.integer(0)?, read_count(row, 1, 2)?);
    }
    if let Some(known_at) = lost(&known, &found, now) {
        tracing::error!(
            server = %server.address,
            "acknowledged commits are missing: unknown keys are refused until an operator clears it"
        );
        let detail = "commits that were acknowledged are missing";
        raise(connection, detail, known_at).await?;
    }
    // Reported once: from now on the loss is recorded in its row, and an operator may clear it.
    lock(&history.known)
        .retain(|slot, count| known.get(slot) != Some(count) || !went_down(count, found.get(slot)));
    slot.acknowledged(&answers[counted])?;
    Ok(())
}

/// If a count went down, returns the last time at which everything was still there.
fn lost(
    known: &BTreeMap<i64, Count>,
    found: &BTreeMap<i64, Count>,
    now: Timestamp,
) -> Option<Timestamp> {
    // All counts of a writer are deleted together.
    let newest = known.values().map(|count| count.at).max()?;
    let may_be_deleted = now.since(newest) >= MISSED_FOR;
    let is_lost = known.iter().any(|(slot, count)| went_down(count, found.get(slot)));
    (is_lost && !may_be_deleted).then_some(newest)
}

fn went_down(known: &Count, found: Option<&Count>) -> bool {
    found.is_none_or(|found| found.commits < known.commits)
}

/// Finds writers that have written nothing for long; [`forget`] deletes them.
pub(super) fn ask_for_old(pipeline: &mut Pipeline) -> usize {
    let kept_for = as_i64(KEPT_FOR.as_millis());
    pipeline.add(
        "SELECT writer FROM firstwrite_history GROUP BY writer HAVING MAX(at) < ? - ? LIMIT ?",
        &[Value::Sql(NOW), Value::Int(kept_for), Value::Int(DELETED_MAX)],
    )
}

/// Adds the statement that deletes the counts of the writers in `old`.
pub(super) fn forget(pipeline: &mut Pipeline, old: &Answer) -> Result<(), StoreError> {
    for row in &old.rows {
        let writer = Value::Int(row.integer(0)?);
        pipeline.add("DELETE FROM firstwrite_history WHERE writer = ?", &[writer]);
    }
    Ok(())
}

fn read_count(row: &Row, commits: usize, at: usize) -> Result<Count, StoreError> {
    Ok(Count { commits: row.integer(commits)?, at: row.instant(at)? })
}

/// Fails if history is missing: one more than the largest number there is.
pub(super) const STOP_IF_HISTORY_LOST: &str =
    "SELECT ~0 + EXISTS (SELECT 1 FROM firstwrite_history_losses WHERE cleared_at IS NULL)";

/// Query for an open loss: true if history is missing.
pub(super) const STANDS: &str =
    "SELECT EXISTS (SELECT 1 FROM firstwrite_history_losses WHERE cleared_at IS NULL)";

/// Refuses a key that is not known while history is missing.
pub(super) fn refuse(doing: &'static str) -> StoreError {
    StoreError::definite(StoreErrorKind::HistoryLost, doing)
        .caused_by("the server has lost acknowledged writes; an operator must clear the loss")
}

/// Returns true if the answer to [`STANDS`] reports an open loss.
pub(super) fn stands(answer: &Answer) -> Result<bool, StoreError> {
    Ok(answer.row("a question is not answered")?.integer(0)? != 0)
}

impl Inner {
    /// See [`firstwrite_core::Store::check_history`].
    pub(super) async fn check_history(&self, _id: RecordId) -> Result<(), StoreError> {
        const DOING: &str = "checking the history";
        if let Some(refusal) = self.pool.refusal(DOING) {
            return Err(refusal);
        }
        let mut pooled = self.pool.get(DOING).await?;
        // Counts that are missing are written down as a loss, which the second look finds.
        for _ in 0..2 {
            let mut pipeline = Pipeline::reading();
            pooled.slot().stop_unless_whole(&mut pipeline);
            let place = pipeline.add(STANDS, &[]);
            match pooled.send(&pipeline).await {
                Ok(answers) => {
                    pooled.settle();
                    let is_history_lost = stands(&answers[place])?;
                    return if is_history_lost { Err(refuse(DOING)) } else { Ok(()) };
                }
                Err(error) if error.cause.is_history_missing() && pooled.roll_back().await => {
                    pooled.verify().await.map_err(|error| error.definite(DOING))?;
                }
                Err(error) => {
                    pooled.fail(&error).await;
                    return Err(error.error(DOING));
                }
            }
        }
        Err(unavailable(
            DOING,
            "acknowledged commits are missing, and the server does not keep a row about it",
        ))
    }
}

/// Asks which cluster a server is a node of.
pub(super) const ASK_CLUSTER: &str = "SHOW GLOBAL STATUS LIKE 'wsrep\\_cluster\\_state\\_uuid'";

/// The cluster in an answer to [`ASK_CLUSTER`]: its nodes all have what one acknowledged.
pub(super) fn cluster(answer: &Answer) -> Result<Option<String>, StoreError> {
    let cluster = answer.rows.first().map(|row| row.owned_text(1)).transpose()?;
    // A server that could be a node and is none says nothing, or zeros.
    let cluster = cluster.filter(|name| name.contains(|c| !matches!(c, '0' | '-')));
    Ok(cluster.map(|name| format!("cluster {name}")))
}

/// Returns the identity of this server, or of its cluster.
fn epoch(who: &Answer, clustered: &Answer) -> Result<String, StoreError> {
    if let Some(cluster) = cluster(clustered)? {
        return Ok(cluster);
    }
    Ok(format!("server {}", who.row("a server does not say which it is")?.integer(0)?))
}

/// Updates the mark to the server that is written to now.
async fn compare_marks(server: &Server, connection: &mut Connection) -> Result<(), DriverError> {
    let mut asking = Pipeline::new();
    let who = asking.add("SELECT @@server_id", &[]);
    let cluster = asking.add(ASK_CLUSTER, &[]);
    let marked = asking.add("SELECT epoch FROM firstwrite_mark", &[]);
    let answers = connection.send(&asking).await?;
    let epoch = epoch(&answers[who], &answers[cluster])?;
    let marked = answers[marked].rows.first().map(|row| row.owned_text(0)).transpose()?;
    if marked.as_deref() == Some(&*epoch) {
        return Ok(());
    }
    if let Some(marked) = marked {
        tracing::warn!(server = %server.address, epoch, marked, "another server is written to");
        if !server.address.options.trusts_fail_over {
            let detail = format!(
                "{epoch} is written to instead of {marked}: a replica that may have been behind took \
                 over, or a backup was put back elsewhere"
            );
            raise(connection, &detail, Timestamp::from_millis(i64::MAX)).await?;
        }
    }
    let mut pipeline = Pipeline::transaction();
    pipeline.add(
        "INSERT INTO firstwrite_mark (mark, epoch) VALUES (1, ?) \
         ON DUPLICATE KEY UPDATE epoch = ?",
        &[Value::Text(&epoch), Value::Text(&epoch)],
    );
    pipeline.commit();
    connection.send(&pipeline).await?;
    Ok(())
}

/// Writes down that history is missing, unless that is known: a loss is open, or one was noticed after `known_at`,
/// when everything was still there.
async fn raise(
    connection: &mut Connection,
    detail: &str,
    known_at: Timestamp,
) -> Result<(), DriverError> {
    let mut pipeline = Pipeline::transaction();
    pipeline.add(
        "INSERT INTO firstwrite_history_losses (noticed_at, detail) SELECT ?, ? FROM DUAL WHERE NOT EXISTS \
         (SELECT 1 FROM firstwrite_history_losses d WHERE d.cleared_at IS NULL OR d.noticed_at > ?)",
        &[Value::Sql(NOW), Value::Text(detail), Value::Int(known_at.as_millis())],
    );
    pipeline.commit();
    connection.send(&pipeline).await?;
    Ok(())
}

impl MysqlStore {
    /// Every time that acknowledged history was found to be missing, oldest first.
    pub async fn history_losses(&self) -> Result<Vec<HistoryLoss>, StoreError> {
        let mut pipeline = Pipeline::new();
        let sql = "SELECT noticed_at, detail, cleared_at, cleared_by, reason \
                   FROM firstwrite_history_losses ORDER BY loss";
        let place = pipeline.add(sql, &[]);
        let answers = self.pool().send("reading history losses", &pipeline).await?;
        answers[place].rows.iter().map(history_loss).collect()
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
        let pool = self.pool();
        let known = {
            let mut pooled = pool.get(DOING).await?;
            // What was lost before now is an open loss, or becomes one.
            if let Err(error) = pooled.verify().await {
                return Err(error.definite(DOING));
            }
            let known = lock(&pooled.slot().history.known).clone();
            pooled.settle();
            known
        };
        let mut asking = Pipeline::reading();
        let place =
            asking.add("SELECT loss FROM firstwrite_history_losses WHERE cleared_at IS NULL", &[]);
        let answers = pool.send(DOING, &asking).await?;
        let open = answers[place].rows.iter().map(|row| row.integer(0));
        let open = open.collect::<Result<BTreeSet<i64>, _>>()?;
        if open.is_empty() {
            return Ok(HistoryClearance::default());
        }
        let marked = mark(self, (actor, reason)).await?;
        clear(&mut pool.get(DOING).await?, (&known, &open), (actor, reason)).await?;
        let clearance = marked.of(open.len());
        let server = &pool.server.address;
        tracing::warn!(%server, actor, ?clearance, "history losses were cleared");
        Ok(clearance)
    }
}

/// Clears the losses `open`, if they are all that are open and every count is as high as it was `known` to be
/// before messages and records were marked: otherwise an older copy may have been put back since.
async fn clear(
    pooled: &mut PooledConnection,
    (known, open): (&BTreeMap<i64, Count>, &BTreeSet<i64>),
    (actor, reason): (&str, &str),
) -> Result<(), StoreError> {
    const DOING: &str = "clearing history losses";
    let mut pipeline = Pipeline::transaction();
    pooled.slot().stop_unless_all(known, &mut pipeline);
    let place = pipeline
        .add("SELECT loss FROM firstwrite_history_losses WHERE cleared_at IS NULL FOR UPDATE", &[]);
    let answers = match pooled.send(&pipeline).await {
        Err(error) if error.cause.is_history_missing() => {
            pooled.roll_back().await;
            return Err(lost_again(DOING));
        }
        sent => sent.map_err(|error| error.error(DOING))?,
    };
    let stands = answers[place].rows.iter().map(|row| row.integer(0));
    if stands.collect::<Result<BTreeSet<i64>, _>>()? != *open {
        pooled.roll_back().await;
        return Err(lost_again(DOING));
    }
    let mut pipeline = Pipeline::new();
    pipeline.add(
        "UPDATE firstwrite_history_losses SET cleared_at = ?, cleared_by = ?, reason = ? \
         WHERE cleared_at IS NULL",
        &[Value::Sql(NOW), Value::Text(actor), Value::Text(reason)],
    );
    pipeline.commit();
    pooled.send(&pipeline).await.map_err(|error| error.error(DOING)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(counts: &[(i64, i64, i64)]) -> BTreeMap<i64, Count> {
        let count =
            |&(slot, commits, at)| (slot, Count { commits, at: Timestamp::from_millis(at) });
        counts.iter().map(count).collect()
    }

    #[test]
    fn a_count_that_went_down_or_is_gone_is_a_loss() {
        let (known, now) = (counts(&[(0, 5, 10), (1, 2, 20)]), Timestamp::from_millis(30));
        let whole =
            [counts(&[(0, 5, 10), (1, 2, 20)]), counts(&[(0, 6, 25), (1, 9, 25), (2, 1, 25)])];
        for found in whole {
            assert_eq!(lost(&known, &found, now), None, "{found:?}");
        }
        for found in [counts(&[(0, 4, 9), (1, 2, 20)]), counts(&[(0, 5, 10)]), counts(&[])] {
            let told = lost(&known, &found, now);
            assert_eq!(told, Some(Timestamp::from_millis(20)), "{found:?}");
        }
        assert_eq!(lost(&counts(&[]), &counts(&[]), now), None, "nothing was acknowledged yet");
    }

    #[test]
    fn a_writer_that_was_away_for_days_may_have_been_forgotten() {
        let known = counts(&[(0, 5, 10)]);
        let late = Timestamp::from_millis(10).plus(MISSED_FOR);
        assert_eq!(lost(&known, &counts(&[]), late), None);
        assert!(lost(&known, &counts(&[]), Timestamp::from_millis(11)).is_some());
    }
}
