//! Inserts records where there are none, and changes existing ones.

use firstwrite_core::{
    AuditEntry, Change, Draft, DraftState, Found, Guard, Inserted, RecordId, StateKind, StoreError,
    Swapped, Timestamp,
};

use super::audit;
use super::driver_error::unsupported;
use super::items::{
    self, DUE_AT, EXPIRES, FENCE, INTERIM, Item, OPEN, OUTCOME, OUTCOME_BYTES, PARTS,
    RETAINED_UNTIL, SHARD, STATE, Shards, UNCERTAIN_SINCE, number, text,
};
use super::link::Link;
use super::listing;
use super::parts::{self, Stored};
use super::write::{self, Sent, Step, Terms, Transaction};

pub(super) const INSERTING: &str = "inserting a record";
pub(super) const SWAPPING: &str = "swapping a record";

/// See [`firstwrite_core::Store::insert`].
pub(super) async fn insert(link: &Link, draft: &Draft) -> Result<Inserted, StoreError> {
    link.writable(INSERTING)?;
    let now = link.now();
    let stored = stored(link, draft, now, INSERTING).await?;
    match write::send(link, fresh(link, draft, stored.as_ref(), now), INSERTING).await? {
        Sent::Done => Ok(Inserted::Done(now)),
        Sent::Refused(item) => match standing(link, draft.id, item).await? {
            Some(found) => Ok(Inserted::Stands(Box::new(found))),
            // It has gone again since. The caller's next try will find the place free.
            None => Err(super::driver_error::unavailable(INSERTING, "a rival came and went")),
        },
    }
}

/// Writes the parts of a draft's outcome, if it has one that needs parts.
pub(super) async fn stored(
    link: &Link,
    draft: &Draft,
    now: Timestamp,
    doing: &'static str,
) -> Result<Option<Stored>, StoreError> {
    match &draft.state {
        DraftState::Reserved { .. } => Ok(None),
        DraftState::Completed { outcome } => {
            let (_, kept_until) = items::deadlines(outcome, draft.retention, now);
            parts::store(link, draft.id, outcome, kept_until, doing).await.map(Some)
        }
    }
}

/// Returns the step that writes `draft` if there is no record.
pub(super) fn fresh(link: &Link, draft: &Draft, stored: Option<&Stored>, now: Timestamp) -> Step {
    let mut terms = Terms::default();
    let condition = format!("attribute_not_exists({})", terms.name(SHARD));
    Step::put(link, items::item(link.shards, draft, stored, now), condition, &terms)
}

/// Returns the step that replaces the existing record by `draft` if `guard` holds.
pub(super) fn take_over(
    link: &Link,
    draft: &Draft,
    guard: Guard,
    stored: Option<&Stored>,
    now: Timestamp,
) -> Step {
    let mut terms = Terms::default();
    let condition = condition(&mut terms, guard, false);
    Step::put(link, items::item(link.shards, draft, stored, now), condition, &terms)
}

/// See [`firstwrite_core::Store::swap`].
pub(super) async fn swap(
    link: &Link,
    id: RecordId,
    guard: Guard,
    change: &Change,
    audit: Option<&AuditEntry>,
) -> Result<Swapped, StoreError> {
    link.writable(SWAPPING)?;
    let now = link.now();
    let step = step(link, id, guard, change, now).await?;
    let sent = match audit {
        None => write::send(link, step, SWAPPING).await?,
        Some(entry) => {
            let steps = vec![step.in_transaction()];
            let about = audit::of_record(id);
            let at = now.minus(change.audited_ago());
            match audit::send(link, &about, steps, entry, (at, SWAPPING)).await? {
                Transaction::Done => Sent::Done,
                Transaction::Refused(_, item) => Sent::Refused(item),
            }
        }
    };
    match sent {
        Sent::Done => Ok(Swapped::Done(now)),
        Sent::Refused(item) => {
            let found = match item {
                Some(item) => listing::found(link, item).await?,
                None => None,
            };
            Ok(Swapped::Moved(found.map(Box::new)))
        }
    }
}

/// The step that applies `change` while `guard` holds.
async fn step(
    link: &Link,
    id: RecordId,
    guard: Guard,
    change: &Change,
    now: Timestamp,
) -> Result<Step, StoreError> {
    let mut terms = Terms::default();
    let condition = condition(&mut terms, guard, matches!(change, Change::Renew { .. }));
    let key = link.shards.key(id);
    let open = || text(Shards::name(link.shards.place(id)));
    Ok(match change {
        Change::Note { .. } => {
            let state = terms.name(STATE);
            Step::update(link, key, format!("SET {state} = {state}"), condition, &terms)
        }
        Change::Renew { lease_for } => {
            let due_at = number(now.plus(*lease_for).as_millis());
            let set = format!("SET {}", terms.is(DUE_AT, "=", due_at));
            Step::update(link, key, set, condition, &terms)
        }
        Change::Complete { outcome, retention } => {
            let (_, kept_until) = items::deadlines(outcome, *retention, now);
            let stored = parts::store(link, id, outcome, kept_until, SWAPPING).await?;
            let mut written = items::completed(outcome, Some(&stored), *retention, now);
            written.push((STATE, items::state(StateKind::Completed)));
            let change = changes(&mut terms, written);
            Step::update(link, key, change, condition, &terms)
        }
        Change::MarkUncertain { ago } => {
            let since = number(now.minus(*ago).as_millis());
            let uncertain = (STATE, items::state(StateKind::Uncertain));
            let written = vec![uncertain, (UNCERTAIN_SINCE, since), (OPEN, open())];
            let change = changes(&mut terms, written);
            Step::update(link, key, change, condition, &terms)
        }
        Change::TakeOver(draft) => {
            if draft.id != id {
                return Err(unsupported(SWAPPING, "the draft is for another record"));
            }
            let stored = stored(link, draft, now, SWAPPING).await?;
            take_over(link, draft, guard, stored.as_ref(), now)
        }
        Change::Remove => Step::delete(link, key, condition, &terms),
    })
}

/// Attributes that change with a record's state.
const OF_STATE: [&str; 10] = [
    STATE,
    DUE_AT,
    RETAINED_UNTIL,
    OUTCOME,
    OUTCOME_BYTES,
    PARTS,
    OPEN,
    EXPIRES,
    INTERIM,
    UNCERTAIN_SINCE,
];

/// Writes these attributes, and removes those of the former state.
pub(super) fn changes(
    terms: &mut Terms,
    written: Vec<(&'static str, aws_sdk_dynamodb::types::AttributeValue)>,
) -> String {
    let is_gone = |name: &&str| written.iter().all(|(kept, _)| kept != name);
    let gone: Vec<&str> = OF_STATE.into_iter().filter(is_gone).collect();
    let gone: Vec<String> = gone.into_iter().map(|name| terms.name(name)).collect();
    let set: Vec<String> =
        written.into_iter().map(|(name, value)| terms.is(name, "=", value)).collect();
    format!("SET {} REMOVE {}", set.join(", "), gone.join(", "))
}

/// Builds the condition under which a change is written: see [`Guard::holds`].
fn condition(terms: &mut Terms, guard: Guard, must_be_reserved: bool) -> String {
    let mut holds = match guard {
        Guard::Owner(fence) => vec![
            terms.is(FENCE, "=", items::fence(fence)),
            terms.is(STATE, "<>", items::state(StateKind::Completed)),
        ],
        Guard::Seen(seen) => {
            let mut holds = vec![
                terms.is(FENCE, "=", items::fence(seen.fence)),
                terms.is(STATE, "=", items::state(seen.state)),
            ];
            holds.extend(
                seen.lease_until.map(|until| terms.is(DUE_AT, "=", number(until.as_millis()))),
            );
            holds
        }
    };
    if must_be_reserved {
        holds.push(terms.is(STATE, "=", items::state(StateKind::Reserved)));
    }
    holds.join(" AND ")
}

/// Returns the record that a refused write found in its place; reads it if the service did not return it.
pub(super) async fn standing(
    link: &Link,
    id: RecordId,
    item: Option<Item>,
) -> Result<Option<Found>, StoreError> {
    match item {
        Some(item) => listing::found(link, item).await,
        None => listing::get(link, id).await,
    }
}
