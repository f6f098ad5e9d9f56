//! Operations on many records, over two stores.

use firstwrite_core::{
    Audited, Found, Page, Query, Record, RecordId, Store, StoreError, UsagePage, UsageSums,
};

/// Returns a page of both, in the order of ids. A record that is in both is shown as it is in the first.
pub(super) async fn list(
    store: &dyn Store,
    other: &dyn Store,
    query: &Query,
) -> Result<Page, StoreError> {
    let first = store.list(query).await?;
    let second = other.list(query).await?;
    // Beyond where a page ends, nothing is known of that store.
    let end = first.next.into_iter().chain(second.next).min();
    let is_known = |record: &Record| end.is_none_or(|end| record.id <= end);
    let mut records: Vec<Record> =
        first.records.into_iter().chain(second.records).filter(is_known).collect();
    // Stable: of two with one id, the first store's stays.
    records.sort_by_key(|record| record.id);
    records.dedup_by_key(|record| record.id);
    let limit = query.limit.min(Query::LIMIT_MAX);
    let is_cut = records.len() > limit;
    records.truncate(limit);
    let last = records.last().map(|record| record.id);
    let next = if is_cut { last } else { end };
    Ok(Page { records, next, now: first.now })
}

/// Sums the usage of both stores. A record that is in both counts once, and only its id tells: so the
/// records are listed, which costs more than a store's own count.
pub(super) async fn usage(
    store: &dyn Store,
    other: &dyn Store,
    after: Option<RecordId>,
    limit: usize,
) -> Result<UsagePage, StoreError> {
    let limit = limit.clamp(1, Query::LIMIT_MAX);
    let page = list(store, other, &Query { tenant: None, state: None, after, limit }).await?;
    let mut sums = UsageSums::default();
    for record in page.records {
        let usage = record.usage();
        sums.count(record.id, record.tenant, usage);
    }
    Ok(UsagePage { next: page.next, ..sums.page(limit) })
}

pub(super) async fn lapsed(
    store: &dyn Store,
    other: &dyn Store,
    limit: usize,
) -> Result<Vec<Found>, StoreError> {
    let mut lapsed = store.lapsed(limit).await?;
    if lapsed.len() < limit {
        lapsed.extend(other.lapsed(limit - lapsed.len()).await?);
    }
    Ok(lapsed)
}

pub(super) async fn reap(
    store: &dyn Store,
    other: &dyn Store,
    limit: usize,
) -> Result<usize, StoreError> {
    let reaped = store.reap(limit).await?;
    if reaped >= limit {
        return Ok(reaped);
    }
    Ok(reaped + other.reap(limit - reaped).await?)
}

/// Merges the audit entries of both stores; an entry that was written to both is returned once.
pub(super) async fn audits(
    store: &dyn Store,
    other: &dyn Store,
    id: RecordId,
) -> Result<Vec<Audited>, StoreError> {
    let mut told = store.audits(id).await?;
    for audited in other.audits(id).await? {
        if told.iter().all(|known| known.entry != audited.entry) {
            told.push(audited);
        }
    }
    told.sort_by_key(|audited| audited.at);
    Ok(told)
}
