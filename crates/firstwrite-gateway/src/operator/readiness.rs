//! Readiness of the gateway: its store answers, and it is not about to stop.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use firstwrite_core::Store;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// Readiness check.
pub(super) struct Readiness {
    store: Arc<dyn Store>,
    is_draining: AtomicBool,
    /// Last result and its time. Concurrent callers wait for a check that is under way.
    last: Mutex<Option<(Instant, Ready)>>,
}

/// Ready, or why not.
pub(super) type Ready = Result<(), &'static str>;

/// Time for which a result is reused: asking more often tells nothing new and would only load the store.
const KEPT_FOR: Duration = Duration::from_secs(1);
/// Timeout of the store, shorter than that of probes; a store slower than this cannot serve.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

impl Readiness {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, is_draining: AtomicBool::new(false), last: Mutex::new(None) }
    }

    pub(super) fn drain(&self) {
        self.is_draining.store(true, Ordering::Release);
    }

    pub(super) async fn check(&self) -> Ready {
        if self.is_draining.load(Ordering::Acquire) {
            return Err("stopping\n");
        }
        let mut last = self.last.lock().await;
        if let Some((at, ready)) = &*last
            && at.elapsed() < KEPT_FOR
        {
            return *ready;
        }
        let ready = match timeout(ANSWER_WITHIN, self.store.now()).await {
            Ok(Ok(_now)) => Ok(()),
            Ok(Err(error)) => {
                tracing::warn!(%error, "not ready: the store cannot be reached");
                Err("the store cannot be reached\n")
            }
            Err(_elapsed) => {
                tracing::warn!("not ready: the store does not answer in time");
                Err("the store does not answer in time\n")
            }
        };
        *last = Some((Instant::now(), ready));
        ready
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readiness").field("is_draining", &self.is_draining).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use firstwrite_core::{MemoryStore, Timestamp};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_store_is_asked_once_a_second_however_many_ask() {
        let asked = Arc::new(AtomicUsize::new(0));
        let asking = Arc::clone(&asked);
        let store = MemoryStore::new(move || {
            asking.fetch_add(1, Ordering::SeqCst);
            Timestamp::EPOCH
        });
        let readiness = Readiness::new(Arc::new(store));
        let check = async |expected: usize| {
            let ready = tokio::join!(readiness.check(), readiness.check(), readiness.check());
            assert_eq!(ready, (Ok(()), Ok(()), Ok(())));
            assert_eq!(asked.load(Ordering::SeqCst), expected);
        };
        check(1).await;
        tokio::time::advance(Duration::from_millis(999)).await;
        check(1).await;
        tokio::time::advance(Duration::from_millis(1)).await;
        check(2).await;
    }
}
