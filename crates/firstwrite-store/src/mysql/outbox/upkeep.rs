//! Periodic upkeep: folds counts, releases forgotten successors, and deletes messages that were delivered or consumed
//! long ago. Each step is small and commits by itself; rows that another transaction has locked are skipped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::encoding::as_i64;
use firstwrite_core::{StoreError, Timestamp};
use tokio::sync::Mutex;

use super::super::pipeline::{NOW, Pipeline, SendError, Value};
use super::super::pool::{Pool, PooledConnection, take};
use super::destinations;
use super::pending::{put_tally, release};
use crate::rows::Columns as _;

const DOING: &str = "keeping messages up";

/// Maximum number of rows deleted in one step.
const DELETED_MAX: usize = 500;

/// Maximum number of rows examined in one step.
const LOOKED_AT_MAX: usize = 2000;

/// See [`firstwrite_core::outbox::Outbox::upkeep`]. `after` is where the last step of deleting ended.
pub(super) async fn upkeep(
    pool: &Arc<Pool>,
    after: &Mutex<i64>,
    kept_for: Duration,
    limit: usize,
) -> Result<usize, StoreError> {
    // One at a time in a process: two would walk the same way.
    let mut after = after.lock().await;
    let limit = limit.min(DELETED_MAX);
    let folded: Result<(), StoreError> = take!(pool, DOING, |session| fold(&mut session));
    folded?;
    let released: Result<(), StoreError> =
        take!(pool, DOING, |session| release_forgotten(&mut session));
    released?;
    forget_consumed(pool, limit).await?;
    let (deleted, next) =
        take!(pool, DOING, |session| delete_ended(&mut session, *after, kept_for, limit))?;
    *after = next;
    Ok(deleted)
}

/// Adds differences up, into one row for each destination and kind.
async fn fold(session: &mut PooledConnection) -> Result<(), SendError> {
    let (_, answers) = session
        .begin(|pipeline| {
            pipeline.add(
                "SELECT entry, destination, kind, delta FROM firstwrite_tallies \
                 ORDER BY entry LIMIT ? FOR UPDATE SKIP LOCKED",
                &[Value::Int(as_i64(LOOKED_AT_MAX))],
            );
        })
        .await?;
    let rows = &answers[0].rows;
    let mut sums: BTreeMap<(String, String), i64> = BTreeMap::new();
    let mut entries = Vec::with_capacity(rows.len());
    for row in rows {
        entries.push(row.integer(0)?);
        *sums.entry((row.owned_text(1)?, row.owned_text(2)?)).or_default() += row.integer(3)?;
    }
    let mut writing = Pipeline::new();
    if sums.len() < entries.len() {
        delete(&mut writing, "DELETE FROM firstwrite_tallies WHERE entry IN ", &entries);
        for ((destination, kind), sum) in &sums {
            // A sum of nothing still says that the destination had a message.
            put_tally(&mut writing, destination, kind, *sum);
        }
    }
    writing.commit();
    session.send(&writing).await?;
    Ok(())
}

/// Makes messages due that wait for one that is gone. There should be none: the transaction that removes a message
/// also releases its successor.
async fn release_forgotten(session: &mut PooledConnection) -> Result<(), SendError> {
    let (_, answers) = session
        .begin(|pipeline| {
            pipeline.add(
                "SELECT p.destination, p.ordering_key FROM \
                 (SELECT MIN(message) AS oldest FROM firstwrite_pending \
                  WHERE ordering_key IS NOT NULL GROUP BY destination, ordering_key) o \
                 JOIN firstwrite_pending p ON p.message = o.oldest \
                 WHERE p.state = 0 AND p.due_at IS NULL AND NOT EXISTS \
                 (SELECT 1 FROM firstwrite_pending q WHERE q.destination = p.destination \
                  AND q.ordering_key = p.ordering_key AND q.state <> 0) LIMIT ?",
                &[Value::Int(as_i64(LOOKED_AT_MAX))],
            );
        })
        .await?;
    let mut forgotten = Vec::new();
    for row in &answers[0].rows {
        forgotten.extend(row.owned_text_or_null(1)?.map(|key| (row.owned_text(0), key)));
    }
    let mut writing = Pipeline::new();
    for (destination, key) in forgotten {
        let destination = destination?;
        tracing::warn!(destination, "a message waited for one that is gone");
        destinations::lock(&mut writing, &destination);
        release(&mut writing, &destination, &key);
    }
    writing.commit();
    session.send(&writing).await?;
    Ok(())
}

/// Forgets messages of others that were consumed long ago.
async fn forget_consumed(pool: &Arc<Pool>, limit: usize) -> Result<(), StoreError> {
    let mut pipeline = Pipeline::transaction();
    pipeline.add(
        "DELETE FROM firstwrite_inbox WHERE kept_until <= ? ORDER BY kept_until LIMIT ?",
        &[Value::Sql(NOW), Value::Int(as_i64(limit))],
    );
    pipeline.commit();
    pool.send(DOING, &pipeline).await.map(drop)
}

/// Deletes messages that ended long ago: walks the numbers, and starts again at the first that is too young.
/// Returns how many, and where the next step begins.
async fn delete_ended(
    session: &mut PooledConnection,
    after: i64,
    kept_for: Duration,
    limit: usize,
) -> Result<(usize, i64), SendError> {
    let (now, answers) = session
        .begin(|pipeline| {
            pipeline.add(
                "SELECT m.message, m.created_at, p.message IS NOT NULL, \
                 COALESCE((SELECT MAX(d.at) FROM firstwrite_deliveries d \
                           WHERE d.message = m.message), m.created_at) \
                 FROM firstwrite_messages m LEFT JOIN firstwrite_pending p ON p.message = m.message \
                 WHERE m.message > ? ORDER BY m.message LIMIT ?",
                &[Value::Int(after), Value::Int(as_i64(LOOKED_AT_MAX))],
            );
        })
        .await?;
    let is_over = |since: i64| Timestamp::from_millis(since).plus(kept_for) <= now;
    let rows = &answers[0].rows;
    let (mut due, mut next) = (Vec::new(), after);
    let mut is_at_end = rows.len() < LOOKED_AT_MAX;
    for row in rows {
        if due.len() == limit {
            is_at_end = false;
            break;
        }
        let (number, created_at) = (row.integer(0)?, row.integer(1)?);
        if !is_over(created_at) {
            is_at_end = true;
            break;
        }
        next = number;
        if row.integer(2)? == 0 && is_over(row.integer(3)?) {
            due.push(number);
        }
    }
    let mut writing = Pipeline::new();
    if !due.is_empty() {
        for sql in [
            "DELETE FROM firstwrite_deliveries WHERE message IN ",
            "DELETE FROM firstwrite_messages WHERE message IN ",
        ] {
            delete(&mut writing, sql, &due);
        }
    }
    writing.commit();
    session.send(&writing).await?;
    Ok((due.len(), if is_at_end { 0 } else { next }))
}

/// Adds a statement that goes on with a list of numbers.
fn delete(pipeline: &mut Pipeline, sql: &str, numbers: &[i64]) {
    pipeline.add(sql, &[]);
    pipeline.write_list(numbers.iter().map(|number| Value::Int(*number)));
}
