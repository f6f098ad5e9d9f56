//! Changes existing records under a lock: read, compare, write, in one transaction.

use std::sync::Arc;

use firstwrite_core::encoding::encode_outcome;
use firstwrite_core::{AuditEntry, Change, Found, Guard, RecordId, StateKind, StoreError, Swapped};

use super::batch::{NewRow, kept, record_in};
use super::driver_error::unsupported;
use super::pipeline::{NOW, Pipeline, SendError, Value};
use super::pool::{Pool, PooledConnection, take};
use super::rows::{COMPLETED, RESERVED, UNCERTAIN, record_columns};

pub(super) const DOING: &str = "swapping a record";

/// See [`firstwrite_core::Store::swap`].
pub(super) async fn swap(
    pool: &Arc<Pool>,
    id: RecordId,
    guard: Guard,
    change: &Change,
    audit: Option<&AuditEntry>,
) -> Result<Swapped, StoreError> {
    if let Change::TakeOver(draft) = change
        && draft.id != id
    {
        return Err(unsupported(DOING, "the draft is for another record"));
    }
    take!(pool, DOING, |session| swap_once(&mut session, id, guard, change, audit))
}

async fn swap_once(
    session: &mut PooledConnection,
    id: RecordId,
    guard: Guard,
    change: &Change,
    audit: Option<&AuditEntry>,
) -> Result<Swapped, SendError> {
    let mut looking = Pipeline::transaction();
    let sql = concat!(
        "SELECT ",
        record_columns!(),
        " FROM firstwrite_records r WHERE r.id = ? FOR UPDATE"
    );
    let place = looking.add(sql, &[Value::Bytes(id.as_bytes())]);
    let answers = session.send(&looking).await?;
    let mut writing = Pipeline::new();
    let found = match record_in(&answers[place])? {
        Some(found) if guard.holds(&found.record, change) => found,
        other => {
            writing.add("ROLLBACK", &[]);
            session.send(&writing).await?;
            return Ok(Swapped::Moved(other.map(Box::new)));
        }
    };
    let counted = session.slot().count(&mut writing);
    write(&mut writing, &found, change);
    if let Some(entry) = audit {
        put_audit_at(&mut writing, id.as_bytes(), entry, Value::Before(change.audited_ago()));
    }
    writing.commit();
    firstwrite_core::crash_point!("mysql-swap-before-commit");
    let answers = session.send(&writing).await?;
    firstwrite_core::crash_point!("mysql-swap-after-commit");
    session.slot().acknowledged(&answers[counted])?;
    Ok(Swapped::Done(found.now))
}

/// Adds the statement that applies `change` to the locked record `found`.
fn write(pipeline: &mut Pipeline, found: &Found, change: &Change) {
    let id = Value::Bytes(found.record.id.as_bytes());
    match change {
        Change::Note { .. } => return,
        Change::Renew { lease_for } => {
            let values = [Value::Int(RESERVED), Value::After(*lease_for), id];
            pipeline.add("UPDATE firstwrite_records SET state = ?, due_at = ? WHERE id = ?", &values)
        }
        Change::Complete { outcome, retention } => {
            let [due_at, until] = kept(outcome.is_interim, *retention);
            let outcome = encode_outcome(outcome);
            let (state, outcome) = (Value::Int(COMPLETED), Value::Bytes(&outcome));
            pipeline.add(
                "UPDATE firstwrite_records SET state = ?, due_at = ?, retained_until = ?, outcome = ? \
                 WHERE id = ?",
                &[state, due_at, until, outcome, id],
            )
        }
        Change::MarkUncertain { ago } => pipeline.add(
            "UPDATE firstwrite_records SET state = ?, due_at = ?, retained_until = NULL, outcome = NULL \
             WHERE id = ?",
            &[Value::Int(UNCERTAIN), Value::Before(*ago), id],
        ),
        Change::TakeOver(draft) => replace(pipeline, &NewRow::new(draft), None),
        Change::Remove => pipeline.add("DELETE FROM firstwrite_records WHERE id = ?", &[id]),
    };
}

/// Adds the statement that replaces the existing record by `row`; if it is not locked, only if it is still
/// as it was `seen`.
pub(super) fn replace(
    pipeline: &mut Pipeline,
    row: &NewRow,
    seen: Option<firstwrite_core::Seen>,
) -> usize {
    let values = row.values();
    let at = pipeline.add(
        "UPDATE firstwrite_records SET id = ?, tenant = ?, `key` = ?, operation = ?, \
         on_lost_answer = ?, fingerprint_version = ?, fingerprint_form = ?, fingerprint = ?, \
         fence = ?, created_at = ?, state = ?, due_at = ?, retained_until = ?, replay_for = ?, \
         linger_for = ?, refuses_spent = ?, outcome = ?",
        &values,
    );
    pipeline.write(" WHERE id = ?", &[values[0]]);
    if let Some(seen) = seen {
        let fence = Value::Int(seen.fence.as_u64().cast_signed());
        pipeline.write(" AND fence = ? AND state = ?", &[fence, Value::Int(number_of(seen.state))]);
        if let Some(until) = seen.lease_until {
            pipeline.write(" AND due_at = ?", &[Value::Int(until.as_millis())]);
        }
    }
    at
}

/// Adds an audit entry about `subject`.
pub(super) fn put_audit(pipeline: &mut Pipeline, subject: &[u8], entry: &AuditEntry) {
    put_audit_at(pipeline, subject, entry, Value::Sql(NOW));
}

fn put_audit_at(pipeline: &mut Pipeline, subject: &[u8], entry: &AuditEntry, at: Value<'_>) {
    pipeline.add(
        "INSERT INTO firstwrite_audit (id, at, actor, action, reason) VALUES (?, ?, ?, ?, ?)",
        &[
            Value::Bytes(subject),
            at,
            Value::Text(&entry.actor),
            Value::Text(&entry.action),
            Value::Text(&entry.reason),
        ],
    );
}

pub(super) fn number_of(state: StateKind) -> i64 {
    match state {
        StateKind::Reserved => RESERVED,
        StateKind::Uncertain => UNCERTAIN,
        StateKind::Completed => COMPLETED,
    }
}
