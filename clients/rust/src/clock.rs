//! Time and waiting, so that a test decides both.

mod timer;

use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime};

use crate::BoxFuture;
use crate::rules::Timestamp;

/// Tells the time and waits.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The time of day, which people set and machines correct.
    fn now(&self) -> Timestamp;

    /// The time since a moment of the clock's own choosing, which never goes back.
    fn elapsed(&self) -> Duration;

    /// Waits.
    fn wait(&self, time: Duration) -> BoxFuture<'static, ()>;
}

/// The clock of the machine. One thread serves all who wait, on any runtime or none.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
    timer: timer::Timer,
}

impl SystemClock {
    /// A clock with a thread of its own, which ends with it.
    #[expect(clippy::disallowed_methods, reason = "the one place where this crate reads the clock")]
    pub fn new() -> Self {
        Self { started: Instant::now(), timer: timer::Timer::default() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place where this crate reads the clock")]
    fn now(&self) -> Timestamp {
        SystemTime::now().into()
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn wait(&self, time: Duration) -> BoxFuture<'static, ()> {
        self.timer.wait(time)
    }
}
