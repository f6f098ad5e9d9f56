//! Entries in memory, for tests and for servers whose keys are derived.

use std::collections::BTreeMap;
use std::future::ready;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard};

use super::{Inserted, Page, Storage, StorageError, Stored};
use crate::BoxFuture;

/// Entries that are gone with the process. After a crash nothing is known of its intents, so it is for tests, and for
/// [derived keys](crate::Builder::derive_keys), under which whoever comes again sends the same key.
#[derive(Debug, Default)]
pub struct MemoryStorage {
    entries: Mutex<BTreeMap<String, Stored>>,
}

impl MemoryStorage {
    const PAGE: usize = 100;

    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Stored>> {
        self.entries.lock().expect("a step on a map does not panic")
    }
}

impl Storage for MemoryStorage {
    fn get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Stored>, StorageError>> {
        Box::pin(ready(Ok(self.entries().get(name).cloned())))
    }

    fn insert(
        &self,
        entry: Stored,
        entries_max: usize,
    ) -> BoxFuture<'_, Result<Inserted, StorageError>> {
        let mut entries = self.entries();
        let inserted = if let Some(stands) = entries.get(&entry.name) {
            Inserted::Stands(stands.clone())
        } else if entries.len() >= entries_max {
            Inserted::Full
        } else {
            entries.insert(entry.name.clone(), entry);
            Inserted::Yes
        };
        Box::pin(ready(Ok(inserted)))
    }

    fn replace(&self, revision: u64, entry: Stored) -> BoxFuture<'_, Result<bool, StorageError>> {
        let mut entries = self.entries();
        let stood = entries.get(&entry.name).is_some_and(|own| own.revision == revision);
        if stood {
            entries.insert(entry.name.clone(), entry);
        }
        Box::pin(ready(Ok(stood)))
    }

    fn remove<'a>(
        &'a self,
        name: &'a str,
        revision: u64,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        let mut entries = self.entries();
        let stood = entries.get(name).is_some_and(|own| own.revision == revision);
        if stood {
            entries.remove(name);
        }
        Box::pin(ready(Ok(stood)))
    }

    fn list(&self, after: Option<String>) -> BoxFuture<'_, Result<Page, StorageError>> {
        let entries = self.entries();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let page: Vec<Stored> = entries
            .range((from, Bound::Unbounded))
            .take(Self::PAGE)
            .map(|(_, own)| own.clone())
            .collect();
        let next = (page.len() == Self::PAGE).then(|| page.last().map(|last| last.name.clone()));
        let entries = page.into_iter().map(Ok).collect();
        Box::pin(ready(Ok(Page { entries, next: next.flatten() })))
    }
}
