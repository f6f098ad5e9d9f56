//! How much one tenant may ask for: rates and keys in flight, kept in this process, and what it may have in
//! the store, which is [counted](crate::Holdings) there.
//!
//! A limit is a promise to everybody else, not an exact count: each gateway counts rates and requests for
//! itself, so a tenant gets those limits from each of several. What is in the store, all of them see.
//!
//! A tenant that makes keys too fast, or has too much in the store, gets no *new* key: what stands under a key
//! is told as ever. Where keys are bound to principals, what they use is their tenant's.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use firstwrite::{Answered, Asked, Observer, Stored, StoredStep, Tenant};
use firstwrite_core::{Rejection, RejectionKind};
use tokio::time::Instant;

use crate::holdings::Holdings;
use crate::tenants::owner;

/// What one tenant may do.
#[derive(Clone, Debug, Default)]
pub struct TenantLimits {
    /// New keys.
    pub new_keys: Option<Rate>,
    /// Requests under keys, new or not.
    pub requests: Option<Rate>,
    /// Requests under way at the same time.
    pub in_flight_max: Option<u32>,
    /// Keys that stand in the store, until they are reaped.
    pub active_keys_max: Option<u64>,
    /// Bytes of answers that are kept there.
    pub stored_bytes_max: Option<u64>,
}

/// So many in a second, and so many at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// In the long run.
    pub per_second: f64,
    /// At once.
    pub burst: f64,
}

/// The limits of all tenants, and how much of them is used up.
pub struct Limits {
    usual: TenantLimits,
    special: HashMap<String, TenantLimits>,
    used: Mutex<HashMap<Tenant, Used>>,
    holdings: Arc<Holdings>,
    /// Told whatever was admitted, and how it ended.
    next: Arc<dyn Observer>,
}

/// What a tenant has used.
#[derive(Debug)]
struct Used {
    new_keys: Bucket,
    requests: Bucket,
    in_flight: u32,
    seen_at: Instant,
}

/// Tokens that come back with time.
#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled_at: Instant,
}

/// Tenants that are remembered. Beyond that, those are forgotten who have been away the longest; their
/// buckets are full by then.
const TENANTS_MAX: usize = 100_000;
/// How long somebody must have been away to be forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(10);

impl Limits {
    /// `usual` for every tenant, but for those that are named. Limits on what is in the store go by what
    /// `holdings` know: somebody must [count](crate::Rules::counting).
    pub fn new(
        usual: TenantLimits,
        special: HashMap<String, TenantLimits>,
        holdings: Arc<Holdings>,
        next: Arc<dyn Observer>,
    ) -> Self {
        Self { usual, special, used: Mutex::default(), holdings, next }
    }

    fn of(&self, tenant: &Tenant) -> &TenantLimits {
        self.special.get(tenant.as_str()).unwrap_or(&self.usual)
    }

    /// Takes what a request needs, all or nothing.
    fn take(&self, tenant: &Tenant, now: Instant) -> Result<(), Refused> {
        let limits = self.of(tenant);
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.len() >= TENANTS_MAX && !used.contains_key(tenant) {
            used.retain(|_, used| {
                used.in_flight > 0 || now.duration_since(used.seen_at) < FORGOTTEN_AFTER
            });
            if used.len() >= TENANTS_MAX {
                return Err(Refused { what: "too many tenants at once", wait: FORGOTTEN_AFTER });
            }
        }
        let used = used.entry(tenant.clone()).or_insert_with(|| Used::fresh(limits, now));
        used.seen_at = now;
        let tired = limits.in_flight_max.is_some_and(|max| used.in_flight >= max);
        if tired {
            let wait = Duration::from_secs(1);
            return Err(Refused { what: "too many requests under way", wait });
        }
        if let Some(wait) = used.requests.wait(limits.requests, now) {
            return Err(Refused { what: "too many requests", wait });
        }
        used.requests.tokens -= 1.0;
        used.in_flight += 1;
        Ok(())
    }

    /// Gives back what a request needs no longer.
    fn give_back(&self, tenant: &Tenant) {
        self.with_used(tenant, |used| used.in_flight = used.in_flight.saturating_sub(1));
    }

    /// Does something with what a tenant has used, if that is remembered.
    fn with_used<T>(&self, tenant: &Tenant, what: impl FnOnce(&mut Used) -> T) -> Option<T> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.get_mut(tenant).map(what)
    }

    /// Whether a tenant may make another key. A token is taken when one was made, so that those who come at
    /// the same moment may get more than there are, and wait longer for the next.
    fn room(&self, tenant: &Tenant, now: Instant) -> Result<(), Refused> {
        let limits = self.of(tenant);
        let wait = self.with_used(tenant, |used| used.new_keys.wait(limits.new_keys, now));
        if let Some(wait) = wait.flatten() {
            return Err(Refused { what: "too many new keys", wait });
        }
        if !limits.needs_counting() {
            return Ok(());
        }
        let has = self.holdings.of(tenant);
        let what = if limits.active_keys_max.is_some_and(|max| has.keys >= max) {
            "too many active keys"
        } else if limits.stored_bytes_max.is_some_and(|max| has.bytes >= max) {
            "too many bytes of kept answers"
        } else {
            return Ok(());
        };
        Err(Refused { what, wait: self.holdings.renewed_in() })
    }
}

impl TenantLimits {
    /// Whether somebody must count what is in the store.
    pub fn needs_counting(&self) -> bool {
        self.active_keys_max.is_some() || self.stored_bytes_max.is_some()
    }
}

/// Why a request is refused, and when the next one may come.
struct Refused {
    what: &'static str,
    wait: Duration,
}

impl Refused {
    fn answer(self, tenant: &Tenant) -> Rejection {
        let Self { what, wait } = self;
        tracing::info!(tenant = tenant.as_str(), what, "a tenant's limit was reached");
        Rejection::new(RejectionKind::RateLimited)
            .detail(format!("This tenant's limit is reached: {what}. Nothing was run."))
            .retry_after(wait)
    }
}

impl Observer for Limits {
    fn admit(&self, asked: &Asked<'_>) -> Result<(), Rejection> {
        self.next.admit(asked)?;
        let tenant = owner(asked.tenant);
        self.take(&tenant, Instant::now()).map_err(|refused| refused.answer(&tenant))
    }

    fn may_make_key(&self, tenant: &Tenant) -> Result<(), Rejection> {
        self.next.may_make_key(tenant)?;
        let tenant = owner(tenant);
        self.room(&tenant, Instant::now()).map_err(|refused| refused.answer(&tenant))
    }

    fn stored(&self, stored: &Stored<'_>) {
        if stored.step == StoredStep::Made {
            self.with_used(&owner(stored.tenant), |used| used.new_keys.tokens -= 1.0);
        }
        self.holdings.note(stored);
        self.next.stored(stored);
    }

    fn reserved(&self, took: Duration) {
        self.next.reserved(took);
    }

    fn left(&self, tenant: &Tenant) {
        self.give_back(&owner(tenant));
        self.next.left(tenant);
    }

    fn answered(&self, answered: &Answered<'_>) {
        self.next.answered(answered);
    }
}

impl Used {
    fn fresh(limits: &TenantLimits, now: Instant) -> Self {
        let full = |rate: Option<Rate>| Bucket {
            tokens: rate.map_or(0.0, |rate| rate.burst),
            filled_at: now,
        };
        Self {
            new_keys: full(limits.new_keys),
            requests: full(limits.requests),
            in_flight: 0,
            seen_at: now,
        }
    }
}

impl Bucket {
    /// How long until there is a token, if there is none now.
    fn wait(&mut self, rate: Option<Rate>, now: Instant) -> Option<Duration> {
        let rate = rate?;
        let passed = now.duration_since(self.filled_at).as_secs_f64();
        self.tokens = (self.tokens + passed * rate.per_second).min(rate.burst);
        self.filled_at = now;
        if self.tokens >= 1.0 {
            return None;
        }
        let missing = (1.0 - self.tokens) / rate.per_second;
        Some(Duration::try_from_secs_f64(missing).unwrap_or(FORGOTTEN_AFTER).min(FORGOTTEN_AFTER))
    }
}

impl Rate {
    /// So many in a second, and twice as many at once.
    pub fn per_second(per_second: f64) -> Self {
        Self { per_second, burst: (per_second * 2.0).max(1.0) }
    }
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limits").field("usual", &self.usual).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
