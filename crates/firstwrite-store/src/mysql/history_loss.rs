//! Rows that record a loss of acknowledged history. While one is open, the pipeline that would
//! write an unknown key refuses it, until an operator has examined and cleared the loss.
//!
//! `history.rs` notices a loss as long as some process remembers. For processes that were started since,
//! the tables hold a mark: the server or cluster that was written to last. If it is another one now, that
//! counts as a loss too.

use std::sync::Arc;

use firstwrite_core::{StoreError, StoreErrorKind, Timestamp};
use mysql_async::Row;

use super::connect::{Connection, Server};
use super::driver_error::{DriverError, corrupt, unavailable};
use super::pipeline::{Answer, NOW, Pipeline, Value};
use super::pool::Pool;
use super::rows::{self, integer, owned_text};
use crate::history_loss::{ClearedLoss, HistoryLoss};

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
    let row = answer.rows.first().ok_or_else(|| corrupt("a question is not answered"))?;
    Ok(integer(row, 0)? != 0)
}

/// See [`firstwrite_core::Store::check_history`].
pub(super) async fn check(pool: &Arc<Pool>) -> Result<(), StoreError> {
    const DOING: &str = "checking the history";
    if let Some(refusal) = pool.refusal(DOING) {
        return Err(refusal);
    }
    let mut pooled = pool.get(DOING).await?;
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

/// Asks which cluster a server is a node of.
pub(super) const ASK_CLUSTER: &str = "SHOW GLOBAL STATUS LIKE 'wsrep\\_cluster\\_state\\_uuid'";

/// The cluster in an answer to [`ASK_CLUSTER`]: its nodes all have what one acknowledged.
pub(super) fn cluster(answer: &Answer) -> Result<Option<String>, StoreError> {
    let cluster = answer.rows.first().map(|row| owned_text(row, 1)).transpose()?;
    // A server that could be a node and is none says nothing, or zeros.
    let cluster = cluster.filter(|name| name.contains(|c| !matches!(c, '0' | '-')));
    Ok(cluster.map(|name| format!("cluster {name}")))
}

/// Returns the identity of this server, or of its cluster.
fn epoch(who: &Answer, clustered: &Answer) -> Result<String, StoreError> {
    if let Some(cluster) = cluster(clustered)? {
        return Ok(cluster);
    }
    let row = who.rows.first().ok_or_else(|| corrupt("a server does not say which it is"))?;
    Ok(format!("server {}", integer(row, 0)?))
}

/// Updates the mark to the server that is written to now.
pub(super) async fn compare_marks(
    server: &Server,
    connection: &mut Connection,
) -> Result<(), DriverError> {
    let mut asking = Pipeline::new();
    let who = asking.add("SELECT @@server_id", &[]);
    let cluster = asking.add(ASK_CLUSTER, &[]);
    let marked = asking.add("SELECT epoch FROM firstwrite_mark", &[]);
    let answers = connection.send(&asking).await.map_err(|error| error.cause)?;
    let epoch = epoch(&answers[who], &answers[cluster])?;
    let marked = answers[marked].rows.first().map(|row| owned_text(row, 0)).transpose()?;
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
    connection.send(&pipeline).await.map(drop).map_err(|error| error.cause)
}

/// Writes down that history is missing, unless that is known: a loss is open, or one was noticed after `known_at`,
/// when everything was still there.
pub(super) async fn raise(
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
    connection.send(&pipeline).await.map(drop).map_err(|error| error.cause)
}

/// Returns the pipeline that reads every loss.
pub(super) fn all() -> Pipeline {
    let mut pipeline = Pipeline::new();
    pipeline.add(
        "SELECT noticed_at, detail, cleared_at, cleared_by, reason FROM firstwrite_history_losses \
         ORDER BY loss",
        &[],
    );
    pipeline
}

/// Returns the pipeline that clears every open loss, and the index of its answer.
pub(super) fn clear(actor: &str, reason: &str) -> (Pipeline, usize) {
    let mut pipeline = Pipeline::transaction();
    let place = pipeline.add(
        "UPDATE firstwrite_history_losses SET cleared_at = ?, cleared_by = ?, reason = ? \
         WHERE cleared_at IS NULL",
        &[Value::Sql(NOW), Value::Text(actor), Value::Text(reason)],
    );
    pipeline.commit();
    (pipeline, place)
}

pub(super) fn read(row: &Row) -> Result<HistoryLoss, StoreError> {
    let cleared = if rows::is_null(row, 2) {
        None
    } else {
        let at = rows::instant(row, 2)?;
        Some(ClearedLoss { at, by: owned_text(row, 3)?, reason: owned_text(row, 4)? })
    };
    Ok(HistoryLoss { noticed_at: rows::instant(row, 0)?, detail: owned_text(row, 1)?, cleared })
}
