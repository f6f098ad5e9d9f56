//! Decodes rows into records. Nothing in a row is trusted: a value that cannot be understood is reported as
//! corrupt, never a panic or a guess.

use firstwrite_core::encoding::{
    decode_fingerprint, decode_outcome, lost_answer_of, retention_of, tenant_of,
};
use firstwrite_core::host_clock::StoreClock;
use firstwrite_core::{Fence, Key, Lease, Record, RecordId, State, StoreError, Timestamp};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use super::dictionary::{Dictionary, form_of};
use super::driver_error::{corrupt, definite};
use super::keys::decode_key;

/// A record and its place.
pub(super) struct StoredRecord {
    pub(super) number: i64,
    pub(super) record: Record,
}

/// Everything of an id's record in one row, from whichever table it is in: one statement sees one
/// snapshot. Columns as in [`standing`].
macro_rules! select_standing {
    ($rest:literal) => {
        concat!(
            "SELECT i.id, i.record,
                    c.record, c.tenant, c.key, c.profile, c.fingerprint, c.fence, c.created_at,
                    c.completed_after, c.outcome,
                    r.record, r.tenant, r.key, r.operation, r.on_lost_answer,
                    r.fingerprint_version, r.fingerprint_form, r.fingerprint, r.fence,
                    r.created_at, r.lease_until, r.uncertain_since, r.replay_for, r.linger_for,
                    r.refuses_spent ",
            $rest
        )
    };
}
pub(super) use select_standing;

pub(super) const FIND: &str = select_standing!(
    "FROM firstwrite_ids i
     LEFT JOIN firstwrite_records c ON c.record = i.record
     LEFT JOIN firstwrite_reservations r ON r.record = i.record
     WHERE i.id = ?1"
);

/// Resources for reading a row: the dictionary of names and profiles, and the clock with its uncounted
/// time.
pub(super) type Known<'k> = (&'k Dictionary, &'k StoreClock);

/// Reads the record under `id`.
pub(super) fn find(
    connection: &Connection,
    known: Known<'_>,
    id: RecordId,
) -> Result<Option<StoredRecord>, StoreError> {
    let failed = definite("looking a record up");
    let mut query = connection.prepare_cached(FIND).map_err(&failed)?;
    let mut rows = query.query([id.as_bytes()]).map_err(&failed)?;
    match rows.next().map_err(&failed)? {
        Some(row) => standing(connection, known, row).map(Some),
        None => Ok(None),
    }
}

/// Reads a row selected by [`select_standing`].
pub(super) fn standing(
    connection: &Connection,
    known: Known<'_>,
    row: &Row<'_>,
) -> Result<StoredRecord, StoreError> {
    let id = blob(row, 0)?.try_into().map(RecordId::from_bytes);
    let id = id.map_err(|_length| corrupt("a record id has 16 bytes"))?;
    let is_completed = !matches!(column(row, 2)?, ValueRef::Null);
    let is_reservation = !matches!(column(row, 11)?, ValueRef::Null);
    let record = match (is_completed, is_reservation) {
        (true, false) => completed(connection, known, id, row)?,
        (false, true) => reservation(known.1, id, row)?,
        (false, false) => return Err(corrupt("an id leads to no record")),
        (true, true) => return Err(corrupt("an id leads to two records")),
    };
    // A pointer to the wrong row would replay one caller's answer to another.
    if RecordId::of(&record.tenant, &record.key) != id {
        return Err(corrupt("an id leads to another key's record"));
    }
    Ok(StoredRecord { number: integer(row, 1)?, record })
}

fn completed(
    connection: &Connection,
    (dictionary, clock): Known<'_>,
    id: RecordId,
    row: &Row<'_>,
) -> Result<Record, StoreError> {
    let profile = dictionary.profile(connection, column(row, 5)?)?;
    let created_at = integer(row, 8)?;
    let outcome = decode_outcome(blob(row, 10)?)?;
    let completed_at = Timestamp::from_millis(created_at.saturating_add(integer(row, 9)?));
    let form = form_of(profile.fingerprint_form)?;
    Ok(Record {
        id,
        tenant: dictionary.tenant(connection, column(row, 3)?)?,
        key: key(row, 4)?,
        operation: profile.operation.clone(),
        fingerprint: decode_fingerprint(profile.fingerprint_version, form, blob(row, 6)?)?,
        fence: fence(row, 7)?,
        on_lost_answer: lost_answer_of(profile.on_lost_answer)?,
        retention: profile.retention(),
        created_at: Timestamp::from_millis(created_at),
        state: State::completed(outcome, profile.retention(), clock.counted_from(completed_at)),
    })
}

fn reservation(clock: &StoreClock, id: RecordId, row: &Row<'_>) -> Result<Record, StoreError> {
    let version = u8::try_from(integer(row, 16)?)
        .map_err(|_range| corrupt("a fingerprint's version is one byte"))?;
    let state = match column(row, 21)? {
        ValueRef::Null => {
            let since = clock.counted_from(Timestamp::from_millis(integer(row, 22)?));
            State::Uncertain { since }
        }
        ValueRef::Integer(until) => State::Reserved(Lease { until: Timestamp::from_millis(until) }),
        ValueRef::Real(_) | ValueRef::Text(_) | ValueRef::Blob(_) => {
            return Err(corrupt("a lease ends at an instant"));
        }
    };
    Ok(Record {
        id,
        tenant: tenant_of(text(row, 12)?)?,
        key: key(row, 13)?,
        operation: text(row, 14)?.into(),
        fingerprint: decode_fingerprint(version, form_of(integer(row, 17)?)?, blob(row, 18)?)?,
        fence: fence(row, 19)?,
        on_lost_answer: lost_answer_of(integer(row, 15)?)?,
        retention: retention_of([integer(row, 23)?, integer(row, 24)?, integer(row, 25)?]),
        created_at: Timestamp::from_millis(integer(row, 20)?),
        state,
    })
}

pub(super) fn key(row: &Row<'_>, index: usize) -> Result<Key, StoreError> {
    Ok(decode_key(column(row, index)?)?)
}

fn fence(row: &Row<'_>, index: usize) -> Result<Fence, StoreError> {
    integer(row, index).map(|number| Fence::from_u64(number.cast_unsigned()))
}

pub(super) fn column<'r>(row: &'r Row<'_>, index: usize) -> Result<ValueRef<'r>, StoreError> {
    row.get_ref(index).map_err(definite("reading a record"))
}

pub(super) fn integer(row: &Row<'_>, index: usize) -> Result<i64, StoreError> {
    match column(row, index)? {
        ValueRef::Integer(number) => Ok(number),
        ValueRef::Null | ValueRef::Real(_) | ValueRef::Text(_) | ValueRef::Blob(_) => {
            Err(corrupt("a number is missing"))
        }
    }
}

pub(super) fn blob<'r>(row: &'r Row<'_>, index: usize) -> Result<&'r [u8], StoreError> {
    match column(row, index)? {
        ValueRef::Blob(bytes) => Ok(bytes),
        ValueRef::Null | ValueRef::Real(_) | ValueRef::Text(_) | ValueRef::Integer(_) => {
            Err(corrupt("bytes are missing"))
        }
    }
}

pub(super) fn text<'r>(row: &'r Row<'_>, index: usize) -> Result<&'r str, StoreError> {
    match column(row, index)? {
        ValueRef::Text(bytes) => {
            std::str::from_utf8(bytes).map_err(|_encoding| corrupt("text is not UTF-8"))
        }
        ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) | ValueRef::Integer(_) => {
            Err(corrupt("text is missing"))
        }
    }
}
