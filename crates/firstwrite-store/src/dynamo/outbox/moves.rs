//! Moves of a message, as steps of one transaction, each on the condition that the message has not changed since it
//! was read.

use aws_sdk_dynamodb::types::TransactWriteItem;
use firstwrite_core::outbox::pending::Pending;
use firstwrite_core::outbox::{MessageState, Receipt};
use firstwrite_core::{Fence, Timestamp};

use super::super::items::{DUE_AT, FENCE, Item, SHARD, STATE, fence, number, text};
use super::super::link::Link;
use super::super::write::{Step, Terms};
use super::message::{
    self, CLAIMED_AT, ENDED, ENDED_AT, HANDED_OVER, MAYBE_SENT_AT, PROBLEM, PendingItem, RECEIPT,
    STATUS, UNDER_WAY, changing, key_of, place, shard,
};
use super::queue;

/// End of a message: its final state, fence, time and receipt.
pub(super) struct Ended {
    pub(super) state: MessageState,
    pub(super) fence: Fence,
    pub(super) at: Timestamp,
    pub(super) receipt: Option<Receipt>,
    /// True if a history row that counts as a handover is written with it.
    pub(super) is_handed_over: bool,
}

/// Returns the condition that the message was not moved since it was read. A late receipt does not move it.
fn as_read(terms: &mut Terms, was: &Pending) -> String {
    let due = match was.due_at() {
        Some(at) => terms.is(DUE_AT, "=", number(at.as_millis())),
        None => format!("attribute_not_exists({})", terms.name(DUE_AT)),
    };
    let holds = [
        terms.is(FENCE, "=", fence(was.fence())),
        terms.is(STATE, "=", text(was.state().as_str())),
        due,
    ];
    holds.join(" AND ")
}

/// Changes a message that stays under way, and its place in the queue.
pub(super) fn change(link: &Link, was: &Pending, becomes: &Pending) -> Vec<TransactWriteItem> {
    change_after(link, was, becomes, false)
}

/// The same; `is_handed_over` counts one more handing-over.
pub(super) fn change_after(
    link: &Link,
    was: &Pending,
    becomes: &Pending,
    is_handed_over: bool,
) -> Vec<TransactWriteItem> {
    let mut terms = Terms::default();
    let condition = as_read(&mut terms, was);
    let (mut set, mut gone) = (Vec::new(), Vec::new());
    for (name, value) in changing(becomes) {
        match value {
            Some(value) => set.push(terms.is(name, "=", value)),
            None => gone.push(terms.name(name)),
        }
    }
    let mut change = format!("SET {}", set.join(", "));
    if !gone.is_empty() {
        change = format!("{change} REMOVE {}", gone.join(", "));
    }
    if is_handed_over {
        let one_more = format!("{} {}", terms.name(HANDED_OVER), terms.value(number(1)));
        change = format!("{change} ADD {one_more}");
    }
    let key = key_of(link, UNDER_WAY, was.number);
    let mut steps = vec![Step::update(link, key, change, condition, &terms)];
    if was.due_at() != becomes.due_at() {
        steps.extend(leave(link, was));
        steps.extend(enter(link, becomes));
    }
    steps.into_iter().map(Step::in_transaction).collect()
}

/// Moves a message to those that have ended, and out of the queue.
pub(super) fn end(link: &Link, standing: &PendingItem, ended: &Ended) -> Vec<TransactWriteItem> {
    let PendingItem { item, pending: was } = standing;
    let mut terms = Terms::default();
    let mut condition = as_read(&mut terms, was);
    // A receipt that was written meanwhile goes with it.
    let count = number(standing.handed_over().into());
    condition = format!("{condition} AND {}", terms.is(HANDED_OVER, "=", count));
    if !item.contains_key(RECEIPT) {
        condition = format!("{condition} AND attribute_not_exists({})", terms.name(RECEIPT));
    }
    let key = key_of(link, UNDER_WAY, was.number);
    let mut steps = vec![Step::delete(link, key, condition, &terms)];
    steps.push(Step::place(link, ended_item(link, standing, ended)));
    steps.extend(leave(link, was));
    steps.into_iter().map(Step::in_transaction).collect()
}

fn ended_item(link: &Link, standing: &PendingItem, ended: &Ended) -> Item {
    let was = &standing.pending;
    let before = standing.handed_over();
    let mut item = standing.item.clone();
    for name in [DUE_AT, CLAIMED_AT, MAYBE_SENT_AT, STATUS, PROBLEM] {
        item.remove(name);
    }
    let mut put = |name: &str, value| item.insert(name.to_owned(), value);
    put(SHARD, text(shard(ENDED, place(link.shards, was.number))));
    put(STATE, text(ended.state.as_str()));
    put(FENCE, fence(ended.fence));
    put(ENDED_AT, number(ended.at.as_millis()));
    let handed_over = before.saturating_add(ended.is_handed_over.into());
    put(HANDED_OVER, number(handed_over.into()));
    if let Some(receipt) = &ended.receipt {
        item.entry(RECEIPT.to_owned()).or_insert_with(|| message::receipt(receipt, ended.fence));
    }
    item
}

/// Puts a message that is due at some time into the queue.
pub(super) fn enter(link: &Link, pending: &Pending) -> Option<Step> {
    let due = (pending.due_at()?, pending.number);
    Some(Step::place(link, queue::key_of(link, &pending.destination, due)))
}

fn leave(link: &Link, pending: &Pending) -> Option<Step> {
    let due = (pending.due_at()?, pending.number);
    Some(Step::remove(link, queue::key_of(link, &pending.destination, due)))
}
