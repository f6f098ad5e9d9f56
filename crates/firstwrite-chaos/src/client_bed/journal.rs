//! Everything that came to the proxy, in order: by it a test shows that no intent ever had two keys.

use std::sync::Mutex;

use serde_json::{Value, json};

use super::faults::Fault;
use crate::clock::Stopwatch;

/// As many requests as one run of tests makes, several times over.
const ENTRIES_MAX: usize = 200_000;

/// The entries, and the clock they are timed by.
pub(super) struct Journal {
    started: Stopwatch,
    entries: Mutex<Vec<Entry>>,
}

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) key: Option<String>,
    pub(super) customer: Option<String>,
    pub(super) fault: Fault,
    /// Milliseconds since the start.
    at: u128,
    /// As the demo answered, where it was asked.
    status: Option<u16>,
}

impl Entry {
    pub(super) fn new(method: &str, path: &str, fault: Fault) -> Self {
        let (method, path) = (method.to_owned(), path.to_owned());
        Self { method, path, key: None, customer: None, fault, at: 0, status: None }
    }

    fn to_json(&self, number: usize) -> Value {
        json!({
            "n": number,
            "at": u64::try_from(self.at).unwrap_or(u64::MAX),
            "method": self.method,
            "path": self.path,
            "key": self.key,
            "customer": self.customer,
            "fault": self.fault.to_string(),
            "status": self.status,
        })
    }
}

impl Journal {
    pub(super) fn new() -> Self {
        Self { started: Stopwatch::start(), entries: Mutex::new(Vec::new()) }
    }

    /// Adds an entry before its request is passed on; returns its number, unless the journal is full.
    pub(super) fn add(&self, mut entry: Entry) -> Option<usize> {
        entry.at = self.started.elapsed().as_millis();
        let mut entries = self.entries.lock().expect("writing an entry does not panic");
        if entries.len() >= ENTRIES_MAX {
            return None;
        }
        entries.push(entry);
        Some(entries.len() - 1)
    }

    /// Adds the demo's answer to an entry.
    pub(super) fn answered(&self, number: Option<usize>, status: u16) {
        let mut entries = self.entries.lock().expect("writing an entry does not panic");
        if let Some(entry) = number.and_then(|number| entries.get_mut(number)) {
            entry.status = Some(status);
        }
    }

    /// The entries from `since` on. A full journal says so: what it lacks proves nothing.
    pub(super) fn to_json(&self, since: usize) -> Value {
        let entries = self.entries.lock().expect("writing an entry does not panic");
        let shown: Vec<Value> = entries
            .iter()
            .enumerate()
            .skip(since)
            .map(|(number, entry)| entry.to_json(number))
            .collect();
        json!({ "entries": shown, "next": entries.len(), "full": entries.len() >= ENTRIES_MAX })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_numbered_and_shown_from_a_number_on() {
        let journal = Journal::new();
        let first = journal.add(Entry::new("POST", "/payments", Fault::CutAfter));
        journal.add(Entry::new("GET", "/payments", Fault::Ok));
        journal.answered(first, 201);
        let all = journal.to_json(0);
        assert_eq!(all["entries"][0]["status"], 201);
        assert_eq!(all["entries"][0]["fault"], "cut-after");
        let later = journal.to_json(1);
        assert_eq!(later["entries"][0]["n"], 1);
        assert_eq!((&later["next"], &later["full"]), (&json!(2), &json!(false)));
    }
}
