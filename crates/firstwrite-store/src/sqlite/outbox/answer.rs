//! Replacing a record's interim outcome with the final one, once.

use firstwrite_core::{Outcome, RecordId, State, StoreError, StoreErrorKind, Timestamp};
use rusqlite::params;

use super::super::driver_error::Failure;
use super::super::rows::{Standing, find};
use super::super::session::Session;
use crate::encoding::encode_outcome;

impl Session {
    /// Writes `outcome` in the place of the interim one that stands under `id`, if one does. Its
    /// retention begins now.
    pub(super) fn replace_interim(
        &self,
        id: RecordId,
        outcome: &Outcome,
        now: Timestamp,
    ) -> Result<(), Failure> {
        let standing = match find(&self.connection, (&self.dictionary, &self.clock), id) {
            Ok(Some(standing)) => standing,
            Ok(None) => return Ok(()),
            // The message is settled all the same: what it did is known, whatever its record says.
            Err(error) => return skip_record(id, error),
        };
        let Standing { number, record } = standing;
        match &record.state {
            State::Completed { outcome, .. } if outcome.is_interim => {}
            State::Completed { .. } | State::Reserved(_) | State::Uncertain { .. } => return Ok(()),
        }
        let sql = "UPDATE firstwrite_records SET outcome = ?2, completed_after = ?3 - created_at
                   WHERE record = ?1";
        let last = Outcome { is_interim: false, ..outcome.clone() };
        self.connection
            .prepare_cached(sql)
            .and_then(|mut update| {
                update.execute(params![number, encode_outcome(&last), now.as_millis()])
            })
            .map(drop)
            .map_err(Failure::batch("answering a record"))
    }
}

/// Goes on without a record that cannot be read. Any other error ends the batch.
fn skip_record(id: RecordId, error: StoreError) -> Result<(), Failure> {
    if error.kind() != StoreErrorKind::Corrupt {
        return Err(Failure::Batch(error));
    }
    tracing::warn!(record = %id, %error, "an interim answer cannot be replaced");
    Ok(())
}
