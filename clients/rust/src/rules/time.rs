//! Time as it is written down: milliseconds since 1970, also before.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment by the clock of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The moment so many milliseconds after the first of January 1970.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the first of January 1970.
    pub const fn to_millis(self) -> i64 {
        self.0
    }

    /// The time from `earlier` until this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        let millis = self.0.saturating_sub(earlier.0);
        Duration::from_millis(u64::try_from(millis).unwrap_or(0))
    }

    /// The moment so much later.
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)))
    }

    /// The moment, by another clock, that is `here` by that clock and `there` by this one's.
    #[must_use]
    pub(crate) fn moved(self, there: Self, here: Self) -> Self {
        Self(here.0.saturating_add(self.0.saturating_sub(there.0)))
    }

    /// Reads an HTTP date. A leap second counts as the second before it.
    pub fn from_http_date(text: &str) -> Option<Self> {
        // In each of the three forms a space follows the seconds, and nothing else of two digits behind a colon.
        let text = text.trim().replacen(":60 ", ":59 ", 1);
        httpdate::parse_http_date(&text).ok().map(Self::from)
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let millis = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        Self(match time.duration_since(UNIX_EPOCH) {
            Ok(after) => millis(after),
            Err(before) => -millis(before.duration()),
        })
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = Duration::from_millis(u64::try_from(self.0).unwrap_or(0));
        f.write_str(&httpdate::fmt_http_date(UNIX_EPOCH + since))
    }
}
