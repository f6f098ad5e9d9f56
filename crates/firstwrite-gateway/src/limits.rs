//! Limits per tenant: rates and keys in flight, kept in this process, and usage of the store, which is
//! [counted](crate::TenantUsage) there.
//!
//! Limits protect the other tenants and are not exact: rates and requests in flight are per gateway process, so
//! a tenant gets them from each; store usage is shared by all of them.
//!
//! A tenant that makes keys too fast, or has too much in the store, gets no *new* key: existing keys are still
//! answered. Where keys are bound to principals, their use counts for the tenant.
//!
//! Callers that the gateway does not verify itself can be as many tenants as they like, so a limit for each
//! means nothing: the new keys of all of them together have one limit.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

mod table;

use firstwrite::{
    AdmitContext, Observer, RecordChange, RecordStep, RequestFinished, Seldom, Tenant,
};
use firstwrite_core::{Rejection, RejectionKind};
use tokio::time::Instant;

use crate::tenant_usage::TenantUsage;
use crate::tenants::{is_unverified, owner};
use table::Table;

/// Limits of one tenant.
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
    used: Table,
    unverified: Option<(Rate, Mutex<Bucket>)>,
    tenant_usage: Arc<TenantUsage>,
    /// True if there is a limit on store usage.
    is_counting: bool,
    line: Seldom,
    /// Observer that is told of every admitted request and how it ended.
    next: Arc<dyn Observer>,
}

/// Usage of one tenant.
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

/// Maximum time that a client is told to wait.
const WAIT_MAX: Duration = Duration::from_mins(10);

impl Limits {
    /// Applies `usual` to every tenant but those that are named. Limits on store usage go by `tenant_usage`, which
    /// must be [counted](crate::Rules::counting).
    pub fn new(
        usual: TenantLimits,
        special: HashMap<String, TenantLimits>,
        tenant_usage: Arc<TenantUsage>,
        next: Arc<dyn Observer>,
    ) -> Self {
        let is_counting = special.values().chain([&usual]).any(TenantLimits::needs_counting);
        let (used, unverified) = (Table::default(), None);
        Self {
            usual,
            special,
            used,
            unverified,
            tenant_usage,
            is_counting,
            line: Seldom::default(),
            next,
        }
    }

    /// Limits the new keys of all unverified tenants together: callers without credentials, and callers whose
    /// credentials the upstream verifies.
    #[must_use]
    pub fn unverified_new_keys(self, rate: Rate) -> Self {
        let bucket = Mutex::new(Bucket { tokens: rate.burst, filled_at: Instant::now() });
        Self { unverified: Some((rate, bucket)), ..self }
    }

    fn of(&self, tenant: &Tenant) -> &TenantLimits {
        self.special.get(tenant.as_str()).unwrap_or(&self.usual)
    }

    /// Takes what a request needs, all or nothing.
    fn take(&self, tenant: &Tenant, now: Instant) -> Result<(), Refused> {
        let limits = self.of(tenant);
        if !limits.needs_remembering() {
            return Ok(());
        }
        self.used.with_new(
            tenant,
            now,
            || Used::fresh(limits, now),
            |used| {
                if limits.in_flight_max.is_some_and(|max| used.in_flight >= max) {
                    let wait = Duration::from_secs(1);
                    return Err(Refused::of_tenant("too many requests under way", wait));
                }
                if let Some(wait) = used.requests.wait(limits.requests, now) {
                    return Err(Refused::of_tenant("too many requests", wait));
                }
                used.requests.tokens -= 1.0;
                used.in_flight += 1;
                Ok(())
            },
        )
    }

    /// Gives back what a request needs no longer.
    fn give_back(&self, tenant: &Tenant) {
        self.used.with(tenant, |used| used.in_flight = used.in_flight.saturating_sub(1));
    }

    /// Does something with what is left for those who were not verified here, if this is one of them.
    fn with_unverified<T>(
        &self,
        tenant: &Tenant,
        what: impl FnOnce(&mut Bucket, Rate) -> T,
    ) -> Option<T> {
        let (rate, bucket) = self.unverified.as_ref().filter(|_| is_unverified(tenant))?;
        Some(what(&mut bucket.lock().unwrap_or_else(PoisonError::into_inner), *rate))
    }

    /// Returns an error if a tenant may not make another key. A token is taken once a key was made, so
    /// concurrent requests may get more keys than there are tokens, and wait longer for the next.
    fn room(&self, tenant: &Tenant, now: Instant) -> Result<(), Refused> {
        let limits = self.of(tenant);
        let wait = self.used.with(tenant, |used| used.new_keys.wait(limits.new_keys, now));
        if let Some(wait) = wait.flatten() {
            return Err(Refused::of_tenant("too many new keys", wait));
        }
        let wait = self.with_unverified(tenant, |bucket, rate| bucket.wait(Some(rate), now));
        if let Some(wait) = wait.flatten() {
            let whose = "The limit of all callers that are not verified here";
            return Err(Refused { whose, what: "too many new keys", wait });
        }
        if !limits.needs_counting() {
            return Ok(());
        }
        let has = self.tenant_usage.of(tenant);
        let what = if limits.active_keys_max.is_some_and(|max| has.keys >= max) {
            "too many active keys"
        } else if limits.stored_bytes_max.is_some_and(|max| has.bytes >= max) {
            "too many bytes of kept answers"
        } else {
            return Ok(());
        };
        Err(Refused::of_tenant(what, self.tenant_usage.renewed_in()))
    }
}

impl TenantLimits {
    /// Returns true if store usage must be counted.
    pub fn needs_counting(&self) -> bool {
        self.active_keys_max.is_some() || self.stored_bytes_max.is_some()
    }

    /// Returns true if a tenant's usage must be remembered here.
    fn needs_remembering(&self) -> bool {
        self.new_keys.is_some() || self.requests.is_some() || self.in_flight_max.is_some()
    }
}

/// Reason of a refusal, and the time until the next request is admitted.
struct Refused {
    whose: &'static str,
    what: &'static str,
    wait: Duration,
}

impl Refused {
    fn of_tenant(what: &'static str, wait: Duration) -> Self {
        Self { whose: "This tenant's limit", what, wait }
    }

    fn answer(self, tenant: &Tenant, line: &Seldom) -> Rejection {
        let Self { whose, what, wait } = self;
        if let Some(left_out) = line.now() {
            tracing::info!(
                tenant = tenant.as_str(),
                what,
                left_out,
                "a tenant's limit was reached"
            );
        }
        Rejection::new(RejectionKind::RateLimited)
            .detail(format!("{whose} is reached: {what}. Nothing was run."))
            .retry_after(wait)
    }
}

impl Observer for Limits {
    fn admit(&self, asked: &AdmitContext<'_>) -> Result<(), Rejection> {
        self.next.admit(asked)?;
        let tenant = owner(asked.tenant);
        self.take(&tenant, Instant::now()).map_err(|refused| refused.answer(&tenant, &self.line))
    }

    fn admit_look_up(&self, tenant: &Tenant) -> Result<(), Rejection> {
        self.next.admit_look_up(tenant)?;
        let tenant = owner(tenant);
        self.take(&tenant, Instant::now()).map_err(|refused| refused.answer(&tenant, &self.line))
    }

    fn may_make_key(&self, tenant: &Tenant) -> Result<(), Rejection> {
        self.next.may_make_key(tenant)?;
        let tenant = owner(tenant);
        self.room(&tenant, Instant::now()).map_err(|refused| refused.answer(&tenant, &self.line))
    }

    fn stored(&self, stored: &RecordChange<'_>) {
        if stored.step == RecordStep::Made {
            let tenant = owner(stored.tenant);
            self.used.with(&tenant, |used| used.new_keys.tokens -= 1.0);
            self.with_unverified(&tenant, |bucket, _| bucket.tokens -= 1.0);
        }
        if self.is_counting {
            self.tenant_usage.note(stored);
        }
        self.next.stored(stored);
    }

    fn reserved(&self, took: Duration) {
        self.next.reserved(took);
    }

    fn left(&self, tenant: &Tenant) {
        self.give_back(&owner(tenant));
        self.next.left(tenant);
    }

    fn answered(&self, answered: &RequestFinished<'_>) {
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
    /// Returns the time until the next token, or `None` if there is one now.
    fn wait(&mut self, rate: Option<Rate>, now: Instant) -> Option<Duration> {
        let rate = rate?;
        let passed = now.duration_since(self.filled_at).as_secs_f64();
        self.tokens = (self.tokens + passed * rate.per_second).min(rate.burst);
        self.filled_at = now;
        if self.tokens >= 1.0 {
            return None;
        }
        let missing = (1.0 - self.tokens) / rate.per_second;
        Some(Duration::try_from_secs_f64(missing).unwrap_or(WAIT_MAX).min(WAIT_MAX))
    }
}

impl Rate {
    /// More than strangers of an ordinary API do, and what every store takes: in a day of it there are eighty
    /// million records at most.
    pub const UNVERIFIED_NEW_KEYS: Self = Self { per_second: 1000.0, burst: 2000.0 };

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
