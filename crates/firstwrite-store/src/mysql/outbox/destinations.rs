//! Destinations: pauses, openings of their breakers, and counts.

use std::sync::Arc;

use firstwrite_core::outbox::{
    DestinationChange, DestinationView, Gate, OpeningChange, PauseChange,
};
use firstwrite_core::{RecordId, StoreError, Timestamp};
use mysql_async::Row;

use super::super::pipeline::{NOW, Pipeline, Value};
use super::super::pool::Pool;
use super::super::swap::put_audit;
use crate::rows::Columns as _;
use crate::rows::destination;

pub(super) const DOING: &str = "changing a destination";

/// Reads every destination that was ever paused, left alone after failures, or had a message.
const ALL: &str = "SELECT n.destination, d.paused_at, d.paused_by, d.paused_action, d.paused_reason, \
     d.open_until, d.open_cause, COALESCE(d.opening_count, 0), \
     COALESCE(t.open, 0), COALESCE(t.unknown, 0), COALESCE(t.dead, 0), COALESCE(t.delivered, 0), \
     (SELECT MIN(p.due_at) FROM firstwrite_pending p \
      WHERE p.destination = n.destination AND p.due_at <= ?) \
     FROM (SELECT destination FROM firstwrite_destinations WHERE is_listed = 1 \
           UNION SELECT destination FROM firstwrite_tallies) n \
     LEFT JOIN firstwrite_destinations d ON d.destination = n.destination \
     LEFT JOIN (SELECT destination, \
                CAST(SUM(IF(kind = 'open', delta, 0)) AS SIGNED) AS open, \
                CAST(SUM(IF(kind = 'unknown', delta, 0)) AS SIGNED) AS unknown, \
                CAST(SUM(IF(kind = 'dead', delta, 0)) AS SIGNED) AS dead, \
                CAST(SUM(IF(kind = 'delivered', delta, 0)) AS SIGNED) AS delivered \
                FROM firstwrite_tallies GROUP BY destination) t ON t.destination = n.destination \
     ORDER BY n.destination";

/// Adds the statement that locks a destination's row, and makes it if there is none.
pub(super) fn lock(pipeline: &mut Pipeline, destination: &str) {
    pipeline.add(
        "INSERT INTO firstwrite_destinations (destination) VALUES (?) \
         ON DUPLICATE KEY UPDATE destination = firstwrite_destinations.destination",
        &[Value::Text(destination)],
    );
}

/// Reads whether it is paused, and until when it is left alone.
pub(super) fn gate(row: &Row, now: Timestamp) -> Result<Gate, StoreError> {
    let is_paused = row.integer(0)? != 0;
    let open_until = row.instant_or_null(1)?;
    Ok(if is_paused { Gate::Closed } else { Gate::of(open_until, now) })
}

/// Leaves a destination alone that was due for a trial, while the trial lasts.
pub(super) fn put_open_until(pipeline: &mut Pipeline, destination: &str, until: Timestamp) {
    pipeline.add(
        "UPDATE firstwrite_destinations SET open_until = ? WHERE destination = ?",
        &[Value::Int(until.as_millis()), Value::Text(destination)],
    );
}

/// See [`firstwrite_core::outbox::Outbox::put_destination`].
pub(super) async fn put(
    pool: &Arc<Pool>,
    destination: &str,
    change: &DestinationChange,
) -> Result<(), StoreError> {
    let mut pipeline = Pipeline::transaction();
    lock(&mut pipeline, destination);
    pipeline.add("UPDATE firstwrite_destinations SET is_listed = 1", &[]);
    match &change.pause {
        Some(PauseChange::Paused(by)) => pipeline.write(
            ", paused_at = ?, paused_by = ?, paused_action = ?, paused_reason = ?",
            &[
                Value::Sql(NOW),
                Value::Text(&by.actor),
                Value::Text(&by.action),
                Value::Text(&by.reason),
            ],
        ),
        Some(PauseChange::Resumed) => pipeline.write(
            ", paused_at = NULL, paused_by = NULL, paused_action = NULL, paused_reason = NULL",
            &[],
        ),
        None => {}
    }
    match &change.opening {
        Some(OpeningChange::Open { open_for, cause, opening_count }) => pipeline.write(
            ", open_until = ?, open_cause = ?, opening_count = ?",
            &[Value::After(*open_for), Value::Text(cause), Value::Int((*opening_count).into())],
        ),
        Some(OpeningChange::TrialNow) => pipeline.write(
            ", open_until = IF(open_until > ?, ?, open_until)",
            &[Value::Sql(NOW), Value::Sql(NOW)],
        ),
        Some(OpeningChange::Closed) => {
            pipeline.write(", open_until = NULL, open_cause = NULL, opening_count = 0", &[]);
        }
        None => {}
    }
    pipeline.write(" WHERE destination = ?", &[Value::Text(destination)]);
    if let Some(entry) = &change.audit {
        put_audit(&mut pipeline, RecordId::of_destination(destination).as_bytes(), entry);
    }
    pipeline.commit();
    pool.send(DOING, &pipeline).await.map(drop)
}

/// See [`firstwrite_core::outbox::Outbox::destinations`].
pub(super) async fn destinations(pool: &Arc<Pool>) -> Result<Vec<DestinationView>, StoreError> {
    let mut pipeline = Pipeline::reading();
    let place = pipeline.add(ALL, &[Value::Sql(NOW)]);
    let answers = pool.send("listing destinations", &pipeline).await?;
    answers[place].rows.iter().map(destination).collect()
}
