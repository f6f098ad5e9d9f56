//! Reads many records: pages for operators, usage sums, audit entries, and the clock.

use std::sync::Arc;

use firstwrite_core::{
    AuditEntry, Audited, Page, Query, Record, RecordId, StateKind, StoreError, Tenant, Timestamp,
    Usage, UsagePage, UsageSums,
};
use tokio_postgres::Row;

use super::Shared;
use super::columns::{Id, Values};
use super::driver_error::DriverError;
use super::link::Link;
use super::rows::{clock_in, column, instant};

/// Maximum number of records that one page examines. A page that finds few among many ends early and says
/// where the next one starts, so that no listing holds a snapshot, and with it dead rows, for long.
const LOOKED_AT_MAX: i64 = 20_000;

/// See [`firstwrite_core::Store::list`].
pub(super) async fn list(shared: &Arc<Shared>, query: &Query) -> Result<Page, StoreError> {
    shared.snapshot("listing records", async |link, now| page(link, query, now).await).await
}

async fn page(link: &Link<'_>, query: &Query, now: Timestamp) -> Result<Page, DriverError> {
    let limit = query.limit.clamp(1, Query::LIMIT_MAX);
    // One more than asked for tells whether there is a next page.
    let row_max = i64::try_from(limit + 1).unwrap_or(i64::MAX);
    let sql = link.sql();
    let Some(from) = query.after.map_or(Some(RecordId::from_bytes([0; 16])), successor) else {
        return Ok(Page { records: Vec::new(), next: None, now });
    };
    let (from, tenant) = (Id(from), query.tenant.as_ref().map(Tenant::as_str));
    let (rows, looked_at_end) = if query.state == Some(StateKind::Uncertain) {
        (link.query(&sql.list_uncertain, &[&from, &tenant, &row_max]).await?, None)
    } else {
        let state = query.state.map(StateKind::as_str);
        let values =
            Values::default().and(from).and(LOOKED_AT_MAX).and(tenant).and(state).and(row_max);
        let rows = link.query(&sql.list_all, &values.parameters()).await?;
        let last = LOOKED_AT_MAX - 1;
        let ids = link.query(&sql.looked_at_end, &[&from, &last]).await?;
        let end = match &ids[..] {
            [last, _behind] => Some(column::<Id>(last, 0)?.0),
            _ => None,
        };
        (rows, end)
    };
    let mut records: Vec<Record> =
        link.read(&rows).await?.into_iter().filter_map(|result| result.record).collect();
    let is_full = records.len() > limit;
    records.truncate(limit);
    let next = if is_full { records.last().map(|record| record.id) } else { looked_at_end };
    Ok(Page { records, next, now })
}

/// See [`firstwrite_core::Store::usage`].
pub(super) async fn usage(
    shared: &Arc<Shared>,
    after: Option<RecordId>,
    limit: usize,
) -> Result<UsagePage, StoreError> {
    const DOING: &str = "counting records";
    let limit = limit.clamp(1, UsagePage::LIMIT_MAX);
    let Some(from) = after.map_or(Some(RecordId::from_bytes([0; 16])), successor) else {
        return Ok(UsagePage::default());
    };
    let row_max = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = shared.read_alone(DOING, &shared.sql.usage, &[&Id(from), &row_max]).await?;
    let mut sums = UsageSums::default();
    for row in &rows {
        let (Id(id), name) = (column(row, 0)?, column::<&str>(row, 1)?);
        match Tenant::new(name) {
            Ok(tenant) => {
                let bytes = u64::try_from(column::<i64>(row, 2)?).unwrap_or_default();
                sums.count(id, tenant, Usage::one(bytes));
            }
            Err(_damaged) => sums.pass(id),
        }
    }
    Ok(sums.page(limit))
}

/// Returns the id directly after `id`, if there is one.
fn successor(id: RecordId) -> Option<RecordId> {
    let next = u128::from_be_bytes(*id.as_bytes()).checked_add(1)?;
    Some(RecordId::from_bytes(next.to_be_bytes()))
}

/// See [`firstwrite_core::Store::audits`].
pub(super) async fn audits(shared: &Arc<Shared>, id: RecordId) -> Result<Vec<Audited>, StoreError> {
    const DOING: &str = "reading audit entries";
    let rows = shared.read_alone(DOING, &shared.sql.audits, &[&Id(id)]).await?;
    rows.iter().map(audited).collect()
}

/// See [`firstwrite_core::Store::now`].
pub(super) async fn now(shared: &Arc<Shared>) -> Result<Timestamp, StoreError> {
    let now = clock_in(&shared.read_alone("reading the clock", &shared.sql.now, &[]).await?)?;
    shared.clock.heard(now);
    Ok(now)
}

pub(super) fn audited(row: &Row) -> Result<Audited, StoreError> {
    Ok(Audited {
        at: instant(row, 0)?,
        entry: AuditEntry {
            actor: column(row, 1)?,
            action: column(row, 2)?,
            reason: column(row, 3)?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_id_has_no_successor() {
        assert_eq!(successor(RecordId::from_bytes([255; 16])), None);
        let mut next = [0; 16];
        next[14] = 1;
        let mut id = [0; 16];
        id[15] = 255;
        assert_eq!(successor(RecordId::from_bytes(id)), Some(RecordId::from_bytes(next)));
    }
}
