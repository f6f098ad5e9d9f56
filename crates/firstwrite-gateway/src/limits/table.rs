//! Usage by tenant, in enough tables to keep requests from waiting for each other.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use firstwrite::Tenant;
use tokio::time::Instant;

use super::Used;

/// Usage by tenant. In a full part, a new tenant replaces the one without requests in flight that was seen
/// least recently; its buckets are mostly full by then.
pub(super) struct Table {
    /// Randomly seeded, so that clients cannot choose names that fall into one part.
    hashes: RandomState,
    parts: [Mutex<Part>; PARTS],
}

type Part = HashMap<Tenant, Used>;

/// More than threads that serve.
const PARTS: usize = 64;
/// Tenants that are remembered, some megabytes of them; more only while so many have requests under way.
pub(super) const TENANTS_MAX: usize = 100_000;
/// In one part: few enough to look through all of them.
const PART_MAX: usize = TENANTS_MAX / PARTS;

impl Table {
    /// Does something with what a tenant has used, if that is remembered.
    pub(super) fn with<T>(&self, tenant: &Tenant, what: impl FnOnce(&mut Used) -> T) -> Option<T> {
        self.part(tenant).get_mut(tenant).map(what)
    }

    /// The same, at a new request of a tenant that may be new too.
    pub(super) fn with_new<T>(
        &self,
        tenant: &Tenant,
        now: Instant,
        fresh: impl FnOnce() -> Used,
        what: impl FnOnce(&mut Used) -> T,
    ) -> T {
        let mut part = self.part(tenant);
        if part.len() >= PART_MAX && !part.contains_key(tenant) {
            let idle = part.iter().filter(|(_, used)| used.in_flight == 0);
            let longest = idle.min_by_key(|(_, used)| used.seen_at);
            if let Some(longest) = longest.map(|(tenant, _)| tenant.clone()) {
                part.remove(&longest);
            }
        }
        let used = part.entry(tenant.clone()).or_insert_with(fresh);
        used.seen_at = now;
        what(used)
    }

    fn part(&self, tenant: &Tenant) -> MutexGuard<'_, Part> {
        let hash = self.hashes.hash_one(tenant);
        #[expect(clippy::cast_possible_truncation, reason = "the remainder is below the count")]
        let at = (hash % PARTS as u64) as usize;
        self.parts[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn tenant_count(&self) -> usize {
        self.parts.iter().map(|part| part.lock().unwrap().len()).sum()
    }
}

impl Default for Table {
    fn default() -> Self {
        Self { hashes: RandomState::new(), parts: std::array::from_fn(|_| Mutex::default()) }
    }
}
