//! Deletes completed records past their time, in small steps.
//!
//! There is no index by time: it would cost every record space for the sake of its last moment. Records are
//! numbered in the order of their creation, so a cursor walks the numbers, takes those that are due, and
//! starts again at the first one that is too young for anything after it to be due. Records that are still
//! needed stay: one with an interim outcome, and one with a pending message.

use std::sync::Arc;

use firstwrite_core::encoding::decode_outcome;
use firstwrite_core::{RecordId, StoreError, Timestamp};
use rusqlite::types::ValueRef;
use rusqlite::{Row, params};

use super::dictionary::Profile;
use super::driver_error::{Failure, definite};
use super::records::Place;
use super::rows::{column, integer, key};
use super::session::Session;

/// Maximum number of records deleted in one step: each dirties a page of the id index, and all waiting
/// commits are delayed by them.
const REAPED_MAX: usize = 500;

/// Maximum number of records examined in one step.
const LOOKED_AT_MAX: i64 = 2000;

const DOING: &str = "reaping records";

/// Fields of a record that reaping needs.
struct Aged {
    number: i64,
    created_at: i64,
    kept_until: i64,
    id: RecordId,
}

impl Session {
    /// See [`firstwrite_core::Store::reap`].
    pub(super) fn reap(&self, limit: usize) -> Result<usize, Failure> {
        let now = self.now().as_millis();
        let shortest = self.dictionary.kept_for_min(&self.connection).map_err(definite(DOING))?;
        let limit = limit.min(REAPED_MAX);
        let (mut due, mut cursor, mut looked_at) = (Vec::new(), self.reap_after.get(), 0);
        {
            let sql = "SELECT record, tenant, key, profile, created_at, completed_after, outcome
                       FROM firstwrite_records WHERE record > ?1 ORDER BY record LIMIT ?2";
            let mut query = self.connection.prepare_cached(sql).map_err(definite(DOING))?;
            let mut rows = query.query(params![cursor, LOOKED_AT_MAX]).map_err(definite(DOING))?;
            let mut is_at_end = false;
            while due.len() < limit {
                let Some(row) = rows.next().map_err(definite(DOING))? else {
                    is_at_end = looked_at < LOOKED_AT_MAX;
                    break;
                };
                looked_at += 1;
                let aged = match self.aged(row) {
                    Ok(aged) => aged,
                    Err(error) => {
                        // One damaged row must not keep the others for ever.
                        cursor = integer(row, 0)?;
                        tracing::warn!(record = cursor, %error, "a record cannot be reaped");
                        continue;
                    }
                };
                if aged.created_at.saturating_add(shortest) > now {
                    is_at_end = true;
                    break;
                }
                cursor = aged.number;
                if aged.kept_until <= now && !is_interim(row)? && !self.has_pending(aged.id)? {
                    due.push(aged);
                }
            }
            self.reap_after.set(if is_at_end { 0 } else { cursor });
        }
        for aged in &due {
            self.delete_row(Place { number: aged.number, is_completed: true })
                .and_then(|()| self.delete_id(aged.id))
                .map_err(Failure::batch(DOING))?;
        }
        Ok(due.len())
    }

    /// Returns true if a message of the record is neither delivered nor dropped.
    fn has_pending(&self, id: RecordId) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM firstwrite_pending WHERE id = ?1";
        self.connection
            .prepare_cached(sql)
            .and_then(|mut query| query.exists([id.as_bytes()]))
            .map_err(definite(DOING))
    }

    fn aged(&self, row: &Row<'_>) -> Result<Aged, StoreError> {
        let tenant = self.dictionary.tenant(&self.connection, column(row, 1)?)?;
        let profile: Arc<Profile> = self.dictionary.profile(&self.connection, column(row, 3)?)?;
        let created_at = integer(row, 4)?;
        let completed_at = Timestamp::from_millis(created_at.saturating_add(integer(row, 5)?));
        let completed_at = self.clock.counted_from(completed_at).as_millis();
        let [replay_for, linger_for, _] = profile.retention;
        let kept_until = completed_at.saturating_add(replay_for).saturating_add(linger_for);
        let id = RecordId::of(&tenant, &key(row, 2)?);
        Ok(Aged { number: integer(row, 0)?, created_at, kept_until, id })
    }
}

/// Returns true if the outcome is interim: a final one is still to come. One that cannot be read is not.
fn is_interim(row: &Row<'_>) -> Result<bool, StoreError> {
    match column(row, 6)? {
        ValueRef::Blob(bytes) => Ok(decode_outcome(bytes).is_ok_and(|outcome| outcome.is_interim)),
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Text(_) => Ok(false),
    }
}
