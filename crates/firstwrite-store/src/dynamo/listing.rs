//! Reads records: one record, pages for operators, usage sums, lapsed leases for the sweep; and deletes those
//! past their time.
//!
//! Shards are in the order of ids, so a walk goes through one after the other. Reserved and uncertain
//! records are found through an index, which may lag by a moment: records that it names are read again, and
//! those that it does not name yet are found by the next look-up.

use firstwrite_core::{
    Found, Page, Query, Record, RecordId, StateFilter, StateKind, StoreError, Timestamp, Usage,
    UsagePage, UsageSums,
};
use futures_util::{StreamExt as _, stream};
use tokio::sync::Mutex;

use super::items::{
    self, DUE_AT, FENCE, ID, Item, OUTCOME_BYTES, PARTS, STATE, Shards, TENANT, fence_of, id_of,
    integer, kind_of, number, record_id, tenant_of, text,
};
use super::link::Link;
use super::partition::{Partition, Source};
use super::parts::{self, Parts};
use super::write::{self, Step, Terms};

/// Maximum number of times that a record is read if the parts of its outcome were replaced meanwhile.
const TRIES_MAX: usize = 3;

/// Maximum number of answers in one page; each holds up to a megabyte. A page that finds few among many
/// ends early and says where the next one starts.
const ANSWERS_MAX: usize = 40;

/// A walk through the shards of all records, one answer at a time.
#[derive(Clone, Debug)]
struct Walk {
    source: Source,
    shard: u16,
    after: Option<RecordId>,
}

impl Walk {
    fn new(link: &Link, source: Source, after: Option<RecordId>) -> Self {
        Self { source, shard: after.map_or(0, |id| link.shards.place(id)), after }
    }

    /// Returns true if nothing more is left to request.
    fn is_over(&self, link: &Link) -> bool {
        self.shard >= link.shards.0
    }

    /// Requests the next answer: of up to `limit` records examined, those that pass `filter`, with the
    /// attributes that are `shown`.
    async fn step(
        &mut self,
        link: &Link,
        (limit, shown): (usize, &'static [&'static str]),
        doing: &'static str,
        filter: impl FnOnce(&mut Terms) -> Option<String>,
    ) -> Result<Vec<Item>, StoreError> {
        let query = Partition {
            after: self.after.map(|id| id.as_bytes().to_vec()),
            limit: Some(limit),
            shown,
            source: self.source,
            ..Partition::of(Shards::name(self.shard))
        };
        let answer = query.ask(link, doing, filter).await?;
        self.after = answer.ended_at.as_deref().map(record_id).transpose()?;
        if self.after.is_none() {
            self.shard += 1;
        }
        Ok(answer.items)
    }
}

/// See [`firstwrite_core::Store::get`].
pub(super) async fn get(link: &Link, id: RecordId) -> Result<Option<Found>, StoreError> {
    match link.item(id, "looking a record up").await? {
        Some(item) => found(link, item).await,
        None => Ok(None),
    }
}

/// Decodes the record in an item, with its outcome from wherever it is stored. If its parts are gone, the
/// record was replaced since, and is read again.
pub(super) async fn found(link: &Link, mut item: Item) -> Result<Option<Found>, StoreError> {
    let id = id_of(&item)?;
    for _ in 1..TRIES_MAX {
        match parts::load(link, &item).await {
            Ok(outcome) => return read(link, &item, outcome.as_deref()),
            Err(error) if error.is_retryable() => return Err(error),
            Err(_replaced_or_damaged) => match link.item(id, "looking a record up").await? {
                Some(again) => item = again,
                None => return Ok(None),
            },
        }
    }
    let outcome = parts::load(link, &item).await?;
    read(link, &item, outcome.as_deref())
}

fn read(link: &Link, item: &Item, outcome: Option<&[u8]>) -> Result<Option<Found>, StoreError> {
    Ok(Some(Found { record: items::record(item, outcome)?, now: link.now() }))
}

/// See [`firstwrite_core::Store::list`].
pub(super) async fn list(link: &Link, query: &Query) -> Result<Page, StoreError> {
    let is_lapsed = query.state == Some(StateFilter::Lapsed);
    let doing = if is_lapsed { "looking for lapsed leases" } else { "listing records" };
    let limit = query.limit.clamp(1, Query::LIMIT_MAX);
    let (source, shown): (_, &[&str]) = match query.state {
        // Open records are few and have an index.
        Some(StateFilter::Reserved | StateFilter::Lapsed | StateFilter::Uncertain) => {
            (Source::OpenIndex, &[ID])
        }
        Some(StateFilter::Completed) | None => (Source::Table, &[]),
    };
    let mut walk = Walk::new(link, source, query.after.filter(|_| !is_lapsed));
    let mut records: Vec<Record> = Vec::new();
    let mut last_looked_at = query.after;
    for _ in 0..ANSWERS_MAX.max(link.shards.0.into()) {
        if walk.is_over(link) || records.len() > limit {
            break;
        }
        // One more than asked for tells whether there is a next page.
        let missing = limit + 1 - records.len();
        let (looked_at, named_max) = match (query.state, &query.tenant) {
            (None, None) => (missing, missing),
            // The index is narrow: a megabyte of it is thousands of records. The next sweep finds the others.
            (Some(StateFilter::Lapsed), None) => (10_000, missing),
            (Some(_), _) | (None, Some(_)) => (Query::LIMIT_MAX, Query::LIMIT_MAX),
        };
        let now = link.now();
        let filter = |terms: &mut Terms| filter(terms, source, query, now);
        let mut answer = walk.step(link, (looked_at, shown), doing, filter).await?;
        if source == Source::OpenIndex {
            answer.truncate(named_max);
            answer = read_again(link, &answer, doing).await?;
        }
        for item in answer {
            if records.len() > limit {
                break;
            }
            if let Some(Found { record, now }) = found(link, item).await?
                && query.selects(&record, now)
            {
                records.push(record);
            }
        }
        last_looked_at = walk.after.or(last_looked_at);
    }
    // If it is not over, it ended early, in the middle of a shard or between two.
    let end = (!walk.is_over(link)).then(|| between(link, &walk, last_looked_at));
    let page = Page::of(records, limit, end, link.now());
    Ok(if is_lapsed { Page { next: None, ..page } } else { page })
}

/// Returns an id after which all records lie that the walk has not examined.
fn between(link: &Link, walk: &Walk, last: Option<RecordId>) -> RecordId {
    let end = walk.after.unwrap_or_else(|| link.shards.end(walk.shard.saturating_sub(1)));
    last.map_or(end, |last| last.max(end))
}

/// Builds the filter by which the service sends fewer items. It still reads all of them.
fn filter(terms: &mut Terms, source: Source, query: &Query, now: Timestamp) -> Option<String> {
    let mut holds = Vec::new();
    if let Some(state) = query.state {
        holds.push(terms.is(STATE, "=", items::state(state.kind())));
    }
    if query.state == Some(StateFilter::Lapsed) {
        holds.push(terms.is(DUE_AT, "<=", number(now.as_millis())));
    }
    if let (Some(tenant), Source::Table) = (&query.tenant, source) {
        holds.push(terms.is(TENANT, "=", text(tenant.as_str())));
    }
    (!holds.is_empty()).then(|| holds.join(" AND "))
}

/// See [`firstwrite_core::Store::usage`].
pub(super) async fn usage(
    link: &Link,
    after: Option<RecordId>,
    limit: usize,
) -> Result<UsagePage, StoreError> {
    let limit = limit.clamp(1, UsagePage::LIMIT_MAX);
    let mut walk = Walk::new(link, Source::TableLately, after);
    let mut sums = UsageSums::default();
    let mut count = 0;
    for _ in 0..ANSWERS_MAX.max(link.shards.0.into()) {
        if walk.is_over(link) || count >= limit {
            break;
        }
        let shown = &[ID, TENANT, OUTCOME_BYTES];
        let answer = walk.step(link, (limit - count, shown), "counting records", |_| None).await?;
        count += answer.len();
        for item in &answer {
            let bytes = integer(item, OUTCOME_BYTES).ok().and_then(|bytes| bytes.try_into().ok());
            match tenant_of(item) {
                Ok(tenant) => {
                    sums.count(id_of(item)?, tenant, Usage::one(bytes.unwrap_or_default()));
                }
                Err(_damaged) => sums.pass(id_of(item)?),
            }
        }
    }
    // A page that ended early, for the sake of its length, is not the last.
    Ok(sums.page(if walk.is_over(link) { limit } else { count }))
}

/// The records that an answer of the index names, as they are at this moment, in the order of their ids.
async fn read_again(
    link: &Link,
    named: &[Item],
    doing: &'static str,
) -> Result<Vec<Item>, StoreError> {
    let ids = named.iter().map(id_of).collect::<Result<Vec<_>, _>>()?;
    let keys: Vec<Item> = ids.into_iter().map(|id| link.shards.key(id)).collect();
    let mut read = link.items_at(&keys, doing).await?;
    // Damage to one must not hide the others' order.
    read.sort_by_key(|item| id_of(item).ok());
    read.retain(|item| kind_of(item).is_ok());
    Ok(read)
}

/// Position at which the next step of reaping begins.
#[derive(Debug, Default)]
pub(super) struct Reaping {
    walk: Option<Walk>,
}

/// Maximum number of records reaped in one call.
const REAPED_MAX: usize = 500;

/// Maximum number of answers read in one call of reaping, each of up to a megabyte, beyond one for each shard.
const REAP_ANSWERS_MAX: usize = 8;

/// Maximum number of records examined for one answer.
const LOOKED_AT_MAX: usize = 2000;

/// Maximum number of records deleted at a time.
const AT_ONCE: usize = 8;

const REAPING: &str = "reaping records";

/// See [`firstwrite_core::Store::reap`]. The service does the same by itself, free of charge and days late. A
/// cursor walks over all records, so that each call reads a bounded part of them.
pub(super) async fn reap(
    link: &Link,
    reaping: &Mutex<Reaping>,
    limit: usize,
) -> Result<usize, StoreError> {
    link.writable(REAPING)?;
    // One at a time in a process: two would walk the same way.
    let mut reaping = reaping.lock().await;
    let limit = limit.min(REAPED_MAX);
    let mut count = 0;
    for _ in 0..REAP_ANSWERS_MAX + usize::from(link.shards.0) {
        if count >= limit {
            break;
        }
        let from = reaping.walk.take();
        let from = from.unwrap_or_else(|| Walk::new(link, Source::TableLately, None));
        let mut walk = from.clone();
        let now = link.now();
        let filter = |terms: &mut Terms| {
            let is_completed = terms.is(STATE, "=", items::state(StateKind::Completed));
            Some(format!("{is_completed} AND {}", terms.is(DUE_AT, "<=", number(now.as_millis()))))
        };
        let due = walk.step(link, (LOOKED_AT_MAX, &[ID, FENCE, PARTS]), REAPING, filter).await?;
        let room = limit - count;
        let is_more = due.len() > room;
        let deleting =
            due.into_iter().take(room).map(|item| async move { delete(link, &item).await });
        let deleted: Vec<_> = stream::iter(deleting).buffer_unordered(AT_ONCE).collect().await;
        for deleted in deleted {
            count += usize::from(deleted?);
        }
        // What did not fit is found by the same look again.
        let next = if is_more { from } else { walk };
        if next.is_over(link) {
            return Ok(count);
        }
        reaping.walk = Some(next);
    }
    Ok(count)
}

/// Deletes one record, if it is unchanged since it was examined.
async fn delete(link: &Link, item: &Item) -> Result<bool, StoreError> {
    let id = id_of(item)?;
    let mut terms = Terms::default();
    let condition = [
        terms.is(FENCE, "=", items::fence(fence_of(item)?)),
        terms.is(STATE, "=", items::state(StateKind::Completed)),
        terms.is(DUE_AT, "<=", number(link.now().as_millis())),
    ]
    .join(" AND ");
    let step = Step::delete(link, link.shards.key(id), condition, &terms);
    let is_done = write::send(link, step, REAPING).await?.is_done();
    if is_done && let Some(parts) = Parts::of(item)? {
        parts::delete(link, id, parts).await;
    }
    Ok(is_done)
}
