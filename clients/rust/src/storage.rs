//! Places in which intents are written down.
//!
//! A storage keeps entries by name, each with a revision, and decides nothing. Whoever writes one for a database of
//! their own keeps to the five methods of [`Storage`]: each is one step that no other comes between, and returns
//! when what it wrote survives the loss of power.

mod file;
mod memory;
mod private;
#[cfg(feature = "sqlite")]
mod sqlite;
mod thread;

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::{BoxError, BoxFuture};

pub use file::FileStorage;
pub use memory::MemoryStorage;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStorage;

/// The time between two looks at what another process holds.
const PAUSE: Duration = Duration::from_millis(5);

/// A place for entries.
pub trait Storage: fmt::Debug + Send + Sync + 'static {
    /// The entry of this name.
    fn get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Stored>, StorageError>>;

    /// Puts an entry where none of its name stands, unless `entries_max` stand already.
    fn insert(
        &self,
        entry: Stored,
        entries_max: usize,
    ) -> BoxFuture<'_, Result<Inserted, StorageError>>;

    /// Puts an entry in the place of the one that has its name and `revision`; says if it stood there.
    fn replace(&self, revision: u64, entry: Stored) -> BoxFuture<'_, Result<bool, StorageError>>;

    /// Deletes the entry that has this name and revision; says if it stood there.
    fn remove<'a>(
        &'a self,
        name: &'a str,
        revision: u64,
    ) -> BoxFuture<'a, Result<bool, StorageError>>;

    /// A page of entries in an order of the storage's own, from behind the cursor of the page before.
    fn list(&self, after: Option<String>) -> BoxFuture<'_, Result<Page, StorageError>>;
}

/// One storage for several clients of a process.
impl<S: Storage + ?Sized> Storage for Arc<S> {
    fn get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Stored>, StorageError>> {
        S::get(self, name)
    }

    fn insert(
        &self,
        entry: Stored,
        entries_max: usize,
    ) -> BoxFuture<'_, Result<Inserted, StorageError>> {
        S::insert(self, entry, entries_max)
    }

    fn replace(&self, revision: u64, entry: Stored) -> BoxFuture<'_, Result<bool, StorageError>> {
        S::replace(self, revision, entry)
    }

    fn remove<'a>(
        &'a self,
        name: &'a str,
        revision: u64,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        S::remove(self, name, revision)
    }

    fn list(&self, after: Option<String>) -> BoxFuture<'_, Result<Page, StorageError>> {
        S::list(self, after)
    }
}

/// An entry as a storage sees it. `Debug` does not show the document.
#[derive(Clone, PartialEq, Eq)]
pub struct Stored {
    /// The name of the intent, at most 255 bytes.
    pub name: String,
    /// Compared by every write; below 2⁶².
    pub revision: u64,
    /// All the rest.
    pub document: Bytes,
}

/// Result of an insertion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// It stands.
    Yes,
    /// Another one stands there.
    Stands(Stored),
    /// There is no room for more entries.
    Full,
}

/// A page of entries.
#[derive(Debug)]
pub struct Page {
    /// Entries, and errors of those that cannot be read.
    pub entries: Vec<Result<Stored, StorageError>>,
    /// The cursor of the next page; `None` at the end.
    pub next: Option<String>,
}

/// Kinds of trouble that a storage has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StorageErrorKind {
    /// It cannot be read or written: the disk is full, the folder is gone.
    Unavailable,
    /// Another process holds it, and does not let go.
    Busy,
    /// An entry cannot be read, or the whole storage. It is left where it is.
    Damaged,
    /// It was written by a later version of this crate.
    Unsupported,
}

/// A storage cannot do what it was asked to.
#[derive(Debug)]
pub struct StorageError {
    kind: StorageErrorKind,
    doing: String,
    source: Option<BoxError>,
}

impl StorageError {
    /// An error of a storage that was `doing` something, such as `writing the intent "a"`.
    pub fn new(kind: StorageErrorKind, doing: impl Into<String>, source: Option<BoxError>) -> Self {
        Self { kind, doing: doing.into(), source }
    }

    /// The kind of trouble.
    pub fn kind(&self) -> StorageErrorKind {
        self.kind
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            StorageErrorKind::Unavailable => "the storage cannot be used",
            StorageErrorKind::Busy => "another process holds the storage",
            StorageErrorKind::Damaged => "it is damaged, and left as it is",
            StorageErrorKind::Unsupported => "a later version wrote this",
        };
        write!(f, "{}: {kind}", self.doing)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl Error for StorageError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored")
            .field("name", &self.name)
            .field("revision", &self.revision)
            .field("document_bytes", &self.document.len())
            .finish()
    }
}

#[expect(clippy::disallowed_methods, reason = "another process does not tell when it lets go")]
fn pause() {
    std::thread::sleep(PAUSE);
}
