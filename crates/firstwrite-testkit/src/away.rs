//! A store that can be away.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use firstwrite_core::{
    AuditEntry, BoxFuture, Change, Guard, RecordId, Store, StoreError, StoreErrorKind, Swapped,
    delegate_store,
};

/// A store that answers until it goes away, and again when it is back. While it is away, every call is
/// refused and does nothing.
pub struct AwayStore<S: ?Sized = dyn Store> {
    /// Calls that it still answers; [`HERE`] never ends.
    left: AtomicUsize,
    refused: AtomicUsize,
    /// Future that runs before the next change.
    meanwhile: Mutex<Option<BoxFuture<'static, ()>>>,
    /// The store itself, which is always there.
    pub inner: Arc<S>,
}

const HERE: usize = usize::MAX;

impl<S: Store + ?Sized> AwayStore<S> {
    /// `inner`, which is here.
    pub fn new(inner: Arc<S>) -> Self {
        let (left, refused) = (AtomicUsize::new(HERE), AtomicUsize::new(0));
        Self { left, refused, meanwhile: Mutex::default(), inner }
    }

    /// Runs `meanwhile` right before the next change of a record, as a concurrent writer would.
    pub fn before_next_change(&self, meanwhile: impl Future<Output = ()> + Send + 'static) {
        *self.meanwhile() = Some(Box::pin(meanwhile));
    }

    fn meanwhile(&self) -> MutexGuard<'_, Option<BoxFuture<'static, ()>>> {
        self.meanwhile.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses every call from now on.
    pub fn goes_away(&self) {
        self.goes_away_after(0);
    }

    /// Answers so many calls and refuses all later ones.
    pub fn goes_away_after(&self, calls: usize) {
        self.left.store(calls, Ordering::SeqCst);
    }

    /// Answers every call again.
    pub fn comes_back(&self) {
        self.left.store(HERE, Ordering::SeqCst);
    }

    /// Returns the number of calls refused while the store was away.
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::SeqCst)
    }

    fn through<'a, T: Send + 'a>(
        &'a self,
        _step: &'static str,
        call: BoxFuture<'a, Result<T, StoreError>>,
    ) -> BoxFuture<'a, Result<T, StoreError>> {
        let less = |left: usize| if left == HERE { Some(HERE) } else { left.checked_sub(1) };
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return call;
        }
        self.refused.fetch_add(1, Ordering::SeqCst);
        let doing = "asking a store that is away";
        Box::pin(async { Err(StoreError::definite(StoreErrorKind::Unavailable, doing)) })
    }
}

impl<S: Store + ?Sized> Store for AwayStore<S> {
    delegate_store!(inner: capabilities, outbox);
    delegate_store!(
        inner via through:
            insert, get, list, usage, reap, audits, now, check_history
    );

    fn swap<'a>(
        &'a self,
        id: RecordId,
        guard: Guard,
        change: Change,
        audit: Option<&'a AuditEntry>,
    ) -> BoxFuture<'a, Result<Swapped, StoreError>> {
        let meanwhile = self.meanwhile().take();
        self.through(
            "swap",
            Box::pin(async move {
                if let Some(meanwhile) = meanwhile {
                    meanwhile.await;
                }
                self.inner.swap(id, guard, change, audit).await
            }),
        )
    }
}

impl<S: fmt::Debug + ?Sized> fmt::Debug for AwayStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwayStore").field("inner", &&self.inner).finish_non_exhaustive()
    }
}
