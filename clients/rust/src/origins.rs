//! Knowledge of the servers that a client speaks to: retry budgets, and which of them have a status resource.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use http::Uri;

/// Servers, by scheme, host and port.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    known: Mutex<HashMap<String, Origin>>,
}

#[derive(Debug)]
struct Origin {
    budget: Budget,
    status: StatusResource,
}

/// A token bucket for retries, in thousandths of a token.
#[derive(Debug)]
struct Budget {
    tokens: i64,
    counted_at: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StatusResource {
    Unknown,
    There,
    /// It was asked for, and is not there.
    Missing,
}

const TOKEN: i64 = 1000;
/// Retries that may follow each other at once: a handful of intents in flight, each with its first retries.
const BUDGET_MAX: i64 = 20 * TOKEN;
/// One token in two seconds: what a client adds to a server that refuses everything.
const TOKEN_TIME: Duration = Duration::from_secs(2);
/// An application speaks to a few servers; whoever opens intents for more forgets what is known of all.
const ORIGINS_MAX: usize = 1000;

impl Origins {
    /// Takes a token for a retry; returns the time until it is there.
    pub(crate) fn take_token(&self, url: &Uri, elapsed: Duration) -> Duration {
        self.with(url, elapsed, |origin| origin.budget.take(elapsed))
    }

    /// An intent that ended `done` gives a token back.
    pub(crate) fn give_token(&self, url: &Uri, elapsed: Duration) {
        self.with(url, elapsed, |origin| origin.budget.give(elapsed));
    }

    /// Learns, from an answer or from an entry, that the server has a status resource; one that denied it has not.
    pub(crate) fn learn_status(&self, url: &Uri, elapsed: Duration) {
        self.with(url, elapsed, |origin| {
            if origin.status == StatusResource::Unknown {
                origin.status = StatusResource::There;
            }
        });
    }

    /// The server has no such resource, whatever else it says.
    pub(crate) fn forget_status(&self, url: &Uri, elapsed: Duration) {
        self.with(url, elapsed, |origin| origin.status = StatusResource::Missing);
    }

    pub(crate) fn has_status(&self, url: &Uri, elapsed: Duration) -> bool {
        self.with(url, elapsed, |origin| origin.status == StatusResource::There)
    }

    pub(crate) fn lacks_status(&self, url: &Uri, elapsed: Duration) -> bool {
        self.with(url, elapsed, |origin| origin.status == StatusResource::Missing)
    }

    fn with<T>(&self, url: &Uri, elapsed: Duration, look: impl FnOnce(&mut Origin) -> T) -> T {
        let mut known = self.known();
        let name = name(url);
        if known.len() >= ORIGINS_MAX && !known.contains_key(&name) {
            known.clear();
        }
        look(known.entry(name).or_insert_with(|| Origin {
            budget: Budget { tokens: BUDGET_MAX, counted_at: elapsed },
            status: StatusResource::Unknown,
        }))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Origin>> {
        self.known.lock().expect("counting does not panic")
    }
}

impl Budget {
    fn take(&mut self, elapsed: Duration) -> Duration {
        self.count(elapsed);
        self.tokens -= TOKEN;
        // Below zero stand those who wait already.
        let lacking = u32::try_from(-self.tokens).unwrap_or(0);
        TOKEN_TIME * lacking / 1000
    }

    fn give(&mut self, elapsed: Duration) {
        self.count(elapsed);
        self.tokens = (self.tokens + TOKEN).min(BUDGET_MAX);
    }

    fn count(&mut self, elapsed: Duration) {
        let part = TOKEN_TIME / 1000;
        let passed = elapsed.saturating_sub(self.counted_at).as_nanos() / part.as_nanos();
        // More than the bucket holds is lost anyway.
        let gained = u32::try_from(passed).unwrap_or(u32::MAX).min(1 << 20);
        self.tokens = (self.tokens + i64::from(gained)).min(BUDGET_MAX);
        // What does not make a whole part yet counts the next time.
        let is_long = passed > u128::from(gained);
        self.counted_at = if is_long { elapsed } else { self.counted_at + part * gained };
    }
}

fn name(url: &Uri) -> String {
    let scheme = url.scheme_str().unwrap_or_default();
    let authority = url.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    format!("{scheme}://{authority}").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn twenty_retries_are_free_and_then_one_in_two_seconds() {
        let (origins, url) = (Origins::default(), Uri::from_static("https://a.example/x"));
        for _ in 0..20 {
            assert_eq!(origins.take_token(&url, seconds(0)), Duration::ZERO);
        }
        assert_eq!(origins.take_token(&url, seconds(0)), seconds(2));
        assert_eq!(origins.take_token(&url, seconds(0)), seconds(4));
        assert_eq!(origins.take_token(&url, seconds(1)), seconds(5));
        // A token that is given back shortens the wait of all.
        origins.give_token(&url, seconds(1));
        assert_eq!(origins.take_token(&url, seconds(1)), seconds(5));
        // Another server's budget is its own, whatever the path.
        let other = Uri::from_static("https://b.example/x");
        assert_eq!(origins.take_token(&other, seconds(1)), Duration::ZERO);
        // After a long rest there are twenty again, and no more.
        for _ in 0..20 {
            assert_eq!(origins.take_token(&url, seconds(3600)), Duration::ZERO);
        }
        assert_eq!(
            origins.take_token(&Uri::from_static("HTTPS://A.example/y"), seconds(3600)),
            seconds(2)
        );
    }

    #[test]
    fn a_server_that_denied_its_status_resource_is_not_asked_again() {
        let (origins, url) = (Origins::default(), Uri::from_static("https://a.example/x"));
        assert!(!origins.has_status(&url, seconds(0)));
        origins.learn_status(&url, seconds(0));
        assert!(origins.has_status(&url, seconds(0)));
        origins.forget_status(&url, seconds(0));
        origins.learn_status(&url, seconds(0));
        assert!(!origins.has_status(&url, seconds(0)) && origins.lacks_status(&url, seconds(0)));
    }
}
