//! Storage used by each tenant, counted page by page.

use std::collections::BTreeMap;

use crate::{Record, RecordId, State, Tenant};

/// Storage used by one tenant.
///
/// A record counts until it is reaped: reserved, uncertain or completed, also past its retention. One whose
/// answer was not kept, or that only marks its key as spent, counts too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Records.
    pub keys: u64,
    /// Bytes of their outcomes: headers and bodies in the form in which the store was given them, before
    /// it compresses anything. Not what every record needs beside that.
    pub bytes: u64,
}

/// One page of a walk over all records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsagePage {
    /// Sums over the records of this page: each tenant once, in the order of their names.
    pub tenants: Vec<(Tenant, Usage)>,
    /// The last record of the page, where the next one starts. None if this was the end; there may be
    /// one that turns out empty.
    pub next: Option<RecordId>,
}

/// Adds up a page, record by record.
#[derive(Debug, Default)]
pub struct UsageSums {
    tenants: BTreeMap<Tenant, Usage>,
    last: Option<RecordId>,
    record_count: usize,
}

impl Usage {
    /// One record and its bytes.
    pub fn one(bytes: u64) -> Self {
        Self { keys: 1, bytes }
    }

    /// Counts `more` too.
    pub fn add(&mut self, more: Self) {
        self.keys = self.keys.saturating_add(more.keys);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

impl UsagePage {
    /// A page is one statement, which must not hold a snapshot for long.
    pub const LIMIT_MAX: usize = 10_000;
}

impl UsageSums {
    /// Counts the record under `id`; the ids come in their order.
    pub fn count(&mut self, id: RecordId, tenant: Tenant, usage: Usage) {
        self.tenants.entry(tenant).or_default().add(usage);
        self.pass(id);
    }

    /// Skips a record whose tenant cannot be read: damage to one must not hide the others.
    pub fn pass(&mut self, id: RecordId) {
        self.last = Some(id);
        self.record_count += 1;
    }

    /// The page, if it was to hold at most `limit` records.
    pub fn page(self, limit: usize) -> UsagePage {
        let next = self.last.filter(|_| self.record_count >= limit);
        UsagePage { tenants: self.tenants.into_iter().collect(), next }
    }
}

impl Record {
    /// Returns the usage of this record.
    pub fn usage(&self) -> Usage {
        match &self.state {
            State::Completed { outcome, .. } => Usage::one(outcome.byte_count()),
            State::Reserved(_) | State::Uncertain { .. } => Usage::one(0),
        }
    }
}
