//! Destinations: whether they are paused or left alone, and how they stand.

use firstwrite_core::outbox::{DestinationView, Switch};
use firstwrite_core::{AuditEntry, Audited, StoreError, StoreErrorKind, Timestamp};
use rusqlite::{OptionalExtension, Row, params};

use super::super::fault::{Failure, definite, kind_of};
use super::super::readers::View;
use super::super::rows::{integer, text};
use super::super::session::Session;
use super::pending::{count, optional_text, optional_time};

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

/// Every destination that has a row of its own or was ever counted.
const ALL: &str =
    "SELECT n.destination, d.paused_at, d.paused_by, d.paused_action, d.paused_reason,
        d.open_until, d.open_cause, coalesce(d.opening_count, 0),
        coalesce((SELECT count FROM firstwrite_tallies t
                  WHERE t.destination = n.destination AND t.state = 'open'), 0),
        coalesce((SELECT count FROM firstwrite_tallies t
                  WHERE t.destination = n.destination AND t.state = 'unknown'), 0),
        coalesce((SELECT count FROM firstwrite_tallies t
                  WHERE t.destination = n.destination AND t.state = 'dead'), 0),
        coalesce((SELECT count FROM firstwrite_tallies t
                  WHERE t.destination = n.destination AND t.state = 'delivered'), 0),
        (SELECT p.due_at FROM firstwrite_pending p
         WHERE p.destination = n.destination AND p.due_at <= ?1 ORDER BY p.due_at LIMIT 1)
     FROM (SELECT destination FROM firstwrite_destinations
           UNION SELECT destination FROM firstwrite_tallies) n
     LEFT JOIN firstwrite_destinations d ON d.destination = n.destination
     ORDER BY n.destination";

impl Session {
    /// What may be claimed for a destination now. Nothing, if that cannot be read: it may be paused.
    pub(super) fn gate(&self, destination: &str, now: Timestamp) -> Result<Gate, Failure> {
        match self.read_gate(destination, now) {
            Ok(gate) => Ok(gate),
            Err(error) if kind_of(&error) == StoreErrorKind::Corrupt => {
                tracing::warn!(destination, %error, "a destination cannot be read");
                Ok(Gate::Closed)
            }
            Err(error) => Err(Failure::batch("claiming messages")(error)),
        }
    }

    fn read_gate(&self, destination: &str, now: Timestamp) -> rusqlite::Result<Gate> {
        let sql = "SELECT paused_at IS NOT NULL, open_until FROM firstwrite_destinations
                   WHERE destination = ?1";
        let stored: Option<(bool, Option<i64>)> = self
            .connection
            .prepare_cached(sql)?
            .query_row([destination], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        Ok(match stored {
            Some((true, _)) => Gate::Closed,
            Some((false, Some(until))) if until > now.as_millis() => Gate::Closed,
            Some((false, Some(_))) => Gate::Trial,
            Some((false, None)) | None => Gate::Open,
        })
    }

    /// Leaves a destination alone that was due for a trial, while the trial lasts.
    pub(super) fn put_open_until(
        &self,
        destination: &str,
        until: Timestamp,
    ) -> rusqlite::Result<()> {
        let sql = "UPDATE firstwrite_destinations SET open_until = ?2 WHERE destination = ?1";
        let given = params![destination, until.as_millis()];
        self.connection.prepare_cached(sql)?.execute(given).map(drop)
    }

    /// See [`firstwrite_core::outbox::Outbox::switch`].
    pub(super) fn switch(&self, destination: &str, switch: &Switch) -> Result<(), Failure> {
        const DOING: &str = "switching a destination";
        let now = self.now();
        let write = || match switch {
            Switch::Open { open_for, cause } => {
                let sql =
                    "INSERT INTO firstwrite_destinations (destination, open_until, open_cause,
                               opening_count)
                           VALUES (?1, ?2, ?3, 1)
                           ON CONFLICT DO UPDATE
                           SET open_until = excluded.open_until, open_cause = excluded.open_cause,
                               opening_count = opening_count + 1";
                let given = params![destination, now.plus(*open_for).as_millis(), cause];
                self.connection.prepare_cached(sql)?.execute(given)
            }
            Switch::Closed => {
                let sql = "UPDATE firstwrite_destinations
                           SET open_until = NULL, open_cause = NULL, opening_count = 0
                           WHERE destination = ?1 AND open_until IS NOT NULL";
                self.nudge();
                self.connection.prepare_cached(sql)?.execute([destination])
            }
        };
        write().map(drop).map_err(Failure::batch(DOING))
    }

    /// See [`firstwrite_core::outbox::Outbox::pause`].
    pub(super) fn pause(&self, destination: &str, by: &AuditEntry) -> Result<(), Failure> {
        let now = self.now();
        let sql = "INSERT INTO firstwrite_destinations (destination, paused_at, paused_by,
                       paused_action, paused_reason)
                   VALUES (?1, ?2, ?3, ?4, ?5)
                   ON CONFLICT DO UPDATE
                   SET paused_at = excluded.paused_at, paused_by = excluded.paused_by,
                       paused_action = excluded.paused_action,
                       paused_reason = excluded.paused_reason";
        let write = || {
            let given = params![destination, now.as_millis(), by.actor, by.action, by.reason];
            self.connection.prepare_cached(sql)?.execute(given)?;
            self.put_audit(destination.as_bytes(), by, now)
        };
        write().map_err(Failure::batch("pausing a destination"))
    }

    /// See [`firstwrite_core::outbox::Outbox::resume`].
    pub(super) fn resume(&self, destination: &str, by: &AuditEntry) -> Result<(), Failure> {
        let now = self.now();
        let sql = "UPDATE firstwrite_destinations
                   SET paused_at = NULL, paused_by = NULL, paused_action = NULL,
                       paused_reason = NULL, open_until = min(open_until, ?2)
                   WHERE destination = ?1";
        let write = || {
            self.connection.prepare_cached(sql)?.execute(params![destination, now.as_millis()])?;
            self.put_audit(destination.as_bytes(), by, now)
        };
        write().map_err(Failure::batch("resuming a destination"))?;
        self.nudge();
        Ok(())
    }
}

impl View {
    /// See [`firstwrite_core::outbox::Outbox::destinations`].
    pub(super) fn destinations(&self) -> Result<Vec<DestinationView>, StoreError> {
        let failed = definite("listing destinations");
        let mut query = self.connection.prepare_cached(ALL).map_err(&failed)?;
        let mut rows = query.query([self.now().as_millis()]).map_err(&failed)?;
        let mut views = Vec::new();
        while let Some(row) = rows.next().map_err(&failed)? {
            views.push(view(row)?);
        }
        Ok(views)
    }
}

fn view(row: &Row<'_>) -> Result<DestinationView, StoreError> {
    let paused = match optional_time(row, 1)? {
        None => None,
        Some(at) => Some(Audited {
            at,
            entry: AuditEntry {
                actor: text(row, 2)?.to_owned(),
                action: text(row, 3)?.to_owned(),
                reason: text(row, 4)?.to_owned(),
            },
        }),
    };
    Ok(DestinationView {
        name: text(row, 0)?.to_owned(),
        paused,
        open_until: optional_time(row, 5)?,
        open_cause: optional_text(row, 6)?,
        opening_count: count(row, 7)?,
        open_count: integer(row, 8)?,
        unknown_count: integer(row, 9)?,
        dead_count: integer(row, 10)?,
        delivered_count: integer(row, 11)?,
        oldest_due_at: optional_time(row, 12)?,
    })
}
