//! Outcomes that do not fit into one item. An item holds 400 KB, a policy keeps 1 MiB unless told
//! otherwise.
//!
//! Their parts are written first, under a random number, and mean nothing until the record names that
//! number. So a record and its outcome are still written in one step. The service deletes parts that no
//! record names (because it had moved or was replaced) when they expire.

use aws_sdk_dynamodb::types::AttributeValue;
use firstwrite_core::{Body, KeptHeaders, Outcome, RecordId, StoreError, Timestamp};

use super::driver_error::corrupt;
use super::items::{
    self, EXPIRES, ID, Item, OUTCOME, OUTCOME_BYTES, PARTS, SHARD, blob, bytes, text,
};
use super::link::Link;
use crate::encoding::encode_outcome;

/// Location of an encoded outcome.
#[derive(Debug)]
pub(super) enum Stored {
    InRecord(Vec<u8>),
    InParts { parts: Parts, byte_count: usize },
}

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

impl Stored {
    pub(super) fn attributes(&self) -> Vec<(&'static str, AttributeValue)> {
        let length = |count: usize| items::number(i64::try_from(count).unwrap_or(i64::MAX));
        match self {
            Self::InRecord(outcome) => {
                vec![(OUTCOME, bytes(outcome)), (OUTCOME_BYTES, length(outcome.len()))]
            }
            Self::InParts { parts, byte_count } => {
                let Parts { number, count } = parts;
                let name = text(format!("{number:016x}.{count}"));
                vec![(PARTS, name), (OUTCOME_BYTES, length(*byte_count))]
            }
        }
    }
}

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
            let shard = text(format!("p#{id}"));
            Item::from([(SHARD.to_owned(), shard), (ID.to_owned(), bytes(&sort_key))])
        })
    }
}

/// Encodes an outcome, and writes its parts if it does not fit into its record.
pub(super) async fn store(
    link: &Link,
    id: RecordId,
    outcome: &Outcome,
    kept_until: Timestamp,
    doing: &'static str,
) -> Result<Stored, StoreError> {
    let encoded = encode_outcome(outcome);
    if encoded.len() <= IN_RECORD_MAX {
        return Ok(Stored::InRecord(encoded));
    }
    let count = encoded.len().div_ceil(PART_BYTES_MAX);
    // An interim outcome is replaced, and nothing says when its parts might go.
    if count > PARTS_MAX || outcome.is_interim {
        tracing::warn!(record = %id, bytes = encoded.len(), "an outcome is too large to be kept");
        return Ok(Stored::InRecord(tombstone(outcome)));
    }
    let count = u16::try_from(count).expect("at most PARTS_MAX");
    let parts = Parts { number: fastrand::u64(..), count };
    for (part, key) in encoded.chunks(PART_BYTES_MAX).zip(parts.keys(id)) {
        let mut item = key;
        item.insert(OUTCOME.to_owned(), bytes(part));
        if let Some(at) = items::expires(kept_until) {
            item.insert(EXPIRES.to_owned(), items::number(at));
        }
        let put = link.client.put_item().table_name(link.table()).set_item(Some(item)).send();
        // Whatever became of it, no record names it.
        put.await.map_err(|error| link.error(&error).of_read(doing))?;
    }
    Ok(Stored::InParts { parts, byte_count: encoded.len() })
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
