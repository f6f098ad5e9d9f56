//! Reads records: one record, pages for operators, usage sums, lapsed leases for the sweep, audit entries,
//! the time.

use firstwrite_core::encoding::as_i64;
use firstwrite_core::{
    Audited, Found, Page, Query, RecordId, StateFilter, StoreError, Timestamp, Usage, UsagePage,
    UsageSums,
};

use super::Inner;
use super::batch::{record_in, time_in};
use super::pipeline::{Answer, NOW, Pipeline, Value};
use super::rows::{self, RESERVED, record_columns};
use super::swap::number_of;
use crate::rows::Columns as _;
use crate::rows::audited;

/// Maximum number of ids that one page examines. A page that finds few among many ends early and says where
/// the next one starts.
const LOOKED_AT_MAX: usize = 20_000;

const SWEEPING: &str = "looking for lapsed leases";

impl Inner {
    /// See [`firstwrite_core::Store::get`].
    pub(super) async fn get(&self, id: RecordId) -> Result<Option<Found>, StoreError> {
        let mut pipeline = Pipeline::reading();
        let sql =
            concat!("SELECT ", record_columns!(), " FROM firstwrite_records r WHERE r.id = ?");
        let place = pipeline.add(sql, &[Value::Bytes(id.as_bytes())]);
        record_in(&self.pool.send("looking a record up", &pipeline).await?[place])
    }

    /// See [`firstwrite_core::Store::now`].
    pub(super) async fn now(&self) -> Result<Timestamp, StoreError> {
        let mut pipeline = Pipeline::reading();
        let place = pipeline.add("SELECT @firstwrite_now", &[]);
        time_in(&self.pool.send("asking for the time", &pipeline).await?[place])
    }

    /// See [`firstwrite_core::Store::list`].
    pub(super) async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let is_lapsed = query.state == Some(StateFilter::Lapsed);
        if is_lapsed {
            self.pool.sweep(SWEEPING).await?;
        }
        let limit = query.limit.clamp(1, Query::LIMIT_MAX);
        let after = behind(query.after);
        let mut pipeline = Pipeline::reading();
        let time = pipeline.add("SELECT @firstwrite_now", &[]);
        // The last id that a walk over all records looks at, if there are more behind it.
        let looked = Value::Int(as_i64(LOOKED_AT_MAX));
        let end = matches!(query.state, Some(StateFilter::Completed) | None).then(|| {
            pipeline.add(
                "SELECT id FROM firstwrite_records WHERE id > ? ORDER BY id LIMIT 2 OFFSET ?",
                &[Value::Bytes(&after), Value::Int(as_i64(LOOKED_AT_MAX - 1))],
            )
        });
        let place = pipeline.add(concat!("SELECT ", record_columns!(), " FROM "), &[]);
        match query.state {
            // Open records are few and found by their state.
            Some(state @ (StateFilter::Reserved | StateFilter::Uncertain)) => {
                pipeline.write(
                    "firstwrite_records r WHERE r.state = ? AND r.id > ?",
                    &[Value::Int(number_of(state.kind())), Value::Bytes(&after)],
                );
            }
            Some(StateFilter::Lapsed) => {
                pipeline.write(
                    "firstwrite_records r WHERE r.state = ? AND r.due_at <= ?",
                    &[Value::Int(RESERVED), Value::Sql(NOW)],
                );
            }
            Some(StateFilter::Completed) | None => {
                pipeline.write(
                    "(SELECT id FROM firstwrite_records WHERE id > ? ORDER BY id LIMIT ?) i \
                     JOIN firstwrite_records r ON r.id = i.id WHERE 1 = 1",
                    &[Value::Bytes(&after), looked],
                );
                if let Some(state) = query.state {
                    pipeline.write(" AND r.state = ?", &[Value::Int(number_of(state.kind()))]);
                }
            }
        }
        if let Some(tenant) = &query.tenant {
            // Byte by byte: as text, a name and the same name with a space behind it are equal.
            let tenant = Value::Bytes(tenant.as_str().as_bytes());
            pipeline.write(" AND CAST(r.tenant AS BINARY) = ?", &[tenant]);
        }
        // One more than asked for tells whether there is a next page.
        let order = if is_lapsed { " ORDER BY r.due_at LIMIT ?" } else { " ORDER BY r.id LIMIT ?" };
        pipeline.write(order, &[Value::Int(as_i64(limit + 1))]);
        let answers = self.pool.send("listing records", &pipeline).await?;
        let records =
            answers[place].rows.iter().map(rows::record).collect::<Result<Vec<_>, _>>()?;
        let looked_at_end = match end.map(|end| answers[end].rows.as_slice()) {
            Some([last, _behind]) => Some(last.record(0)?),
            Some(_) | None => None,
        };
        let page = Page::of(records, limit, looked_at_end, time_in(&answers[time])?);
        Ok(if is_lapsed { Page { next: None, ..page } } else { page })
    }

    /// See [`firstwrite_core::Store::usage`].
    pub(super) async fn usage(
        &self,
        after: Option<RecordId>,
        limit: usize,
    ) -> Result<UsagePage, StoreError> {
        let limit = limit.clamp(1, UsagePage::LIMIT_MAX);
        let mut pipeline = Pipeline::new();
        let place = pipeline.add(
            "SELECT id, tenant, outcome_bytes FROM firstwrite_records WHERE id > ? ORDER BY id LIMIT ?",
            &[Value::Bytes(&behind(after)), Value::Int(as_i64(limit))],
        );
        let answers = self.pool.send("counting records", &pipeline).await?;
        let mut sums = UsageSums::default();
        for row in &answers[place].rows {
            let id = row.record(0)?;
            let bytes = row.integer_or_null(2)?.unwrap_or_default();
            let bytes = u64::try_from(bytes).unwrap_or_default();
            match row.tenant(1) {
                Ok(tenant) => sums.count(id, tenant, Usage::one(bytes)),
                Err(_damaged) => sums.pass(id),
            }
        }
        Ok(sums.page(limit))
    }

    /// See [`firstwrite_core::Store::audits`].
    pub(super) async fn audits(&self, id: RecordId) -> Result<Vec<Audited>, StoreError> {
        let mut pipeline = Pipeline::new();
        let place = ask_audits(&mut pipeline, id.as_bytes());
        audits_in(&self.pool.send("reading audit entries", &pipeline).await?[place])
    }
}

/// Adds a query for the audit entries about `subject`.
pub(super) fn ask_audits(pipeline: &mut Pipeline, subject: &[u8]) -> usize {
    let sql = "SELECT at, actor, action, reason FROM firstwrite_audit WHERE id = ? ORDER BY entry";
    pipeline.add(sql, &[Value::Bytes(subject)])
}

/// Reads them.
pub(super) fn audits_in(answer: &Answer) -> Result<Vec<Audited>, StoreError> {
    answer.rows.iter().map(|row| audited(row, 0)).collect()
}

/// Returns the exclusive lower bound of a page. An empty string is below every id, also below sixteen
/// zeros.
fn behind(after: Option<RecordId>) -> Vec<u8> {
    after.map_or(Vec::new(), |id| id.as_bytes().to_vec())
}
