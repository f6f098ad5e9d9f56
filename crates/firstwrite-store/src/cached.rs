//! A read-through cache of completed records in Redis, in front of any store.
//!
//! 1. A look-up or a reservation first asks Redis. A hit is answered with; everything else goes to the
//!    store, and what it finds completed is put into Redis.
//! 2. A hit is used only if it is certain: a completed record does not change within its retention, and
//!    how much of that is left is told by the store's clock, with a margin. Redis forgets the entry
//!    before that.
//! 3. What may still change is never put there: reserved and uncertain records, interim outcomes.
//! 4. An entry carries a version and a digest over itself, its record's id and the [`CacheScope`]. One
//!    that is damaged, of another version, of another record or of another database is ignored.
//! 5. Redis that is away, slow, flushed or wrong costs speed alone. Each question has a time limit; after
//!    a few failures in a row Redis is left alone for a while.
//!
//! The digest is no signature. Who can write to Redis can make answers up, as who can write to the
//! database can: give it a password, an address nobody else reaches, and `rediss:` between machines.
//! What is stored is as readable as it is in the database: a `SealedStore` belongs
//! in front of this one.

mod entry;
mod line;
mod scope;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use firstwrite_core::{
    AuditEntry, BoxFuture, Change, Draft, Found, Guard, Inserted, RecordId, State, StateKind,
    Store, StoreError, StoreErrorKind, Swapped, Timestamp,
};

use crate::delegate::delegate;
use crate::server_clock::{Reading, ServerClock};
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
/// use firstwrite_store::{CacheOptions, CacheScope, CachedStore, PostgresStore};
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

/// What Redis may cost.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CacheOptions {
    /// How long a question to Redis may take. The store answers in a few milliseconds: waiting much
    /// longer than that for a cache is no gain.
    pub timeout: Duration,
    /// How long connecting may take; one caller at a time waits for it.
    pub connect_timeout: Duration,
    /// So many failures in a row, and Redis is left alone …
    pub failures_max: u32,
    /// … for this long. Then one caller tries.
    pub open_for: Duration,
    /// Larger records are not cached: they would push out many small ones.
    pub entry_bytes_max: usize,
}

/// How often the cache was of use, since the store was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheCounts {
    /// Answered out of Redis.
    pub hits: u64,
    /// Redis was asked and had nothing that could be used.
    pub misses: u64,
    /// Of these, how often there was something damaged or foreign.
    pub ignored: u64,
    /// Redis was not asked, or did not answer in time.
    pub failures: u64,
}

#[derive(Debug, Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    ignored: AtomicU64,
    failures: AtomicU64,
}

/// This near to the end of its retention a record is asked for: the estimate of the store's clock may be
/// off by as much, and then somebody may have taken the key over.
const MARGIN: Duration = Duration::from_mins(1);

/// How long nothing is put in the place of a completed record that is being changed: longer than a store
/// takes to answer, so that what was read before the change is not put there after it.
const BARRED_FOR: Duration = Duration::from_mins(2);

/// An entry is kept no longer; a record that is asked for after that is put there again.
const KEPT_MAX: Duration = Duration::from_hours(30 * 24);

/// What Redis said about a record.
enum Answer {
    Hit(Box<Found>),
    /// Nothing: what the store finds may be put there.
    Nothing,
    /// Something that cannot be used, to be replaced by what the store finds.
    Spoilt,
    /// Somebody is changing it: nothing may be put there.
    Barred,
    /// Redis is not to be asked.
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
        let (line, clock) = (Line::new(url, options)?, ServerClock::default());
        Ok(Self { inner, scope, entry_bytes_max, line, clock, counters: Counters::default() })
    }

    /// Refuses an address of Redis that [`CachedStore::new`] refuses, without opening anything.
    pub fn check_address(url: &str) -> Result<(), CacheError> {
        Line::new(url, CacheOptions::default()).map(drop)
    }

    /// How often the cache was of use.
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

    /// Whether Redis is left alone at the moment.
    pub fn is_left_alone(&self) -> bool {
        self.line.is_left_alone()
    }

    /// Where the entry of a record is, if the database is known.
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
        // Before the store has told its time nothing is certain, and the store is about to be asked.
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

    /// Puts into Redis what does not change any more, where `answer` says that it may be put.
    ///
    /// `place` is from before the store was asked: what a server told before it was replaced must not be
    /// put where the records of its successor are.
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

    /// Sees to it that no entry of a completed record is used or written while it is changed. Where
    /// Redis does not say so, an error unless its retention has ended.
    ///
    /// The protocol changes a completed record after its retention alone, when no entry is used any more.
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
        let asked = Reading::now();
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
        let asked = Reading::now();
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
        let asked = Reading::now();
        let swapped = self.inner.swap(id, guard, change, audit).await;
        match &swapped {
            Ok(Swapped::Done(at)) => self.clock.heard_since(*at, asked),
            Ok(Swapped::Moved(Some(found))) => self.clock.heard_since(found.now, asked),
            Ok(Swapped::Moved(None)) | Err(_) => {}
        }
        swapped
    }
}

impl Store for CachedStore {
    delegate!(
        inner: capabilities,
        list,
        usage,
        lapsed,
        reap,
        audits,
        check_history,
        answers_within,
        outbox,
        findings
    );

    fn insert<'a>(&'a self, draft: &'a Draft) -> BoxFuture<'a, Result<Inserted, StoreError>> {
        Box::pin(self.insert_draft(draft))
    }

    fn swap<'a>(
        &'a self,
        id: RecordId,
        guard: Guard,
        change: Change,
        audit: Option<&'a AuditEntry>,
    ) -> BoxFuture<'a, Result<Swapped, StoreError>> {
        Box::pin(self.swap_record(id, guard, change, audit))
    }

    fn get(&self, id: RecordId) -> BoxFuture<'_, Result<Option<Found>, StoreError>> {
        Box::pin(self.find(id))
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        Box::pin(async move {
            let asked = Reading::now();
            let now = self.inner.now().await?;
            self.clock.heard_since(now, asked);
            Ok(now)
        })
    }
}

impl fmt::Debug for CachedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedStore")
            .field("inner", &self.inner)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}
