//! Encodes and decodes records as rows.

use firstwrite_core::{
    BodyForm, Fence, Found, Key, Lease, OnLostAnswer, Record, RecordId, State, StoreError, Tenant,
    Timestamp,
};
use mysql_async::{Row, Value};

use super::driver_error::corrupt;
use crate::encoding::{Unreadable, decode_fingerprint, decode_outcome, retention_of};

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
    Ok(Found { record: record(row)?, now: instant(row, 14)? })
}

pub(super) fn record(row: &Row) -> Result<Record, StoreError> {
    let version = u8::try_from(integer(row, 5)?)
        .map_err(|_range| corrupt("a fingerprint's version is one byte"))?;
    let form = u8::try_from(integer(row, 6)?).ok().and_then(BodyForm::from_byte);
    let form = form.ok_or_else(|| corrupt("an unknown form of fingerprint"))?;
    let fingerprint = decode_fingerprint(version, form, bytes(row, 7)?)
        .map_err(|Unreadable(what)| corrupt(what))?;
    Ok(Record {
        id: id(row, 0)?,
        tenant: tenant(row, 1)?,
        key: Key::new(text(row, 2)?).map_err(|_not_a_key| corrupt("text that cannot be a key"))?,
        operation: text(row, 3)?.into(),
        fingerprint,
        fence: fence(row, 8)?,
        on_lost_answer: lost_answer(integer(row, 4)?)?,
        retention: retention_of([integer(row, 15)?, integer(row, 16)?, integer(row, 17)?]),
        created_at: instant(row, 9)?,
        state: state(row)?,
    })
}

fn state(row: &Row) -> Result<State, StoreError> {
    match integer(row, 10)? {
        RESERVED => Ok(State::Reserved(Lease { until: instant(row, 11)? })),
        UNCERTAIN => Ok(State::Uncertain { since: instant(row, 11)? }),
        COMPLETED => Ok(State::Completed {
            outcome: decode_outcome(bytes(row, 13)?).map_err(|Unreadable(what)| corrupt(what))?,
            retained_until: instant(row, 12)?,
            kept_until: instant(row, 11)?,
        }),
        _ => Err(corrupt("an unknown state")),
    }
}

fn lost_answer(number: i64) -> Result<OnLostAnswer, StoreError> {
    OnLostAnswer::from_number(number).ok_or_else(|| corrupt("an unknown choice for lost answers"))
}

pub(super) fn id(row: &Row, index: usize) -> Result<RecordId, StoreError> {
    let id = bytes(row, index)?.try_into().map_err(|_length| corrupt("an id has 16 bytes"))?;
    Ok(RecordId::from_bytes(id))
}

pub(super) fn tenant(row: &Row, index: usize) -> Result<Tenant, StoreError> {
    Tenant::new(text(row, index)?)
        .map_err(|_not_a_tenant| corrupt("text that cannot be a tenant's"))
}

pub(super) fn fence(row: &Row, index: usize) -> Result<Fence, StoreError> {
    integer(row, index).map(|number| Fence::from_u64(number.cast_unsigned()))
}

pub(super) fn instant(row: &Row, index: usize) -> Result<Timestamp, StoreError> {
    integer(row, index).map(Timestamp::from_millis)
}

pub(super) fn integer(row: &Row, index: usize) -> Result<i64, StoreError> {
    integer_or_null(row, index)?.ok_or_else(|| corrupt("a number is missing"))
}

pub(super) fn integer_or_null(row: &Row, index: usize) -> Result<Option<i64>, StoreError> {
    match row.as_ref(index) {
        Some(Value::NULL) => Ok(None),
        Some(Value::Int(number)) => Ok(Some(*number)),
        Some(Value::Bytes(digits)) => {
            let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
            number.map(Some).ok_or_else(|| corrupt("a number is not one"))
        }
        _ => Err(corrupt("a number is missing")),
    }
}

pub(super) fn bytes(row: &Row, index: usize) -> Result<&[u8], StoreError> {
    bytes_or_null(row, index)?.ok_or_else(|| corrupt("bytes are missing"))
}

pub(super) fn bytes_or_null(row: &Row, index: usize) -> Result<Option<&[u8]>, StoreError> {
    match row.as_ref(index) {
        Some(Value::NULL) => Ok(None),
        Some(Value::Bytes(bytes)) => Ok(Some(bytes)),
        _ => Err(corrupt("bytes are missing")),
    }
}

pub(super) fn text(row: &Row, index: usize) -> Result<&str, StoreError> {
    text_or_null(row, index)?.ok_or_else(|| corrupt("text is missing"))
}

pub(super) fn text_or_null(row: &Row, index: usize) -> Result<Option<&str>, StoreError> {
    let Some(bytes) = bytes_or_null(row, index)? else { return Ok(None) };
    std::str::from_utf8(bytes).map(Some).map_err(|_encoding| corrupt("text is not UTF-8"))
}

pub(super) fn instant_or_null(row: &Row, index: usize) -> Result<Option<Timestamp>, StoreError> {
    integer_or_null(row, index).map(|millis| millis.map(Timestamp::from_millis))
}

pub(super) fn owned_text(row: &Row, index: usize) -> Result<String, StoreError> {
    text(row, index).map(str::to_owned)
}

pub(super) fn owned_text_or_null(row: &Row, index: usize) -> Result<Option<String>, StoreError> {
    text_or_null(row, index).map(|text| text.map(str::to_owned))
}

pub(super) fn is_null(row: &Row, index: usize) -> bool {
    matches!(row.as_ref(index), None | Some(Value::NULL))
}
