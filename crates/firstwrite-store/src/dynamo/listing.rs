//! Reads records: one record, pages for operators, usage sums, lapsed leases for the sweep.
//!
//! Shards are in the order of ids, so a walk goes through one after the other. Reserved and uncertain
//! records are found through an index, which may lag by a moment: records that it names are read again, and
//! those that it does not name yet are found by the next look-up.

use firstwrite_core::{
    Found, Page, Query, Record, RecordId, StateKind, StoreError, Usage, UsagePage, UsageSums,
};

use super::items::{
    self, DUE_AT, ID, Item, OPEN, OUTCOME_BYTES, SHARD, STATE, Shards, bytes, id_of, integer,
    kind_of, number, tenant_of, text,
};
use super::link::Link;
use super::parts;
use super::table::OPEN_INDEX;
use super::write::Terms;

/// Maximum number of times that a record is read if the parts of its outcome were replaced meanwhile.
const TRIES_MAX: usize = 3;

/// Maximum number of answers in one page; each holds up to a megabyte. A page that finds few among many
/// ends early and says where the next one starts.
const ANSWERS_MAX: usize = 40;

/// Route of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// Through all records, as they are at this moment.
    Records,
    /// Through all records, as they were a moment ago: half the price.
    RecordsLately,
    /// Through the index of those that are reserved or uncertain.
    Open,
}

/// A walk through shards, one answer at a time.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    path: Path,
    shard: u16,
    after: Option<RecordId>,
}

/// The next request of a walk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    /// Maximum number of records to examine.
    pub(super) limit: usize,
    /// Attributes to return; all of them if none is named.
    pub(super) shown: &'a [&'a str],
    pub(super) doing: &'static str,
}

impl Walk {
    pub(super) fn new(link: &Link, path: Path, after: Option<RecordId>) -> Self {
        Self { path, shard: after.map_or(0, |id| link.shards.place(id)), after }
    }

    /// Returns true if nothing more is left to request.
    pub(super) fn is_over(&self, link: &Link) -> bool {
        self.shard >= link.shards.0
    }

    /// Requests the next answer: of the records examined, those that pass `filter`.
    pub(super) async fn step(
        &mut self,
        link: &Link,
        ask: Ask<'_>,
        filter: impl FnOnce(&mut Terms) -> Option<String>,
    ) -> Result<Vec<Item>, StoreError> {
        let Ask { limit, shown, doing } = ask;
        let mut terms = Terms::default();
        let hash = if self.path == Path::Open { OPEN } else { SHARD };
        let mut which = terms.is(hash, "=", text(Shards::name(self.shard)));
        if let Some(after) = self.after {
            let behind = terms.is(ID, ">", bytes(after.as_bytes()));
            which = format!("{which} AND {behind}");
        }
        let filter = filter(&mut terms);
        let shown: Vec<String> = shown.iter().map(|name| terms.name(name)).collect();
        let asked = link
            .client
            .query()
            .table_name(link.table())
            .set_index_name((self.path == Path::Open).then(|| OPEN_INDEX.to_owned()))
            .key_condition_expression(which)
            .set_filter_expression(filter)
            .set_projection_expression((!shown.is_empty()).then(|| shown.join(", ")))
            .set_expression_attribute_names(terms.names())
            .set_expression_attribute_values(terms.values())
            .consistent_read(self.path == Path::Records)
            .limit(i32::try_from(limit.max(1)).unwrap_or(i32::MAX));
        let answer = asked.send().await.map_err(|error| link.error(&error).of_read(doing))?;
        if let Some(key) = &answer.last_evaluated_key {
            self.after = Some(id_of(key)?);
        } else {
            self.shard += 1;
            self.after = None;
        }
        Ok(answer.items.unwrap_or_default())
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
            Ok(outcome) => return items::found(&item, outcome.as_deref(), link.now()).map(Some),
            Err(error) if error.is_retryable() => return Err(error),
            Err(_replaced_or_damaged) => match link.item(id, "looking a record up").await? {
                Some(again) => item = again,
                None => return Ok(None),
            },
        }
    }
    let outcome = parts::load(link, &item).await?;
    items::found(&item, outcome.as_deref(), link.now()).map(Some)
}

/// See [`firstwrite_core::Store::list`].
pub(super) async fn list(link: &Link, query: &Query) -> Result<Page, StoreError> {
    const DOING: &str = "listing records";
    let limit = query.limit.clamp(1, Query::LIMIT_MAX);
    let path = match query.state {
        // Open records are few and have an index.
        Some(StateKind::Reserved | StateKind::Uncertain) => Path::Open,
        Some(StateKind::Completed) | None => Path::Records,
    };
    let is_wanted = |record: &Record| {
        query.state.is_none_or(|state| record.state.kind() == state)
            && query.tenant.as_ref().is_none_or(|tenant| record.tenant == *tenant)
    };
    let mut walk = Walk::new(link, path, query.after);
    let mut records: Vec<Record> = Vec::new();
    let mut last_looked_at = query.after;
    for _ in 0..ANSWERS_MAX.max(link.shards.0.into()) {
        if walk.is_over(link) || records.len() > limit {
            break;
        }
        // One more than asked for tells whether there is a next page.
        let missing = limit + 1 - records.len();
        let is_whole = query.state.is_none() && query.tenant.is_none();
        let looked_at = if is_whole { missing } else { Query::LIMIT_MAX };
        let shown: &[&str] = if path == Path::Open { &[ID] } else { &[] };
        let filter = |terms: &mut Terms| filter(terms, path, query);
        let ask = Ask { limit: looked_at, shown, doing: DOING };
        let answer = walk.step(link, ask, filter).await?;
        let answer = match path {
            Path::Open => read_again(link, &answer, DOING).await?,
            Path::Records | Path::RecordsLately => answer,
        };
        for item in answer {
            if records.len() > limit {
                break;
            }
            if let Some(Found { record, .. }) = found(link, item).await?
                && is_wanted(&record)
            {
                records.push(record);
            }
        }
        last_looked_at = walk.after.or(last_looked_at);
    }
    let is_full = records.len() > limit;
    records.truncate(limit);
    let next = match (is_full, walk.is_over(link)) {
        (true, _) => records.last().map(|record| record.id),
        (false, true) => None,
        // It ended early, in the middle of a shard or between two.
        (false, false) => Some(between(link, &walk, last_looked_at)),
    };
    Ok(Page { records, next, now: link.now() })
}

/// Returns an id after which all records lie that the walk has not examined.
fn between(link: &Link, walk: &Walk, last: Option<RecordId>) -> RecordId {
    let end = walk.after.unwrap_or_else(|| link.shards.end(walk.shard.saturating_sub(1)));
    last.map_or(end, |last| last.max(end))
}

/// Builds the filter by which the service sends fewer items. It still reads all of them.
fn filter(terms: &mut Terms, path: Path, query: &Query) -> Option<String> {
    let mut holds = Vec::new();
    if let Some(state) = query.state {
        holds.push(terms.is(STATE, "=", items::state(state)));
    }
    if let (Some(tenant), Path::Records) = (&query.tenant, path) {
        holds.push(terms.is(items::TENANT, "=", text(tenant.as_str())));
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
    let mut walk = Walk::new(link, Path::RecordsLately, after);
    let mut sums = UsageSums::default();
    let mut count = 0;
    for _ in 0..ANSWERS_MAX.max(link.shards.0.into()) {
        if walk.is_over(link) || count >= limit {
            break;
        }
        let shown = [ID, items::TENANT, OUTCOME_BYTES];
        let ask = Ask { limit: limit - count, shown: &shown, doing: "counting records" };
        let answer = walk.step(link, ask, |_| None).await?;
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

/// See [`firstwrite_core::Store::lapsed`].
pub(super) async fn lapsed(link: &Link, limit: usize) -> Result<Vec<Found>, StoreError> {
    const DOING: &str = "looking for lapsed leases";
    let limit = limit.min(Query::LIMIT_MAX);
    let mut walk = Walk::new(link, Path::Open, None);
    let mut lapsed: Vec<Found> = Vec::new();
    for _ in 0..ANSWERS_MAX.max(link.shards.0.into()) {
        if walk.is_over(link) || lapsed.len() >= limit {
            break;
        }
        let now = link.now();
        let filter = |terms: &mut Terms| {
            let is_reserved = terms.is(STATE, "=", items::state(StateKind::Reserved));
            let is_due = terms.is(DUE_AT, "<=", number(now.as_millis()));
            Some(format!("{is_reserved} AND {is_due}"))
        };
        // The index is narrow: a megabyte of it is thousands of records.
        let ask = Ask { limit: 10_000, shown: &[ID], doing: DOING };
        let answer = walk.step(link, ask, filter).await?;
        let missing = limit - lapsed.len();
        let named = &answer[..answer.len().min(missing)];
        for item in read_again(link, named, DOING).await? {
            let Some(found) = found(link, item).await? else { continue };
            if found.record.state.lease_until().is_some_and(|until| until <= found.now) {
                lapsed.push(found);
            }
        }
    }
    Ok(lapsed)
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
