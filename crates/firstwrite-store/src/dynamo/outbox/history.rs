//! The history of handing-overs: one item for each claim under which something was sent, and one where an operator
//! said how it ended.

use firstwrite_core::outbox::{HistoryRow, MessageNumber, PastDelivery, PastEnding};
use firstwrite_core::{StoreError, Timestamp};

use super::super::driver_error::corrupt;
use super::super::items::{FENCE, fence};
use super::super::items::{Item, SHARD, fence_of, instant, key, number, optional, string, text};
use super::super::link::Link;
use super::super::partition::Partition;
use super::super::write::{self, Step, Terms, Transaction};
use super::message::{
    ENDED, HANDED_OVER, PROVIDER_ID, RECEIPT, STATUS, UNDER_WAY, key_of, receipt, status,
};

const AT: &str = "at";
const ENDING: &str = "ending";
const DETAIL: &str = "detail";

const DOING: &str = "moving messages";

/// Maximum number of rows that a message's history returns.
const TOLD_MAX: usize = 100;

fn shard(number: MessageNumber) -> String {
    format!("h#{:016x}", number.0)
}

fn item(row: &HistoryRow, now: Timestamp) -> Item {
    let mut item = key(shard(row.number), &row.fence.as_u64().to_be_bytes());
    let mut put = |name: &str, value| item.insert(name.to_owned(), value);
    put(FENCE, fence(row.fence));
    put(AT, number(now.as_millis()));
    put(ENDING, text(row.ending.as_str()));
    put(DETAIL, text(&row.detail));
    if let Some(status) = row.status {
        put(STATUS, number(status.into()));
    }
    if let Some(id) = &row.provider_id {
        put(PROVIDER_ID, text(id));
    }
    item
}

/// The step that writes a row.
pub(super) fn put(link: &Link, row: &HistoryRow, now: Timestamp) -> Step {
    Step::place(link, item(row, now))
}

/// Writes the row of a receipt, if its message is there; see [`HistoryRow`] for two rows of one fence.
pub(super) async fn receive(
    link: &Link,
    row: &HistoryRow,
    now: Timestamp,
) -> Result<(), StoreError> {
    // A message moves from the one to the other and never back; and a row stays once it is there.
    for is_new in [true, false] {
        for kind in [UNDER_WAY, ENDED] {
            let steps = [mark(link, kind, row, is_new), told(link, row, is_new, now)];
            let steps = steps.map(Step::in_transaction);
            match write::transact(link, &steps, &write::new_token(), DOING).await? {
                Transaction::Done => return Ok(()),
                // It is not among these.
                Transaction::Refused(0, _) => {}
                // There is a row already.
                Transaction::Refused(..) => break,
            }
        }
    }
    Ok(())
}

/// The step that notes a receipt with its message, and counts it if its row is new.
fn mark(link: &Link, kind: &str, row: &HistoryRow, is_new: bool) -> Step {
    let mut terms = Terms::default();
    let name = terms.name(RECEIPT);
    let value = terms.value(receipt(&row.receipt().unwrap_or_default(), row.fence));
    let is_there = format!("attribute_exists({})", terms.name(SHARD));
    let mut change = format!("SET {name} = if_not_exists({name}, {value})");
    if is_new {
        let one_more = format!("{} {}", terms.name(HANDED_OVER), terms.value(number(1)));
        change = format!("{change} ADD {one_more}");
    }
    Step::update(link, key_of(link, kind, row.number), change, is_there, &terms)
}

/// The step that writes a row where there is none, or in the place of one that does not say delivered.
fn told(link: &Link, row: &HistoryRow, is_new: bool, now: Timestamp) -> Step {
    let mut terms = Terms::default();
    let exists = terms.name(SHARD);
    let condition = if is_new {
        format!("attribute_not_exists({exists})")
    } else {
        let arrived = text(PastEnding::Delivered.as_str());
        format!("attribute_exists({exists}) AND {}", terms.is(ENDING, "<>", arrived))
    };
    Step::put(link, item(row, now), condition, &terms)
}

/// The row with the greatest fence.
pub(super) async fn last(
    link: &Link,
    number: MessageNumber,
) -> Result<Option<PastDelivery>, StoreError> {
    let asked = Partition { limit: Some(1), is_backwards: true, ..Partition::of(shard(number)) };
    let answer = asked.ask(link, DOING, |_| None).await?;
    answer.items.first().map(read).transpose()
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
