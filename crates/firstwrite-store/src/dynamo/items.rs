//! Records as items of the table. A stored format: attributes may be added under a new version of the
//! table and never change their meaning.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use firstwrite_core::encoding::{
    self, decode_outcome, encode_fingerprint, fingerprint_of, lost_answer_of, retention_numbers,
    retention_of,
};
use firstwrite_core::{
    Draft, DraftState, Fence, Key, Lease, Record, RecordId, Retention, State, StateKind,
    StoreError, Tenant, Timestamp,
};

use super::driver_error::corrupt;

pub(super) type Item = HashMap<String, AttributeValue>;

/// Some attributes of an item, by name.
pub(super) type Attributes = Vec<(&'static str, AttributeValue)>;

/// The partition key: the shard, or the subject of an item that is not a record.
pub(super) const SHARD: &str = "shard";
/// The sort key: the record's id, or a number below what the partition is about.
pub(super) const ID: &str = "id";
pub(super) const TENANT: &str = "tenant";
pub(super) const KEY: &str = "key";
pub(super) const OPERATION: &str = "operation";
pub(super) const LOST_ANSWER: &str = "on_lost_answer";
pub(super) const PRINT_VERSION: &str = "fingerprint_version";
pub(super) const PRINT_FORM: &str = "fingerprint_form";
pub(super) const PRINT: &str = "fingerprint";
pub(super) const FENCE: &str = "fence";
pub(super) const CREATED_AT: &str = "created_at";
pub(super) const STATE: &str = "state";
/// End of the lease, or the time after which a completed record may be reaped.
pub(super) const DUE_AT: &str = "due_at";
pub(super) const RETAINED_UNTIL: &str = "retained_until";
/// The encoded outcome, if it fits.
pub(super) const OUTCOME: &str = "outcome";
/// Length of the outcome, wherever it is stored.
pub(super) const OUTCOME_BYTES: &str = "outcome_bytes";
/// Name of the parts that hold the outcome if it does not fit: see `parts.rs`.
pub(super) const PARTS: &str = "outcome_parts";
/// Time for which the outcome is replayed and further time for which the record stays, in milliseconds, and
/// 1 if the key is refused during the latter.
pub(super) const RETENTION: &str = "retention";
/// Attribute of a completed record whose answer a message will replace.
pub(super) const INTERIM: &str = "interim";
/// Time since which a record is uncertain.
pub(super) const UNCERTAIN_SINCE: &str = "uncertain_since";
/// The shard again, on reserved or uncertain records: the partition key of the index of open records.
pub(super) const OPEN: &str = "open";
/// Time after which the service may delete the item, in seconds. Never on a reserved or uncertain record.
pub(super) const EXPIRES: &str = "expires";

/// Delay after `due_at`, so that no clock's error makes the service delete an item that a gateway still
/// wants: the service deletes hours late anyway.
const EXPIRES_AFTER: Duration = Duration::from_hours(1);

/// Maximum length of an operation: for people, and long enough for any route.
const OPERATION_BYTES_MAX: usize = 1000;

/// Number of partition keys over which the records of a table are spread, in the order of their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shards(pub(super) u16);

impl Shards {
    /// Returns the shard of an id.
    pub(super) fn place(self, id: RecordId) -> u16 {
        (u16::from(id.as_bytes()[0]) * self.0) >> 8
    }

    /// The last id that can be in a shard.
    pub(super) fn end(self, place: u16) -> RecordId {
        let last = |first: u8| {
            let mut id = [u8::MAX; 16];
            id[0] = first;
            RecordId::from_bytes(id)
        };
        let is_before = |id: &RecordId| self.place(*id) <= place;
        (0..=u8::MAX).rev().map(last).find(is_before).unwrap_or_else(|| last(0))
    }

    pub(super) fn name(place: u16) -> String {
        format!("r#{place:02x}")
    }

    /// The primary key of a record.
    pub(super) fn key(self, id: RecordId) -> Item {
        key(Self::name(self.place(id)), id.as_bytes())
    }
}

pub(super) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub(super) fn number(value: i64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

pub(super) fn bytes(value: &[u8]) -> AttributeValue {
    AttributeValue::B(Blob::new(value))
}

pub(super) fn fence(fence: Fence) -> AttributeValue {
    number(fence.as_u64().cast_signed())
}

pub(super) fn state(kind: StateKind) -> AttributeValue {
    text(kind.as_str())
}

/// Returns the time after which the service may delete an item kept until `kept_until`; `None` if never.
pub(super) fn expires(kept_until: Timestamp) -> Option<i64> {
    if kept_until == Timestamp::NEVER {
        return None;
    }
    let at = kept_until.plus(EXPIRES_AFTER).as_millis();
    // Rounded up. A time that no calendar has is never.
    Some(at / 1000 + 1).filter(|seconds| *seconds < 253_402_300_800)
}

/// Sets attributes of an item.
pub(super) fn set<'n>(
    item: &mut Item,
    attributes: impl IntoIterator<Item = (&'n str, AttributeValue)>,
) {
    item.extend(attributes.into_iter().map(|(name, value)| (name.to_owned(), value)));
}

/// The item of `draft`, written at `now`. `completion` holds the attributes of its outcome, if it has one.
pub(super) fn item(shards: Shards, draft: &Draft, completion: Attributes, now: Timestamp) -> Item {
    let mut item = shards.key(draft.id);
    let retention = retention_numbers(draft.retention);
    let attributes = [
        (TENANT, text(draft.tenant.as_str())),
        (KEY, text(draft.key.as_str())),
        (OPERATION, text(shortened(&draft.operation))),
        (LOST_ANSWER, number(draft.on_lost_answer.to_number().into())),
        (PRINT_VERSION, number(draft.fingerprint.version().into())),
        (PRINT_FORM, number(draft.fingerprint.form().as_byte().into())),
        (PRINT, bytes(&encode_fingerprint(&draft.fingerprint))),
        (FENCE, fence(draft.fence)),
        (CREATED_AT, number(now.minus(draft.state.asked_ago()).as_millis())),
        (RETENTION, AttributeValue::L(retention.map(number).to_vec())),
        (STATE, state(draft.state.kind())),
    ];
    set(&mut item, attributes);
    if let DraftState::Reserved { lease_for, .. } = &draft.state {
        let open = text(Shards::name(shards.place(draft.id)));
        set(&mut item, [(DUE_AT, number(now.plus(*lease_for).as_millis())), (OPEN, open)]);
    }
    set(&mut item, completion);
    item
}

/// The retention that a record was reserved with.
pub(super) fn retention(item: &Item) -> Result<Retention, StoreError> {
    let numbers: Option<Vec<i64>> = item.get(RETENTION).and_then(|numbers| {
        numbers.as_l().ok()?.iter().map(|number| number.as_n().ok()?.parse().ok()).collect()
    });
    let numbers = numbers.and_then(|numbers| <[i64; 3]>::try_from(numbers).ok());
    numbers.map(retention_of).ok_or_else(|| corrupt("a record does not say how long it is kept"))
}

/// The record in an item. `outcome` is the encoded outcome, where it was in parts.
pub(super) fn record(item: &Item, outcome: Option<&[u8]>) -> Result<Record, StoreError> {
    let (version, form) = (integer(item, PRINT_VERSION)?, integer(item, PRINT_FORM)?);
    Ok(Record {
        id: id_of(item)?,
        tenant: tenant_of(item)?,
        key: Key::new(string(item, KEY)?)
            .map_err(|_not_a_key| corrupt("text that cannot be a key"))?,
        operation: string(item, OPERATION)?.into(),
        fingerprint: fingerprint_of(version, form, blob(item, PRINT)?)?,
        fence: fence_of(item)?,
        on_lost_answer: lost_answer_of(integer(item, LOST_ANSWER)?)?,
        retention: retention(item)?,
        created_at: instant(item, CREATED_AT)?,
        state: state_of(item, outcome)?,
    })
}

fn state_of(item: &Item, outcome: Option<&[u8]>) -> Result<State, StoreError> {
    match kind_of(item)? {
        StateKind::Reserved => Ok(State::Reserved(Lease { until: instant(item, DUE_AT)? })),
        StateKind::Uncertain => Ok(State::Uncertain { since: instant(item, UNCERTAIN_SINCE)? }),
        StateKind::Completed => {
            let encoded = match outcome {
                Some(outcome) => outcome,
                None => blob(item, OUTCOME)?,
            };
            Ok(State::Completed {
                outcome: decode_outcome(encoded)?,
                retained_until: instant(item, RETAINED_UNTIL)?,
                kept_until: instant(item, DUE_AT)?,
            })
        }
    }
}

pub(super) fn kind_of(item: &Item) -> Result<StateKind, StoreError> {
    let word = string(item, STATE)?;
    [StateKind::Reserved, StateKind::Completed, StateKind::Uncertain]
        .into_iter()
        .find(|kind| kind.as_str() == word)
        .ok_or_else(|| corrupt("an unknown state"))
}

pub(super) fn id_of(item: &Item) -> Result<RecordId, StoreError> {
    record_id(blob(item, ID)?)
}

pub(super) fn record_id(bytes: &[u8]) -> Result<RecordId, StoreError> {
    let id = bytes.try_into().map(RecordId::from_bytes);
    id.map_err(|_length| corrupt("an id has 16 bytes"))
}

pub(super) fn tenant_of(item: &Item) -> Result<Tenant, StoreError> {
    Ok(encoding::tenant_of(string(item, TENANT)?)?)
}

pub(super) fn fence_of(item: &Item) -> Result<Fence, StoreError> {
    integer(item, FENCE).map(|number| Fence::from_u64(number.cast_unsigned()))
}

pub(super) fn instant(item: &Item, name: &str) -> Result<Timestamp, StoreError> {
    integer(item, name).map(Timestamp::from_millis)
}

/// Reads an optional attribute of an item.
pub(super) fn optional<'a, T>(
    item: &'a Item,
    name: &'a str,
    read: impl FnOnce(&'a Item, &'a str) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    item.contains_key(name).then(|| read(item, name)).transpose()
}

/// Returns a primary key.
pub(super) fn key(shard: impl Into<String>, id: &[u8]) -> Item {
    Item::from([(SHARD.to_owned(), text(shard)), (ID.to_owned(), bytes(id))])
}

pub(super) fn integer(item: &Item, name: &str) -> Result<i64, StoreError> {
    let digits = item.get(name).and_then(|value| value.as_n().ok());
    digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| corrupt("a number is missing"))
}

pub(super) fn string<'a>(item: &'a Item, name: &str) -> Result<&'a str, StoreError> {
    let value = item.get(name).and_then(|value| value.as_s().ok());
    value.map(String::as_str).ok_or_else(|| corrupt("text is missing"))
}

pub(super) fn blob<'a>(item: &'a Item, name: &str) -> Result<&'a [u8], StoreError> {
    let value = item.get(name).and_then(|value| value.as_b().ok());
    value.map(AsRef::as_ref).ok_or_else(|| corrupt("bytes are missing"))
}

fn shortened(operation: &str) -> &str {
    &operation[..operation.floor_char_boundary(OPERATION_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_follow_each_other_in_the_order_of_ids() {
        for count in [1, 3, 16, 256] {
            let shards = Shards(count);
            let places: Vec<u16> =
                (0..=255).map(|first| shards.place(RecordId::from_bytes([first; 16]))).collect();
            assert!(places.is_sorted() && places[0] == 0 && places[255] == count - 1, "{count}");
            for place in 0..count {
                let end = shards.end(place);
                assert_eq!(shards.place(end), place);
                let next = end.as_bytes()[0].checked_add(1);
                let next = next.map(|first| shards.place(RecordId::from_bytes([first; 16])));
                assert!(next.is_none_or(|next| next == place + 1), "{place} of {count}");
            }
        }
    }

    #[test]
    fn the_service_deletes_later_than_the_record_may_go_and_never_what_stands_for_ever() {
        assert_eq!(expires(Timestamp::NEVER), None);
        assert_eq!(expires(Timestamp::NEVER.plus(Duration::MAX)), None);
        assert_eq!(expires(Timestamp::from_millis(i64::MAX - 1)), None);
        assert_eq!(expires(Timestamp::from_millis(1_000_001)), Some(1000 + 3600 + 1));
    }
}
