//! Doubts: rows that record a loss of acknowledged history. While one is open, the pipeline that would
//! write an unknown key refuses it, until an operator has examined and cleared the doubt.
//!
//! `history.rs` notices a loss as long as some process remembers. For processes that were started since,
//! the tables hold a mark: the server or cluster that was written to last. If it is another one now, that
//! is a doubt too.

use std::sync::Arc;

use firstwrite_core::{StoreError, StoreErrorKind, Timestamp};
use mysql_async::Row;

use super::connect::{Connection, Server};
use super::fault::{Trouble, corrupt, unavailable};
use super::flight::{Answer, Flight, NOW, Value};
use super::pool::Pool;
use super::rows::{self, integer, owned_text};
use crate::doubt::{ClearedDoubt, Doubt};

/// Fails if history is missing: one more than the largest number there is.
pub(super) const STOP_IN_DOUBT: &str =
    "SELECT ~0 + EXISTS (SELECT 1 FROM firstwrite_doubts WHERE cleared_at IS NULL)";

/// Query for an open doubt: true if history is missing.
pub(super) const STANDS: &str =
    "SELECT EXISTS (SELECT 1 FROM firstwrite_doubts WHERE cleared_at IS NULL)";

/// Refuses a key that is not known while history is missing.
pub(super) fn refuse(doing: &'static str) -> StoreError {
    StoreError::definite(StoreErrorKind::InDoubt, doing)
        .caused_by("the server has lost acknowledged writes; an operator must clear the doubt")
}

/// Returns true if the answer to [`STANDS`] reports an open doubt.
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
    let mut held = pool.get(DOING).await?;
    // Counts that are missing are made into a doubt, which the second look finds.
    for _ in 0..2 {
        let mut flight = Flight::reading();
        held.slot().stop_unless_whole(&mut flight);
        let place = flight.add(STANDS, &[]);
        match held.fly(&flight).await {
            Ok(answers) => {
                held.settle();
                let is_in_doubt = stands(&answers[place])?;
                return if is_in_doubt { Err(refuse(DOING)) } else { Ok(()) };
            }
            Err(crash) if crash.trouble.is_history_missing() && held.roll_back().await => {
                held.verify().await.map_err(|trouble| trouble.definite(DOING))?;
            }
            Err(crash) => {
                held.fail(&crash).await;
                return Err(crash.error(DOING));
            }
        }
    }
    Err(unavailable(
        DOING,
        "acknowledged commits are missing, and the server does not keep a doubt",
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
) -> Result<(), Trouble> {
    let mut asking = Flight::new();
    let who = asking.add("SELECT @@server_id", &[]);
    let cluster = asking.add(ASK_CLUSTER, &[]);
    let marked = asking.add("SELECT epoch FROM firstwrite_mark", &[]);
    let answers = connection.fly(&asking).await.map_err(|crash| crash.trouble)?;
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
    let mut flight = Flight::transaction();
    flight.add(
        "INSERT INTO firstwrite_mark (mark, epoch) VALUES (1, ?) \
         ON DUPLICATE KEY UPDATE epoch = ?",
        &[Value::Text(&epoch), Value::Text(&epoch)],
    );
    flight.commit();
    connection.fly(&flight).await.map(drop).map_err(|crash| crash.trouble)
}

/// Writes down that history is missing, unless that is known: a doubt is open, or one was noticed after `known_at`,
/// when everything was still there.
pub(super) async fn raise(
    connection: &mut Connection,
    detail: &str,
    known_at: Timestamp,
) -> Result<(), Trouble> {
    let mut flight = Flight::transaction();
    flight.add(
        "INSERT INTO firstwrite_doubts (noticed_at, detail) SELECT ?, ? FROM DUAL WHERE NOT EXISTS \
         (SELECT 1 FROM firstwrite_doubts d WHERE d.cleared_at IS NULL OR d.noticed_at > ?)",
        &[Value::Sql(NOW), Value::Text(detail), Value::Int(known_at.as_millis())],
    );
    flight.commit();
    connection.fly(&flight).await.map(drop).map_err(|crash| crash.trouble)
}

/// Returns the pipeline that reads every doubt.
pub(super) fn all() -> Flight {
    let mut flight = Flight::new();
    flight.add(
        "SELECT noticed_at, detail, cleared_at, cleared_by, reason FROM firstwrite_doubts \
         ORDER BY doubt",
        &[],
    );
    flight
}

/// Returns the pipeline that clears every open doubt, and the index of its answer.
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
