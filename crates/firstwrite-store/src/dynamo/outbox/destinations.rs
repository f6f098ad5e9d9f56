//! Destinations: whether they are paused or left alone, and how they stand. One item each.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::TransactWriteItem;
use firstwrite_core::outbox::{DestinationView, Switch, Want};
use firstwrite_core::{AuditEntry, Audited, StoreError, Timestamp};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::super::audit;
use super::super::fault::{corrupt, unavailable};
use super::super::items::{ID, Item, blob, instant, integer, key, number, optional, string, text};
use super::super::link::Link;
use super::super::partition::Partition;
use super::super::write::{self, Step, Terms, Transaction};
use super::message::count;
use super::queue;
use super::settle::TRIES_MAX;
use crate::pending::shortened;

const ALL: &str = "destinations";
const PAUSED_AT: &str = "paused_at";
const PAUSED_BY: &str = "paused_by";
const PAUSED_ACTION: &str = "paused_action";
const PAUSED_REASON: &str = "paused_reason";
const OPEN_UNTIL: &str = "open_until";
const OPEN_CAUSE: &str = "open_cause";
const OPENING_COUNT: &str = "opening_count";

/// Asked at the same time, each in all shards of its queue.
const AT_ONCE: usize = 4;

/// What a claim may take for a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// As much as it wants.
    Open,
    /// One, to see whether the destination is back that was left alone until then.
    Trial { since: Timestamp },
    /// Nothing.
    Closed,
}

/// What is counted under which name.
pub(super) fn count_name(kind: &str) -> String {
    format!("{kind}_count")
}

pub(super) fn key_of(destination: &str) -> Item {
    key(ALL, destination.as_bytes())
}

/// What may be claimed for each. Nothing, if that cannot be read: it may be paused.
pub(super) async fn gates(
    link: &Link,
    wants: &[Want],
    now: Timestamp,
) -> Result<Vec<Gate>, StoreError> {
    let mut keys: Vec<&str> = wants.iter().map(|want| &*want.destination).collect();
    keys.sort_unstable();
    keys.dedup();
    let keys: Vec<Item> = keys.into_iter().map(key_of).collect();
    let mut read: HashMap<Vec<u8>, Gate> = HashMap::new();
    for item in link.items_at(&keys, "claiming messages").await? {
        let gate = gate(&item, now).unwrap_or_else(|error| {
            tracing::warn!(%error, "a destination cannot be read");
            Gate::Closed
        });
        read.insert(blob(&item, ID)?.to_vec(), gate);
    }
    let gate = |want: &Want| read.get(want.destination.as_bytes()).copied().unwrap_or(Gate::Open);
    Ok(wants.iter().map(gate).collect())
}

fn gate(item: &Item, now: Timestamp) -> Result<Gate, StoreError> {
    if item.contains_key(PAUSED_AT) {
        return Ok(Gate::Closed);
    }
    Ok(match optional(item, OPEN_UNTIL, instant)? {
        None => Gate::Open,
        Some(until) if until > now => Gate::Closed,
        Some(since) => Gate::Trial { since },
    })
}

impl Gate {
    /// What goes with the claim of a trial: the destination is left alone again while it lasts. One worker makes it.
    pub(super) fn step(
        self,
        link: &Link,
        want: &Want,
        now: Timestamp,
    ) -> Option<TransactWriteItem> {
        let Self::Trial { since } = self else { return None };
        let mut terms = Terms::default();
        let is_due = terms.is(OPEN_UNTIL, "=", number(since.as_millis()));
        let until = now.plus(want.lease_for).as_millis();
        let change = format!("SET {}", terms.is(OPEN_UNTIL, "=", number(until)));
        let key = key_of(&want.destination);
        Some(Step::update(link, key, change, is_due, &terms).in_transaction())
    }
}

/// See [`firstwrite_core::outbox::Outbox::switch`].
pub(super) async fn switch(
    link: &Link,
    destination: &str,
    switch: &Switch,
) -> Result<(), StoreError> {
    const DOING: &str = "switching a destination";
    link.writable(DOING)?;
    let mut terms = Terms::default();
    let step = match switch {
        Switch::Open { open_for, cause } => {
            let until = link.now().plus(*open_for).as_millis();
            let set = [
                terms.is(OPEN_UNTIL, "=", number(until)),
                terms.is(OPEN_CAUSE, "=", text(shortened(cause))),
            ];
            let one_more = format!("{} {}", terms.name(OPENING_COUNT), terms.value(number(1)));
            let change = format!("SET {} ADD {one_more}", set.join(", "));
            Step::set(link, key_of(destination), change, &terms)
        }
        Switch::Closed => {
            let [until, cause, count] =
                [OPEN_UNTIL, OPEN_CAUSE, OPENING_COUNT].map(|name| terms.name(name));
            let is_open = format!("attribute_exists({until})");
            let change = format!("REMOVE {until}, {cause}, {count}");
            Step::update(link, key_of(destination), change, is_open, &terms)
        }
    };
    write::send(link, step, DOING).await.map(drop)
}

/// See [`firstwrite_core::outbox::Outbox::pause`].
pub(super) async fn pause(
    link: &Link,
    destination: &str,
    by: &AuditEntry,
) -> Result<(), StoreError> {
    const DOING: &str = "pausing a destination";
    link.writable(DOING)?;
    let now = link.now();
    let mut terms = Terms::default();
    let set = [
        terms.is(PAUSED_AT, "=", number(now.as_millis())),
        terms.is(PAUSED_BY, "=", text(&by.actor)),
        terms.is(PAUSED_ACTION, "=", text(&by.action)),
        terms.is(PAUSED_REASON, "=", text(&by.reason)),
    ];
    let change = format!("SET {}", set.join(", "));
    let step = Step::set(link, key_of(destination), change, &terms).in_transaction();
    let about = audit::of_destination(destination);
    audit::send(link, &about, vec![step], by, (now, DOING)).await.map(drop)
}

/// See [`firstwrite_core::outbox::Outbox::resume`].
pub(super) async fn resume(
    link: &Link,
    destination: &str,
    by: &AuditEntry,
) -> Result<(), StoreError> {
    const DOING: &str = "resuming a destination";
    link.writable(DOING)?;
    for _ in 0..TRIES_MAX {
        let now = link.now();
        let Some(item) = link.item_at(key_of(destination), DOING).await? else { return Ok(()) };
        let mut terms = Terms::default();
        let paused = [PAUSED_AT, PAUSED_BY, PAUSED_ACTION, PAUSED_REASON];
        let mut change = format!("REMOVE {}", paused.map(|name| terms.name(name)).join(", "));
        let condition = match optional(&item, OPEN_UNTIL, instant)? {
            None => format!("attribute_not_exists({})", terms.name(OPEN_UNTIL)),
            Some(until) => {
                let sooner = number(until.min(now).as_millis());
                change = format!("SET {} {change}", terms.is(OPEN_UNTIL, "=", sooner));
                terms.is(OPEN_UNTIL, "=", number(until.as_millis()))
            }
        };
        let step = Step::update(link, key_of(destination), change, condition, &terms);
        let (about, steps) = (audit::of_destination(destination), vec![step.in_transaction()]);
        match audit::send(link, &about, steps, by, (now, DOING)).await? {
            Transaction::Done => return Ok(()),
            Transaction::Refused(..) => {}
        }
    }
    Err(unavailable(DOING, "a destination does not stand still"))
}

/// The item of every destination.
pub(super) async fn items(link: &Link, doing: &'static str) -> Result<Vec<Item>, StoreError> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let asked = Partition { after, ..Partition::of(ALL) };
        let answer = asked.ask(link, doing, |_| None).await?;
        all.extend(answer.items);
        after = answer.ended_at;
        if after.is_none() {
            return Ok(all);
        }
    }
}

pub(super) fn name_of(item: &Item) -> Result<String, StoreError> {
    let name = String::from_utf8(blob(item, ID)?.to_vec());
    name.map_err(|_bytes| corrupt("a destination has a name"))
}

/// See [`firstwrite_core::outbox::Outbox::destinations`].
pub(super) async fn views(link: &Link) -> Result<Vec<DestinationView>, StoreError> {
    let now = link.now();
    let items = items(link, "listing destinations").await?;
    let viewing: Vec<_> = items.iter().map(|item| view(link, item, now)).collect();
    stream::iter(viewing).buffered(AT_ONCE).try_collect().await
}

async fn view(link: &Link, item: &Item, now: Timestamp) -> Result<DestinationView, StoreError> {
    let name = name_of(item)?;
    let owned = |name: &str| string(item, name).map(str::to_owned);
    let paused = match optional(item, PAUSED_AT, instant)? {
        None => None,
        Some(at) => {
            let (actor, action) = (owned(PAUSED_BY)?, owned(PAUSED_ACTION)?);
            let entry = AuditEntry { actor, action, reason: owned(PAUSED_REASON)? };
            Some(Audited { at, entry })
        }
    };
    let counted = |kind: &str| integer(item, &count_name(kind)).unwrap_or_default();
    Ok(DestinationView {
        oldest_due_at: queue::oldest(link, &name, now).await?,
        name,
        paused,
        open_until: optional(item, OPEN_UNTIL, instant)?,
        open_cause: optional(item, OPEN_CAUSE, string)?.map(str::to_owned),
        opening_count: optional(item, OPENING_COUNT, count)?.unwrap_or_default(),
        open_count: counted("open"),
        unknown_count: counted("unknown"),
        dead_count: counted("dead"),
        delivered_count: counted("delivered"),
    })
}
