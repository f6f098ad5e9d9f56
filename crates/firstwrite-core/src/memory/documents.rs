//! Documents of the store in memory: the reference for what keeping them means.

use std::collections::BTreeMap;

use super::MemoryStore;
use crate::documents::{
    Document, DocumentChange, DocumentName, DocumentPage, DocumentScan, DocumentStep, Documents,
    Edition, Expiry, FoundDocuments, WrittenDocuments,
};
use crate::{BoxFuture, StoreError};

/// All documents, by kind and name.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    documents: BTreeMap<(String, DocumentName), Document>,
    last_number: i64,
}

impl Shelf {
    fn put(&mut self, kind: &str, change: &DocumentChange) -> Option<i64> {
        let key = (kind.to_owned(), change.name);
        let stands = self.documents.get(&key).map(|document| document.edition);
        let (edition, content) = match &change.step {
            DocumentStep::Add(content) if stands.is_none() => {
                self.last_number += 1;
                (Edition { number: self.last_number, version: 1 }, content)
            }
            DocumentStep::Replace(was, content) if stands == Some(*was) => {
                (Edition { version: was.version + 1, ..*was }, content)
            }
            DocumentStep::Remove(was) if stands == Some(*was) => {
                self.documents.remove(&key);
                return Some(was.number);
            }
            DocumentStep::Add(_) | DocumentStep::Replace(..) | DocumentStep::Remove(_) => {
                return None;
            }
        };
        let document = Document { name: change.name, edition, content: content.clone() };
        self.documents.insert(key, document);
        Some(edition.number)
    }
}

impl Documents for MemoryStore {
    fn read<'a>(
        &'a self,
        kind: &'a str,
        names: &'a [DocumentName],
    ) -> BoxFuture<'a, Result<FoundDocuments, StoreError>> {
        Box::pin(async move {
            let documents = &self.content().shelf.documents;
            let get = |name: &DocumentName| documents.get(&(kind.to_owned(), *name)).cloned();
            Ok(names.iter().map(get).collect())
        })
    }

    fn put<'a>(
        &'a self,
        kind: &'a str,
        changes: &'a [DocumentChange],
    ) -> BoxFuture<'a, Result<WrittenDocuments, StoreError>> {
        Box::pin(async move {
            let shelf = &mut self.content().shelf;
            Ok(changes.iter().map(|change| shelf.put(kind, change)).collect())
        })
    }

    fn scan<'a>(
        &'a self,
        kind: &'a str,
        scan: DocumentScan,
    ) -> BoxFuture<'a, Result<DocumentPage, StoreError>> {
        Box::pin(async move {
            let now = (self.clock)();
            let is_meant = |document: &Document| {
                let expires_at = document.content.expires_at;
                let is_meant = match scan.which {
                    Expiry::Any => true,
                    Expiry::Never => expires_at.is_none(),
                    Expiry::Past => expires_at.is_some_and(|expires_at| expires_at <= now),
                };
                is_meant && document.edition.number > scan.after
            };
            let shelf = &self.content().shelf;
            let of_kind = shelf.documents.iter().filter(|((its_kind, _), _)| its_kind == kind);
            let mut documents: Vec<Document> = of_kind
                .map(|(_, document)| document)
                .filter(|document| is_meant(document))
                .cloned()
                .collect();
            documents.sort_by_key(|document| document.edition.number);
            documents.truncate(scan.rows_max());
            Ok(scan.page(documents, now))
        })
    }
}
