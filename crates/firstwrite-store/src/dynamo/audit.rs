//! Audit entries: operators' actions, written in one transaction with the change itself.
//!
//! The entries of a record, a destination or a finding are numbered and outlive it. A writer looks up the
//! last number and takes the next; if another writer takes it first, nothing is written, and it tries the
//! next number.

use aws_sdk_dynamodb::types::TransactWriteItem;
use firstwrite_core::{AuditEntry, Audited, RecordId, StoreError, Timestamp};

use super::driver_error::{corrupt, unavailable};
use super::items::{ID, Item, blob, instant, key, number, set, string, text};
use super::link::Link;
use super::partition::Partition;
use super::write::{self, Step, Transaction};

const AT: &str = "at";
const ACTOR: &str = "actor";
const ACTION: &str = "action";
const REASON: &str = "reason";

/// Maximum number of tries; operators rarely act on one record at the same moment.
const TRIES_MAX: usize = 8;

/// Writes `steps` and `entry`, or nothing. `about` comes from [`of_record`] and its like.
pub(super) async fn send(
    link: &Link,
    about: &str,
    steps: Vec<TransactWriteItem>,
    entry: &AuditEntry,
    (at, doing): (Timestamp, &'static str),
) -> Result<Transaction, StoreError> {
    for _ in 0..TRIES_MAX {
        let last = query(link, about, None, true, doing).await?.into_iter().next();
        let place = last.map_or(Ok(0), |item| place_of(&item))?.saturating_add(1);
        let mut item = key(about, &place.to_be_bytes());
        let AuditEntry { actor, action, reason } = entry;
        let texts = [(ACTOR, text(actor)), (ACTION, text(action)), (REASON, text(reason))];
        set(&mut item, texts.into_iter().chain([(AT, number(at.as_millis()))]));
        let mut all = steps.clone();
        all.push(Step::put_new(link, item).in_transaction());
        match write::transact(link, &all, &write::new_token(), doing).await? {
            // The number is taken.
            Transaction::Refused(place, _) if place == steps.len() => {}
            end @ (Transaction::Done | Transaction::Refused(..)) => return Ok(end),
        }
    }
    Err(unavailable(doing, "many others write audit entries of the same thing"))
}

/// See [`firstwrite_core::Store::audits`].
pub(super) async fn list(link: &Link, about: &str) -> Result<Vec<Audited>, StoreError> {
    let doing = "reading audit entries";
    let (mut audited, mut after) = (Vec::new(), None);
    loop {
        let items = query(link, about, after, false, doing).await?;
        let Some(last) = items.last() else { return Ok(audited) };
        after = Some(place_of(last)?);
        for item in &items {
            let owned = |name: &str| string(item, name).map(str::to_owned);
            let (actor, action) = (owned(ACTOR)?, owned(ACTION)?);
            let entry = AuditEntry { actor, action, reason: owned(REASON)? };
            audited.push(Audited { at: instant(item, AT)?, entry });
        }
    }
}

/// Entries after a number, oldest first; or the last one.
async fn query(
    link: &Link,
    about: &str,
    after: Option<u64>,
    only_last: bool,
    doing: &'static str,
) -> Result<Vec<Item>, StoreError> {
    let asked = Partition {
        after: after.map(|after| after.to_be_bytes().to_vec()),
        limit: only_last.then_some(1),
        is_backwards: only_last,
        ..Partition::of(about)
    };
    Ok(asked.ask(link, doing, |_| None).await?.items)
}

/// Returns the partition key of a record's entries.
pub(super) fn of_record(id: RecordId) -> String {
    format!("a#{id}")
}

fn place_of(item: &Item) -> Result<u64, StoreError> {
    let place = blob(item, ID)?.try_into();
    place.map(u64::from_be_bytes).map_err(|_length| corrupt("an audit entry has a number"))
}
