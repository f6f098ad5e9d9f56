//! A defective store as a subject: with a disk that a restart goes back to.

use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::{BoxFuture, Store, StoreError};

use super::{Defect, DefectiveStore};
use crate::{ManualClock, Script, ScriptReport, Subject, play};

/// A [`DefectiveStore`] as a subject that claims every capability.
#[derive(Debug)]
pub struct DefectiveSubject {
    store: DefectiveStore,
    clock: ManualClock,
}

impl DefectiveSubject {
    /// An empty store with one defect, or with none.
    pub fn new(defect: Option<Defect>) -> Self {
        let clock = ManualClock::new();
        Self { store: DefectiveStore::new(clock.clone(), defect), clock }
    }
}

impl Subject for DefectiveSubject {
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
        Box::pin(async move { self.store.memory().row(name) })
    }

    fn message_keys(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async move {
            let messages = self.store.memory().messages();
            messages.iter().map(|message| message.derived_key().to_owned()).collect()
        })
    }

    fn reopen(&self) -> Option<BoxFuture<'_, ()>> {
        Some(Box::pin(async move { self.store.restart().await }))
    }
}
