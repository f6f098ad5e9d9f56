//! Estimates the server's time between two of its answers.
//!
//! Only answers from memory and from a cache need it. The server itself compares every deadline that is
//! written or acted on.

use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use crate::{Timestamp, lock};

/// The server's clock as last reported.
#[derive(Debug)]
pub struct ServerClock {
    read_host: fn() -> HostTime,
    heard: Mutex<Option<ServerTime>>,
}

#[derive(Clone, Copy, Debug)]
struct ServerTime {
    server: Timestamp,
    host: HostTime,
}

/// Two clocks of the host, because one of them stands still while a machine sleeps and the other can be set.
#[derive(Clone, Copy, Debug)]
pub struct HostTime {
    /// The monotonic clock.
    pub monotonic: Instant,
    /// The clock as it is set.
    pub wall: SystemTime,
}

impl ServerClock {
    /// A clock of which nothing is known yet. `read_host` reads the clocks of the host.
    pub fn new(read_host: fn() -> HostTime) -> Self {
        Self { read_host, heard: Mutex::default() }
    }

    /// Reads the clocks of the host.
    pub fn host(&self) -> HostTime {
        (self.read_host)()
    }

    /// Notes the server's time.
    pub fn heard(&self, server: Timestamp) {
        self.heard_since(server, self.host());
    }

    /// Notes the server's time, read at some moment since `asked`. However long the answer took, the
    /// estimate is not behind.
    pub fn heard_since(&self, server: Timestamp, asked: HostTime) {
        *lock(&self.heard) = Some(ServerTime { server, host: asked });
    }

    /// Returns the estimated time at the server, if it ever reported one. Rather late than early: an
    /// expired record must not be answered from memory.
    pub fn estimate(&self) -> Option<Timestamp> {
        let heard = (*lock(&self.heard))?;
        Some(heard.server.plus(self.host().since(heard.host)))
    }
}

impl HostTime {
    fn since(self, earlier: Self) -> Duration {
        let monotonic = self.monotonic.saturating_duration_since(earlier.monotonic);
        monotonic.max(self.wall.duration_since(earlier.wall).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "a reading has no other beginning")]
    fn now() -> HostTime {
        HostTime { monotonic: Instant::now(), wall: SystemTime::now() }
    }

    #[test]
    fn a_host_that_slept_or_was_set_back_is_not_behind_the_server() {
        let start = now();
        let (second, hour) = (Duration::from_secs(1), Duration::from_hours(1));
        let slept = HostTime { monotonic: start.monotonic + second, wall: start.wall + hour };
        assert_eq!(slept.since(start), hour);
        let set_back = HostTime { monotonic: start.monotonic + second, wall: start.wall - hour };
        assert_eq!(set_back.since(start), second);
    }

    #[test]
    fn nothing_is_estimated_before_the_server_spoke() {
        let clock = ServerClock::new(now);
        assert_eq!(clock.estimate(), None);
        clock.heard(Timestamp::from_millis(5000));
        assert!(clock.estimate() >= Some(Timestamp::from_millis(5000)));
    }

    #[test]
    fn an_answer_that_took_long_does_not_put_the_clock_back() {
        let HostTime { monotonic, wall } = now();
        let minute = Duration::from_mins(1);
        let asked = HostTime { monotonic: monotonic.checked_sub(minute).unwrap(), wall };
        let clock = ServerClock::new(now);
        clock.heard_since(Timestamp::from_millis(5000), asked);
        assert!(clock.estimate() >= Some(Timestamp::from_millis(65_000)));
    }
}
