//! Findings over any store of documents: read, decide by the rules, put the next version.

use super::rules::{Effect, Entry};
use super::{
    Closing, FindingNumber, FindingPage, FindingQuery, FindingStory, NewFinding, Noted, Owner, Run,
};
use crate::documents::{
    CHANGES_MAX, DOCUMENT_BYTES_MAX, Document, DocumentChange, DocumentContent, DocumentName,
    DocumentScan, DocumentStep, Documents, Expiry, SCANNED_MAX,
};
use crate::{AuditEntry, Store, StoreError, StoreErrorKind, Timestamp};

/// The findings of a store, and when each source was last compared.
#[derive(Clone, Copy, Debug)]
pub struct Findings<'a> {
    documents: &'a dyn Documents,
}

/// The kinds of documents.
const FINDING: &str = "finding";
const RUN: &str = "run";

/// Bounds how often a change is tried again because of other writers. Of those that meet, one wins each time.
const TRIES_MAX: usize = 32;

/// Bounds the scans that one page, or one round of forgetting, is made of.
const SCANS_MAX: usize = 20;

/// Bounds the findings that one run forgets, so that no run waits long for it.
const FORGOTTEN_MAX: usize = 1000;

impl<'a> Findings<'a> {
    /// Keeps findings in the documents of `store`, if it has documents.
    pub fn of(store: &'a dyn Store) -> Option<Self> {
        store.documents().map(|documents| Self { documents })
    }

    /// Writes down what a run of `source` saw at `seen_at`, and returns for each what became of it. A call
    /// that fails may have noted some; the next one finds them known.
    ///
    /// A finding that was closed later than `seen_at` is not opened again by it.
    pub async fn note(
        &self,
        source: &str,
        found: &[NewFinding],
        seen_at: Timestamp,
    ) -> Result<Vec<Noted>, StoreError> {
        let mut noted = Vec::with_capacity(found.len());
        for found in found.chunks(CHANGES_MAX) {
            noted.extend(self.note_some(source, found, seen_at).await?);
        }
        Ok(noted)
    }

    async fn note_some(
        &self,
        source: &str,
        found: &[NewFinding],
        seen_at: Timestamp,
    ) -> Result<Vec<Noted>, StoreError> {
        let found: Vec<_> = found.iter().map(|found| found.clone().within_limits()).collect();
        let name =
            |found: &NewFinding| DocumentName::of(&[source, found.kind.as_str(), &found.subject]);
        let mut left: Vec<_> = found.iter().map(name).zip(0..).collect();
        left.sort_unstable();
        let (mut noted, mut lost) = (vec![None; found.len()], 0);
        while !left.is_empty() {
            // Of several sightings of the same thing, one is noted after the other.
            let mut turn: Vec<(DocumentName, usize)> = left.clone();
            turn.dedup_by_key(|(name, _)| *name);
            let names: Vec<DocumentName> = turn.iter().map(|(name, _)| *name).collect();
            let documents = self.documents.read(FINDING, &names).await?;
            let (mut changes, mut effects) = (Vec::new(), Vec::<Effect>::new());
            for ((name, place), document) in turn.iter().zip(&documents) {
                let known = document.as_ref().map(Entry::decode).transpose()?;
                let (entry, effect) = Entry::seen(known, source, &found[*place], seen_at);
                changes.push(DocumentChange::put(*name, document.as_ref(), content(&entry)?));
                effects.push(effect);
            }
            let written = self.documents.put(FINDING, &changes).await?;
            lost += usize::from(written.iter().all(Option::is_none));
            if lost >= TRIES_MAX {
                return Err(contended("noting findings"));
            }
            for (((_, place), effect), number) in turn.iter().zip(effects).zip(written) {
                noted[*place] = number.map(|number| effect(FindingNumber(number)));
            }
            left.retain(|(_, place)| noted[*place].is_none());
        }
        Ok(noted.into_iter().flatten().collect())
    }

    /// Reads one page of findings, the oldest first.
    pub async fn list(&self, query: &FindingQuery) -> Result<FindingPage, StoreError> {
        let limit = query.limit.clamp(1, FindingQuery::LIMIT_MAX);
        let mut scan = DocumentScan {
            which: if query.is_open == Some(true) { Expiry::Never } else { Expiry::Any },
            after: query.after.map_or(i64::MIN, |after| after.0),
            // One more than asked for tells whether there is a next page.
            limit: limit + 1,
        };
        let (mut findings, mut scan_count) = (Vec::new(), 0);
        loop {
            let page = self.documents.scan(FINDING, scan).await?;
            for document in &page.documents {
                let finding = Entry::decode(document)?.finding;
                if query.matches(&finding) {
                    findings.push(finding);
                }
            }
            let is_full = findings.len() > limit;
            scan_count += 1;
            let goes_on = page.next.filter(|_| !is_full && scan_count < SCANS_MAX);
            let Some(after) = goes_on else {
                findings.truncate(limit);
                let last = findings.last().filter(|_| is_full).map(|last| last.number);
                let next = last.or(page.next.map(FindingNumber));
                return Ok(FindingPage { findings, next, now: page.now });
            };
            scan = DocumentScan { after, limit: SCANNED_MAX, ..scan };
        }
    }

    /// Reads everything about one finding.
    pub async fn get(&self, number: FindingNumber) -> Result<Option<FindingStory>, StoreError> {
        let Some((document, now)) = self.document(number).await? else { return Ok(None) };
        let Entry { finding, audits, audits_dropped } = Entry::decode(&document)?;
        Ok(Some(FindingStory { finding, audits, audits_dropped, now }))
    }

    /// Gives a finding to `owner`, or to no owner, with an audit entry in the same commit. `false` if there
    /// is no such finding.
    pub async fn assign(
        &self,
        number: FindingNumber,
        owner: Option<&Owner>,
        by: &AuditEntry,
    ) -> Result<bool, StoreError> {
        let assign = |entry: &mut Entry, now| {
            entry.assign(owner, by, now);
            true
        };
        self.change(number, "assigning a finding", assign).await
    }

    /// Closes a finding that is open, with an audit entry in the same commit. `false` if there is none.
    pub async fn close(
        &self,
        number: FindingNumber,
        closing: &Closing,
        by: &AuditEntry,
    ) -> Result<bool, StoreError> {
        let close = |entry: &mut Entry, now| entry.close(closing, by, now);
        self.change(number, "closing a finding", close).await
    }

    /// Returns how the last run of `source` that was complete ended.
    pub async fn last_run(&self, source: &str) -> Result<Option<Run>, StoreError> {
        let document = self.run_document(source).await?;
        document.as_ref().map(Run::decode).transpose()
    }

    /// Writes down that a run of `source`, which looked from `from` on, was complete, unless it left a gap
    /// behind the last one or looked at an older time. Forgets, meanwhile, findings that have been closed for
    /// [`FINDINGS_KEPT_FOR`](super::FINDINGS_KEPT_FOR).
    pub async fn ran(&self, source: &str, from: Timestamp, run: &Run) -> Result<(), StoreError> {
        self.forget().await?;
        let name = DocumentName::of(&[source]);
        for _ in 0..TRIES_MAX {
            let document = self.run_document(source).await?;
            let last = document.as_ref().map(Run::decode).transpose()?;
            if last.is_some_and(|last| !run.goes_on(from, &last)) {
                return Ok(());
            }
            let content = DocumentContent { bytes: run.encode(), expires_at: None };
            let change = DocumentChange::put(name, document.as_ref(), content);
            if self.documents.put(RUN, &[change]).await?.contains(&None) {
                continue;
            }
            return Ok(());
        }
        Err(contended("writing down that a source was compared"))
    }

    async fn forget(&self) -> Result<(), StoreError> {
        let mut scan = DocumentScan { which: Expiry::Past, after: i64::MIN, limit: FORGOTTEN_MAX };
        let mut forgotten = 0;
        for _ in 0..SCANS_MAX {
            let page = self.documents.scan(FINDING, scan).await?;
            let remove = |document: &Document| DocumentChange {
                name: document.name,
                step: DocumentStep::Remove(document.edition),
            };
            let mut changes: Vec<DocumentChange> = page.documents.iter().map(remove).collect();
            changes.sort_by_key(|change| change.name);
            for changes in changes.chunks(CHANGES_MAX) {
                // A finding that was opened again meanwhile stays.
                self.documents.put(FINDING, changes).await?;
            }
            forgotten += changes.len();
            match page.next {
                Some(next) if forgotten < FORGOTTEN_MAX => scan.after = next,
                _ => break,
            }
        }
        Ok(())
    }

    async fn change(
        &self,
        number: FindingNumber,
        doing: &'static str,
        change: impl Fn(&mut Entry, Timestamp) -> bool + Sync,
    ) -> Result<bool, StoreError> {
        for _ in 0..TRIES_MAX {
            let Some((document, now)) = self.document(number).await? else { return Ok(false) };
            let mut entry = Entry::decode(&document)?;
            if !change(&mut entry, now) {
                return Ok(false);
            }
            let change = DocumentChange::put(document.name, Some(&document), content(&entry)?);
            if !self.documents.put(FINDING, &[change]).await?.contains(&None) {
                return Ok(true);
            }
        }
        Err(contended(doing))
    }

    async fn document(
        &self,
        number: FindingNumber,
    ) -> Result<Option<(Document, Timestamp)>, StoreError> {
        let page = self.documents.scan(FINDING, DocumentScan::at(number.0)).await?;
        let is_meant = |document: &Document| document.edition.number == number.0;
        Ok(page.documents.into_iter().find(is_meant).map(|document| (document, page.now)))
    }

    async fn run_document(&self, source: &str) -> Result<Option<Document>, StoreError> {
        let mut documents = self.documents.read(RUN, &[DocumentName::of(&[source])]).await?;
        Ok(documents.pop().flatten())
    }
}

fn content(entry: &Entry) -> Result<DocumentContent, StoreError> {
    let (bytes, expires_at) = (entry.encode(), entry.expires_at());
    if bytes.len() > DOCUMENT_BYTES_MAX {
        let error = StoreError::definite(StoreErrorKind::Unsupported, "writing a finding");
        return Err(error.caused_by("its texts are too long"));
    }
    Ok(DocumentContent { bytes, expires_at })
}

fn contended(doing: &'static str) -> StoreError {
    let error = StoreError::definite(StoreErrorKind::Unavailable, doing);
    error.caused_by("too many others write the same at the same time; try again")
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::documents::{DocumentPage, FoundDocuments, WrittenDocuments};
    use crate::{BoxFuture, FindingKind};

    /// Documents that another writer has always changed in between.
    #[derive(Debug, Default)]
    struct Contended(AtomicUsize);

    impl Documents for Contended {
        fn read<'a>(
            &'a self,
            _kind: &'a str,
            names: &'a [DocumentName],
        ) -> BoxFuture<'a, Result<FoundDocuments, StoreError>> {
            Box::pin(async { Ok(vec![None; names.len()]) })
        }

        fn put<'a>(
            &'a self,
            _kind: &'a str,
            changes: &'a [DocumentChange],
        ) -> BoxFuture<'a, Result<WrittenDocuments, StoreError>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(async { Ok(vec![None; changes.len()]) })
        }

        fn scan<'a>(
            &'a self,
            _kind: &'a str,
            scan: DocumentScan,
        ) -> BoxFuture<'a, Result<DocumentPage, StoreError>> {
            Box::pin(async move { Ok(scan.page(Vec::new(), Timestamp::EPOCH)) })
        }
    }

    fn done<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => done,
            Poll::Pending => panic!("these documents keep no writer waiting"),
        }
    }

    #[test]
    fn a_writer_that_always_loses_gives_up() {
        let contended = Contended::default();
        let findings = Findings { documents: &contended };
        let found = NewFinding {
            kind: FindingKind::Differs,
            subject: "message 1".to_owned(),
            detail: String::new(),
            record: None,
            message: None,
            provider_id: None,
        };
        let at = Timestamp::EPOCH;
        let error = done(findings.note("s", &[found], at)).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        assert!(done(findings.ran("s", at, &Run { at, until: at, again_from: at })).is_err());
        assert_eq!(contended.0.into_inner(), 2 * TRIES_MAX);
    }
}
