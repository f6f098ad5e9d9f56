//! Decodes rows into records, and encodes drafts as rows. Nothing in a row is trusted: a value that cannot
//! be understood is reported as corrupt, never a panic or a guess.

use firstwrite_core::encoding::{
    Unreadable, decode_outcome, encode_fingerprint, encode_outcome, fingerprint_of, lost_answer_of,
    pack_uuid, retention_of, tenant_of, unpack_uuid,
};
use firstwrite_core::{
    Draft, DraftState, Found, Key, Lease, Record, RecordId, State, StoreError, Tenant, Timestamp,
};
use tokio_postgres::types::{FromSql, Type};
use tokio_postgres::{Column, Row};

use super::columns::{At, Id};
use super::driver_error::corrupt;
use super::profiles::{Profile, Profiles, whole_millis};
use crate::rows::Columns;

/// Result of looking up an id.
#[derive(Debug)]
pub(super) struct LookupResult {
    pub(super) id: RecordId,
    pub(super) record: Option<Record>,
    pub(super) now: Timestamp,
    /// Acknowledged history is missing, and no operator has cleared that.
    pub(super) history_lost: bool,
}

/// A draft as it is written.
#[derive(Clone, Debug)]
pub(super) struct NewRow {
    pub(super) id: RecordId,
    pub(super) fence: i64,
    /// In milliseconds; [`COMPLETED_AT_ONCE`] or [`INTERIM_AT_ONCE`].
    pub(super) lease_for: i64,
    /// Milliseconds that a copy is older than now.
    pub(super) asked_ago: i64,
    pub(super) profile: i16,
    pub(super) tenant: Tenant,
    pub(super) key: Vec<u8>,
    pub(super) fingerprint: Vec<u8>,
    pub(super) outcome: Vec<u8>,
}

/// No row where the clock should be.
pub(super) const CLOCK_STOPPED: &str = "the clock has stopped";

/// Instead of a lease: the record is completed as it is inserted.
const COMPLETED_AT_ONCE: i64 = -1;
/// Like [`COMPLETED_AT_ONCE`], with an interim outcome.
const INTERIM_AT_ONCE: i64 = -2;

/// Offset added to `since` to form the lease of an uncertain record: `firstwrite.uncertain` of schema.sql.
const UNCERTAIN_MILLIS: i64 = 6_000_000_000_000_000;
/// `firstwrite.interim` of schema.sql. Later instants are endless leases.
const INTERIM_MILLIS: i64 = 9_224_286_393_600_000;

/// The first byte of a key that is a UUID; no key's text begins with it.
const UUID_MARK: u8 = 0;

/// The `lease_until` of a record that is uncertain since `since`.
pub(super) fn uncertain(since: Timestamp) -> At {
    At::Instant(Timestamp::from_millis(since.as_millis().saturating_add(UNCERTAIN_MILLIS)))
}

/// The numbers of the profiles in `rows` that are not known yet.
pub(super) fn unknown_profiles(rows: &[Row], profiles: &Profiles) -> Vec<i16> {
    let number = |row: &Row| row.try_get::<_, Option<i16>>(4).ok().flatten();
    let mut unknown: Vec<i16> =
        rows.iter().filter_map(number).filter(|number| profiles.get(*number).is_none()).collect();
    unknown.sort_unstable();
    unknown.dedup();
    unknown
}

impl LookupResult {
    pub(super) fn read(row: &Row, profiles: &Profiles) -> Result<Self, StoreError> {
        let Id(wanted) = column(row, 13)?;
        let record = match column::<Option<Id>>(row, 0)? {
            Some(Id(id)) => Some(record(row, id, profiles)?),
            None => None,
        };
        let (now, history_lost) = (instant(row, 12)?, column(row, 14)?);
        Ok(Self { id: wanted, record, now, history_lost })
    }

    pub(super) fn found(self) -> Option<Found> {
        let now = self.now;
        self.record.map(|record| Found { record, now })
    }
}

fn record(row: &Row, id: RecordId, profiles: &Profiles) -> Result<Record, StoreError> {
    let profile = profiles
        .get(column(row, 4)?)
        .ok_or_else(|| corrupt("a profile's number stands for nothing"))?;
    let tenant = row.tenant(5)?;
    let key = decode_key(column(row, 6)?)?;
    // A row under the wrong id would replay one caller's answer to another.
    if RecordId::of(&tenant, &key) != id {
        return Err(corrupt("a record stands under another key's id"));
    }
    let (version, form) = (profile.fingerprint_version, profile.fingerprint_form);
    let created_at = instant(row, 2)?;
    Ok(Record {
        id,
        tenant,
        key,
        operation: profile.operation.clone(),
        fingerprint: fingerprint_of(version, form, column(row, 7)?)?,
        fence: row.fence(1)?,
        on_lost_answer: lost_answer_of(profile.on_lost_answer.into())?,
        retention: retention_of(profile.retention),
        created_at,
        state: state(row, &profile, created_at)?,
    })
}

fn state(row: &Row, profile: &Profile, created_at: Timestamp) -> Result<State, StoreError> {
    // An ending without an outcome stopped an attempt of a former life. One with an outcome is final, also
    // where the record itself holds an interim one.
    if let Some(outcome) = column::<Option<&[u8]>>(row, 9)? {
        return completed(outcome, instant(row, 10)?, instant(row, 11)?);
    }
    let outcome: &[u8] = column(row, 8)?;
    if !outcome.is_empty() {
        let [replay_for, linger_for, _] = profile.retention;
        let retained_until = created_at.as_millis().saturating_add(replay_for);
        let kept_until = retained_until.saturating_add(linger_for);
        let [retained_until, kept_until] = [retained_until, kept_until].map(Timestamp::from_millis);
        return completed(outcome, retained_until, kept_until);
    }
    match column(row, 3)? {
        At::Instant(until) if (UNCERTAIN_MILLIS..INTERIM_MILLIS).contains(&until.as_millis()) => {
            let since = Timestamp::from_millis(until.as_millis() - UNCERTAIN_MILLIS);
            Ok(State::Uncertain { since })
        }
        At::Instant(until) => Ok(State::Reserved(Lease { until })),
        At::Always | At::Never => Err(corrupt("a record has neither a lease nor an outcome")),
    }
}

/// An interim outcome is kept until it is replaced; its deadlines are for its successor.
fn completed(
    outcome: &[u8],
    retained_until: Timestamp,
    kept_until: Timestamp,
) -> Result<State, StoreError> {
    let outcome = decode_outcome(outcome)?;
    let [retained_until, kept_until] =
        if outcome.is_interim { [Timestamp::NEVER; 2] } else { [retained_until, kept_until] };
    Ok(State::Completed { outcome, retained_until, kept_until })
}

impl NewRow {
    pub(super) fn new(draft: &Draft, profile: i16) -> Self {
        let (lease_for, outcome) = match &draft.state {
            DraftState::Reserved { lease_for, .. } => (whole_millis(*lease_for), Vec::new()),
            DraftState::Completed { outcome, .. } => {
                let lease_for =
                    if outcome.is_interim { INTERIM_AT_ONCE } else { COMPLETED_AT_ONCE };
                (lease_for, encode_outcome(outcome))
            }
        };
        Self {
            id: draft.id,
            fence: draft.fence.as_u64().cast_signed(),
            lease_for,
            asked_ago: whole_millis(draft.state.asked_ago()),
            profile,
            tenant: draft.tenant.clone(),
            key: encode_key(&draft.key),
            fingerprint: encode_fingerprint(&draft.fingerprint),
            outcome,
        }
    }
}

pub(super) fn encode_key(key: &Key) -> Vec<u8> {
    match pack_uuid(key.as_str()) {
        Some(packed) => [&[UUID_MARK][..], &packed].concat(),
        None => key.as_str().as_bytes().to_vec(),
    }
}

fn decode_key(bytes: &[u8]) -> Result<Key, Unreadable> {
    let unreadable = Unreadable("a key is neither 16 bytes nor visible text");
    if let Some((&UUID_MARK, packed)) = bytes.split_first() {
        let packed: [u8; 16] = packed.try_into().map_err(|_length| unreadable)?;
        return Key::new(&unpack_uuid(packed)).map_err(|_impossible| unreadable);
    }
    let text = std::str::from_utf8(bytes).map_err(|_encoding| unreadable)?;
    Key::new(text).map_err(|_not_a_key| unreadable)
}

pub(super) fn column<'r, T: FromSql<'r>>(row: &'r Row, index: usize) -> Result<T, StoreError> {
    row.try_get(index).map_err(|_type| corrupt("a column does not hold what it should"))
}

/// Reads a column that holds an instant.
pub(super) fn instant(row: &Row, index: usize) -> Result<Timestamp, StoreError> {
    column::<At>(row, index)?.instant().ok_or_else(|| corrupt("an instant is missing"))
}

pub(super) fn instant_or_null(row: &Row, index: usize) -> Result<Option<Timestamp>, StoreError> {
    Ok(column::<Option<At>>(row, index)?.and_then(At::instant))
}

impl Columns for Row {
    fn integer_or_null(&self, index: usize) -> Result<Option<i64>, StoreError> {
        let kind = self.columns().get(index).map(Column::type_);
        if kind == Some(&Type::INT2) {
            return Ok(column::<Option<i16>>(self, index)?.map(i64::from));
        }
        if kind == Some(&Type::INT4) {
            return Ok(column::<Option<i32>>(self, index)?.map(i64::from));
        }
        column(self, index)
    }

    fn bytes_or_null(&self, index: usize) -> Result<Option<&[u8]>, StoreError> {
        column(self, index)
    }

    fn text_or_null(&self, index: usize) -> Result<Option<&str>, StoreError> {
        column(self, index)
    }

    fn tenant(&self, index: usize) -> Result<Tenant, StoreError> {
        Ok(tenant_of(column(self, index)?)?)
    }

    fn instant_or_null(&self, index: usize) -> Result<Option<Timestamp>, StoreError> {
        instant_or_null(self, index)
    }

    fn record(&self, index: usize) -> Result<RecordId, StoreError> {
        Ok(column::<Id>(self, index)?.0)
    }
}

/// Returns the only row of an answer; `what` says what it means that there is none.
pub(super) fn only<'r>(rows: &'r [Row], what: &'static str) -> Result<&'r Row, StoreError> {
    rows.first().ok_or_else(|| corrupt(what))
}

/// Reads the time in an answer that says nothing else.
pub(super) fn clock_in(rows: &[Row]) -> Result<Timestamp, StoreError> {
    instant(only(rows, CLOCK_STOPPED)?, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_uuids_are_packed_and_every_key_comes_back() {
        for (text, length) in [
            ("8e03978e-40d5-43e8-bc93-6894a57f9324", 17),
            ("8E03978e-40d5-43e8-bc93-6894a57f9324", 36),
            ("a-sixteen-byte-key", 18),
            ("k", 1),
        ] {
            let key = Key::new(text).unwrap();
            assert_eq!(encode_key(&key).len(), length, "{text}");
            assert_eq!(decode_key(&encode_key(&key)), Ok(key));
        }
    }

    #[test]
    fn what_cannot_be_a_key_is_refused() {
        for bytes in [&[][..], &[0], &[0; 16], &[0; 18], b"a b", b"\xff", b"a\n"] {
            assert!(decode_key(bytes).is_err(), "{bytes:?}");
        }
    }
}
