//! Encodes and decodes records as rows.

use firstwrite_core::encoding::{
    decode_outcome, fingerprint_of, lost_answer_of, retention_of, tenant_of,
};
use firstwrite_core::{Found, Key, Lease, Record, State, StoreError, Tenant};
use mysql_async::{Row, Value};

use super::driver_error::corrupt;
use crate::rows::Columns;

/// Columns from which a record is read, and the time of reading. `r` is the table.
macro_rules! record_columns {
    () => {
        "r.id, r.tenant, r.`key`, r.operation, r.on_lost_answer, r.fingerprint_version, \
         r.fingerprint_form, r.fingerprint, r.fence, r.created_at, r.state, r.due_at, \
         r.retained_until, r.outcome, @firstwrite_now, r.replay_for, r.linger_for, r.refuses_spent"
    };
}
pub(super) use record_columns;

/// Stored values of the states.
pub(super) const RESERVED: i64 = 0;
pub(super) const UNCERTAIN: i64 = 1;
pub(super) const COMPLETED: i64 = 2;

/// The record in a row of `record_columns!`.
pub(super) fn found(row: &Row) -> Result<Found, StoreError> {
    Ok(Found { record: record(row)?, now: row.instant(14)? })
}

pub(super) fn record(row: &Row) -> Result<Record, StoreError> {
    Ok(Record {
        id: row.record(0)?,
        tenant: row.tenant(1)?,
        key: Key::new(row.text(2)?).map_err(|_not_a_key| corrupt("text that cannot be a key"))?,
        operation: row.text(3)?.into(),
        fingerprint: fingerprint_of(row.integer(5)?, row.integer(6)?, row.bytes(7)?)?,
        fence: row.fence(8)?,
        on_lost_answer: lost_answer_of(row.integer(4)?)?,
        retention: retention_of([row.integer(15)?, row.integer(16)?, row.integer(17)?]),
        created_at: row.instant(9)?,
        state: state(row)?,
    })
}

fn state(row: &Row) -> Result<State, StoreError> {
    match row.integer(10)? {
        RESERVED => Ok(State::Reserved(Lease { until: row.instant(11)? })),
        UNCERTAIN => Ok(State::Uncertain { since: row.instant(11)? }),
        COMPLETED => Ok(State::Completed {
            outcome: decode_outcome(row.bytes(13)?)?,
            retained_until: row.instant(12)?,
            kept_until: row.instant(11)?,
        }),
        _ => Err(corrupt("an unknown state")),
    }
}

impl Columns for Row {
    fn integer_or_null(&self, index: usize) -> Result<Option<i64>, StoreError> {
        match self.as_ref(index) {
            Some(Value::NULL) => Ok(None),
            Some(Value::Int(number)) => Ok(Some(*number)),
            Some(Value::Bytes(digits)) => {
                let number =
                    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
                number.map(Some).ok_or_else(|| corrupt("a number is not one"))
            }
            _ => Err(corrupt("a number is missing")),
        }
    }

    fn bytes_or_null(&self, index: usize) -> Result<Option<&[u8]>, StoreError> {
        match self.as_ref(index) {
            Some(Value::NULL) => Ok(None),
            Some(Value::Bytes(bytes)) => Ok(Some(bytes)),
            _ => Err(corrupt("bytes are missing")),
        }
    }

    fn text_or_null(&self, index: usize) -> Result<Option<&str>, StoreError> {
        let Some(bytes) = self.bytes_or_null(index)? else { return Ok(None) };
        std::str::from_utf8(bytes).map(Some).map_err(|_encoding| corrupt("text is not UTF-8"))
    }

    fn tenant(&self, index: usize) -> Result<Tenant, StoreError> {
        Ok(tenant_of(self.text(index)?)?)
    }
}
