//! Inserts records where there are none, and changes existing ones.

use firstwrite_core::{
    AuditEntry, Change, Draft, DraftState, Found, Guard, Inserted, RecordId, StateKind, StoreError,
    Swapped, Timestamp,
};

use super::audit;
use super::driver_error::{unavailable, unsupported};
use super::items::{
    self, Attributes, DUE_AT, EXPIRES, FENCE, INTERIM, Item, OPEN, OUTCOME, OUTCOME_BYTES, PARTS,
    RETAINED_UNTIL, STATE, Shards, UNCERTAIN_SINCE, number, text,
};
use super::link::Link;
use super::write::{self, Step, Terms, Transaction};
use super::{listing, parts};

const INSERTING: &str = "inserting a record";
const SWAPPING: &str = "swapping a record";

/// See [`firstwrite_core::Store::insert`].
pub(super) async fn insert(link: &Link, draft: &Draft) -> Result<Inserted, StoreError> {
    link.writable(INSERTING)?;
    let now = link.now();
    let step = put(link, draft, None, (now, INSERTING)).await?;
    match write::send(link, step, INSERTING).await? {
        Transaction::Done => Ok(Inserted::Done(now)),
        Transaction::Refused(_, item) => match existing(link, draft.id, item).await? {
            Some(found) => Ok(Inserted::Stands(Box::new(found))),
            // It has gone again since. The caller's next try will find the place free.
            None => Err(unavailable(INSERTING, "a rival came and went")),
        },
    }
}

/// Returns the step that writes `draft` where there is no record, or in place of the one that `replaced` holds
/// for. Writes the parts of its outcome, if it has one that needs parts.
pub(super) async fn put(
    link: &Link,
    draft: &Draft,
    replaced: Option<Guard>,
    (now, doing): (Timestamp, &'static str),
) -> Result<Step, StoreError> {
    let completion = match &draft.state {
        DraftState::Reserved { .. } => Vec::new(),
        DraftState::Completed { outcome } => {
            parts::complete(link, draft.id, outcome, draft.retention, (now, doing)).await?
        }
    };
    let item = items::item(link.shards, draft, completion, now);
    let Some(guard) = replaced else { return Ok(Step::put_new(link, item)) };
    let mut terms = Terms::default();
    let condition = condition(&mut terms, guard, false);
    Ok(Step::put(link, item, condition, &terms))
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
            let about = audit::of_record(id);
            let at = now.minus(change.audited_ago());
            audit::send(link, &about, vec![step.in_transaction()], entry, (at, SWAPPING)).await?
        }
    };
    let found = match sent {
        Transaction::Done => return Ok(Swapped::Done(now)),
        Transaction::Refused(_, Some(item)) => listing::found(link, item).await?,
        Transaction::Refused(_, None) => None,
    };
    Ok(Swapped::Moved(found.map(Box::new)))
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
            let written = parts::complete(link, id, outcome, *retention, (now, SWAPPING)).await?;
            let change = changes(&mut terms, written);
            Step::update(link, key, change, condition, &terms)
        }
        Change::MarkUncertain { ago } => {
            let since = number(now.minus(*ago).as_millis());
            let uncertain = (STATE, items::state(StateKind::Uncertain));
            let open = text(Shards::name(link.shards.place(id)));
            let written = vec![uncertain, (UNCERTAIN_SINCE, since), (OPEN, open)];
            let change = changes(&mut terms, written);
            Step::update(link, key, change, condition, &terms)
        }
        Change::TakeOver(draft) => {
            if draft.id != id {
                return Err(unsupported(SWAPPING, "the draft is for another record"));
            }
            put(link, draft, Some(guard), (now, SWAPPING)).await?
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
pub(super) fn changes(terms: &mut Terms, written: Attributes) -> String {
    let gone = OF_STATE.into_iter().filter(|name| written.iter().all(|(kept, _)| kept != name));
    let gone: Vec<String> = gone.map(|name| terms.name(name)).collect();
    let set = written.into_iter().map(|(name, value)| terms.is(name, "=", value));
    let set: Vec<String> = set.collect();
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
            let until = seen.lease_until.map(|until| number(until.as_millis()));
            holds.extend(until.map(|until| terms.is(DUE_AT, "=", until)));
            holds
        }
    };
    if must_be_reserved {
        holds.push(terms.is(STATE, "=", items::state(StateKind::Reserved)));
    }
    holds.join(" AND ")
}

/// Returns the record that a refused write found in its place; reads it if the service did not return it.
pub(super) async fn existing(
    link: &Link,
    id: RecordId,
    item: Option<Item>,
) -> Result<Option<Found>, StoreError> {
    match item {
        Some(item) => listing::found(link, item).await,
        None => listing::get(link, id).await,
    }
}
