//! Documents about findings and runs, for [`crate::fuzzing`].

use super::Run;
use super::rules::Entry;
use crate::documents::{Document, DocumentContent, DocumentName, Edition};

/// A document that a store gives back: one that can be read is written as it was understood.
pub(crate) fn document(bytes: &[u8]) {
    if let Ok(entry) = Entry::decode(&of(bytes.to_vec())) {
        let again = Entry::decode(&of(entry.encode()));
        assert!(again.is_ok_and(|again| again == entry), "a finding, written and read again");
    }
    if let Ok(run) = Run::decode(&of(bytes.to_vec())) {
        let again = Run::decode(&of(run.encode()));
        assert!(again.is_ok_and(|again| again == run), "a run, written and read again");
    }
}

fn of(bytes: Vec<u8>) -> Document {
    let content = DocumentContent { bytes, expires_at: None };
    Document { name: DocumentName::of(&[]), edition: Edition { number: 7, version: 1 }, content }
}
