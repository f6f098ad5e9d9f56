//! A store whose failures are counted. It decides nothing and changes nothing.

use std::fmt;
use std::sync::Arc;

use firstwrite_core::{BoxFuture, Store, StoreError, delegate_store};

use super::Metrics;

/// A store in front of another.
pub(super) struct CountingStore {
    inner: Arc<dyn Store>,
    metrics: Arc<Metrics>,
}

impl CountingStore {
    pub(super) fn new(inner: Arc<dyn Store>, metrics: Arc<Metrics>) -> Self {
        Self { inner, metrics }
    }

    fn counted<'a, T: 'a>(
        &'a self,
        step: &'static str,
        doing: BoxFuture<'a, Result<T, StoreError>>,
    ) -> BoxFuture<'a, Result<T, StoreError>> {
        Box::pin(async move {
            let done = doing.await;
            if let Err(error) = &done {
                self.metrics.store_failed(step, error);
            }
            done
        })
    }
}

impl Store for CountingStore {
    delegate_store!(inner: capabilities, outbox, documents);
    delegate_store!(
        inner via counted:
            insert, swap, get, list, usage, reap, audits, now, check_history
    );
}

impl fmt::Debug for CountingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
