//! Completed records cached in memory, so that a replay needs no round trip.
//!
//! A completed record does not change until its retention ends; near that end, the server is asked again. A
//! record with an interim outcome is not cached. A record that this store changes is evicted before and
//! after the change, and reads that overlap the change are not cached.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use firstwrite_core::server_clock::{HostTime, ServerClock};
use firstwrite_core::{Body, Found, Record, RecordId, State, lock};
use quick_cache::Weighter;
use quick_cache::sync::Cache;

/// Completed records in memory.
pub(super) struct Replays {
    cache: Option<Records>,
    /// Counts the beginnings and ends of changes to completed records.
    changes: AtomicU64,
    changing: Mutex<HashMap<RecordId, usize>>,
}

type Records = Cache<RecordId, Arc<Record>, Weight>;

/// Guard that marks a completed record as possibly changing, as long as it lives.
pub(super) struct ChangeGuard<'a> {
    replays: &'a Replays,
    id: RecordId,
}

/// A point in time before a look-up was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(u64);

#[derive(Clone, Copy)]
struct Weight;

/// Margin before the end of its retention, within which a record is read from the server: the estimate of the
/// server's clock may be off by as much, and another caller may then have taken over the key.
const MARGIN: Duration = Duration::from_mins(1);

/// Overhead of an entry besides its own bytes: the record, its headers and the cache's own links.
const ENTRY_BYTES: usize = 512;

/// Overhead of each header line besides its bytes.
const HEADER_BYTES: usize = 96;

impl Replays {
    /// Makes a cache, which keeps nothing if `bytes_max` is 0.
    pub(super) fn new(bytes_max: u64) -> Self {
        let typical = u64::try_from(2 * ENTRY_BYTES).unwrap_or(u64::MAX);
        let count = usize::try_from(bytes_max / typical).unwrap_or(usize::MAX).max(1);
        let cache = (bytes_max > 0).then(|| Cache::with_weighter(count, bytes_max, Weight));
        Self { cache, changes: AtomicU64::new(0), changing: Mutex::default() }
    }

    /// Returns a completed record well within its retention, and the estimated time at the server.
    pub(super) fn get(&self, id: RecordId, clock: &ServerClock) -> Option<Found> {
        let record = self.cache.as_ref()?.get(&id)?;
        let now = clock.estimate()?;
        let State::Completed { retained_until, .. } = &record.state else { return None };
        if *retained_until <= now.plus(MARGIN) {
            self.forget(id);
            return None;
        }
        Some(Found { record: Record::clone(&record), now })
    }

    /// Returns a mark, to be taken before sending a look-up whose result is to be cached.
    pub(super) fn mark(&self) -> Mark {
        Mark(self.changes.load(Ordering::SeqCst))
    }

    /// Caches the result of a look-up, unless it may have changed since `mark`.
    pub(super) fn keep(&self, found: &Found, mark: Mark) {
        let Some(cache) = &self.cache else { return };
        let State::Completed { outcome, retained_until, .. } = &found.record.state else { return };
        // Any worker may replace it, at any time.
        if outcome.is_interim {
            return;
        }
        let id = found.record.id;
        if *retained_until <= found.now.plus(MARGIN) || !self.is_unchanged(id, mark) {
            return;
        }
        cache.insert(id, Arc::new(found.record.clone()));
        // A change that began since has either removed it already or is seen here.
        if !self.is_unchanged(id, mark) {
            self.forget(id);
        }
    }

    /// To be held while something completed may be changed.
    pub(super) fn changing(&self, id: RecordId) -> ChangeGuard<'_> {
        *lock(&self.changing).entry(id).or_default() += 1;
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.forget(id);
        ChangeGuard { replays: self, id }
    }

    /// Empties the cache, because it may differ from the server.
    pub(super) fn forget_all(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        if let Some(cache) = &self.cache {
            cache.clear();
        }
    }

    /// Returns the number of cached bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, Cache::weight)
    }

    fn is_unchanged(&self, id: RecordId, mark: Mark) -> bool {
        self.mark() == mark && !lock(&self.changing).contains_key(&id)
    }

    fn forget(&self, id: RecordId) {
        if let Some(cache) = &self.cache {
            cache.remove(&id);
        }
    }
}

impl Drop for ChangeGuard<'_> {
    fn drop(&mut self) {
        let replays = self.replays;
        replays.changes.fetch_add(1, Ordering::SeqCst);
        replays.forget(self.id);
        let mut changing = lock(&replays.changing);
        if let Some(count) = changing.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                changing.remove(&self.id);
            }
        }
    }
}

impl Weighter<RecordId, Arc<Record>> for Weight {
    fn weight(&self, _id: &RecordId, record: &Arc<Record>) -> u64 {
        let mut bytes = ENTRY_BYTES + record.tenant.as_str().len() + record.key.as_str().len();
        bytes += record.fingerprint.parts().as_bytes().len();
        if let State::Completed { outcome, .. } = &record.state {
            for (name, value) in outcome.headers.iter() {
                bytes += HEADER_BYTES + name.as_str().len() + value.len();
            }
            bytes += match &outcome.body {
                Body::Bytes(body) | Body::Sealed(body) => body.len(),
                Body::Tombstone | Body::Released => 0,
            };
        }
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl fmt::Debug for Replays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replays").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

/// Reads the clocks of the host.
#[expect(clippy::disallowed_methods, reason = "the time between two of the server's answers")]
pub(super) fn read_host() -> HostTime {
    HostTime { monotonic: Instant::now(), wall: SystemTime::now() }
}
