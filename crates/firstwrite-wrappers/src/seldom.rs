//! Lines of the log that clients could repeat.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Keeps a line that repeats from filling the log: it is written at once, and then every ten seconds at the
/// most, with how often it was left out meanwhile.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    written_at: Option<Instant>,
    left_out: u64,
}

/// Often enough to see that something goes on.
const EVERY: Duration = Duration::from_secs(10);

impl Seldom {
    /// Returns how often the line was left out since it was last written, if it is to be written now.
    pub fn now(&self) -> Option<u64> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if lines.written_at.is_some_and(|at| now.duration_since(at) < EVERY) {
            lines.left_out += 1;
            return None;
        }
        lines.written_at = Some(now);
        Some(std::mem::take(&mut lines.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_line_is_written_at_once_and_its_repetitions_are_counted() {
        let seldom = Seldom::default();
        assert_eq!(seldom.now(), Some(0));
        for _ in 0..1000 {
            assert_eq!(seldom.now(), None);
        }
        tokio::time::advance(EVERY).await;
        assert_eq!((seldom.now(), seldom.now()), (Some(1000), None));
    }
}
