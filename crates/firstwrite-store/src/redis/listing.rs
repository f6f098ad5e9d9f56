//! Reads many records, and deletes those past their time.

use std::collections::BTreeMap;

use firstwrite_core::{
    Audited, Found, Page, Query, RecordId, StateFilter, StoreError, Timestamp, UsagePage, UsageSums,
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use redis::{Cmd, Value};

use super::driver_error::{DriverError, corrupt};
use super::history_loss::{AT_ONCE, each};
use super::keys::Shard;
use super::link::{bytes, instant_of, parts};
use super::moves::get;
use super::record::{self, COUNTED_BYTES, instant};
use super::routing::Router;
use super::scripts::{Call, CommandArgs, Script};

const LISTING: &str = "listing records";
pub(super) const REAPING: &str = "reaping records";

/// Maximum number of records that one page examines; a page that finds too few says where the next one
/// starts.
const LOOKED_AT_MAX: usize = 20_000;
/// Number of ids fetched at a time.
const IDS_MAX: usize = 500;

/// A walk over all ids in their order.
struct Walk<'a> {
    router: &'a Router,
    shard: Option<Shard>,
    after: Option<RecordId>,
}

/// See [`firstwrite_core::Store::list`].
pub(super) async fn list(router: &Router, query: &Query) -> Result<Page, StoreError> {
    let limit = query.limit.clamp(1, Query::LIMIT_MAX);
    if query.state == Some(StateFilter::Lapsed) {
        return lapsed(router, query, limit).await;
    }
    let now = now(router).await?;
    let mut walk = Walk::new(router, query.after);
    let (mut records, mut looked_at, mut last) = (Vec::new(), 0, None);
    while let Some(ids) = walk.next(IDS_MAX.min(limit + 1)).await? {
        looked_at += ids.len();
        for found in get_all(router, ids.clone()).await? {
            let record = found.record;
            if !query.selects(&record, now) {
                continue;
            }
            if records.len() == limit {
                let next = records.last().map(|record: &firstwrite_core::Record| record.id);
                return Ok(Page { records, next, now });
            }
            records.push(record);
        }
        last = ids.last().copied().or(last);
        if looked_at >= LOOKED_AT_MAX {
            return Ok(Page { records, next: last, now });
        }
    }
    Ok(Page { records, next: None, now })
}

/// See [`firstwrite_core::Store::usage`].
pub(super) async fn usage(
    router: &Router,
    after: Option<RecordId>,
    limit: usize,
) -> Result<UsagePage, StoreError> {
    let limit = limit.clamp(1, UsagePage::LIMIT_MAX);
    let mut walk = Walk::new(router, after);
    let (mut sums, mut left) = (UsageSums::default(), limit);
    while left > 0
        && let Some(ids) = walk.next(IDS_MAX.min(left)).await?
    {
        left -= ids.len();
        let counted = stream::iter(ids.into_iter().map(|id| count(router, id))).buffered(AT_ONCE);
        let counted: Vec<(RecordId, Option<RecordUsage>)> = counted.try_collect().await?;
        for (id, counted) in counted {
            match counted {
                Some(Ok((tenant, usage))) => sums.count(id, tenant, usage),
                // Damage to one record must not hide the others; records that are gone meanwhile are
                // skipped too.
                Some(Err(_)) | None => sums.pass(id),
            }
        }
    }
    Ok(sums.page(limit))
}

/// Each shard's own clock decides what has lapsed; the page carries the latest of them.
async fn lapsed(router: &Router, query: &Query, limit: usize) -> Result<Page, StoreError> {
    // Of other tenants' records as many may be due.
    let due_max = if query.tenant.is_some() { Query::LIMIT_MAX } else { limit };
    let ids = due(router, due_max, b'r').await?;
    let mut page = Page { records: Vec::new(), next: None, now: now(router).await? };
    for Found { record, now } in get_all(router, ids).await? {
        if query.selects(&record, now) && page.records.len() < limit {
            page.now = page.now.max(now);
            page.records.push(record);
        }
    }
    Ok(page)
}

/// See [`firstwrite_core::Store::reap`].
pub(super) async fn reap(router: &Router, limit: usize) -> Result<usize, StoreError> {
    let ids = due(router, limit, b'c').await?;
    let reaped = stream::iter(ids.into_iter().map(|id| reap_one(router, id))).buffered(AT_ONCE);
    let reaped: Vec<usize> = reaped.try_collect().await?;
    Ok(reaped.into_iter().sum())
}

/// See [`firstwrite_core::Store::audits`].
pub(super) async fn audits(router: &Router, id: RecordId) -> Result<Vec<Audited>, StoreError> {
    let mut command = redis::cmd("LRANGE");
    command.arg(router.keys.audits(id)).arg(0).arg(-1);
    let Value::Array(entries) = ask(router, Shard::of(id), &command).await? else {
        return Err(corrupt("audit entries are no list"));
    };
    entries.iter().filter_map(bytes).map(record::decode_audit).collect()
}

/// See [`firstwrite_core::Store::now`].
pub(super) async fn now(router: &Router) -> Result<Timestamp, StoreError> {
    if let Some(clock) = &router.address.options.clock {
        // A store that cannot be reached has no time to tell.
        ask(router, Shard(0), &redis::cmd("PING")).await?;
        return Ok(clock());
    }
    let value = ask(router, Shard(0), &redis::cmd("TIME")).await?;
    let wrong = || corrupt("the server does not tell the time");
    let Value::Array(parts) = value else { return Err(wrong()) };
    let number = |value: &Value| str::from_utf8(bytes(value)?).ok()?.parse::<i64>().ok();
    match parts.iter().map(number).collect::<Option<Vec<_>>>().as_deref() {
        Some([seconds, micros]) => Ok(Timestamp::from_millis(seconds * 1000 + micros / 1000)),
        _ => Err(wrong()),
    }
}

type RecordUsage = Result<(firstwrite_core::Tenant, firstwrite_core::Usage), StoreError>;

/// Reads the tenant and the counted size of a record, without its body.
async fn count(
    router: &Router,
    id: RecordId,
) -> Result<(RecordId, Option<RecordUsage>), StoreError> {
    let (shard, key) = (Shard::of(id), router.keys.record(id));
    let mut start = redis::cmd("GETRANGE");
    start.arg(&key).arg(0).arg(COUNTED_BYTES - 1);
    let mut length = redis::cmd("STRLEN");
    length.arg(&key);
    let (start, length) = match tokio::join!(router.ask(shard, &start), router.ask(shard, &length))
    {
        (Ok(start), Ok(length)) => (start, length),
        (Err(error), _) | (_, Err(error)) if error.code() == Some("WRONGTYPE") => {
            return Ok((id, Some(Err(corrupt("a record is no string")))));
        }
        (Err(error), _) | (_, Err(error)) => return Err(error.read_error(LISTING)),
    };
    let (Some(start), Value::Int(length)) = (bytes(&start), length) else {
        return Err(corrupt("a record is no string"));
    };
    if length == 0 {
        return Ok((id, None));
    }
    Ok((id, Some(record::count(start, u64::try_from(length).unwrap_or_default()))))
}

async fn reap_one(router: &Router, id: RecordId) -> Result<usize, StoreError> {
    let keys = router.keys.moved(id);
    let call = Call { script: Script::Reap, keys, args: [id.as_bytes()].into() };
    let answer = router.run(Shard::of(id), |_link| call.clone()).await;
    let answer = answer.map_err(|error| error.error(REAPING))?;
    Ok(usize::from(answer == Value::Int(1)))
}

/// Returns up to `limit` ids of due records in `state`, one of each shard in turn.
async fn due(router: &Router, limit: usize, state: u8) -> Result<Vec<RecordId>, StoreError> {
    let limit = limit.clamp(1, Query::LIMIT_MAX);
    let answers: Vec<Vec<RecordId>> = each(Shard::all(), |shard| {
        let keys = &router.keys;
        let index = if state == b'r' { keys.leases(shard) } else { keys.kept(shard) };
        let call = Call {
            script: Script::Due,
            keys: [index, keys.journal(shard)].into(),
            args: [limit.to_string()].into(),
        };
        async move {
            let answer = router.run(shard, |_link| call.clone()).await;
            let [now, ids, journal] = parts(answer.map_err(|error| error.read_error(LISTING))?)?;
            let journal = Journal::read(&journal)?;
            Ok::<_, StoreError>(journal.due(read_ids(&ids)?, state, instant_of(&now)?))
        }
    })
    .await?;
    // In turn, so that no shard waits for another to be empty.
    let deepest = answers.iter().map(Vec::len).max().unwrap_or_default();
    let in_turn = (0..deepest)
        .flat_map(|place| answers.iter().filter_map(move |ids| ids.get(place).copied()));
    Ok(in_turn.take(limit).collect())
}

async fn get_all(router: &Router, ids: Vec<RecordId>) -> Result<Vec<Found>, StoreError> {
    let found = stream::iter(ids.into_iter().map(|id| get(router, id))).buffered(AT_ONCE);
    let found: Vec<Option<Found>> = found.try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}

impl<'a> Walk<'a> {
    fn new(router: &'a Router, after: Option<RecordId>) -> Self {
        let shard = after.map_or(Shard(0), Shard::of);
        Self { router, shard: Some(shard), after }
    }

    /// The next ids, at most `limit`; `None` at the end. Empty shards are passed many at a time.
    async fn next(&mut self, limit: usize) -> Result<Option<Vec<RecordId>>, StoreError> {
        while let Some(first) = self.shard {
            // A store with few records has few in every shard.
            let shards = (first.0..=u8::MAX).take(AT_ONCE).map(Shard);
            let limit_each = limit.div_ceil(2).max(8);
            let after = self.after;
            let router = self.router;
            let batches: Vec<Vec<RecordId>> = each(shards, |shard| {
                let after = after.filter(|after| Shard::of(*after) == shard);
                ids_of(router, shard, after, limit_each)
            })
            .await?;
            let mut ids: Vec<RecordId> = Vec::new();
            for (place, batch) in (first.0..=u8::MAX).zip(batches) {
                let is_full = batch.len() >= limit_each;
                ids.extend(batch);
                if ids.len() >= limit {
                    ids.truncate(limit);
                    self.after = ids.last().copied();
                    self.shard = self.after.map(Shard::of);
                    return Ok(Some(ids));
                }
                if is_full {
                    self.after = ids.last().copied();
                    self.shard = Some(Shard(place));
                    return Ok(Some(ids));
                }
                self.shard = place.checked_add(1).map(Shard);
            }
            if !ids.is_empty() {
                self.after = None;
                return Ok(Some(ids));
            }
        }
        Ok(None)
    }
}

async fn ids_of(
    router: &Router,
    shard: Shard,
    after: Option<RecordId>,
    limit: usize,
) -> Result<Vec<RecordId>, StoreError> {
    let from = match after {
        Some(id) => [&b"("[..], id.as_bytes()].concat(),
        None => b"-".to_vec(),
    };
    let mut args = CommandArgs::from([from]);
    args.push(limit.to_string());
    let keys = [router.keys.ids(shard), router.keys.journal(shard)].into();
    let call = Call { script: Script::Ids, keys, args };
    let answer = router.run(shard, |_link| call.clone()).await;
    let [ids, journal] = parts(answer.map_err(|error| error.read_error(LISTING))?)?;
    Ok(Journal::read(&journal)?.list(read_ids(&ids)?, after, limit))
}

fn read_ids(value: &Value) -> Result<Vec<RecordId>, StoreError> {
    let wrong = || corrupt("an index holds what is no id");
    let Value::Array(members) = value else { return Err(wrong()) };
    let id =
        |member| bytes(member).and_then(|bytes| bytes.try_into().ok()).map(RecordId::from_bytes);
    members.iter().map(|member| id(member).ok_or_else(wrong)).collect()
}

async fn ask(router: &Router, shard: Shard, command: &Cmd) -> Result<Value, StoreError> {
    router.ask(shard, command).await.map_err(|error: DriverError| error.read_error(LISTING))
}

/// Index updates of a shard that have not been applied yet, the last of each record; see `journal.lua`.
struct Journal(BTreeMap<RecordId, JournalEntry>);

struct JournalEntry {
    /// `r`eserved, `c`ompleted, `u`ncertain, or `x`: deleted.
    state: u8,
    due: Timestamp,
}

impl Journal {
    fn read(value: &Value) -> Result<Self, StoreError> {
        let wrong = || corrupt("a shard's journal cannot be read");
        let Value::Array(entries) = value else { return Err(wrong()) };
        let mut last = BTreeMap::new();
        for entry in entries {
            let entry = bytes(entry).ok_or_else(wrong)?;
            let (id, rest) = entry.split_first_chunk::<16>().ok_or_else(wrong)?;
            let (state, due) = rest.split_first().ok_or_else(wrong)?;
            let due = instant(due.try_into().map_err(|_length| wrong())?)?;
            last.insert(
                RecordId::from_bytes(*id),
                JournalEntry { state: state.to_ascii_lowercase(), due },
            );
        }
        Ok(Self(last))
    }

    /// Adds the missing ids to `ids`, the first `limit` of an index after `after`.
    fn list(&self, ids: Vec<RecordId>, after: Option<RecordId>, limit: usize) -> Vec<RecordId> {
        let is_asked_for = |id: &RecordId| after.is_none_or(|after| *id > after);
        let mut all: Vec<RecordId> = self.0.keys().copied().filter(is_asked_for).collect();
        all.extend(ids);
        all.sort_unstable();
        all.dedup();
        // The index may have more ids beyond those that it returned.
        all.truncate(limit);
        all
    }

    /// Corrects the records in `state` that are due at `now`; `ids` are those of the index.
    fn due(&self, ids: Vec<RecordId>, state: u8, now: Timestamp) -> Vec<RecordId> {
        let mut all: Vec<RecordId> =
            ids.into_iter().filter(|id| !self.0.contains_key(id)).collect();
        let is_due = |noted: &JournalEntry| noted.state == state && noted.due <= now;
        let mut noted: Vec<_> = self.0.iter().filter(|(_, noted)| is_due(noted)).collect();
        noted.sort_by_key(|(_, noted)| noted.due);
        all.extend(noted.into_iter().map(|(id, _)| *id));
        all
    }
}
