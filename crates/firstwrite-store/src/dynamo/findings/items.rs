//! Findings as items.

use aws_sdk_dynamodb::types::AttributeValue;
use firstwrite_core::findings::{Closed, Closing, Finding, FindingNumber, NewFinding, Run};
use firstwrite_core::outbox::MessageNumber;
use firstwrite_core::{FindingKind, RecordId, StoreError, Timestamp};
use sha2::{Digest as _, Sha256};

use super::super::fault::corrupt;
use super::super::items::{
    ID, Item, blob, bytes, instant, integer, key, number, optional, string, text,
};

/// All findings stand under one partition key: a person reads them.
pub(super) const ALL: &str = "findings";
/// What points from a discrepancy to its finding.
const SAME: &str = "finding of";
const RUNS: &str = "runs";

pub(super) const NUMBER: &str = "finding";
const SOURCE: &str = "source";
const KIND: &str = "kind";
const SUBJECT: &str = "subject";
pub(super) const DETAIL: &str = "detail";
const RECORD: &str = "record";
const MESSAGE: &str = "message";
const PROVIDER_ID: &str = "provider_id";
const FIRST_SEEN: &str = "first_seen";
pub(super) const LAST_SEEN: &str = "last_seen";
pub(super) const REOPENED_COUNT: &str = "reopened_count";
pub(super) const OWNER: &str = "owner";
pub(super) const CLOSED_AT: &str = "closed_at";
const CLOSED_BY: &str = "closed_by";
const CLOSING: &str = "closing";
const RESOLUTION: &str = "resolution";

pub(super) fn key_of(number: FindingNumber) -> Item {
    key(ALL, &number.0.max(0).to_be_bytes())
}

/// Where it is written which finding is about this discrepancy.
pub(super) fn key_of_same(source: &str, kind: FindingKind, subject: &str) -> Item {
    let mut hash = Sha256::new();
    for part in [source, kind.as_str(), subject] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    key(SAME, &hash.finalize())
}

/// The item of a new finding.
pub(super) fn new(
    number_given: FindingNumber,
    source: &str,
    found: &NewFinding,
    seen_at: Timestamp,
) -> Item {
    let mut item = key_of(number_given);
    let mut put = |name: &str, value| item.insert(name.to_owned(), value);
    put(SOURCE, text(source));
    put(KIND, text(found.kind.as_str()));
    put(SUBJECT, text(&*found.subject));
    put(FIRST_SEEN, number(seen_at.as_millis()));
    put(LAST_SEEN, number(seen_at.as_millis()));
    put(REOPENED_COUNT, number(0));
    for (name, value) in seen(found) {
        if let Some(value) = value {
            put(name, value);
        }
    }
    item
}

/// What a run sees of a discrepancy.
pub(super) fn seen(found: &NewFinding) -> [(&'static str, Option<AttributeValue>); 4] {
    [
        (DETAIL, Some(text(&*found.detail))),
        (RECORD, found.record.as_ref().map(|id| bytes(id.as_bytes()))),
        (MESSAGE, found.message.map(|message| number(message.0))),
        (PROVIDER_ID, found.provider_id.as_deref().map(text)),
    ]
}

/// How a finding is closed.
pub(super) fn closed(closed: Option<&Closed>) -> [(&'static str, Option<AttributeValue>); 4] {
    [
        (CLOSED_AT, closed.map(|closed| number(closed.at.as_millis()))),
        (CLOSED_BY, closed.map(|closed| text(&*closed.by))),
        (CLOSING, closed.map(|closed| text(closed.closing.as_str()))),
        (RESOLUTION, closed.map(|closed| text(closed.closing.text()))),
    ]
}

pub(super) fn number_of(item: &Item) -> Result<FindingNumber, StoreError> {
    let number = blob(item, ID)?.try_into().map(i64::from_be_bytes);
    number.map(FindingNumber).map_err(|_length| corrupt("a finding's number has 8 bytes"))
}

pub(super) fn read(item: &Item) -> Result<Finding, StoreError> {
    let owned = |name: &str| string(item, name).map(str::to_owned);
    let kind = FindingKind::from_word(string(item, KIND)?);
    let record = optional(item, RECORD, blob)?.map(|id| id.try_into().map(RecordId::from_bytes));
    let reopened_count = u32::try_from(integer(item, REOPENED_COUNT)?);
    Ok(Finding {
        number: number_of(item)?,
        source: owned(SOURCE)?,
        found: NewFinding {
            kind: kind.ok_or_else(|| corrupt("an unknown kind of finding"))?,
            subject: owned(SUBJECT)?,
            detail: owned(DETAIL)?,
            record: record.transpose().map_err(|_length| corrupt("an id has 16 bytes"))?,
            message: optional(item, MESSAGE, integer)?.map(MessageNumber),
            provider_id: optional(item, PROVIDER_ID, string)?.map(str::to_owned),
        },
        first_seen: instant(item, FIRST_SEEN)?,
        last_seen: instant(item, LAST_SEEN)?,
        reopened_count: reopened_count.map_err(|_range| corrupt("a count out of range"))?,
        owner: optional(item, OWNER, string)?.map(str::to_owned),
        closed: read_closed(item)?,
    })
}

fn read_closed(item: &Item) -> Result<Option<Closed>, StoreError> {
    let Some(at) = optional(item, CLOSED_AT, instant)? else { return Ok(None) };
    let closing =
        Closing::from_stored(string(item, CLOSING)?, string(item, RESOLUTION)?.to_owned());
    let closing = closing.ok_or_else(|| corrupt("an unknown way to close a finding"))?;
    Ok(Some(Closed { at, by: string(item, CLOSED_BY)?.to_owned(), closing }))
}

const AT: &str = "at";
const UNTIL: &str = "until";
const AGAIN_FROM: &str = "again_from";

pub(super) fn key_of_run(source: &str) -> Item {
    key(RUNS, source.as_bytes())
}

pub(super) fn run(source: &str, run: &Run) -> Item {
    let mut item = key_of_run(source);
    for (name, at) in [(AT, run.at), (UNTIL, run.until), (AGAIN_FROM, run.again_from)] {
        item.insert(name.to_owned(), number(at.as_millis()));
    }
    item
}

pub(super) fn read_run(item: &Item) -> Result<Run, StoreError> {
    let [at, until, again_from] = [AT, UNTIL, AGAIN_FROM].map(|name| instant(item, name));
    Ok(Run { at: at?, until: until?, again_from: again_from? })
}
