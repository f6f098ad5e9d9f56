//! What operators did, written in one transaction with the change itself.
//!
//! The entries of a record are numbered and outlive it. Whoever writes one looks for the last number and takes
//! the next; if somebody else takes it first, nothing is written, and the next is tried.

use firstwrite_core::{AuditEntry, Audited, RecordId, StoreError, Timestamp};

use super::fault::{corrupt, unavailable};
use super::items::{ID, Item, SHARD, blob, bytes, instant, number, string, text};
use super::link::Link;
use super::write::{self, Sent, Step, Terms, Transaction};

const AT: &str = "at";
const ACTOR: &str = "actor";
const ACTION: &str = "action";
const REASON: &str = "reason";

/// Operators do not crowd around one record.
const TRIES_MAX: usize = 8;

/// Does `step` and notes `entry`, or neither.
pub(super) async fn send(
    link: &Link,
    id: RecordId,
    step: Step,
    entry: &AuditEntry,
    now: Timestamp,
) -> Result<Sent, StoreError> {
    let doing = super::swap::SWAPPING;
    let step = step.in_transaction();
    for _ in 0..TRIES_MAX {
        let last = query(link, id, None, true, doing).await?.into_iter().next();
        let place = last.map_or(Ok(0), |item| place_of(&item))?.saturating_add(1);
        let mut item = Item::from([
            (SHARD.to_owned(), text(partition(id))),
            (ID.to_owned(), bytes(&place.to_be_bytes())),
            (AT.to_owned(), number(now.as_millis())),
        ]);
        for (name, value) in
            [(ACTOR, &entry.actor), (ACTION, &entry.action), (REASON, &entry.reason)]
        {
            item.insert(name.to_owned(), text(value));
        }
        let mut terms = Terms::default();
        let free = format!("attribute_not_exists({})", terms.name(SHARD));
        let noted = Step::put(link, item, free, &terms).in_transaction();
        let token = format!("{:032x}", fastrand::u128(..));
        match write::transact(link, &[step.clone(), noted], &token, doing).await? {
            Transaction::Done => return Ok(Sent::Done),
            Transaction::Refused(0, item) => return Ok(Sent::Refused(item)),
            // The number is taken.
            Transaction::Refused(..) => {}
        }
    }
    Err(unavailable(doing, "many others write audit entries of the same record"))
}

/// See [`firstwrite_core::Store::audits`].
pub(super) async fn list(link: &Link, id: RecordId) -> Result<Vec<Audited>, StoreError> {
    let doing = "reading audit entries";
    let (mut audited, mut after) = (Vec::new(), None);
    loop {
        let items = query(link, id, after, false, doing).await?;
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
    id: RecordId,
    after: Option<u64>,
    only_last: bool,
    doing: &'static str,
) -> Result<Vec<Item>, StoreError> {
    let mut terms = Terms::default();
    let mut which = terms.is(SHARD, "=", text(partition(id)));
    if let Some(after) = after {
        let behind = terms.is(ID, ">", bytes(&after.to_be_bytes()));
        which = format!("{which} AND {behind}");
    }
    let answer = link
        .client
        .query()
        .table_name(link.table())
        .key_condition_expression(which)
        .set_expression_attribute_names(terms.names())
        .set_expression_attribute_values(terms.values())
        .scan_index_forward(!only_last)
        .set_limit(only_last.then_some(1))
        .consistent_read(true)
        .send()
        .await;
    let answer = answer.map_err(|error| link.trouble(&error).of_read(doing))?;
    Ok(answer.items.unwrap_or_default())
}

fn partition(id: RecordId) -> String {
    format!("a#{id}")
}

fn place_of(item: &Item) -> Result<u64, StoreError> {
    let place = blob(item, ID)?.try_into();
    place.map(u64::from_be_bytes).map_err(|_length| corrupt("an audit entry has a number"))
}
