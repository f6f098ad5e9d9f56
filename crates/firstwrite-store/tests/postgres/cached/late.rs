//! A store whose answer to one look-up is a while on its way.

use std::sync::Mutex;

use firstwrite_core::{
    AuditEntry, Audited, BoxFuture, Capabilities, Change, Draft, Found, Guard, Inserted, Page,
    Query, RecordId, Store, StoreError, Swapped, Timestamp, UsagePage,
};
use firstwrite_store::PostgresStore;

/// Before the next look-up's answer arrives, something else happens.
pub(super) struct Late {
    inner: PostgresStore,
    meanwhile: Mutex<Option<BoxFuture<'static, ()>>>,
}

impl Late {
    pub(super) fn new(inner: PostgresStore, meanwhile: BoxFuture<'static, ()>) -> Self {
        Self { inner, meanwhile: Mutex::new(Some(meanwhile)) }
    }
}

impl std::fmt::Debug for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Late").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Store for Late {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn insert<'a>(&'a self, draft: &'a Draft) -> BoxFuture<'a, Result<Inserted, StoreError>> {
        self.inner.insert(draft)
    }

    fn swap<'a>(
        &'a self,
        id: RecordId,
        guard: Guard,
        change: Change,
        audit: Option<&'a AuditEntry>,
    ) -> BoxFuture<'a, Result<Swapped, StoreError>> {
        self.inner.swap(id, guard, change, audit)
    }

    fn get(&self, id: RecordId) -> BoxFuture<'_, Result<Option<Found>, StoreError>> {
        let meanwhile = self.meanwhile.lock().unwrap().take();
        Box::pin(async move {
            let found = self.inner.get(id).await;
            if let Some(meanwhile) = meanwhile {
                meanwhile.await;
            }
            found
        })
    }

    fn list<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Page, StoreError>> {
        self.inner.list(query)
    }

    fn usage(
        &self,
        after: Option<RecordId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<UsagePage, StoreError>> {
        self.inner.usage(after, limit)
    }

    fn lapsed(&self, limit: usize) -> BoxFuture<'_, Result<Vec<Found>, StoreError>> {
        self.inner.lapsed(limit)
    }

    fn reap(&self, limit: usize) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.inner.reap(limit)
    }

    fn audits(&self, id: RecordId) -> BoxFuture<'_, Result<Vec<Audited>, StoreError>> {
        self.inner.audits(id)
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        self.inner.now()
    }

    fn check_history(&self, id: RecordId) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.check_history(id)
    }
}
