//! Outcomes that do not fit into one item. An item holds 400 KB, a policy keeps 1 MiB unless told
//! otherwise.
//!
//! Their parts are written first, under a random number, and mean nothing until the record names that
//! number. So a record and its outcome are still written in one step. The service deletes parts that no
//! record names (because it had moved or was replaced) when they expire.

use aws_sdk_dynamodb::types::AttributeValue;
use firstwrite_core::encoding::{as_i64, encode_outcome};
use firstwrite_core::{
    Body, KeptHeaders, Outcome, RecordId, Retention, State, StateKind, StoreError, Timestamp,
};

use super::driver_error::corrupt;
use super::items::{
    self, Attributes, DUE_AT, EXPIRES, INTERIM, Item, OUTCOME, OUTCOME_BYTES, PARTS,
    RETAINED_UNTIL, STATE, blob, bytes, number, text,
};
use super::link::Link;

/// The parts that hold an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    number: u64,
    count: u16,
}

/// Leaves room for tenant, key, operation and fingerprint below the service's 409 600 bytes.
const IN_RECORD_MAX: usize = 350_000;

/// Leaves room for the keys.
const PART_BYTES_MAX: usize = 400_000;

/// Maximum number of parts. A larger outcome is not kept: the key is spent, and a retry is told so.
const PARTS_MAX: usize = 16;

impl Parts {
    /// Reads from a record which parts hold its outcome, if any do.
    pub(super) fn of(item: &Item) -> Result<Option<Self>, StoreError> {
        let Some(name) = item.get(PARTS) else { return Ok(None) };
        let unreadable = || corrupt("an outcome is in parts that have no name");
        let name = name.as_s().map_err(|_other| unreadable())?;
        let (number, count) = name.split_once('.').ok_or_else(unreadable)?;
        let number = u64::from_str_radix(number, 16).map_err(|_digits| unreadable())?;
        let count = count.parse().map_err(|_digits| unreadable())?;
        Ok(Some(Self { number, count }))
    }

    /// The primary key of each.
    pub(super) fn keys(self, id: RecordId) -> impl Iterator<Item = Item> {
        (0..self.count).map(move |place| {
            let mut sort_key = self.number.to_be_bytes().to_vec();
            sort_key.extend_from_slice(&place.to_be_bytes());
            items::key(format!("p#{id}"), &sort_key)
        })
    }
}

/// Returns the attributes of a record that is completed with `outcome` at `now`. Writes the parts of an outcome
/// that does not fit into its record.
pub(super) async fn complete(
    link: &Link,
    id: RecordId,
    outcome: &Outcome,
    retention: Retention,
    (now, doing): (Timestamp, &'static str),
) -> Result<Attributes, StoreError> {
    let (retained_until, kept_until) = match State::completed(outcome.clone(), retention, now) {
        State::Completed { retained_until, kept_until, .. } => (retained_until, kept_until),
        State::Reserved(_) | State::Uncertain { .. } => (now, now),
    };
    let expires = items::expires(kept_until).map(|at| (EXPIRES, number(at)));
    let mut written = vec![
        (STATE, items::state(StateKind::Completed)),
        (DUE_AT, number(kept_until.as_millis())),
        (RETAINED_UNTIL, number(retained_until.as_millis())),
    ];
    written.extend(expires.clone());
    if outcome.is_interim {
        written.push((INTERIM, AttributeValue::Bool(true)));
    }
    let encoded = encode_outcome(outcome);
    let length = |bytes: &[u8]| (OUTCOME_BYTES, number(as_i64(bytes.len())));
    let count = encoded.len().div_ceil(PART_BYTES_MAX);
    if encoded.len() <= IN_RECORD_MAX {
        written.extend([length(&encoded), (OUTCOME, bytes(&encoded))]);
    } else if count > PARTS_MAX || outcome.is_interim {
        // An interim outcome is replaced, and nothing says when its parts might go.
        tracing::warn!(record = %id, bytes = encoded.len(), "an outcome is too large to be kept");
        let encoded = tombstone(outcome);
        written.extend([length(&encoded), (OUTCOME, bytes(&encoded))]);
    } else {
        let count = u16::try_from(count).expect("at most PARTS_MAX");
        let parts = Parts { number: fastrand::u64(..), count };
        for (part, mut item) in encoded.chunks(PART_BYTES_MAX).zip(parts.keys(id)) {
            items::set(&mut item, [(OUTCOME, bytes(part))].into_iter().chain(expires.clone()));
            let put = link.client.put_item().table_name(link.table()).set_item(Some(item)).send();
            // Whatever became of it, no record names it.
            put.await.map_err(|error| link.error(&error).of_read(doing))?;
        }
        let name = text(format!("{:016x}.{count}", parts.number));
        written.extend([length(&encoded), (PARTS, name)]);
    }
    Ok(written)
}

/// The encoded outcome of a record whose outcome is in parts; `None` if it is in none.
///
/// A part that is missing is a record that was replaced meanwhile, or damage.
pub(super) async fn load(link: &Link, item: &Item) -> Result<Option<Vec<u8>>, StoreError> {
    let Some(parts) = Parts::of(item)? else { return Ok(None) };
    let mut outcome = Vec::new();
    for key in parts.keys(items::id_of(item)?) {
        let part = link.item_at(key, "reading an outcome").await?;
        let part = part.ok_or_else(|| corrupt("a part of an outcome is missing"))?;
        outcome.extend_from_slice(blob(&part, OUTCOME)?);
    }
    Ok(Some(outcome))
}

/// Deletes the parts of a record that is gone. On failure, the service deletes them later.
pub(super) async fn delete(link: &Link, id: RecordId, parts: Parts) {
    for key in parts.keys(id) {
        let deleted = link.client.delete_item().table_name(link.table()).set_key(Some(key)).send();
        if let Err(error) = deleted.await {
            tracing::debug!(record = %id, error = %link.error(&error), "a part stays for now");
        }
    }
}

/// Returns what is kept of an outcome that is too large.
fn tombstone(outcome: &Outcome) -> Vec<u8> {
    let empty = |headers: KeptHeaders| Outcome {
        headers,
        body: Body::Tombstone,
        status: outcome.status,
        is_interim: outcome.is_interim,
    };
    let encoded = encode_outcome(&empty(outcome.headers.clone()));
    if encoded.len() <= IN_RECORD_MAX {
        return encoded;
    }
    encode_outcome(&empty(KeptHeaders::default()))
}
