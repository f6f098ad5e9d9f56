//! Time, in one place: measuring, waiting, giving up.
//!
//! These tasks watch real processes, so they live on the machine's clock; every wait has a limit.

use std::time::{Duration, Instant};

/// Measures from the moment it was started.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

/// A moment after which waiting is pointless.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    since: Stopwatch,
    limit: Duration,
}

impl Stopwatch {
    /// Starts it.
    #[expect(clippy::disallowed_methods, reason = "the one place where tasks read the clock")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since it was started.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// The same in seconds.
    pub fn seconds(self) -> f64 {
        self.elapsed().as_secs_f64()
    }
}

impl Deadline {
    pub(crate) fn after(limit: Duration) -> Self {
        Self { since: Stopwatch::start(), limit }
    }

    pub(crate) fn is_over(self) -> bool {
        self.since.elapsed() >= self.limit
    }

    pub(crate) fn left(self) -> Duration {
        self.limit.saturating_sub(self.since.elapsed())
    }
}

/// Lets other processes work for a moment.
#[expect(clippy::disallowed_methods, reason = "a foreign process cannot be driven by a test clock")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Asks again and again until the answer is yes or `limit` has passed; says which.
pub fn wait_until(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    const BETWEEN_QUESTIONS: Duration = Duration::from_millis(10);
    let deadline = Deadline::after(limit);
    loop {
        if is_so() {
            return true;
        }
        if deadline.is_over() {
            return false;
        }
        pause(BETWEEN_QUESTIONS.min(deadline.left()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_with_the_answer_or_the_limit() {
        let mut asked = 0;
        assert!(wait_until(Duration::from_mins(1), || {
            asked += 1;
            asked == 3
        }));
        assert!(!wait_until(Duration::ZERO, || false));
    }
}
