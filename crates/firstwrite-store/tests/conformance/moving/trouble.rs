//! A store that is away, and acknowledgements that are lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use firstwrite_core::{
    AuditEntry, Audited, BoxFuture, Capabilities, Certainty, Change, Draft, Fence, Found, Guard,
    Inserted, Page, Query, RecordId, Store, StoreError, StoreErrorKind, Swapped, Timestamp,
    UsagePage,
};
use firstwrite_store::MovingStore;
use firstwrite_testkit::{Fault, FaultyStore, sample};

use super::{Houses, granted, policy, refused, request};

/// Answers so many look-ups and is away from then on.
#[derive(Debug)]
struct Fading {
    inner: Arc<dyn Store>,
    left: AtomicUsize,
}

impl Fading {
    fn new(inner: &Arc<dyn Store>, left: usize) -> Arc<Self> {
        Arc::new(Self { inner: Arc::clone(inner), left: AtomicUsize::new(left) })
    }

    fn pass(&self) -> Result<(), StoreError> {
        let less = |left: usize| left.checked_sub(1);
        let passed = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        passed.map(drop).map_err(|_none_left| {
            StoreError::definite(StoreErrorKind::Unavailable, "asking a store that is away")
        })
    }

    fn through<'a, T: 'a>(
        &'a self,
        call: BoxFuture<'a, Result<T, StoreError>>,
    ) -> BoxFuture<'a, Result<T, StoreError>> {
        Box::pin(async move {
            self.pass()?;
            call.await
        })
    }
}

impl Store for Fading {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn insert<'a>(&'a self, draft: &'a Draft) -> BoxFuture<'a, Result<Inserted, StoreError>> {
        self.through(self.inner.insert(draft))
    }

    fn swap<'a>(
        &'a self,
        id: RecordId,
        guard: Guard,
        change: Change,
        audit: Option<&'a AuditEntry>,
    ) -> BoxFuture<'a, Result<Swapped, StoreError>> {
        self.through(self.inner.swap(id, guard, change, audit))
    }

    fn get(&self, id: RecordId) -> BoxFuture<'_, Result<Option<Found>, StoreError>> {
        self.through(self.inner.get(id))
    }

    fn list<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Page, StoreError>> {
        self.through(self.inner.list(query))
    }

    fn usage(
        &self,
        after: Option<RecordId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<UsagePage, StoreError>> {
        self.through(self.inner.usage(after, limit))
    }

    fn lapsed(&self, limit: usize) -> BoxFuture<'_, Result<Vec<Found>, StoreError>> {
        self.through(self.inner.lapsed(limit))
    }

    fn reap(&self, limit: usize) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.through(self.inner.reap(limit))
    }

    fn audits(&self, id: RecordId) -> BoxFuture<'_, Result<Vec<Audited>, StoreError>> {
        self.through(self.inner.audits(id))
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        self.through(self.inner.now())
    }
}

/// Away before the insert, or between the insert and the look: nothing may run, and nothing is left.
#[tokio::test]
async fn while_the_other_store_is_away_nothing_runs() {
    let houses = Houses::new();
    for answered in [0, 1] {
        let other = Fading::new(&houses.old, answered);
        let moving = MovingStore::new(Arc::clone(&houses.new), other);
        let draft = sample::reserved(&request("a"), &policy(), Fence::first(1));
        let error = moving.insert(&draft).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.certainty()),
            (StoreErrorKind::Unavailable, Certainty::Definite)
        );
        assert!(houses.new.get(draft.id).await.unwrap().is_none(), "it was withdrawn");
        assert!(moving.now().await.is_err(), "whoever waits for it must ask both");
    }
    let _fresh = granted(&houses.after, "a", &policy()).await;
}

/// What could not be withdrawn is said to be there, perhaps: the caller withdraws it later.
#[tokio::test]
async fn a_write_that_cannot_be_withdrawn_is_not_denied() {
    let houses = Houses::new();
    let new = Arc::new(FaultyStore::new(Arc::clone(&houses.new), &[Fault::None, Fault::Refused]));
    let moving = MovingStore::new(new, Fading::new(&houses.old, 1));
    let draft = sample::reserved(&request("a"), &policy(), Fence::first(1));
    let error = moving.insert(&draft).await.unwrap_err();
    assert_eq!(error.certainty(), Certainty::Indeterminate);
}

/// A repeated insert meets a rival who came in between, and takes back what it wrote the first time.
#[tokio::test]
async fn an_insert_that_was_not_acknowledged_is_taken_back_for_a_rival() {
    let houses = Houses::new();
    let new = Arc::new(FaultyStore::new(Arc::clone(&houses.new), &[Fault::LostAfter]));
    let moving = MovingStore::new(new, Arc::clone(&houses.old));
    let mine = sample::reserved(&request("a"), &policy(), Fence::first(1));
    assert_eq!(moving.insert(&mine).await.unwrap_err().certainty(), Certainty::Indeterminate);
    assert!(houses.new.get(mine.id).await.unwrap().is_some());
    let theirs = sample::reserved(&request("a"), &policy(), Fence::first(2));
    assert!(matches!(houses.old.insert(&theirs).await.unwrap(), Inserted::Done(_)));
    let Inserted::Stands(found) = moving.insert(&mine).await.unwrap() else {
        panic!("two own the key");
    };
    assert_eq!(found.record.fence, theirs.fence);
    assert!(houses.new.get(mine.id).await.unwrap().is_none(), "nobody would ever end it");
    let verdict = refused(&moving, "a", &policy()).await;
    assert!(matches!(verdict, firstwrite_core::Verdict::InProgress { .. }), "{verdict:?}");
}
