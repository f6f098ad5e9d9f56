//! Reads many records: pages for operators, usage sums, lapsed leases for the sweep, audit entries.

use firstwrite_core::encoding::as_i64;
use firstwrite_core::{
    Audited, Found, Page, Query, Record, RecordId, StateFilter, StoreError, StoreErrorKind, Tenant,
    Usage, UsagePage, UsageSums,
};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Params, params};

use super::driver_error::definite;
use super::outbox::MessageRow;
use super::readers::View;
use super::rows::{find, select_standing, standing};
use crate::rows::{Columns as _, audited};

/// Maximum number of ids that one page examines. A page that finds few among many ends early and says where
/// the next one starts, so that no listing holds a snapshot, and with it the log, for long.
const LOOKED_AT_MAX: usize = 20_000;

/// Open records are few and found by their state; the ids bring them into order.
const LIST_OPEN: &str = select_standing!(
    "FROM firstwrite_reservations r
     JOIN firstwrite_ids i ON i.id = r.id
     LEFT JOIN firstwrite_records c ON c.record = i.record
     WHERE i.record = r.record AND i.id > ?1 AND (r.lease_until IS NULL) = ?2
       AND (?3 IS NULL OR r.tenant = ?3)
     ORDER BY r.id LIMIT ?4"
);

const LIST_ALL: &str = select_standing!(
    "FROM (SELECT id, record FROM firstwrite_ids WHERE id > ?1 ORDER BY id LIMIT ?2) i
     LEFT JOIN firstwrite_records c ON c.record = i.record
     LEFT JOIN firstwrite_reservations r ON r.record = i.record
     WHERE (?3 IS NULL OR c.tenant IN (?3, ?4) OR r.tenant = ?3)
       AND (?5 = 0 OR c.record IS NOT NULL)
     ORDER BY i.id LIMIT ?6"
);

/// Row by row and not grouped: a sorter would carry the outcomes with it, and `length` of a column alone is
/// told by the head of its row.
const USAGE: &str = "SELECT i.id, coalesce(c.tenant, r.tenant), coalesce(length(c.outcome), 0)
     FROM (SELECT id, record FROM firstwrite_ids WHERE id > ?1 ORDER BY id LIMIT ?2) i
     LEFT JOIN firstwrite_records c ON c.record = i.record
     LEFT JOIN firstwrite_reservations r ON r.record = i.record
     ORDER BY i.id";

/// Ids alone come in the order of the index of leases; each record is read afterwards.
const LAPSED: &str = "SELECT id FROM firstwrite_reservations
     WHERE lease_until IS NOT NULL AND lease_until <= ?1 AND (?2 IS NULL OR tenant = ?2)
     ORDER BY lease_until LIMIT ?3";

impl View {
    /// See [`firstwrite_core::Store::get`].
    pub(super) fn get(&self, id: RecordId) -> Result<Option<Found>, StoreError> {
        let now = self.now();
        let standing = find(&self.connection, (&self.dictionary, &self.clock), id)?;
        Ok(standing.map(|standing| Found { record: standing.record, now }))
    }

    /// See [`firstwrite_core::Store::list`].
    pub(super) fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let failed = definite("listing records");
        let now = self.now();
        let limit = query.limit.clamp(1, Query::LIMIT_MAX);
        let after = behind(query.after);
        let tenant = query.tenant.as_ref().map(Tenant::as_str);
        // One more than asked for tells whether there is a next page.
        let row_max = as_i64(limit + 1);
        let (records, looked_at_end) = match query.state {
            Some(StateFilter::Lapsed) => {
                return Ok(Page { records: self.lapsed(tenant, limit)?, next: None, now });
            }
            Some(state @ (StateFilter::Reserved | StateFilter::Uncertain)) => {
                let is_uncertain = state == StateFilter::Uncertain;
                (self.records(LIST_OPEN, params![after, is_uncertain, tenant, row_max])?, None)
            }
            Some(StateFilter::Completed) | None => {
                let only_completed = query.state.is_some();
                let number = tenant_number(&self.connection, tenant).map_err(&failed)?;
                let looked_at = as_i64(LOOKED_AT_MAX);
                let given = params![after, looked_at, tenant, number, only_completed, row_max];
                (self.records(LIST_ALL, given)?, self.looked_at_end(&after)?)
            }
        };
        Ok(Page::of(records, limit, looked_at_end, now))
    }

    /// See [`firstwrite_core::Store::usage`].
    pub(super) fn usage(
        &self,
        after: Option<RecordId>,
        limit: usize,
    ) -> Result<UsagePage, StoreError> {
        let limit = limit.clamp(1, UsagePage::LIMIT_MAX);
        let given = params![behind(after), as_i64(limit)];
        let read = |row: &MessageRow<'_>| Ok((row.record(0)?, row.tenant(1), row.integer(2)?));
        let mut sums = UsageSums::default();
        for (id, tenant, bytes) in self.all("counting records", USAGE, given, read)? {
            match tenant {
                Ok(tenant) => {
                    sums.count(id, tenant, Usage::one(u64::try_from(bytes).unwrap_or_default()));
                }
                Err(error) if error.kind() == StoreErrorKind::Corrupt => sums.pass(id),
                Err(error) => return Err(error),
            }
        }
        Ok(sums.page(limit))
    }

    /// See [`firstwrite_core::Store::audits`].
    pub(super) fn audits(&self, id: RecordId) -> Result<Vec<Audited>, StoreError> {
        let sql = "SELECT at, actor, action, reason FROM firstwrite_audit
                   WHERE id = ?1 ORDER BY entry";
        self.all("reading audit entries", sql, [id.as_bytes()], |row| audited(row, 0))
    }

    fn lapsed(&self, tenant: Option<&str>, limit: usize) -> Result<Vec<Record>, StoreError> {
        let given = params![self.now().as_millis(), tenant, as_i64(limit)];
        let ids = self.all("looking for lapsed leases", LAPSED, given, |row| row.record(0))?;
        let mut lapsed = Vec::with_capacity(ids.len());
        for id in ids {
            if let Some(standing) = find(&self.connection, (&self.dictionary, &self.clock), id)? {
                lapsed.push(standing.record);
            }
        }
        Ok(lapsed)
    }

    fn records(&self, sql: &str, given: impl Params) -> Result<Vec<Record>, StoreError> {
        let known = (&self.dictionary, &*self.clock);
        let read = |row: &MessageRow<'_>| standing(&self.connection, known, row.row);
        let found = self.all("listing records", sql, given, read)?;
        Ok(found.into_iter().map(|standing| standing.record).collect())
    }

    /// Returns the last id that a page starting after `after` examines, if there are more after it.
    fn looked_at_end(&self, after: &Value) -> Result<Option<RecordId>, StoreError> {
        let sql = "SELECT id FROM firstwrite_ids WHERE id > ?1 ORDER BY id LIMIT 2 OFFSET ?2";
        let last = as_i64(LOOKED_AT_MAX - 1);
        let ids = self.all("listing records", sql, params![after, last], |row| row.record(0))?;
        Ok(match ids[..] {
            [last, _behind] => Some(last),
            _ => None,
        })
    }
}

/// Returns the number of a tenant's name in completed records and messages, if there is one.
pub(super) fn tenant_number(
    connection: &Connection,
    name: Option<&str>,
) -> rusqlite::Result<Option<i64>> {
    let Some(name) = name else { return Ok(None) };
    let sql = "SELECT tenant FROM firstwrite_tenants WHERE name = ?1";
    connection.prepare_cached(sql)?.query_row([name], |row| row.get(0)).optional()
}

/// Returns the exclusive lower bound of a page. An empty blob is below every id, also below sixteen zeros.
fn behind(after: Option<RecordId>) -> Value {
    after.map_or(Value::Blob(Vec::new()), |id| id.as_bytes().to_vec().into())
}
