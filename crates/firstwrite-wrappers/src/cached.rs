//! A read-through cache of completed records in Redis, in front of any store.
//!
//! 1. A look-up or a reservation first asks Redis. A hit is the answer; everything else goes to the
//!    store, and a completed record that it finds is put into Redis.
//! 2. A hit is used only if it is certain: a completed record does not change within its retention, and
//!    the store's clock, with a margin, tells how much of that is left. Redis expires the entry before
//!    that.
//! 3. Records that may still change are never cached: reserved and uncertain records, interim outcomes.
//! 4. An entry carries a version and a digest over itself, its record's id and the [`CacheScope`]. The
//!    cache ignores an entry that is damaged, or of another version, record or database.
//! 5. If Redis is unavailable, slow, flushed or wrong, this costs only speed. Each request has a time limit;
//!    after a few failures in a row the cache stops asking Redis for a while.
//!
//! The digest is no signature. A party that can write to Redis can forge answers, as one that can write to
//! the database can: give Redis a password, an address that only the stores reach, and `rediss:` between
//! machines. Entries are as readable as they are in the database: a `SealedStore` belongs in front of this
//! one.

mod entry;
mod line;
mod scope;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use firstwrite_core::server_clock::{HostTime, ServerClock};
use firstwrite_core::{
    AuditEntry, Change, Draft, Found, Guard, Inserted, RecordId, State, StateKind, Store,
    StoreError, StoreErrorKind, Swapped, delegate_store, store_methods,
};

use entry::Place;
pub use line::CacheError;
use line::Line;
pub use scope::CacheScope;

/// A store in front of another, with completed records in Redis.
///
/// ```no_run
/// # #[cfg(feature = "postgres")]
/// # async fn cached(url: &str, redis: &str) -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
///
/// use firstwrite_store::PostgresStore;
/// use firstwrite_wrappers::{CacheOptions, CacheScope, CachedStore};
///
/// let store = PostgresStore::connect(url).await?;
/// let scope = CacheScope::of_postgres(&store).await?;
/// let store = CachedStore::new(Arc::new(store), scope, redis, CacheOptions::default())?;
/// # drop(store);
/// # Ok(())
/// # }
/// ```
pub struct CachedStore {
    inner: Arc<dyn Store>,
    scope: CacheScope,
    entry_bytes_max: usize,
    line: Line,
    clock: ServerClock,
    counters: Counters,
}

/// Limits on the cost of Redis.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CacheOptions {
    /// Time limit of a request to Redis. The store answers in a few milliseconds: waiting much longer than
    /// that for a cache is no gain.
    pub timeout: Duration,
    /// Time limit for connecting; one caller at a time waits for it.
    pub connect_timeout: Duration,
    /// Number of consecutive failures after which the cache stops asking Redis.
    pub failures_max: u32,
    /// Time for which it stops. Then one caller tries.
    pub open_for: Duration,
    /// Maximum size of a cached record: larger ones would push out many small ones.
    pub entry_bytes_max: usize,
}

/// Counts of cache hits, misses and failures since the store was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheCounts {
    /// Answers from Redis.
    pub hits: u64,
    /// Requests for which Redis had no usable entry.
    pub misses: u64,
    /// Misses on an entry that was damaged or foreign.
    pub ignored: u64,
    /// Requests for which Redis was not asked, or did not answer in time.
    pub failures: u64,
}

#[derive(Debug, Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    ignored: AtomicU64,
    failures: AtomicU64,
}

/// Margin before the end of its retention, within which a record is read from the store: the estimate of the
/// store's clock may be off by as much, and another caller may then have taken over the key.
const MARGIN: Duration = Duration::from_mins(1);

/// Time for which no entry is written for a completed record that is being changed: longer than a store
/// takes to answer, so that a value read before the change is not cached after it.
const BARRED_FOR: Duration = Duration::from_mins(2);

/// Maximum lifetime of an entry; a record that is looked up after that is cached again.
const KEPT_MAX: Duration = Duration::from_hours(30 * 24);

/// Redis's answer for a record.
enum Answer {
    Hit(Box<Found>),
    /// No entry: what the store finds may be put there.
    Nothing,
    /// An unusable entry, to be replaced by what the store finds.
    Spoilt,
    /// The record is being changed: no entry may be written.
    Barred,
    /// Redis must not be asked.
    Away,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_millis(50),
            connect_timeout: Duration::from_millis(250),
            failures_max: 3,
            open_for: Duration::from_secs(5),
            entry_bytes_max: 256 * 1024,
        }
    }
}

impl CachedStore {
    /// In front of `inner`, with Redis at `url` (`redis://HOST:PORT`, or `rediss:` with TLS). Connects at
    /// the first question.
    pub fn new(
        inner: Arc<dyn Store>,
        scope: CacheScope,
        url: &str,
        options: CacheOptions,
    ) -> Result<Self, CacheError> {
        let entry_bytes_max = options.entry_bytes_max;
        let (line, clock) = (Line::new(url, options)?, ServerClock::new(read_host));
        Ok(Self { inner, scope, entry_bytes_max, line, clock, counters: Counters::default() })
    }

    /// Refuses an address of Redis that [`CachedStore::new`] refuses, without opening anything.
    pub fn check_address(url: &str) -> Result<(), CacheError> {
        Line::new(url, CacheOptions::default()).map(drop)
    }

    /// Returns the counts of hits, misses and failures.
    pub fn counts(&self) -> CacheCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { hits, misses, ignored, failures } = &self.counters;
        CacheCounts {
            hits: of(hits),
            misses: of(misses),
            ignored: of(ignored),
            failures: of(failures),
        }
    }

    /// Returns true while the cache does not ask Redis because of failures.
    pub fn is_left_alone(&self) -> bool {
        self.line.is_left_alone()
    }

    /// Returns the place of a record's entry, if the database is known.
    fn place(&self, id: RecordId) -> Option<Place> {
        Some(Place { scope: self.scope.digest()?, id })
    }

    async fn ask(&self, place: Option<&Place>) -> Answer {
        let answer = match place {
            Some(place) => self.ask_uncounted(place).await,
            None => Answer::Away,
        };
        let counter = match &answer {
            Answer::Hit(_) => &self.counters.hits,
            Answer::Nothing | Answer::Spoilt | Answer::Barred => &self.counters.misses,
            Answer::Away => &self.counters.failures,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        answer
    }

    async fn ask_uncounted(&self, place: &Place) -> Answer {
        // Before the store has reported its time nothing is certain, and the store is about to be asked.
        if self.clock.estimate().is_none() {
            return Answer::Nothing;
        }
        let Some(bytes) = self.line.get(&place.key(), self.entry_bytes_max).await else {
            return Answer::Away;
        };
        if bytes.is_empty() {
            return Answer::Nothing;
        }
        if bytes == entry::BAR {
            return Answer::Barred;
        }
        let Some(record) = entry::decode(place, &bytes) else {
            self.counters.ignored.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(record_id = %place.id, "a cached record is damaged or foreign");
            return Answer::Spoilt;
        };
        match (&record.state, self.clock.estimate()) {
            (State::Completed { retained_until, outcome, .. }, Some(now))
                if now.plus(MARGIN) < *retained_until && !outcome.is_interim =>
            {
                Answer::Hit(Box::new(Found { record, now }))
            }
            _ => Answer::Spoilt,
        }
    }

    /// Caches a record that can no longer change, if `answer` permits it.
    ///
    /// `place` is from before the store was asked: a record read from a server that was replaced since must
    /// not be cached among the records of its successor.
    async fn keep(&self, place: Option<&Place>, answer: &Answer, found: &Found) {
        let is_spoilt = match answer {
            Answer::Nothing => false,
            Answer::Spoilt => true,
            Answer::Hit(_) | Answer::Barred | Answer::Away => return,
        };
        let State::Completed { outcome, retained_until, .. } = &found.record.state else { return };
        if outcome.is_interim {
            return;
        }
        let left = retained_until.since(found.now.plus(MARGIN)).min(KEPT_MAX);
        if left.is_zero() {
            return;
        }
        let Some(place) = place else { return };
        let bytes = entry::encode(place, &found.record);
        if bytes.len() > self.entry_bytes_max {
            return;
        }
        if is_spoilt {
            self.line.delete(&place.key()).await;
        }
        self.line.set_new(&place.key(), &bytes, left).await;
    }

    /// Ensures that no entry of a completed record is used or written while it is changed. If Redis does
    /// not confirm this, fails unless the record's retention has ended.
    ///
    /// The protocol changes a completed record only after its retention, when its entry is no longer used.
    async fn bar(&self, id: RecordId) -> Result<(), StoreError> {
        if let Some(place) = self.place(id)
            && self.line.set(&place.key(), entry::BAR, BARRED_FOR).await
        {
            return Ok(());
        }
        match self.inner.get(id).await? {
            Some(Found { record, now }) if matches!(record.state, State::Completed { retained_until, .. } if now < retained_until) =>
            {
                let error = StoreError::definite(StoreErrorKind::Unavailable, "changing a record");
                Err(error.caused_by("it may be cached, and the cache is away"))
            }
            Some(_) | None => Ok(()),
        }
    }

    async fn find(&self, id: RecordId) -> Result<Option<Found>, StoreError> {
        let place = self.place(id);
        let answer = self.ask(place.as_ref()).await;
        if let Answer::Hit(found) = answer {
            return Ok(Some(*found));
        }
        let asked = self.clock.host();
        let found = self.inner.get(id).await?;
        if let Some(found) = &found {
            self.clock.heard_since(found.now, asked);
            self.keep(place.as_ref(), &answer, found).await;
        }
        Ok(found)
    }

    async fn insert_draft(&self, draft: &Draft) -> Result<Inserted, StoreError> {
        let place = self.place(draft.id);
        let answer = self.ask(place.as_ref()).await;
        if let Answer::Hit(found) = answer {
            return Ok(Inserted::Stands(found));
        }
        let asked = self.clock.host();
        let inserted = self.inner.insert(draft).await?;
        match &inserted {
            Inserted::Done(at) => self.clock.heard_since(*at, asked),
            Inserted::Stands(found) => {
                self.clock.heard_since(found.now, asked);
                self.keep(place.as_ref(), &answer, found).await;
            }
        }
        Ok(inserted)
    }

    async fn swap_record(
        &self,
        id: RecordId,
        guard: Guard,
        change: Change,
        audit: Option<&AuditEntry>,
    ) -> Result<Swapped, StoreError> {
        if matches!(guard, Guard::Seen(seen) if seen.state == StateKind::Completed) {
            self.bar(id).await?;
        }
        let asked = self.clock.host();
        let swapped = self.inner.swap(id, guard, change, audit).await;
        match &swapped {
            Ok(Swapped::Done(at)) => self.clock.heard_since(*at, asked),
            Ok(Swapped::Moved(Some(found))) => self.clock.heard_since(found.now, asked),
            Ok(Swapped::Moved(None)) | Err(_) => {}
        }
        swapped
    }
}

#[expect(clippy::disallowed_methods, reason = "the time between two of the store's answers")]
fn read_host() -> HostTime {
    HostTime { monotonic: Instant::now(), wall: SystemTime::now() }
}

impl Store for CachedStore {
    delegate_store!(
        inner: capabilities,
        list,
        usage,
        reap,
        audits,
        check_history,
        outbox,
        documents
    );

    store_methods!(self;
        insert(draft) => self.insert_draft(draft),
        swap(id, guard, change, audit) => self.swap_record(id, guard, change, audit),
        get(id) => self.find(id),
        now() => async move {
            let asked = self.clock.host();
            let now = self.inner.now().await?;
            self.clock.heard_since(now, asked);
            Ok(now)
        },
    );
}

impl fmt::Debug for CachedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedStore")
            .field("inner", &self.inner)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}
