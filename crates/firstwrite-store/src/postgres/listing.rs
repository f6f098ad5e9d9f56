//! Reads many records: pages for operators, usage sums, audit entries, and the clock.

use firstwrite_core::encoding::as_i64;
use firstwrite_core::{
    Audited, Page, Query, RecordId, StateFilter, StoreError, Tenant, Timestamp, Usage, UsagePage,
    UsageSums,
};

use super::Inner;
use super::columns::{Id, Values};
use super::driver_error::DriverError;
use super::link::Link;
use super::rows::{clock_in, column};
use crate::rows::audited;

/// Maximum number of records that one page examines. A page that finds few among many ends early and says
/// where the next one starts, so that no listing holds a snapshot, and with it dead rows, for long.
const LOOKED_AT_MAX: i64 = 20_000;

impl Inner {
    /// See [`firstwrite_core::Store::list`].
    pub(super) async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        if query.state == Some(StateFilter::Lapsed) {
            return self.lapsed(query).await;
        }
        let page = async |link: &Link<'_>, now| page(link, query, now).await;
        self.shared.snapshot("listing records", page).await
    }

    /// See [`firstwrite_core::Store::usage`].
    pub(super) async fn usage(
        &self,
        after: Option<RecordId>,
        limit: usize,
    ) -> Result<UsagePage, StoreError> {
        let limit = limit.clamp(1, UsagePage::LIMIT_MAX);
        let Some(from) = behind(after) else { return Ok(UsagePage::default()) };
        let row_max = as_i64(limit);
        let shared = &self.shared;
        let rows =
            shared.read_alone("counting records", &shared.sql.usage, &[&from, &row_max]).await?;
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

    /// See [`firstwrite_core::Store::audits`].
    pub(super) async fn audits(&self, id: RecordId) -> Result<Vec<Audited>, StoreError> {
        let audits = &self.shared.sql.audits;
        let rows = self.shared.read_alone("reading audit entries", audits, &[&Id(id)]).await?;
        rows.iter().map(|row| audited(row, 0)).collect()
    }

    /// See [`firstwrite_core::Store::now`].
    pub(super) async fn now(&self) -> Result<Timestamp, StoreError> {
        let shared = &self.shared;
        let now = clock_in(&shared.read_alone("reading the clock", &shared.sql.now, &[]).await?)?;
        shared.clock.heard(now);
        Ok(now)
    }
}

async fn page(link: &Link<'_>, query: &Query, now: Timestamp) -> Result<Page, DriverError> {
    let limit = query.limit.clamp(1, Query::LIMIT_MAX);
    // One more than asked for tells whether there is a next page.
    let row_max = as_i64(limit + 1);
    let sql = link.sql();
    let Some(from) = behind(query.after) else {
        return Ok(Page { records: Vec::new(), next: None, now });
    };
    let tenant = query.tenant.as_ref().map(Tenant::as_str);
    let (rows, looked_at_end) = if query.state == Some(StateFilter::Uncertain) {
        (link.query(&sql.list_uncertain, &[&from, &tenant, &row_max]).await?, None)
    } else {
        let state = query.state.map(|state| state.kind().as_str());
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
    let records = link.read(&rows).await?.into_iter().filter_map(|result| result.record);
    Ok(Page::of(records.collect(), limit, looked_at_end, now))
}

/// Returns the first id behind `after`, or of all, if there is one.
fn behind(after: Option<RecordId>) -> Option<Id> {
    let first = match after {
        Some(id) => u128::from_be_bytes(*id.as_bytes()).checked_add(1)?,
        None => 0,
    };
    Some(Id(RecordId::from_bytes(first.to_be_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_begins_behind_the_last_one_and_none_behind_the_last_id() {
        let id = |number: u128| RecordId::from_bytes(number.to_be_bytes());
        assert_eq!(behind(None), Some(Id(id(0))));
        assert_eq!(behind(Some(id(255))), Some(Id(id(256))));
        assert_eq!(behind(Some(id(u128::MAX))), None);
    }
}
