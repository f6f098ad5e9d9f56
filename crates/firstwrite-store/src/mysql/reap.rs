//! Deletes completed records past their time, in small steps.
//!
//! A cursor walks the index of deadlines: records that stay because a message of theirs is still pending
//! are examined once per round, not in every step. Rows that another transaction has locked are skipped.

use firstwrite_core::StoreError;
use firstwrite_core::encoding::as_i64;

use super::Inner;
use super::history_loss;
use super::pipeline::{NOW, Pipeline, SendError, Value};
use super::pool::{PooledConnection, take};
use super::rows::COMPLETED;
use crate::rows::Columns as _;

/// Position at which the next step begins.
#[derive(Debug, Default)]
pub(super) struct ReapCursor {
    due_at: i64,
    id: Vec<u8>,
}

/// Maximum number of records deleted in one step.
const REAPED_MAX: usize = 500;

/// Maximum number of records examined in one step.
const LOOKED_AT_MAX: usize = 2000;

const DOING: &str = "reaping records";

impl Inner {
    /// See [`firstwrite_core::Store::reap`].
    pub(super) async fn reap(&self, limit: usize) -> Result<usize, StoreError> {
        self.writes(DOING)?;
        // One at a time in a process: two would wait for each other and walk the same way.
        let mut reaping = self.reaping.lock().await;
        take!(self.pool, DOING, |session| step(&mut session, &mut reaping, limit.min(REAPED_MAX)))
    }
}

async fn step(
    session: &mut PooledConnection,
    reaping: &mut ReapCursor,
    limit: usize,
) -> Result<usize, SendError> {
    let mut looking = Pipeline::transaction();
    let place = looking.add(
        "SELECT r.due_at, r.id, EXISTS (SELECT 1 FROM firstwrite_pending p WHERE p.id = r.id) \
         FROM firstwrite_records r WHERE r.state = ? AND r.due_at <= ? AND r.due_at >= ? \
         AND (r.due_at > ? OR r.id > ?) ORDER BY r.due_at, r.id LIMIT ? FOR UPDATE SKIP LOCKED",
        &[
            Value::Int(COMPLETED),
            Value::Sql(NOW),
            Value::Int(reaping.due_at),
            Value::Int(reaping.due_at),
            Value::Bytes(&reaping.id),
            Value::Int(as_i64(LOOKED_AT_MAX.min(limit.saturating_mul(4)))),
        ],
    );
    let old = history_loss::ask_for_old(&mut looking);
    let answers = session.send(&looking).await?;
    let mut due: Vec<&[u8]> = Vec::new();
    let mut next = None;
    for row in &answers[place].rows {
        if due.len() == limit {
            break;
        }
        let (due_at, id, is_kept) = (row.integer(0)?, row.bytes(1)?, row.integer(2)? != 0);
        next = Some(ReapCursor { due_at, id: id.to_vec() });
        if !is_kept {
            due.push(id);
        }
    }
    let mut ending = Pipeline::new();
    for chunk in due.chunks(100) {
        ending.add("DELETE FROM firstwrite_records WHERE id IN ", &[]);
        ending.write_list(chunk.iter().map(|id| Value::Bytes(id)));
    }
    history_loss::forget(&mut ending, &answers[old])?;
    ending.commit();
    firstwrite_core::crash_point!("mysql-reap-before-commit");
    session.send(&ending).await?;
    firstwrite_core::crash_point!("mysql-reap-after-commit");
    *reaping = next.unwrap_or_default();
    Ok(due.len())
}
