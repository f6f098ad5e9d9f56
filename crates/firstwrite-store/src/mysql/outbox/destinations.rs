//! Destinations: whether they are paused or left alone, and how they stand.

use std::sync::Arc;

use firstwrite_core::outbox::{DestinationView, Switch};
use firstwrite_core::{AuditEntry, Audited, StoreError, Timestamp};
use mysql_async::Row;

use super::super::flight::{Flight, NOW, Value};
use super::super::pool::Pool;
use super::super::rows::{
    count, instant_or_null, integer, integer_or_null, owned_text, owned_text_or_null,
};
use super::super::swap::put_audit;

/// What a claim may take for a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// As much as it wants.
    Open,
    /// One, to see whether the destination is back.
    Trial,
    /// Nothing.
    Closed,
}

/// What is read of each: every one that was paused or left alone, or ever had a message.
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
pub(super) fn lock(flight: &mut Flight, destination: &str) {
    flight.add(
        "INSERT INTO firstwrite_destinations (destination) VALUES (?) \
         ON DUPLICATE KEY UPDATE destination = firstwrite_destinations.destination",
        &[Value::Text(destination)],
    );
}

/// Reads whether it is paused, and until when it is left alone.
pub(super) fn gate(row: &Row, now: Timestamp) -> Result<Gate, StoreError> {
    let is_paused = integer(row, 0)? != 0;
    Ok(match integer_or_null(row, 1)? {
        _ if is_paused => Gate::Closed,
        Some(until) if until > now.as_millis() => Gate::Closed,
        Some(_) => Gate::Trial,
        None => Gate::Open,
    })
}

/// Leaves a destination alone that was due for a trial, while the trial lasts.
pub(super) fn put_open_until(flight: &mut Flight, destination: &str, until: Timestamp) {
    flight.add(
        "UPDATE firstwrite_destinations SET open_until = ? WHERE destination = ?",
        &[Value::Int(until.as_millis()), Value::Text(destination)],
    );
}

/// See [`firstwrite_core::outbox::Outbox::switch`].
pub(super) async fn switch(
    pool: &Arc<Pool>,
    destination: &str,
    switch: &Switch,
) -> Result<(), StoreError> {
    let mut flight = Flight::transaction();
    lock(&mut flight, destination);
    let name = Value::Text(destination);
    match switch {
        Switch::Open { open_for, cause } => flight.add(
            "UPDATE firstwrite_destinations SET open_until = ?, open_cause = ?, \
             opening_count = opening_count + 1, is_listed = 1 WHERE destination = ?",
            &[Value::After(*open_for), Value::Text(cause), name],
        ),
        Switch::Closed => flight.add(
            "UPDATE firstwrite_destinations SET open_until = NULL, open_cause = NULL, \
             opening_count = 0 WHERE destination = ? AND open_until IS NOT NULL",
            &[name],
        ),
    };
    flight.commit();
    pool.fly("switching a destination", &flight).await.map(drop)
}

/// See [`firstwrite_core::outbox::Outbox::pause`].
pub(super) async fn pause(
    pool: &Arc<Pool>,
    destination: &str,
    by: &AuditEntry,
) -> Result<(), StoreError> {
    let mut flight = Flight::transaction();
    lock(&mut flight, destination);
    flight.add(
        "UPDATE firstwrite_destinations SET paused_at = ?, paused_by = ?, paused_action = ?, \
         paused_reason = ?, is_listed = 1 WHERE destination = ?",
        &[
            Value::Sql(NOW),
            Value::Text(&by.actor),
            Value::Text(&by.action),
            Value::Text(&by.reason),
            Value::Text(destination),
        ],
    );
    put_audit(&mut flight, destination.as_bytes(), by);
    flight.commit();
    pool.fly("pausing a destination", &flight).await.map(drop)
}

/// See [`firstwrite_core::outbox::Outbox::resume`].
pub(super) async fn resume(
    pool: &Arc<Pool>,
    destination: &str,
    by: &AuditEntry,
) -> Result<(), StoreError> {
    let mut flight = Flight::transaction();
    flight.add(
        "UPDATE firstwrite_destinations SET paused_at = NULL, paused_by = NULL, \
         paused_action = NULL, paused_reason = NULL, \
         open_until = IF(open_until > ?, ?, open_until) WHERE destination = ?",
        &[Value::Sql(NOW), Value::Sql(NOW), Value::Text(destination)],
    );
    put_audit(&mut flight, destination.as_bytes(), by);
    flight.commit();
    pool.fly("resuming a destination", &flight).await.map(drop)
}

/// See [`firstwrite_core::outbox::Outbox::destinations`].
pub(super) async fn destinations(pool: &Arc<Pool>) -> Result<Vec<DestinationView>, StoreError> {
    let mut flight = Flight::reading();
    let place = flight.add(ALL, &[Value::Sql(NOW)]);
    let answers = pool.fly("listing destinations", &flight).await?;
    answers[place].rows.iter().map(view).collect()
}

fn view(row: &Row) -> Result<DestinationView, StoreError> {
    let paused = match instant_or_null(row, 1)? {
        None => None,
        Some(at) => {
            let (actor, action) = (owned_text(row, 2)?, owned_text(row, 3)?);
            let entry = AuditEntry { actor, action, reason: owned_text(row, 4)? };
            Some(Audited { at, entry })
        }
    };
    Ok(DestinationView {
        name: owned_text(row, 0)?,
        paused,
        open_until: instant_or_null(row, 5)?,
        open_cause: owned_text_or_null(row, 6)?,
        opening_count: count(row, 7)?,
        open_count: integer(row, 8)?,
        unknown_count: integer(row, 9)?,
        dead_count: integer(row, 10)?,
        delivered_count: integer(row, 11)?,
        oldest_due_at: instant_or_null(row, 12)?,
    })
}
