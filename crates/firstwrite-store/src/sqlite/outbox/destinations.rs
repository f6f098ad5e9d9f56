//! Destinations: pauses, openings of their breakers, and counts.

use firstwrite_core::outbox::{
    DestinationChange, DestinationView, Gate, OpeningChange, PauseChange,
};
use firstwrite_core::{RecordId, StoreError, StoreErrorKind, Timestamp};
use rusqlite::{OptionalExtension, params};

use super::super::driver_error::{Failure, kind_of};
use super::super::readers::View;
use super::super::session::Session;
use crate::rows::destination;

pub(super) const DOING: &str = "changing a destination";

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
    /// Reads what may be claimed for a destination now. One that cannot be read is closed, since it may be paused.
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
            Some((false, until)) => Gate::of(until.map(Timestamp::from_millis), now),
            None => Gate::Open,
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

    /// See [`firstwrite_core::outbox::Outbox::put_destination`].
    pub(super) fn put_destination(
        &self,
        destination: &str,
        change: &DestinationChange,
    ) -> Result<(), Failure> {
        let now = self.now();
        let write = || {
            let known = "INSERT INTO firstwrite_destinations (destination) VALUES (?1)
                         ON CONFLICT DO NOTHING";
            self.connection.prepare_cached(known)?.execute([destination])?;
            if let Some(pause) = &change.pause {
                self.put_pause(destination, pause, now)?;
            }
            if let Some(opening) = &change.opening {
                self.put_opening(destination, opening, now)?;
            }
            match &change.audit {
                Some(entry) => {
                    let id = RecordId::of_destination(destination);
                    self.put_audit(id.as_bytes(), entry, now)
                }
                None => Ok(()),
            }
        };
        write().map_err(Failure::batch(DOING))?;
        self.notify();
        Ok(())
    }

    fn put_pause(
        &self,
        destination: &str,
        pause: &PauseChange,
        now: Timestamp,
    ) -> rusqlite::Result<()> {
        let (at, by) = match pause {
            PauseChange::Paused(by) => (Some(now.as_millis()), Some(by)),
            PauseChange::Resumed => (None, None),
        };
        let sql = "UPDATE firstwrite_destinations
                   SET paused_at = ?2, paused_by = ?3, paused_action = ?4, paused_reason = ?5
                   WHERE destination = ?1";
        let [actor, action, reason] =
            [by.map(|by| &by.actor), by.map(|by| &by.action), by.map(|by| &by.reason)];
        let given = params![destination, at, actor, action, reason];
        self.connection.prepare_cached(sql)?.execute(given).map(drop)
    }

    fn put_opening(
        &self,
        destination: &str,
        opening: &OpeningChange,
        now: Timestamp,
    ) -> rusqlite::Result<()> {
        let (until, cause, count) = match opening {
            OpeningChange::TrialNow => {
                let sql = "UPDATE firstwrite_destinations SET open_until = min(open_until, ?2)
                           WHERE destination = ?1";
                let given = params![destination, now.as_millis()];
                return self.connection.prepare_cached(sql)?.execute(given).map(drop);
            }
            OpeningChange::Open { open_for, cause, opening_count } => {
                (Some(now.plus(*open_for).as_millis()), Some(cause), *opening_count)
            }
            OpeningChange::Closed => (None, None, 0),
        };
        let sql = "UPDATE firstwrite_destinations
                   SET open_until = ?2, open_cause = ?3, opening_count = ?4 WHERE destination = ?1";
        let given = params![destination, until, cause, count];
        self.connection.prepare_cached(sql)?.execute(given).map(drop)
    }
}

impl View {
    /// See [`firstwrite_core::outbox::Outbox::destinations`].
    pub(super) fn destinations(&self) -> Result<Vec<DestinationView>, StoreError> {
        let now = self.now().as_millis();
        self.all("listing destinations", ALL, [now], |row| destination(row))
    }
}
