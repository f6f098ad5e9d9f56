//! Waits of intents by the clock that is never set, for as long as this process lives.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::clock::Clock;
use crate::entry::Entry;
use crate::rules::Timestamp;

/// Ends of waits by the key of the intent.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    known: Mutex<HashMap<String, Wait>>,
}

#[derive(Debug)]
struct Wait {
    /// The attempt that it follows and the end as the entry has it, which tell one wait of an intent from the next:
    /// where the clock is set back, two may end at the same time of day.
    attempts: u32,
    not_before: Timestamp,
    /// The end by the clock's `elapsed`.
    until: Duration,
}

/// More waits than a storage has entries by default; beyond it, those that are over are forgotten, and then all.
const WAITS_MAX: usize = 10_000;

impl Waits {
    /// The time that is left to wait. What an entry says by the time of day counts once: when this process sees the
    /// wait for the first time.
    pub(super) fn left(&self, entry: &Entry, clock: &dyn Clock) -> Duration {
        let elapsed = clock.elapsed();
        let mut known = self.known();
        let key = entry.key.as_str();
        let Some(not_before) = entry.not_before else {
            known.remove(key);
            return Duration::ZERO;
        };
        let attempts = entry.attempts;
        let is_same = |wait: &&Wait| (wait.attempts, wait.not_before) == (attempts, not_before);
        if let Some(wait) = known.get(key).filter(is_same) {
            return wait.until.saturating_sub(elapsed);
        }
        let left = entry.wait_left(clock.now());
        if known.len() >= WAITS_MAX {
            known.retain(|_, wait| wait.until > elapsed);
        }
        if known.len() >= WAITS_MAX {
            known.clear();
        }
        let until = elapsed.saturating_add(left);
        known.insert(key.to_owned(), Wait { attempts, not_before, until });
        left
    }

    /// Forgets an intent that is acknowledged.
    pub(super) fn forget(&self, key: &str) {
        self.known().remove(key);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Wait>> {
        self.known.lock().expect("looking up a key does not panic")
    }
}
