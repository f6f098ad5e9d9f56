//! Estimates the server's time between two of its answers.
//!
//! Only answers from memory and from a cache need it. The server itself compares every deadline that is
//! written or acted on.

use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use firstwrite_core::{Timestamp, lock};

/// The server's clock as last reported.
#[derive(Debug, Default)]
pub(crate) struct ServerClock {
    heard: Mutex<Option<ServerTime>>,
}

#[derive(Clone, Copy, Debug)]
struct ServerTime {
    server: Timestamp,
    host: Reading,
}

/// Two clocks, because one of them stands still while a machine sleeps and the other can be set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    monotonic: Instant,
    wall: SystemTime,
}

impl ServerClock {
    /// Notes the server's time.
    #[cfg(feature = "postgres")]
    pub(crate) fn heard(&self, server: Timestamp) {
        self.heard_since(server, Reading::now());
    }

    /// Notes the server's time, read at some moment since `asked`. However long the answer took, the
    /// estimate is not behind.
    pub(crate) fn heard_since(&self, server: Timestamp, asked: Reading) {
        *lock(&self.heard) = Some(ServerTime { server, host: asked });
    }

    /// Returns the estimated time at the server, if it ever reported one. Rather late than early: an
    /// expired record must not be answered from memory.
    pub(crate) fn estimate(&self) -> Option<Timestamp> {
        let heard = (*lock(&self.heard))?;
        Some(heard.server.plus(Reading::now().since(heard.host)))
    }
}

impl Reading {
    #[expect(clippy::disallowed_methods, reason = "the time between two of the server's answers")]
    pub(crate) fn now() -> Self {
        Self { monotonic: Instant::now(), wall: SystemTime::now() }
    }

    fn since(self, earlier: Self) -> Duration {
        let monotonic = self.monotonic.saturating_duration_since(earlier.monotonic);
        monotonic.max(self.wall.duration_since(earlier.wall).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_slept_or_was_set_back_is_not_behind_the_server() {
        let start = Reading::now();
        let (second, hour) = (Duration::from_secs(1), Duration::from_hours(1));
        let slept = Reading { monotonic: start.monotonic + second, wall: start.wall + hour };
        assert_eq!(slept.since(start), hour);
        let set_back = Reading { monotonic: start.monotonic + second, wall: start.wall - hour };
        assert_eq!(set_back.since(start), second);
    }

    #[test]
    fn nothing_is_estimated_before_the_server_spoke() {
        let clock = ServerClock::default();
        assert_eq!(clock.estimate(), None);
        clock.heard_since(Timestamp::from_millis(5000), Reading::now());
        assert!(clock.estimate() >= Some(Timestamp::from_millis(5000)));
    }

    #[test]
    fn an_answer_that_took_long_does_not_put_the_clock_back() {
        let Reading { monotonic, wall } = Reading::now();
        let minute = Duration::from_mins(1);
        let asked = Reading { monotonic: monotonic.checked_sub(minute).unwrap(), wall };
        let clock = ServerClock::default();
        clock.heard_since(Timestamp::from_millis(5000), asked);
        assert!(clock.estimate() >= Some(Timestamp::from_millis(65_000)));
    }
}
