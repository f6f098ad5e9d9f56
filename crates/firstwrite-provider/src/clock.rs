//! The provider's clock: the system's, or a test's.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A point in time, to the millisecond; RFC 3339 in UTC as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

/// Source of the provider's time: dates of payments, expiry of keys, rate limits, and the timestamps of
/// webhooks. Delays are waited for in real time.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Moment + Send + Sync>);

/// A clock that stands until it is turned.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicU64>);

impl Moment {
    /// The end of the year 9999: RFC 3339 has no year after it.
    const MILLIS_MAX: u64 = 253_402_300_799_999;

    /// From milliseconds since 1970.
    pub fn from_millis(millis: u64) -> Self {
        Self(millis.min(Self::MILLIS_MAX))
    }

    /// Milliseconds since 1970.
    pub fn as_millis(self) -> u64 {
        self.0
    }

    /// Seconds since 1970.
    pub fn as_seconds(self) -> u64 {
        self.0 / 1000
    }

    /// So much later.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self::from_millis(self.0.saturating_add(millis(duration)))
    }

    /// So much earlier.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(millis(duration)))
    }
}

impl From<SystemTime> for Moment {
    fn from(time: SystemTime) -> Self {
        Self::from_millis(millis(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(self.0);
        humantime::format_rfc3339_millis(time).fmt(f)
    }
}

impl FromStr for Moment {
    type Err = humantime::TimestampError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        humantime::parse_rfc3339(text).map(Self::from)
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(|error| {
            serde::de::Error::custom(format_args!(
                "not a time in UTC such as 2026-01-31T12:00:00Z: {error}"
            ))
        })
    }
}

impl Clock {
    /// The system's.
    pub fn system() -> Self {
        Self::new(|| {
            #[expect(clippy::disallowed_methods, reason = "this is the clock that others take")]
            let now = SystemTime::now();
            Moment::from(now)
        })
    }

    /// Whatever `now` says.
    pub fn new(now: impl Fn() -> Moment + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Returns the current time.
    pub fn now(&self) -> Moment {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}

impl ManualClock {
    /// A clock that stands at `moment`.
    pub fn at(moment: Moment) -> Self {
        Self(Arc::new(AtomicU64::new(moment.0)))
    }

    /// Turns it on.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(millis(by), Ordering::SeqCst);
    }

    /// This clock, as the provider takes it.
    pub fn clock(&self) -> Clock {
        let millis = Arc::clone(&self.0);
        Clock::new(move || Moment::from_millis(millis.load(Ordering::SeqCst)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_with_milliseconds_and_read_back() {
        let moment: Moment = "2026-01-31T12:00:00.25Z".parse().unwrap();
        assert_eq!(moment.to_string(), "2026-01-31T12:00:00.250Z");
        assert_eq!(moment.to_string().parse(), Ok(moment));
    }

    #[test]
    fn no_moment_is_too_late_to_be_written() {
        let last = Moment::from_millis(u64::MAX).plus(Duration::MAX);
        assert_eq!(last.to_string(), "9999-12-31T23:59:59.999Z");
    }
}
