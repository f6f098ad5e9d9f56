//! Taking due messages under a lease: one range of an index for each destination.

use firstwrite_core::outbox::{Claimed, Gate, Parcel, Want};
use firstwrite_core::{StoreError, StoreErrorKind, Timestamp};
use rusqlite::{Row, params};

use super::super::fault::{Failure, corrupt, definite};
use super::super::rows::{blob, column, integer, text};
use super::super::session::Session;
use super::deliveries::receipt_of;
use super::pending::{COLUMNS, NEVER_CLAIMED, Pending, is_null, pending};
use crate::encoding::{Unreadable, decode_answers};

const DOING: &str = "claiming messages";

/// Maximum number of messages claimed for one destination in one command: all commits wait while it runs.
const CLAIMED_MAX: usize = 256;

/// Number of unreadable rows that a claim skips to reach the ones behind them.
const DAMAGED_MAX: usize = 64;

impl Session {
    /// See [`firstwrite_core::outbox::Outbox::claim`].
    pub(super) fn claim(&self, wants: &[Want], nonce: u64) -> Result<Claimed, Failure> {
        // What was claimed and sent may be in what was lost, and would look as if it never was.
        self.refuse_in_doubt(DOING)?;
        let now = self.now();
        let mut claimed = Claimed { parcels: Vec::new(), now, closed: Vec::new() };
        for want in wants {
            let (count_max, is_trial) = match self.gate(&want.destination, now)? {
                Gate::Closed => {
                    claimed.closed.push(want.destination.clone());
                    continue;
                }
                Gate::Trial => (want.count_max.min(1), true),
                Gate::Open => (want.count_max.min(CLAIMED_MAX), false),
            };
            let taken_before = claimed.parcels.len();
            for due in &self.due(want, count_max, now)? {
                if claimed.parcels.len() - taken_before == count_max {
                    break;
                }
                claimed.parcels.extend(self.take(due, (want, nonce, is_trial), now)?);
            }
            if is_trial && claimed.parcels.len() > taken_before {
                let until = now.plus(want.lease_for);
                self.put_open_until(&want.destination, until).map_err(Failure::batch(DOING))?;
            }
        }
        Ok(claimed)
    }

    /// The rows that can be claimed, and some more in case of damaged ones.
    fn due(&self, want: &Want, count_max: usize, now: Timestamp) -> Result<Vec<Pending>, Failure> {
        if count_max == 0 {
            return Ok(Vec::new());
        }
        let sql = format!(
            "SELECT {COLUMNS} FROM firstwrite_pending p
             WHERE p.destination = ?1 AND p.due_at <= ?2 ORDER BY p.due_at, p.message LIMIT ?3"
        );
        let row_max = i64::try_from(count_max + DAMAGED_MAX).unwrap_or(i64::MAX);
        let mut query = self.connection.prepare_cached(&sql).map_err(Failure::batch(DOING))?;
        let mut rows = query
            .query(params![want.destination, now.as_millis(), row_max])
            .map_err(Failure::batch(DOING))?;
        let mut due = Vec::new();
        while let Some(row) = rows.next().map_err(Failure::batch(DOING))? {
            match pending(row, 0) {
                Ok(pending) => due.push(pending),
                Err(error) => skip(integer(row, 0).unwrap_or_default(), error)?,
            }
        }
        Ok(due)
    }

    /// Takes one message, unless it cannot be read.
    fn take(
        &self,
        due: &Pending,
        (want, nonce, is_trial): (&Want, u64, bool),
        now: Timestamp,
    ) -> Result<Option<Parcel>, Failure> {
        let had_claim = due.fence != NEVER_CLAIMED;
        let pending = due.claimed(nonce, now, want.lease_for);
        let parcel = match self.parcel(&pending, had_claim, (is_trial, now)) {
            Ok(parcel) => parcel,
            Err(error) => return skip(pending.number.0, error).map(|()| None),
        };
        self.update_pending(&pending).map_err(Failure::batch(DOING))?;
        Ok(Some(parcel))
    }

    fn parcel(
        &self,
        pending: &Pending,
        had_claim: bool,
        (is_trial, claimed_at): (bool, Timestamp),
    ) -> Result<Parcel, StoreError> {
        let failed = definite(DOING);
        let sql = "SELECT tenant, derived_key, content_type, payload, created_at, answers
                   FROM firstwrite_messages WHERE message = ?1";
        let mut query = self.connection.prepare_cached(sql).map_err(&failed)?;
        let mut rows = query.query([pending.number.0]).map_err(&failed)?;
        let row = rows.next().map_err(&failed)?;
        let row = row.ok_or_else(|| corrupt("a pending message is not there"))?;
        let receipt = if had_claim { receipt_of(&self.connection, pending.number)? } else { None };
        Ok(Parcel {
            number: pending.number,
            fence: pending.fence,
            record: pending.id,
            tenant: self.dictionary.tenant(&self.connection, column(row, 0)?)?,
            derived_key: text(row, 1)?.to_owned(),
            destination: pending.destination.clone(),
            content_type: text(row, 2)?.to_owned(),
            payload: blob(row, 3)?.to_vec().into(),
            ordering_key: pending.ordering_key.clone(),
            created_at: Timestamp::from_millis(integer(row, 4)?),
            delivery_count: pending.delivery_count,
            lapse_count: pending.lapse_count,
            is_trial,
            maybe_sent_at: pending.maybe_sent_at,
            receipt,
            answers: answers(row, 5)?,
            claimed_at,
            status: pending.status,
            problem: pending.problem.clone(),
        })
    }
}

pub(super) fn answers(
    row: &Row<'_>,
    index: usize,
) -> Result<Option<Box<firstwrite_core::outbox::Answers>>, StoreError> {
    if is_null(row, index)? {
        return Ok(None);
    }
    let answers = decode_answers(blob(row, index)?);
    answers.map(|answers| Some(Box::new(answers))).map_err(|Unreadable(what)| corrupt(what))
}

/// Goes on without a message that cannot be read. Any other error ends the batch, of which something
/// may have been written.
pub(super) fn skip(number: i64, error: StoreError) -> Result<(), Failure> {
    if error.kind() != StoreErrorKind::Corrupt {
        return Err(Failure::Batch(error));
    }
    tracing::warn!(message = number, %error, "a message cannot be read");
    Ok(())
}
