//! The history of handing-overs: one item for each claim under which something was sent, and one where an operator
//! said how it ended.

use firstwrite_core::outbox::{Delivery, Ending, MessageNumber, PastDelivery, Received};
use firstwrite_core::{StoreError, Timestamp};

use super::super::fault::corrupt;
use super::super::items::{FENCE, fence};
use super::super::items::{Item, SHARD, fence_of, instant, key, number, optional, string, text};
use super::super::link::Link;
use super::super::partition::Partition;
use super::super::write::{self, Step, Terms, Transaction};
use super::message::{ENDED, PROVIDER_ID, RECEIPT, STATUS, UNDER_WAY, key_of, receipt, status};
use crate::pending::{DELIVERED, Entry, shortened};

const AT: &str = "at";
const ENDING: &str = "ending";
const DETAIL: &str = "detail";

const DOING: &str = "settling messages";

/// What a story tells at most.
const TOLD_MAX: usize = 100;

fn shard(number: MessageNumber) -> String {
    format!("h#{:016x}", number.0)
}

fn item(entry: &Entry<'_>, now: Timestamp) -> Item {
    let mut item = key(shard(entry.number), &entry.fence.as_u64().to_be_bytes());
    let mut put = |name: &str, value| item.insert(name.to_owned(), value);
    put(FENCE, fence(entry.fence));
    put(AT, number(now.as_millis()));
    put(ENDING, text(entry.ending));
    put(DETAIL, text(shortened(entry.detail)));
    if let Some(status) = entry.status {
        put(STATUS, number(status.into()));
    }
    if let Some(id) = entry.provider_id {
        put(PROVIDER_ID, text(id));
    }
    item
}

/// The step that writes an entry down.
pub(super) fn put(link: &Link, entry: &Entry<'_>, now: Timestamp) -> Step {
    Step::place(link, item(entry, now))
}

/// Writes down that a delivery arrived, whatever has become of its claim, if its message is there. Of what is said
/// under one fence the first stands, but for this: it is the truth about the destination, however late.
pub(super) async fn receive(
    link: &Link,
    received: &Received,
    now: Timestamp,
) -> Result<(), StoreError> {
    let Received { number, fence, delivery } = received;
    let Delivery { ending: Ending::Delivered(got), .. } = delivery else { return Ok(()) };
    let mut terms = Terms::default();
    let [exists, says] = [SHARD, ENDING].map(|name| terms.name(name));
    let arrived = terms.value(text(DELIVERED));
    let is_new = format!("attribute_not_exists({exists}) OR {says} <> {arrived}");
    let entry = Entry::of(*number, *fence, delivery);
    let told = Step::put(link, item(&entry, now), is_new, &terms).in_transaction();
    // A message moves from the one to the other and never back.
    for kind in [UNDER_WAY, ENDED] {
        let mut terms = Terms::default();
        let name = terms.name(RECEIPT);
        let value = terms.value(receipt(got, *fence));
        let is_there = format!("attribute_exists({})", terms.name(SHARD));
        let change = format!("SET {name} = if_not_exists({name}, {value})");
        let marked = Step::update(link, key_of(link, kind, *number), change, is_there, &terms);
        let steps = [marked.in_transaction(), told.clone()];
        match write::transact(link, &steps, &write::new_token(), DOING).await? {
            Transaction::Refused(0, _) => {}
            // Or it was written down before.
            Transaction::Done | Transaction::Refused(..) => return Ok(()),
        }
    }
    Ok(())
}

/// The last deliveries of a message, the oldest first.
pub(super) async fn past_deliveries(
    link: &Link,
    number: MessageNumber,
) -> Result<Vec<PastDelivery>, StoreError> {
    let asked =
        Partition { limit: Some(TOLD_MAX), is_backwards: true, ..Partition::of(shard(number)) };
    let answer = asked.ask(link, "reading a message's deliveries", |_| None).await?;
    let mut past = answer.items.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    past.reverse();
    Ok(past)
}

fn read(item: &Item) -> Result<PastDelivery, StoreError> {
    Ok(PastDelivery {
        at: instant(item, AT)?,
        fence: fence_of(item)?,
        ending: string(item, ENDING)?.to_owned(),
        status: optional(item, STATUS, status)?,
        detail: string(item, DETAIL)?.to_owned(),
        provider_id: optional(item, PROVIDER_ID, string)?.map(str::to_owned),
    })
}

/// The primary keys of what is kept of a message's history, at most a megabyte of it.
pub(super) async fn keys(
    link: &Link,
    number: MessageNumber,
    doing: &'static str,
) -> Result<Vec<Item>, StoreError> {
    let answer = Partition::of(shard(number)).ask(link, doing, |_| None).await?;
    let key = |item: &Item| {
        let fence = fence_of(item).map_err(|_missing| corrupt("a delivery has a fence"))?;
        Ok(key(shard(number), &fence.as_u64().to_be_bytes()))
    };
    answer.items.iter().map(key).collect()
}
