//! A store between which and its user acknowledgements get lost, by plan.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use firstwrite_core::{
    AuditEntry, BoxFuture, Change, Draft, Guard, Inserted, RecordId, Store, StoreError,
    StoreErrorKind, Swapped, delegate_store,
};

/// Fault of one writing step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: it goes through.
    None,
    /// It is lost on the way there; the caller cannot know.
    LostBefore,
    /// It is applied, and the acknowledgement is lost on the way back.
    LostAfter,
    /// It is refused, and the caller knows that nothing was written.
    Refused,
}

/// A store whose next writing steps meet planned faults; after the plan, everything goes through.
#[derive(Debug)]
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    plan: Mutex<VecDeque<Fault>>,
}

impl FaultyStore {
    /// A store whose next inserts and swaps meet `plan`, in order.
    pub fn new(inner: Arc<dyn Store>, plan: &[Fault]) -> Self {
        Self { inner, plan: Mutex::new(plan.iter().copied().collect()) }
    }

    /// Returns the number of planned faults still to come.
    pub fn remaining(&self) -> usize {
        self.plan().len()
    }

    fn plan(&self) -> MutexGuard<'_, VecDeque<Fault>> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn through<T>(
        &self,
        doing: &'static str,
        step: BoxFuture<'_, Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let fault = self.plan().pop_front().unwrap_or(Fault::None);
        let lost = || StoreError::indeterminate(StoreErrorKind::Unavailable, doing);
        match fault {
            Fault::None => step.await,
            Fault::LostBefore => Err(lost()),
            Fault::LostAfter => {
                step.await?;
                Err(lost())
            }
            Fault::Refused => Err(StoreError::definite(StoreErrorKind::Unavailable, doing)),
        }
    }
}

impl Store for FaultyStore {
    delegate_store!(
        inner:
            capabilities, get, list, usage, reap, audits, now, check_history,
            outbox, documents
    );

    fn insert<'a>(&'a self, draft: &'a Draft) -> BoxFuture<'a, Result<Inserted, StoreError>> {
        Box::pin(self.through("inserting a record", self.inner.insert(draft)))
    }

    fn swap<'a>(
        &'a self,
        id: RecordId,
        guard: Guard,
        change: Change,
        audit: Option<&'a AuditEntry>,
    ) -> BoxFuture<'a, Result<Swapped, StoreError>> {
        Box::pin(self.through("changing a record", self.inner.swap(id, guard, change, audit)))
    }
}
