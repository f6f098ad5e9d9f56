//! A store that can be away.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use firstwrite::core::outbox::Outbox;
use firstwrite::core::{
    AuditEntry, Audited, BoxFuture, Capabilities, Change, Draft, Found, Guard, Inserted,
    MemoryStore, Page, Query, Store, StoreError, StoreErrorKind, Swapped, Timestamp, UsagePage,
};
use firstwrite::{RecordId, memory_store};

#[derive(Debug)]
pub(crate) struct FailingStore {
    pub(crate) memory: MemoryStore,
    is_away: AtomicBool,
    refused: AtomicUsize,
}

impl FailingStore {
    pub(crate) fn new() -> Self {
        Self {
            memory: memory_store(),
            is_away: AtomicBool::new(false),
            refused: AtomicUsize::new(0),
        }
    }

    pub(crate) fn goes_away(&self) {
        self.is_away.store(true, Ordering::SeqCst);
    }

    pub(crate) fn comes_back(&self) {
        self.is_away.store(false, Ordering::SeqCst);
    }

    /// How many calls were refused while it was away.
    pub(crate) fn refused(&self) -> usize {
        self.refused.load(Ordering::SeqCst)
    }

    fn or_away<'a, T: Send + 'a>(
        &'a self,
        doing: BoxFuture<'a, Result<T, StoreError>>,
    ) -> BoxFuture<'a, Result<T, StoreError>> {
        if self.is_away.load(Ordering::SeqCst) {
            self.refused.fetch_add(1, Ordering::SeqCst);
            let away = StoreError::definite(StoreErrorKind::Unavailable, "testing");
            return Box::pin(async { Err(away) });
        }
        doing
    }
}

impl Store for FailingStore {
    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }

    fn insert<'a>(&'a self, draft: &'a Draft) -> BoxFuture<'a, Result<Inserted, StoreError>> {
        self.or_away(self.memory.insert(draft))
    }

    fn swap<'a>(
        &'a self,
        id: RecordId,
        guard: Guard,
        change: Change,
        audit: Option<&'a AuditEntry>,
    ) -> BoxFuture<'a, Result<Swapped, StoreError>> {
        self.or_away(self.memory.swap(id, guard, change, audit))
    }

    fn get(&self, id: RecordId) -> BoxFuture<'_, Result<Option<Found>, StoreError>> {
        self.or_away(self.memory.get(id))
    }

    fn list<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Page, StoreError>> {
        self.or_away(self.memory.list(query))
    }

    fn usage(
        &self,
        after: Option<RecordId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<UsagePage, StoreError>> {
        self.or_away(self.memory.usage(after, limit))
    }

    fn lapsed(&self, limit: usize) -> BoxFuture<'_, Result<Vec<Found>, StoreError>> {
        self.or_away(self.memory.lapsed(limit))
    }

    fn reap(&self, limit: usize) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.or_away(self.memory.reap(limit))
    }

    fn audits(&self, id: RecordId) -> BoxFuture<'_, Result<Vec<Audited>, StoreError>> {
        self.or_away(self.memory.audits(id))
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        self.or_away(self.memory.now())
    }

    fn outbox(&self) -> Option<&dyn Outbox> {
        self.memory.outbox()
    }
}
