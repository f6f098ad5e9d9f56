//! A store whose failures are counted. It decides nothing and changes nothing.

use std::fmt;
use std::sync::Arc;

use firstwrite_core::Documents;
use firstwrite_core::outbox::Outbox;
use firstwrite_core::{
    AuditEntry, Audited, BoxFuture, Capabilities, Change, Draft, Found, Guard, Inserted, Page,
    Query, RecordId, Store, StoreError, Swapped, Timestamp, UsagePage,
};

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
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn insert<'a>(&'a self, draft: &'a Draft) -> BoxFuture<'a, Result<Inserted, StoreError>> {
        self.counted("insert", self.inner.insert(draft))
    }

    fn swap<'a>(
        &'a self,
        id: RecordId,
        guard: Guard,
        change: Change,
        audit: Option<&'a AuditEntry>,
    ) -> BoxFuture<'a, Result<Swapped, StoreError>> {
        self.counted("swap", self.inner.swap(id, guard, change, audit))
    }

    fn get(&self, id: RecordId) -> BoxFuture<'_, Result<Option<Found>, StoreError>> {
        self.counted("get", self.inner.get(id))
    }

    fn list<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Page, StoreError>> {
        self.counted("list", self.inner.list(query))
    }

    fn usage(
        &self,
        after: Option<RecordId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<UsagePage, StoreError>> {
        self.counted("usage", self.inner.usage(after, limit))
    }

    fn lapsed(&self, limit: usize) -> BoxFuture<'_, Result<Vec<Found>, StoreError>> {
        self.counted("lapsed", self.inner.lapsed(limit))
    }

    fn reap(&self, limit: usize) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.counted("reap", self.inner.reap(limit))
    }

    fn audits(&self, id: RecordId) -> BoxFuture<'_, Result<Vec<Audited>, StoreError>> {
        self.counted("audits", self.inner.audits(id))
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        self.counted("now", self.inner.now())
    }

    fn check_history(&self, id: RecordId) -> BoxFuture<'_, Result<(), StoreError>> {
        self.counted("check_history", self.inner.check_history(id))
    }

    fn outbox(&self) -> Option<&dyn Outbox> {
        self.inner.outbox()
    }

    fn documents(&self) -> Option<&dyn Documents> {
        self.inner.documents()
    }
}

impl fmt::Debug for CountingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
