//! Documents: a few kilobytes under a name, with a version, which a store keeps and does not understand.
//!
//! A writer reads a document, decides, and puts the next version; where another writer was faster, the put
//! changes nothing and the writer reads again. So the rules about what documents say stand in one place,
//! such as [`crate::findings`], and no store repeats them.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::{BoxFuture, StoreError, Timestamp};

/// Keeps documents. Each kind has its own names.
pub trait Documents: fmt::Debug + Send + Sync {
    /// Reads the documents under `names`, at most [`CHANGES_MAX`], in the order of the names.
    fn read<'a>(
        &'a self,
        kind: &'a str,
        names: &'a [DocumentName],
    ) -> BoxFuture<'a, Result<FoundDocuments, StoreError>>;

    /// Makes each of at most [`CHANGES_MAX`] changes of different names whose expectation holds. Changes do not
    /// depend on each other: a store may commit them one by one.
    fn put<'a>(
        &'a self,
        kind: &'a str,
        changes: &'a [DocumentChange],
    ) -> BoxFuture<'a, Result<WrittenDocuments, StoreError>>;

    /// Reads documents in the order of their numbers.
    fn scan<'a>(
        &'a self,
        kind: &'a str,
        scan: DocumentScan,
    ) -> BoxFuture<'a, Result<DocumentPage, StoreError>>;
}

/// Bounds one commit, and one packet of MySQL: written as hexadecimal digits, so many of the longest
/// documents are below the 16 MiB that its servers take by default.
pub const CHANGES_MAX: usize = 100;

/// Bounds the content of one document.
pub const DOCUMENT_BYTES_MAX: usize = 64 * 1024;

/// Bounds the documents of one page.
pub const SCANNED_MAX: usize = 1000;

/// The document under each name, if there is one.
pub type FoundDocuments = Vec<Option<Document>>;

/// The document's number for each change; `None` for a change that was not made.
pub type WrittenDocuments = Vec<Option<i64>>;

/// Identifies a document within its kind: a digest of the words that it is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentName(pub [u8; 32]);

/// A document as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The name.
    pub name: DocumentName,
    /// Number and version.
    pub edition: Edition,
    /// The content.
    pub content: DocumentContent,
}

/// One version of one document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edition {
    /// Given by the store when the document is added. Later documents have greater numbers, as far as the
    /// store can tell; no number is given twice.
    pub number: i64,
    /// Counts the puts of this document, from one.
    pub version: i64,
}

/// The part of a document that its owner writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentContent {
    /// At most [`DOCUMENT_BYTES_MAX`].
    pub bytes: Vec<u8>,
    /// From this time on the document may be removed; `None` while it is needed.
    pub expires_at: Option<Timestamp>,
}

/// A change of one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentChange {
    /// The name.
    pub name: DocumentName,
    /// The change, and what it expects.
    pub step: DocumentStep,
}

/// A change, made only if the document is as its writer saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DocumentStep {
    /// Adds the document if there is none under its name.
    Add(DocumentContent),
    /// Puts the next version in place of this edition.
    Replace(Edition, DocumentContent),
    /// Removes this edition.
    Remove(Edition),
}

/// Selects documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentScan {
    /// Selects by expiry.
    pub which: Expiry,
    /// Only documents with greater numbers.
    pub after: i64,
    /// At most this many, and at most [`SCANNED_MAX`].
    pub limit: usize,
}

/// Selects documents by their expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// All documents.
    Any,
    /// Documents that do not expire.
    Never,
    /// Documents that have expired by the store's clock.
    Past,
}

/// One page of documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentPage {
    /// The documents, in the order of their numbers.
    pub documents: Vec<Document>,
    /// The number after which the next scan goes on, if there may be more. A page that has one may be short.
    pub next: Option<i64>,
    /// The store's clock when the page was read.
    pub now: Timestamp,
}

impl DocumentName {
    /// Digests `parts`, each with its length.
    pub fn of(parts: &[&str]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
        Self(hash.finalize().into())
    }
}

/// Puts documents in the order of `names`, as [`Documents::read`] returns them.
pub fn in_order(names: &[DocumentName], documents: &[Document]) -> FoundDocuments {
    let find = |name: &DocumentName| documents.iter().find(|document| document.name == *name);
    names.iter().map(|name| find(name).cloned()).collect()
}

impl DocumentChange {
    /// Puts `content` in place of `was`, or adds it where there was no document.
    pub fn put(name: DocumentName, was: Option<&Document>, content: DocumentContent) -> Self {
        let step = match was {
            Some(document) => DocumentStep::Replace(document.edition, content),
            None => DocumentStep::Add(content),
        };
        Self { name, step }
    }
}

impl DocumentScan {
    /// Selects one document by its number.
    pub fn at(number: i64) -> Self {
        Self { which: Expiry::Any, after: number.saturating_sub(1), limit: 1 }
    }

    /// Returns how many documents to read.
    pub fn rows_max(&self) -> usize {
        self.limit.clamp(1, SCANNED_MAX)
    }

    /// Makes a page of the documents that a store found with this scan, up to [`Self::rows_max`].
    pub fn page(&self, documents: Vec<Document>, now: Timestamp) -> DocumentPage {
        let is_full = documents.len() >= self.rows_max();
        let next = documents.last().filter(|_| is_full).map(|last| last.edition.number);
        DocumentPage { documents, next, now }
    }
}
