//! Number of messages of each destination in each state. A process adds up its changes in memory and writes them now
//! and then, outside the transactions of messages, which would otherwise all contend for one item.
//!
//! A process that dies therefore loses its last differences. Upkeep recounts the messages that are under way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use firstwrite_core::outbox::Tallies;
use firstwrite_core::{Certainty, StoreError};

use super::super::items::number;
use super::super::link::Link;
use super::super::write::{self, Step, Terms};
use super::destinations::{count_name, key_of};

/// Differences that are not written yet.
#[derive(Debug, Default)]
pub(in super::super) struct Counts {
    noted: Mutex<Tallies>,
    /// One call at a time writes what all have noted until then.
    writing: tokio::sync::Mutex<()>,
    is_awaited: AtomicBool,
}

const DOING: &str = "counting messages";

impl Counts {
    pub(in super::super) fn note(&self, change: impl FnOnce(&mut Tallies)) {
        // Nothing here panics while it holds the lock, so a poisoned one is still whole.
        change(&mut self.noted.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns true if no call is about to write the counts yet; the caller then has to write them.
    pub(super) fn await_writing(&self) -> bool {
        !self.is_awaited.swap(true, Ordering::AcqRel)
    }

    /// Writes the differences. What cannot be written now is written next time, unless it may have been.
    pub(super) async fn write(&self, link: &Link) -> Result<(), StoreError> {
        let _turn = self.writing.lock().await;
        self.is_awaited.store(false, Ordering::Release);
        let mut taken = Tallies::default();
        self.note(|noted| std::mem::swap(noted, &mut taken));
        let mut failure = None;
        for (destination, differences) in by_destination(&taken) {
            let Err(error) = add(link, &destination, &differences).await else { continue };
            if error.certainty() == Certainty::Definite {
                self.note(|noted| noted.put_back(&taken, &destination));
            }
            failure = Some(error);
        }
        failure.map_or(Ok(()), Err)
    }
}

/// Differences to add, each with the name of its count.
pub(super) type Differences = Vec<(&'static str, i64)>;

fn by_destination(tallies: &Tallies) -> Vec<(String, Differences)> {
    let mut grouped: Vec<(String, Differences)> = Vec::new();
    for (destination, tally, difference) in tallies.differences() {
        let kind = tally.as_str();
        match grouped.last_mut() {
            Some((last, differences)) if last == destination => {
                differences.push((kind, difference));
            }
            _ => grouped.push((destination.to_owned(), vec![(kind, difference)])),
        }
    }
    grouped
}

/// Adds to what a destination counts.
pub(super) async fn add(
    link: &Link,
    destination: &str,
    differences: &[(&'static str, i64)],
) -> Result<(), StoreError> {
    let mut terms = Terms::default();
    let added = differences.iter().map(|(kind, difference)| {
        format!("{} {}", terms.name(&count_name(kind)), terms.value(number(*difference)))
    });
    let change = format!("ADD {}", added.collect::<Vec<_>>().join(", "));
    let step = Step::set(link, key_of(destination), change, &terms);
    write::send(link, step, DOING).await.map(drop)
}
