//! Claims due messages under a lease: one range of an index for each destination.

use firstwrite_core::encoding::as_i64;
use firstwrite_core::outbox::pending::{Parts, Pending};
use firstwrite_core::outbox::{
    ClaimRequest, Claimed, ClaimedMessage, Gate, MessageNumber, Receipt,
};
use firstwrite_core::{StoreError, Timestamp};
use rusqlite::{OptionalExtension, Row, params};

use super::super::driver_error::{Failure, corrupt, definite};
use super::super::rows::integer;
use super::super::session::Session;
use super::listing::{MessageRow, select};
use crate::rows::{parts, parts_columns, pending, pending_columns, skip};

const DOING: &str = "claiming messages";

/// Maximum number of messages claimed for one destination in one command: all commits wait while it runs.
const CLAIMED_MAX: usize = 256;

/// Number of unreadable rows that a claim skips to reach the ones behind them.
const DAMAGED_MAX: usize = 64;

impl Session {
    /// See [`firstwrite_core::outbox::Outbox::claim`].
    pub(super) fn claim(&self, requests: &[ClaimRequest], nonce: u64) -> Result<Claimed, Failure> {
        // What was claimed and sent may be in what was lost, and would look as if it never was.
        self.refuse_if_history_lost(DOING)?;
        let now = self.now();
        let mut claimed = Claimed { messages: Vec::new(), now, closed: Vec::new() };
        for request in requests {
            let gate = self.gate(&request.destination, now)?;
            let Some(count_max) = gate.room(request.count_max.min(CLAIMED_MAX)) else {
                claimed.closed.push(request.destination.clone());
                continue;
            };
            let is_trial = gate == Gate::Trial;
            let taken_before = claimed.messages.len();
            for due in &self.due(request, count_max, now)? {
                if claimed.messages.len() - taken_before == count_max {
                    break;
                }
                claimed.messages.extend(self.take(due, (request, nonce, is_trial), now)?);
            }
            if is_trial && claimed.messages.len() > taken_before {
                let until = now.plus(request.lease_for);
                self.put_open_until(&request.destination, until).map_err(Failure::batch(DOING))?;
            }
        }
        Ok(claimed)
    }

    /// The rows that can be claimed, and some more in case of damaged ones.
    fn due(
        &self,
        request: &ClaimRequest,
        count_max: usize,
        now: Timestamp,
    ) -> Result<Vec<Pending>, Failure> {
        if count_max == 0 {
            return Ok(Vec::new());
        }
        let sql = concat!(
            "SELECT ",
            pending_columns!(),
            " FROM firstwrite_pending p WHERE p.destination = ?1 AND p.due_at <= ?2
              ORDER BY p.due_at, p.message LIMIT ?3"
        );
        let row_max = as_i64(count_max + DAMAGED_MAX);
        let mut query = self.connection.prepare_cached(sql).map_err(Failure::batch(DOING))?;
        let mut rows = query
            .query(params![request.destination, now.as_millis(), row_max])
            .map_err(Failure::batch(DOING))?;
        let mut due = Vec::new();
        while let Some(row) = rows.next().map_err(Failure::batch(DOING))? {
            match pending(&MessageRow::new(row, (&self.connection, &self.dictionary)), 0) {
                Ok(pending) => due.push(pending),
                Err(error) => skip(integer(row, 0).unwrap_or_default(), error, Failure::Batch)?,
            }
        }
        Ok(due)
    }

    /// Takes one message, unless it cannot be read.
    fn take(
        &self,
        due: &Pending,
        (request, nonce, is_trial): (&ClaimRequest, u64, bool),
        now: Timestamp,
    ) -> Result<Option<ClaimedMessage>, Failure> {
        let pending = due.claimed(nonce, now, request.lease_for);
        let parts = match self.parts(due) {
            Ok(parts) => parts,
            Err(error) => return skip(pending.number.0, error, Failure::Batch).map(|()| None),
        };
        self.update_pending(&pending).map_err(Failure::batch(DOING))?;
        Ok(Some(pending.carried(parts, (is_trial, now))))
    }

    fn parts(&self, due: &Pending) -> Result<Parts, StoreError> {
        let had_claim = due.standing.fence.is_some();
        let receipt =
            if had_claim { self.receipt(due.number).map_err(definite(DOING))? } else { None };
        let sql =
            concat!("SELECT ", parts_columns!(), " FROM firstwrite_messages WHERE message = ?1");
        let read = |row: &MessageRow<'_>| parts(row, receipt.clone());
        let names = (&self.connection, &self.dictionary);
        let found = select(names, DOING, (sql, [due.number.0]), read)?.pop();
        found.ok_or_else(|| corrupt("a pending message is not there"))
    }

    /// Returns the receipt of a message, if it was written down.
    fn receipt(&self, number: MessageNumber) -> rusqlite::Result<Option<Receipt>> {
        let sql = "SELECT provider_id FROM firstwrite_deliveries
                   WHERE message = ?1 AND ending = 'delivered' ORDER BY fence LIMIT 1";
        let receipt = |row: &Row<'_>| Ok(Receipt { provider_id: row.get(0)? });
        self.connection.prepare_cached(sql)?.query_row([number.0], receipt).optional()
    }
}
