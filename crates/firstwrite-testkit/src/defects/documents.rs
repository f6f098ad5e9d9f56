//! The mistakes that can be planted in keeping documents, and in what documents say of findings.

use firstwrite_core::documents::{
    Document, DocumentChange, DocumentName, DocumentPage, DocumentScan, DocumentStep, Documents,
    Expiry, FoundDocuments, WrittenDocuments,
};
use firstwrite_core::{BoxFuture, StoreError};

use super::{Defect, DefectiveStore};

impl DefectiveStore {
    /// Makes of a change one that expects whatever stands.
    async fn spoil_document_change(
        &self,
        kind: &str,
        change: &DocumentChange,
    ) -> Result<DocumentChange, StoreError> {
        let stands = self.memory().read(kind, &[change.name]).await?.pop().flatten();
        let stands = stands.map(|document| document.edition);
        let mut step = match (change.step.clone(), stands) {
            (DocumentStep::Replace(_, content), Some(stands))
                if self.has(Defect::DocumentVersionIgnored) =>
            {
                DocumentStep::Replace(stands, content)
            }
            (DocumentStep::Remove(_), Some(stands)) if self.has(Defect::DocumentVersionIgnored) => {
                DocumentStep::Remove(stands)
            }
            (DocumentStep::Add(content), Some(stands)) if self.has(Defect::DocumentOverwritten) => {
                DocumentStep::Replace(stands, content)
            }
            (step, _) => step,
        };
        if let DocumentStep::Add(content) | DocumentStep::Replace(_, content) = &mut step
            && self.has(Defect::DocumentExpiryForgotten)
        {
            content.expires_at = None;
        }
        Ok(DocumentChange { name: change.name, step })
    }

    /// Changes what a document says, as if a rule about findings were another.
    fn spoil_content(&self, document: &mut Document) {
        let Ok(text) = std::str::from_utf8(&document.content.bytes) else { return };
        let lines = text.lines().map(|line| match line.split_once('=') {
            Some(("kind", _)) if self.has(Defect::FindingKindForgotten) => "kind=duplicate",
            Some(("closing", "accepted")) if self.has(Defect::AcceptedComesBack) => "closing=fixed",
            Some(("closing", "fixed")) if self.has(Defect::FixedStaysClosed) => "closing=accepted",
            Some(("closed_at", _)) if self.has(Defect::OldSightReopens) => "closed_at=0",
            _ => line,
        });
        if text.ends_with('\n') {
            document.content.bytes = lines.flat_map(|line| [line, "\n"]).collect::<String>().into();
        }
    }
}

impl Documents for DefectiveStore {
    fn read<'a>(
        &'a self,
        kind: &'a str,
        names: &'a [DocumentName],
    ) -> BoxFuture<'a, Result<FoundDocuments, StoreError>> {
        Box::pin(async move {
            let mut documents = self.memory().read(kind, names).await?;
            documents.iter_mut().flatten().for_each(|document| self.spoil_content(document));
            Ok(documents)
        })
    }

    fn put<'a>(
        &'a self,
        kind: &'a str,
        changes: &'a [DocumentChange],
    ) -> BoxFuture<'a, Result<WrittenDocuments, StoreError>> {
        Box::pin(async move {
            let mut spoilt = Vec::with_capacity(changes.len());
            for change in changes {
                spoilt.push(self.spoil_document_change(kind, change).await?);
            }
            self.memory().put(kind, &spoilt).await
        })
    }

    fn scan<'a>(
        &'a self,
        kind: &'a str,
        scan: DocumentScan,
    ) -> BoxFuture<'a, Result<DocumentPage, StoreError>> {
        Box::pin(async move {
            let is_early = self.has(Defect::DocumentExpiresEarly) && scan.which == Expiry::Past;
            let which = if is_early { Expiry::Any } else { scan.which };
            let mut page = self.memory().scan(kind, DocumentScan { which, ..scan }).await?;
            if is_early {
                page.documents.retain(|document| document.content.expires_at.is_some());
            }
            if self.has(Defect::DocumentScanSkipsLast) && page.next.is_some() && scan.limit > 1 {
                page.documents.pop();
            }
            page.documents.iter_mut().for_each(|document| self.spoil_content(document));
            Ok(page)
        })
    }
}
