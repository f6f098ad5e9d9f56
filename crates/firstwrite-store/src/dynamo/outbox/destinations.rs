//! Destinations: pauses, openings of their breakers, and counts. One item each.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_sdk_dynamodb::types::TransactWriteItem;
use firstwrite_core::outbox::{
    ClaimRequest, DestinationChange, DestinationView, Gate, OpeningChange, PauseChange, Tallies,
};
use firstwrite_core::{AuditEntry, Audited, Certainty, RecordId, StoreError, Timestamp, lock};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::super::audit;
use super::super::driver_error::{corrupt, unavailable};
use super::super::items::{ID, Item, blob, instant, integer, key, number, optional, string, text};
use super::super::link::Link;
use super::super::partition::Partition;
use super::super::write::{self, Step, Terms, Transaction};
use super::apply::TRIES_MAX;
use super::message::count;
use super::queue;

const DOING: &str = "changing a destination";
const COUNTING: &str = "counting messages";

const ALL: &str = "destinations";
const PAUSED_AT: &str = "paused_at";
const PAUSED_BY: &str = "paused_by";
const PAUSED_ACTION: &str = "paused_action";
const PAUSED_REASON: &str = "paused_reason";
const OPEN_UNTIL: &str = "open_until";
const OPEN_CAUSE: &str = "open_cause";
const OPENING_COUNT: &str = "opening_count";

/// Maximum number of destinations that are asked concurrently, each in all shards of its queue.
const AT_ONCE: usize = 4;

/// Returns the name of the attribute that holds the count of this kind.
pub(super) fn count_name(kind: &str) -> String {
    format!("{kind}_count")
}

pub(super) fn key_of(destination: &str) -> Item {
    key(ALL, destination.as_bytes())
}

/// Gate of a destination, and the time until which it is left alone, or was.
pub(super) type Opening = (Gate, Option<Timestamp>);

/// Reads what may be claimed for each destination. One that cannot be read is closed, since it may be paused.
pub(super) async fn gates(
    link: &Link,
    requests: &[ClaimRequest],
    now: Timestamp,
) -> Result<Vec<Opening>, StoreError> {
    let mut keys: Vec<&str> = requests.iter().map(|request| &*request.destination).collect();
    keys.sort_unstable();
    keys.dedup();
    let keys: Vec<Item> = keys.into_iter().map(key_of).collect();
    let mut read: HashMap<Vec<u8>, Opening> = HashMap::new();
    for item in link.items_at(&keys, "claiming messages").await? {
        let gate = gate(&item, now).unwrap_or_else(|error| {
            tracing::warn!(%error, "a destination cannot be read");
            (Gate::Closed, None)
        });
        read.insert(blob(&item, ID)?.to_vec(), gate);
    }
    let gate = |request: &ClaimRequest| {
        read.get(request.destination.as_bytes()).copied().unwrap_or((Gate::Open, None))
    };
    Ok(requests.iter().map(gate).collect())
}

fn gate(item: &Item, now: Timestamp) -> Result<Opening, StoreError> {
    if item.contains_key(PAUSED_AT) {
        return Ok((Gate::Closed, None));
    }
    let open_until = optional(item, OPEN_UNTIL, instant)?;
    Ok((Gate::of(open_until, now), open_until))
}

/// Returns the step that goes with the claim of a trial. It closes the destination again for as long as the claim
/// lasts, so that only one worker makes the trial.
pub(super) fn trial(
    link: &Link,
    request: &ClaimRequest,
    (gate, since): Opening,
    now: Timestamp,
) -> Option<TransactWriteItem> {
    let since = since.filter(|_| gate == Gate::Trial)?;
    let mut terms = Terms::default();
    let is_due = terms.is(OPEN_UNTIL, "=", number(since.as_millis()));
    let until = now.plus(request.lease_for).as_millis();
    let change = format!("SET {}", terms.is(OPEN_UNTIL, "=", number(until)));
    let key = key_of(&request.destination);
    Some(Step::update(link, key, change, is_due, &terms).in_transaction())
}

/// See [`firstwrite_core::outbox::Outbox::put_destination`].
pub(super) async fn put(
    link: &Link,
    destination: &str,
    change: &DestinationChange,
) -> Result<(), StoreError> {
    link.writable(DOING)?;
    for _ in 0..TRIES_MAX {
        let now = link.now();
        let open_until = if change.opening == Some(OpeningChange::TrialNow) {
            let item = link.item_at(key_of(destination), DOING).await?;
            item.map_or(Ok(None), |item| optional(&item, OPEN_UNTIL, instant))?
        } else {
            None
        };
        let step = step(link, destination, change, (open_until, now));
        let steps = vec![step.in_transaction()];
        let ended = if let Some(entry) = &change.audit {
            let about = audit::of_record(RecordId::of_destination(destination));
            audit::send(link, &about, steps, entry, (now, DOING)).await?
        } else {
            write::transact(link, &steps, &write::new_token(), DOING).await?
        };
        match ended {
            Transaction::Done => return Ok(()),
            Transaction::Refused(..) => {}
        }
    }
    Err(unavailable(DOING, "a destination does not stand still"))
}

/// The step that writes a change. A trial at once is made of the `open_until` that was read, and on the
/// condition that it stays.
fn step(
    link: &Link,
    destination: &str,
    change: &DestinationChange,
    (open_until, now): (Option<Timestamp>, Timestamp),
) -> Step {
    let mut terms = Terms::default();
    let (mut set, mut gone, mut condition) = (Vec::new(), Vec::new(), None);
    match &change.pause {
        Some(PauseChange::Paused(by)) => set.extend([
            terms.is(PAUSED_AT, "=", number(now.as_millis())),
            terms.is(PAUSED_BY, "=", text(&by.actor)),
            terms.is(PAUSED_ACTION, "=", text(&by.action)),
            terms.is(PAUSED_REASON, "=", text(&by.reason)),
        ]),
        Some(PauseChange::Resumed) => {
            let paused = [PAUSED_AT, PAUSED_BY, PAUSED_ACTION, PAUSED_REASON];
            gone.extend(paused.map(|name| terms.name(name)));
        }
        None => {}
    }
    match (&change.opening, open_until) {
        (Some(OpeningChange::Open { open_for, cause, opening_count }), _) => set.extend([
            terms.is(OPEN_UNTIL, "=", number(now.plus(*open_for).as_millis())),
            terms.is(OPEN_CAUSE, "=", text(cause)),
            terms.is(OPENING_COUNT, "=", number((*opening_count).into())),
        ]),
        (Some(OpeningChange::TrialNow), Some(until)) => {
            set.push(terms.is(OPEN_UNTIL, "=", number(until.min(now).as_millis())));
            condition = Some(terms.is(OPEN_UNTIL, "=", number(until.as_millis())));
        }
        (Some(OpeningChange::TrialNow), None) => {
            condition = Some(format!("attribute_not_exists({})", terms.name(OPEN_UNTIL)));
        }
        (Some(OpeningChange::Closed), _) => {
            gone.extend([OPEN_UNTIL, OPEN_CAUSE, OPENING_COUNT].map(|name| terms.name(name)));
        }
        (None, _) => {}
    }
    let set = (!set.is_empty()).then(|| format!("SET {}", set.join(", ")));
    let gone = (!gone.is_empty()).then(|| format!("REMOVE {}", gone.join(", ")));
    let changes: Vec<String> = set.into_iter().chain(gone).collect();
    let (key, changes) = (key_of(destination), changes.join(" "));
    match condition {
        Some(condition) => Step::update(link, key, changes, condition, &terms),
        None => Step::set(link, key, changes, &terms),
    }
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

/// Differences of the number of messages of each destination in each state that are not written yet.
///
/// A process adds up its changes in memory and writes them now and then, outside the transactions of messages, which
/// would otherwise all contend for one item. A process that dies therefore loses its last differences. Upkeep recounts
/// the messages that are under way.
#[derive(Debug, Default)]
pub(in super::super) struct Counts {
    noted: Mutex<Tallies>,
    /// One call at a time writes what all have noted until then.
    writing: tokio::sync::Mutex<()>,
    is_awaited: AtomicBool,
}

impl Counts {
    pub(in super::super) fn note(&self, change: impl FnOnce(&mut Tallies)) {
        change(&mut lock(&self.noted));
    }

    /// Returns true if no call is about to write the counts yet; the caller then has to write them.
    pub(super) fn await_writing(&self) -> bool {
        !self.is_awaited.swap(true, Ordering::AcqRel)
    }

    /// Writes the differences. What cannot be written now is written next time, unless it may have been.
    pub(super) async fn write(&self, link: &Link) -> Result<(), StoreError> {
        let _turn = self.writing.lock().await;
        self.is_awaited.store(false, Ordering::Release);
        let mut taken = Tallies::default();
        self.note(|noted| std::mem::swap(noted, &mut taken));
        let mut failure = None;
        for (destination, differences) in by_destination(&taken) {
            let Err(error) = add_counts(link, &destination, &differences).await else { continue };
            if error.certainty() == Certainty::Definite {
                self.note(|noted| noted.put_back(&taken, &destination));
            }
            failure = Some(error);
        }
        failure.map_or(Ok(()), Err)
    }
}

/// Differences to add, each with the name of its count.
pub(super) type Differences = Vec<(&'static str, i64)>;

fn by_destination(tallies: &Tallies) -> Vec<(String, Differences)> {
    let mut grouped: Vec<(String, Differences)> = Vec::new();
    for (destination, tally, difference) in tallies.differences() {
        let kind = tally.as_str();
        match grouped.last_mut() {
            Some((last, differences)) if last == destination => {
                differences.push((kind, difference));
            }
            _ => grouped.push((destination.to_owned(), vec![(kind, difference)])),
        }
    }
    grouped
}

/// Adds to what a destination counts.
pub(super) async fn add_counts(
    link: &Link,
    destination: &str,
    differences: &[(&'static str, i64)],
) -> Result<(), StoreError> {
    let mut terms = Terms::default();
    let added = differences.iter().map(|(kind, difference)| {
        format!("{} {}", terms.name(&count_name(kind)), terms.value(number(*difference)))
    });
    let change = format!("ADD {}", added.collect::<Vec<_>>().join(", "));
    let step = Step::set(link, key_of(destination), change, &terms);
    write::send(link, step, COUNTING).await.map(drop)
}
