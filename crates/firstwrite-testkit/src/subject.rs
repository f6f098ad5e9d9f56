//! A store under test, with the handles that its users do not have: its clock, its rows, and the
//! power switch.

mod wrapped;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::{BoxFuture, MemoryStore, Store, StoreError, StoreErrorKind, Tenant};

use crate::{ManualClock, Script, ScriptReport, play};
pub use wrapped::WrappedSubject;

/// A store under test. A store crate's tests implement it once per backend.
///
/// Every case gets a subject of its own, whose clock stands still between calls of
/// [`Subject::advance`]: cases move time, and must not move each other's.
pub trait Subject: fmt::Debug + Send + Sync + 'static {
    /// The store. Asked for again after [`Subject::reopen`].
    fn store(&self) -> Arc<dyn Store>;

    /// The tenant whose principals the cases' tenants are, if keys are to be bound. Default: none.
    fn owner(&self) -> Option<Tenant> {
        None
    }

    /// Moves the store's clock forward.
    fn advance(&self, by: Duration) -> BoxFuture<'_, ()>;

    /// Runs a script in one transaction, where the store has transactions: call [`play`].
    fn transact(&self, script: Script) -> BoxFuture<'_, Result<ScriptReport, StoreError>> {
        drop(script);
        Box::pin(async {
            Err(StoreError::definite(StoreErrorKind::Unsupported, "running a script"))
        })
    }

    /// The business row that committed scripts left under `name`.
    fn row<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Option<String>> {
        let _ = name;
        Box::pin(async { None })
    }

    /// The derived keys of the messages that committed scripts left.
    fn message_keys(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async { Vec::new() })
    }

    /// Ends the store without warning and opens it again on what was durable; `None` where the
    /// store does not claim to be durable.
    fn reopen(&self) -> Option<BoxFuture<'_, ()>> {
        None
    }
}

/// A [`MemoryStore`] as a subject.
#[derive(Debug)]
pub struct MemorySubject {
    store: MemoryStore,
    clock: ManualClock,
}

impl MemorySubject {
    /// An empty store.
    pub fn new() -> Self {
        let clock = ManualClock::new();
        Self { store: MemoryStore::new(clock.reader()), clock }
    }
}

impl Default for MemorySubject {
    fn default() -> Self {
        Self::new()
    }
}

impl Subject for MemorySubject {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn advance(&self, by: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.clock.advance(by) })
    }

    fn transact(&self, script: Script) -> BoxFuture<'_, Result<ScriptReport, StoreError>> {
        Box::pin(play(
            &self.store,
            script,
            |tx, name, value| {
                tx.put(name, value);
                Ok(())
            },
            |tx, message| {
                tx.enqueue(message);
                Ok(())
            },
        ))
    }

    fn row<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move { self.store.row(name) })
    }

    fn message_keys(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async move {
            self.store.messages().iter().map(|message| message.derived_key().to_owned()).collect()
        })
    }
}
