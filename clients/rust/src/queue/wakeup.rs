//! Waking the runners of a queue when something was enqueued.

use std::sync::{Mutex, PoisonError};

use futures_channel::oneshot;

/// Runners that rest.
#[derive(Debug, Default)]
pub(super) struct Wakeup {
    resting: Mutex<Vec<oneshot::Sender<()>>>,
}

impl Wakeup {
    /// A future that ends at the next [`wake`](Self::wake). Make it before looking at what there is to do.
    pub(super) fn next(&self) -> oneshot::Receiver<()> {
        let (told, telling) = oneshot::channel();
        let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        // Those whose runner has gone are of no use.
        resting.retain(|told| !told.is_canceled());
        resting.push(told);
        telling
    }

    pub(super) fn wake(&self) {
        // Dropping them is what wakes.
        self.resting.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
