//! Usage of the store per tenant: counted there page by page, and updated between passes.
//!
//! 1. A pass walks over all records in the order of their ids, a bounded page at a time with a pause behind
//!    each, and adds them up. Nothing is locked and no row is written for it.
//! 2. When a pass is over, its sums are the counts. Until then, those of the pass before it stand, or what
//!    this one has found already, if that is more.
//! 3. What attempts of this process do is added at once; what others do shows with the next pass.
//! 4. So before the first pass is over, too little may be known, never too much.
//! 5. A page that cannot be read is asked for again. The counts stay as they are, and their age tells.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use firstwrite::{RecordChange, RecordStep, Tenant};
use firstwrite_core::{RecordId, Store, StoreError, Usage, UsagePage};
use tokio::time::{Instant, sleep, sleep_until};

use crate::metrics::Metrics;
use crate::tenants::owner;

/// Usage of the store per tenant. One lives as long as the process: reloads go on counting in it.
#[derive(Default)]
pub struct TenantUsage(Mutex<Known>);

/// Counting, as it is set up.
#[derive(Clone, Debug)]
pub struct Counting {
    /// Counts to update.
    pub tenant_usage: Arc<TenantUsage>,
    /// Minimum time between the starts of two passes.
    pub every: Duration,
}

/// Progress of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// There may be further records.
    Page,
    /// That was the last of them: the counts are those of this pass.
    Pass,
}

#[derive(Default)]
struct Known {
    counts: HashMap<Tenant, Usage>,
    walk: Option<Walk>,
    last: Option<Pass>,
    every: Duration,
}

/// A pass that is under way.
struct Walk {
    began: Instant,
    /// Records up to here are in the sums.
    after: Option<RecordId>,
    sums: HashMap<Tenant, Usage>,
}

/// A pass that is over.
#[derive(Clone, Copy)]
struct Pass {
    began: Instant,
    took: Duration,
}

impl Counting {
    /// Often enough for a limit that is about hours, seldom enough not to be noticed.
    pub const EVERY: Duration = Duration::from_mins(1);
}

/// Records in a page: some milliseconds of the store's time.
const PAGE: usize = 1000;
/// Between two pages, so that at most 20,000 records a second are looked at.
const PAUSE: Duration = Duration::from_millis(50);
/// After a page that could not be read.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(5);
/// Number of tenants that are counted, some megabytes of them. Later tenants have no counts; a limit per tenant
/// means little anyway where callers can be that many tenants.
const TENANTS_MAX: usize = 100_000;
/// Minimum and maximum time that a client is told to wait.
const WAIT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_hours(1));

impl TenantUsage {
    /// Nothing is counted yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the usage of `tenant`, as far as it is known.
    pub fn of(&self, tenant: &Tenant) -> Usage {
        let known = self.known();
        let counted = known.counts.get(tenant).copied().unwrap_or_default();
        let found = known.walk.as_ref().and_then(|walk| walk.sums.get(tenant)).copied();
        let found = found.unwrap_or_default();
        Usage { keys: counted.keys.max(found.keys), bytes: counted.bytes.max(found.bytes) }
    }

    /// Reads and adds up the next page, and begins a pass if none is under way.
    pub async fn count_once(&self, store: &dyn Store) -> Result<Counted, StoreError> {
        let after = {
            let mut known = self.known();
            known.walk.get_or_insert_with(Walk::begin).after
        };
        let page = store.usage(after, PAGE).await?;
        Ok(self.known().fold(after, page))
    }

    /// Forgets everything, because changes are no longer followed from here on.
    pub(crate) fn forget(&self) {
        *self.known() = Known::default();
    }

    /// Follows what an attempt of this process did.
    pub(crate) fn note(&self, stored: &RecordChange<'_>) {
        let tenant = owner(stored.tenant);
        let mut known = self.known();
        let Known { counts, walk, .. } = &mut *known;
        follow(counts, &tenant, stored.step);
        // Further on, the walk will come past it.
        if let Some(walk) = walk
            && Some(stored.id) <= walk.after
        {
            follow(&mut walk.sums, &tenant, stored.step);
        }
    }

    /// In how long there should be new counts.
    pub(crate) fn renewed_in(&self) -> Duration {
        let known = self.known();
        let wait = match (&known.walk, known.last) {
            (Some(walk), Some(last)) => last.took.saturating_sub(walk.began.elapsed()),
            (Some(walk), None) => walk.began.elapsed(),
            (None, Some(last)) => known.every.saturating_sub(last.began.elapsed()) + last.took,
            (None, None) => known.every,
        };
        wait.clamp(WAIT.0, WAIT.1)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts again and again.
pub(crate) async fn keep_counting(
    counting: Counting,
    store: Arc<dyn Store>,
    metrics: Option<Arc<Metrics>>,
) {
    let Counting { tenant_usage, every } = counting;
    tenant_usage.known().every = every;
    metrics.as_ref().inspect(|metrics| metrics.counting_began());
    loop {
        // A reload begins here too, perhaps in the middle of a pass.
        let due = match &*tenant_usage.known() {
            Known { walk: None, last: Some(last), .. } => Some(last.began + every),
            Known { .. } => None,
        };
        if let Some(due) = due {
            sleep_until(due).await;
        }
        match tenant_usage.count_once(&*store).await {
            Ok(Counted::Page) => {}
            Ok(Counted::Pass) => {
                metrics.as_ref().inspect(|metrics| metrics.counted(&tenant_usage.known().counts));
            }
            Err(error) => {
                tracing::warn!(%error, "records could not be counted; limits go by what they were");
                sleep(PAUSE_AFTER_FAILURE).await;
            }
        }
        sleep(PAUSE).await;
    }
}

impl Known {
    fn fold(&mut self, after: Option<RecordId>, page: UsagePage) -> Counted {
        // Another page came first: a reload started a new count while a page of the former one was being read.
        let Some(walk) = self.walk.as_mut().filter(|walk| walk.after == after) else {
            return Counted::Page;
        };
        for (tenant, usage) in page.tenants {
            add(&mut walk.sums, &owner(&tenant), usage);
        }
        if page.next.is_some() {
            walk.after = page.next;
            return Counted::Page;
        }
        if let Some(Walk { began, sums, .. }) = self.walk.take() {
            self.counts = sums;
            self.last = Some(Pass { began, took: began.elapsed() });
        }
        Counted::Pass
    }
}

impl Walk {
    fn begin() -> Self {
        Self { began: Instant::now(), after: None, sums: HashMap::new() }
    }
}

fn follow(counts: &mut HashMap<Tenant, Usage>, tenant: &Tenant, step: RecordStep) {
    match step {
        RecordStep::Made => add(counts, tenant, Usage::one(0)),
        RecordStep::Kept(bytes) => add(counts, tenant, Usage { keys: 0, bytes }),
        RecordStep::Freed => {
            if let Some(usage) = counts.get_mut(tenant) {
                usage.keys = usage.keys.saturating_sub(1);
            }
        }
        // A step that this version does not know changes no count; the next look at the store corrects them.
        _ => {}
    }
}

fn add(counts: &mut HashMap<Tenant, Usage>, tenant: &Tenant, more: Usage) {
    if let Some(usage) = counts.get_mut(tenant) {
        usage.add(more);
    } else if counts.len() < TENANTS_MAX {
        counts.insert(tenant.clone(), more);
    }
}

impl fmt::Debug for TenantUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantUsage").field("tenants", &self.known().counts.len()).finish()
    }
}

#[cfg(test)]
mod tests;
