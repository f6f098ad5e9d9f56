//! How much one tenant may ask for: rates and keys in flight, kept in this process.
//!
//! A limit is a promise to everybody else, not an exact count: each gateway counts for itself, so a tenant
//! gets the limit from each of several.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use firstwrite::{Answered, Asked, How, Observer, Tenant};
use firstwrite_core::{Rejection, RejectionKind};
use tokio::time::Instant;

/// What one tenant may do.
#[derive(Clone, Debug, Default)]
pub struct TenantLimits {
    /// New keys.
    pub new_keys: Option<Rate>,
    /// Requests under keys, new or not.
    pub requests: Option<Rate>,
    /// Requests under way at the same time.
    pub in_flight_max: Option<u32>,
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
    /// `usual` for every tenant, but for those that are named.
    pub fn new(
        usual: TenantLimits,
        special: HashMap<String, TenantLimits>,
        next: Arc<dyn Observer>,
    ) -> Self {
        Self { usual, special, used: Mutex::default(), next }
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
        if let Some(wait) = used.new_keys.wait(limits.new_keys, now) {
            return Err(Refused { what: "too many new keys", wait });
        }
        used.requests.tokens -= 1.0;
        used.new_keys.tokens -= 1.0;
        used.in_flight += 1;
        Ok(())
    }

    /// Gives back what a request did not need, and what it needs no longer.
    fn give_back(&self, tenant: &Tenant, how: How) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(used) = used.get_mut(tenant) else { return };
        used.in_flight = used.in_flight.saturating_sub(1);
        let made_a_key = match how {
            How::Ran | How::Accepted | How::Abandoned => true,
            How::Replayed | How::Refused(_) | How::Malformed => false,
        };
        if !made_a_key {
            used.new_keys.tokens += 1.0;
        }
    }
}

/// Why a request is refused, and when the next one may come.
struct Refused {
    what: &'static str,
    wait: Duration,
}

impl Observer for Limits {
    fn admit(&self, asked: &Asked<'_>) -> Result<(), Rejection> {
        self.next.admit(asked)?;
        self.take(asked.tenant, Instant::now()).map_err(|Refused { what, wait }| {
            tracing::info!(tenant = asked.tenant.as_str(), what, "a tenant's limit was reached");
            Rejection::new(RejectionKind::RateLimited)
                .detail(format!("This tenant's limit is reached: {what}. Nothing was run."))
                .retry_after(wait)
        })
    }

    fn reserved(&self, took: Duration) {
        self.next.reserved(took);
    }

    fn answered(&self, answered: &Answered<'_>) {
        if let Some(tenant) = answered.tenant.filter(|_| answered.was_admitted) {
            self.give_back(tenant, answered.how);
        }
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
mod tests {
    use super::*;

    struct Nobody;

    impl Observer for Nobody {}

    fn limits(usual: TenantLimits) -> Limits {
        let special = HashMap::from([("big".to_owned(), TenantLimits::default())]);
        Limits::new(usual, special, Arc::new(Nobody))
    }

    fn tenant(name: &str) -> Tenant {
        Tenant::new(name).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_is_used_up_and_comes_back() {
        let rate = Some(Rate { per_second: 2.0, burst: 3.0 });
        let limits = limits(TenantLimits { requests: rate, ..TenantLimits::default() });
        let acme = tenant("acme");
        for _ in 0..3 {
            assert!(limits.take(&acme, Instant::now()).is_ok());
        }
        let refused = limits.take(&acme, Instant::now()).err().unwrap();
        assert_eq!((refused.what, refused.wait), ("too many requests", Duration::from_millis(500)));
        assert!(limits.take(&tenant("globex"), Instant::now()).is_ok(), "others do not notice");
        assert!(limits.take(&tenant("big"), Instant::now()).is_ok());
        tokio::time::advance(Duration::from_millis(500)).await;
        assert!(limits.take(&acme, Instant::now()).is_ok());
        assert!(limits.take(&acme, Instant::now()).is_err());
        tokio::time::advance(Duration::from_hours(1)).await;
        for _ in 0..3 {
            assert!(limits.take(&acme, Instant::now()).is_ok());
        }
        assert!(limits.take(&acme, Instant::now()).is_err(), "no more than the burst is saved up");
    }

    #[tokio::test(start_paused = true)]
    async fn a_replay_costs_no_new_key() {
        let rate = Some(Rate { per_second: 0.001, burst: 1.0 });
        let limits = limits(TenantLimits { new_keys: rate, ..TenantLimits::default() });
        let acme = tenant("acme");
        for how in [How::Replayed, How::Refused(RejectionKind::KeyReused), How::Malformed] {
            assert!(limits.take(&acme, Instant::now()).is_ok(), "{how:?}");
            limits.give_back(&acme, how);
        }
        assert!(limits.take(&acme, Instant::now()).is_ok());
        limits.give_back(&acme, How::Ran);
        let refused = limits.take(&acme, Instant::now()).err().unwrap();
        assert_eq!(refused.what, "too many new keys");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_under_way_is_counted_until_it_ends() {
        let limits = limits(TenantLimits { in_flight_max: Some(2), ..TenantLimits::default() });
        let acme = tenant("acme");
        assert!(limits.take(&acme, Instant::now()).is_ok());
        assert!(limits.take(&acme, Instant::now()).is_ok());
        assert!(limits.take(&acme, Instant::now()).is_err());
        limits.give_back(&acme, How::Abandoned);
        assert!(limits.take(&acme, Instant::now()).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn tenants_are_forgotten_when_there_are_too_many() {
        let limits = limits(TenantLimits::default());
        for number in 0..TENANTS_MAX {
            let one = tenant(&format!("t{number}"));
            assert!(limits.take(&one, Instant::now()).is_ok());
            limits.give_back(&one, How::Ran);
        }
        let newcomer = tenant("newcomer");
        assert!(limits.take(&newcomer, Instant::now()).is_err());
        assert!(limits.take(&tenant("t7"), Instant::now()).is_ok(), "who is known is served");
        tokio::time::advance(FORGOTTEN_AFTER).await;
        assert!(limits.take(&newcomer, Instant::now()).is_ok());
        let count = limits.used.lock().unwrap().len();
        assert_eq!(count, 2, "t7 is under way, and the newcomer");
    }
}
