//! A store in memory whose calls are counted, and fail or wait on demand.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use firstwrite_core::{
    AsyncTransactionalStore, AuditEntry, BeginResult, BoxFuture, Change, Conclusion, Draft, Found,
    Guard, HeldMemoryTx, Inserted, MemoryStore, MemoryTx, Page, Query, RecordId, Store, StoreError,
    StoreErrorKind, Swapped, Transacted, TransactionalStore, Write, delegate_store,
};
use tokio::sync::Semaphore;

/// The watched store. Clones are one store.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) memory: MemoryStore,
    calls: Arc<AtomicUsize>,
    failing: Arc<Mutex<HashMap<&'static str, StoreErrorKind>>>,
    /// Methods that do what they are asked and do not say so.
    mute: Arc<Mutex<Vec<&'static str>>>,
    /// Number of inserts that are still to be lost on their way.
    loses_inserts: Arc<AtomicUsize>,
    under_way: Arc<Mutex<Vec<Draft>>>,
    pub(crate) gate: Arc<Mutex<Option<Arc<Semaphore>>>>,
}

impl Watched {
    pub(crate) fn over(memory: MemoryStore) -> Self {
        Self {
            memory,
            calls: Arc::default(),
            failing: Arc::default(),
            mute: Arc::default(),
            loses_inserts: Arc::default(),
            under_way: Arc::default(),
            gate: Arc::default(),
        }
    }

    /// Returns the number of calls to the store, by whatever method.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    pub(crate) fn fail(&self, method: &'static str) {
        self.fail_as(method, StoreErrorKind::Unavailable);
    }

    pub(crate) fn fail_as(&self, method: &'static str, kind: StoreErrorKind) {
        self.failing.lock().unwrap().insert(method, kind);
    }

    pub(crate) fn recover(&self) {
        self.failing.lock().unwrap().clear();
    }

    /// The next call of `method` takes effect, and its acknowledgement is lost.
    pub(crate) fn lose_acknowledgement(&self, method: &'static str) {
        self.mute.lock().unwrap().push(method);
    }

    /// The next `count` inserts are given up by their sender, and are under way until
    /// [`arrive`](Self::arrive).
    pub(crate) fn lose_inserts(&self, count: usize) {
        self.loses_inserts.store(count, Ordering::SeqCst);
    }

    /// One of the lost inserts arrives.
    pub(crate) async fn arrive(&self) {
        let draft = self.under_way.lock().unwrap().pop().expect("an insert was lost");
        self.memory.insert(&draft).await.unwrap();
    }

    async fn call(&self, method: &'static str) -> Result<(), StoreError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let gate = self.gate.lock().unwrap().clone();
        if let Some(gate) = gate {
            gate.acquire().await.unwrap().forget();
        }
        match self.failing.lock().unwrap().get(method) {
            Some(kind) => Err(StoreError::definite(*kind, "a test")),
            None => Ok(()),
        }
    }
}

impl Watched {
    /// Fails if the acknowledgement of a call that took effect is to be lost.
    fn acknowledge(&self, method: &'static str) -> Result<(), StoreError> {
        let mut mute = self.mute.lock().unwrap();
        let Some(at) = mute.iter().position(|mute| *mute == method) else { return Ok(()) };
        mute.remove(at);
        Err(StoreError::indeterminate(StoreErrorKind::Unavailable, "a test"))
    }
}

impl Store for Watched {
    delegate_store!(memory: capabilities, usage, audits, now, outbox, documents);

    fn insert<'a>(&'a self, draft: &'a Draft) -> BoxFuture<'a, Result<Inserted, StoreError>> {
        Box::pin(async move {
            self.call("insert").await?;
            let lost = |left: usize| left.checked_sub(1);
            if self.loses_inserts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, lost).is_ok() {
                self.under_way.lock().unwrap().push(draft.clone());
                return Err(StoreError::indeterminate(StoreErrorKind::Unavailable, "a test"));
            }
            let inserted = self.memory.insert(draft).await?;
            self.acknowledge("insert").map(|()| inserted)
        })
    }

    fn swap<'a>(
        &'a self,
        id: RecordId,
        guard: Guard,
        change: Change,
        audit: Option<&'a AuditEntry>,
    ) -> BoxFuture<'a, Result<Swapped, StoreError>> {
        Box::pin(async move {
            self.call("swap").await?;
            let swapped = self.memory.swap(id, guard, change, audit).await?;
            self.acknowledge("swap").map(|()| swapped)
        })
    }

    fn get(&self, id: RecordId) -> BoxFuture<'_, Result<Option<Found>, StoreError>> {
        Box::pin(async move {
            self.call("get").await?;
            self.memory.get(id).await
        })
    }

    fn list<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Page, StoreError>> {
        Box::pin(async move {
            self.call("list").await?;
            self.memory.list(query).await
        })
    }

    fn reap(&self, limit: usize) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(async move {
            self.call("reap").await?;
            self.memory.reap(limit).await
        })
    }

    fn check_history(&self, id: RecordId) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.call("check_history").await?;
            self.memory.check_history(id).await
        })
    }
}

impl TransactionalStore for Watched {
    type Tx<'t> = MemoryTx<'t>;

    async fn transact<T, W>(&self, id: RecordId, work: W) -> Result<Transacted<T>, StoreError>
    where
        T: Send + 'static,
        W: for<'t> FnOnce(&mut MemoryTx<'t>, Option<Found>) -> Conclusion<T> + Send + 'static,
    {
        self.call("transact").await?;
        self.memory.transact(id, work).await
    }
}

impl AsyncTransactionalStore for Watched {
    type Tx = HeldMemoryTx;

    async fn begin(&self, id: RecordId) -> Result<BeginResult<HeldMemoryTx>, StoreError> {
        self.call("begin").await?;
        self.memory.begin(id).await
    }

    async fn conclude(&self, tx: HeldMemoryTx, write: Write) -> Result<Transacted<()>, StoreError> {
        self.call("conclude").await?;
        let concluded = self.memory.conclude(tx, write).await;
        self.acknowledge("conclude").and(concluded)
    }
}
