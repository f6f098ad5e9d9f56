//! A subject whose store stands in front of another's.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use firstwrite_core::{BoxFuture, Store, StoreError, Tenant};

use super::Subject;
use crate::{Script, ScriptReport};

/// A subject with a store around its store. Scripts run behind it, as an application's own transactions
/// do.
pub struct WrappedSubject {
    inner: Arc<dyn Subject>,
    wrap: Wrap,
    store: Mutex<Arc<dyn Store>>,
    owner: Option<Tenant>,
}

type Wrap = Box<dyn Fn(Arc<dyn Store>) -> Arc<dyn Store> + Send + Sync>;

impl WrappedSubject {
    /// Puts what `wrap` makes around the store of `inner`, and anew after each reopening.
    pub fn new(
        inner: Arc<dyn Subject>,
        wrap: impl Fn(Arc<dyn Store>) -> Arc<dyn Store> + Send + Sync + 'static,
    ) -> Self {
        let store = Mutex::new(wrap(inner.store()));
        Self { inner, wrap: Box::new(wrap), store, owner: None }
    }

    /// The same, for cases whose keys are bound to principals of `owner`.
    #[must_use]
    pub fn owned_by(self, owner: Tenant) -> Self {
        Self { owner: Some(owner), ..self }
    }

    fn held(&self) -> MutexGuard<'_, Arc<dyn Store>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subject for WrappedSubject {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.held())
    }

    fn owner(&self) -> Option<Tenant> {
        self.owner.clone()
    }

    /// A store that estimates the time hears of it at the next answer; a clock that jumps a day between
    /// two of them is a test's alone.
    fn advance(&self, by: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.inner.advance(by).await;
            self.store().now().await.expect("the store tells the time");
        })
    }

    fn transact(&self, script: Script) -> BoxFuture<'_, Result<ScriptReport, StoreError>> {
        self.inner.transact(script)
    }

    fn row<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Option<String>> {
        self.inner.row(name)
    }

    fn message_keys(&self) -> BoxFuture<'_, Vec<String>> {
        self.inner.message_keys()
    }

    fn reopen(&self) -> Option<BoxFuture<'_, ()>> {
        let reopening = self.inner.reopen()?;
        Some(Box::pin(async move {
            reopening.await;
            let store = (self.wrap)(self.inner.store());
            *self.held() = store;
        }))
    }
}

impl fmt::Debug for WrappedSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WrappedSubject").field("store", &self.held()).finish_non_exhaustive()
    }
}
