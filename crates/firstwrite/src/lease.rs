//! Remaining time of a running attempt's lease, shared with the code that acts for the attempt.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The end of a lease that is being renewed, by this process's monotonic clock.
///
/// Never later than the store's own deadline: each renewal counts from before the store was asked.
#[derive(Clone, Debug)]
pub(crate) struct LeaseWatch(Arc<Mutex<Instant>>);

impl LeaseWatch {
    pub(crate) fn until(until: Instant) -> Self {
        Self(Arc::new(Mutex::new(until)))
    }

    pub(crate) fn renew(&self, until: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    /// Marks the lease as lost to another attempt, or over.
    pub(crate) fn end(&self) {
        self.renew(Instant::now());
    }

    pub(crate) fn left(&self) -> Duration {
        let until = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        until.saturating_duration_since(Instant::now())
    }
}
