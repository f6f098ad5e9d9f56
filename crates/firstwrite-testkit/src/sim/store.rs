//! The store as the simulated processes see it: every call is a point where others go first, and
//! where the word may get lost.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use firstwrite_core::{
    AuditEntry, BoxFuture, Change, Conclusion, Draft, Fence, Found, Guard, Inserted, MemoryStore,
    MemoryTx, Page, Query, RecordId, Store, StoreError, StoreErrorKind, Swapped, Transacted,
    TransactionalStore, UsagePage, delegate_store,
};

use super::Event;
use super::cast::{RECORDS, Role};
use super::log::Log;
use crate::ManualClock;
use crate::defects::{Defect, DefectiveStore, yield_once};

/// The store, and everything that a history shares.
#[derive(Clone, Debug)]
pub(super) struct SimStore {
    inner: Inner,
    pub(super) clock: ManualClock,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Clone, Debug)]
enum Inner {
    Sound(MemoryStore),
    Defective(DefectiveStore),
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) rng: fastrand::Rng,
    pub(super) log: Log,
    /// True if the network is good again.
    pub(super) healed: bool,
    late: Vec<LateStep>,
}

/// A step that is still on its way although its caller has given up on it.
#[derive(Clone, Debug)]
enum LateStep {
    Insert(Box<Draft>),
    Swap(RecordId, Guard, Box<Change>),
}

/// Fate of a step on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Through,
    Refused,
    LostBefore,
    LostAfter,
    Late,
}

impl SimStore {
    pub(super) fn new(rng: fastrand::Rng, log: Log, defect: Option<Defect>) -> Self {
        let clock = ManualClock::new();
        let inner = match defect {
            Some(defect) if !defect.is_of_the_user() => {
                Inner::Defective(DefectiveStore::new(clock.clone(), Some(defect)))
            }
            Some(_) | None => Inner::Sound(MemoryStore::new(clock.reader())),
        };
        let shared = Shared { rng, log, healed: false, late: Vec::new() };
        Self { inner, clock, shared: Arc::new(Mutex::new(shared)) }
    }

    /// Never held across an await point.
    pub(super) fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, event: Event) {
        self.shared().log.note(event);
    }

    /// One in `chances`, while the network is bad.
    pub(super) fn mishap(&self, chances: u8) -> bool {
        let mut shared = self.shared();
        !shared.healed && shared.rng.u8(..chances) == 0
    }

    /// Gives up every late step.
    ///
    /// The protocol relies on this: no step stays on its way for as long as retention. A lost
    /// insert that landed after its record was completed and reaped would begin a second life under
    /// the same fence, which guards of the first life could not tell apart.
    pub(super) fn give_up_late_steps(&self) {
        self.shared().late.clear();
    }

    /// Lets one late step arrive, if there is one.
    pub(super) fn let_one_arrive(&self) {
        let step = {
            let mut shared = self.shared();
            if shared.late.is_empty() {
                return;
            }
            let late_count = shared.late.len();
            let at = shared.rng.usize(..late_count);
            shared.late.swap_remove(at)
        };
        let (id, applied) = match step {
            LateStep::Insert(draft) => {
                let inserted = at_once(self.store().insert(&draft));
                (draft.id, matches!(inserted, Some(Ok(Inserted::Done(_)))))
            }
            LateStep::Swap(id, guard, change) => {
                let swapped = at_once(self.store().swap(id, guard, *change, None));
                (id, matches!(swapped, Some(Ok(Swapped::Done(_)))))
            }
        };
        self.observe(id);
        self.note(if applied { Event::LateApplied } else { Event::LateRefused });
        self.shared().log.line(|| format!("a late step arrives, applied: {applied}"));
    }

    fn store(&self) -> &dyn Store {
        match &self.inner {
            Inner::Sound(store) => store,
            Inner::Defective(store) => store,
        }
    }

    fn row_count(&self) -> usize {
        match &self.inner {
            Inner::Sound(store) => store.row_count(),
            Inner::Defective(store) => store.memory().row_count(),
        }
    }

    fn fate(&self, fence: Option<(RecordId, Fence)>, may_be_late: bool) -> Fate {
        let mut shared = self.shared();
        if shared.healed {
            return Fate::Through;
        }
        let fate = match shared.rng.u8(..40) {
            0 | 1 => Fate::LostBefore,
            2 | 3 => Fate::LostAfter,
            4 if may_be_late => Fate::Late,
            5 => Fate::Refused,
            _ => Fate::Through,
        };
        let event = match fate {
            Fate::LostBefore | Fate::Late => Event::LostBefore,
            Fate::LostAfter => Event::LostAfter,
            Fate::Through | Fate::Refused => return fate,
        };
        shared.log.note(event);
        shared.log.line(|| format!("the next step meets {fate:?}"));
        if let Some((id, fence)) = fence
            && let Some(record) = record_of(id)
        {
            shared.log.lost(record, fence);
        }
        fate
    }

    /// Reads the record past the simulated faults, as no simulated process can, and tells the log.
    fn observe(&self, id: RecordId) {
        let Some(record) = record_of(id) else { return };
        let stands = match at_once(self.store().get(id)) {
            Some(Ok(found)) => found.map(|found| found.record),
            Some(Err(_)) | None => return,
        };
        let now = self.clock.now();
        self.shared().log.observe(record, now, stands);
    }

    fn observe_all(&self) {
        for record in 0..RECORDS {
            self.observe(Role { record, variant: 0 }.request().id);
        }
    }

    async fn insert_somehow(&self, draft: &Draft) -> Result<Inserted, StoreError> {
        const DOING: &str = "inserting a record";
        yield_once().await;
        let fate = self.fate(Some((draft.id, draft.fence)), true);
        match fate {
            Fate::Refused => return Err(refused(DOING)),
            Fate::LostBefore => return Err(lost(DOING)),
            Fate::Late => {
                self.shared().late.push(LateStep::Insert(Box::new(draft.clone())));
                return Err(lost(DOING));
            }
            Fate::Through | Fate::LostAfter => {}
        }
        let inserted = self.store().insert(draft).await;
        self.observe(draft.id);
        yield_once().await;
        if fate == Fate::LostAfter { Err(lost(DOING)) } else { inserted }
    }

    async fn swap_somehow(
        &self,
        id: RecordId,
        guard: Guard,
        change: Change,
        audit: Option<&AuditEntry>,
    ) -> Result<Swapped, StoreError> {
        const DOING: &str = "changing a record";
        yield_once().await;
        let mover = match (&change, guard) {
            (Change::TakeOver(draft), _) => Some((id, draft.fence)),
            (_, Guard::Owner(fence)) => Some((id, fence)),
            (_, Guard::Seen(_)) => None,
        };
        // An operator's word does not travel on its own: it is said again until it is heard.
        let fate = self.fate(mover, audit.is_none());
        match fate {
            Fate::Refused => return Err(refused(DOING)),
            Fate::LostBefore => return Err(lost(DOING)),
            Fate::Late => {
                self.shared().late.push(LateStep::Swap(id, guard, Box::new(change)));
                return Err(lost(DOING));
            }
            Fate::Through | Fate::LostAfter => {}
        }
        let proves_absence = audit.is_some() && change.frees();
        let settles = audit.is_some() && !proves_absence;
        let stood = match at_once(self.store().get(id)) {
            Some(Ok(found)) => found.map(|found| found.record.fence),
            Some(Err(_)) | None => None,
        };
        let swapped = self.store().swap(id, guard, change, audit).await;
        self.observe(id);
        if matches!(swapped, Ok(Swapped::Done(_))) {
            if audit.is_some() {
                self.shared().log.line(|| format!("settled {stood:?}, freed: {proves_absence}"));
            }
            if proves_absence && let (Some(record), Some(fence)) = (record_of(id), stood) {
                self.shared().log.absence_proven(record, fence);
            }
            if settles {
                self.note(Event::SettledHappened);
            }
        }
        yield_once().await;
        if fate == Fate::LostAfter { Err(lost(DOING)) } else { swapped }
    }
}

impl Store for SimStore {
    delegate_store!(store(): capabilities, audits, now, check_history);

    fn insert<'a>(&'a self, draft: &'a Draft) -> BoxFuture<'a, Result<Inserted, StoreError>> {
        Box::pin(self.insert_somehow(draft))
    }

    fn swap<'a>(
        &'a self,
        id: RecordId,
        guard: Guard,
        change: Change,
        audit: Option<&'a AuditEntry>,
    ) -> BoxFuture<'a, Result<Swapped, StoreError>> {
        Box::pin(self.swap_somehow(id, guard, change, audit))
    }

    fn get(&self, id: RecordId) -> BoxFuture<'_, Result<Option<Found>, StoreError>> {
        Box::pin(async move {
            yield_once().await;
            self.store().get(id).await
        })
    }

    fn list<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Page, StoreError>> {
        Box::pin(async move {
            yield_once().await;
            self.store().list(query).await
        })
    }

    fn usage(
        &self,
        after: Option<RecordId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<UsagePage, StoreError>> {
        Box::pin(async move {
            yield_once().await;
            self.store().usage(after, limit).await
        })
    }

    fn reap(&self, limit: usize) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(async move {
            yield_once().await;
            let reaped = self.store().reap(limit).await;
            self.observe_all();
            reaped
        })
    }
}

impl TransactionalStore for SimStore {
    type Tx<'t> = MemoryTx<'t>;

    async fn transact<T, W>(&self, id: RecordId, work: W) -> Result<Transacted<T>, StoreError>
    where
        T: Send + 'static,
        W: for<'t> FnOnce(&mut MemoryTx<'t>, Option<Found>) -> Conclusion<T> + Send + 'static,
    {
        const DOING: &str = "committing a handler's work";
        yield_once().await;
        let fate = self.fate(None, false);
        match fate {
            Fate::Refused => return Err(refused(DOING)),
            Fate::LostBefore | Fate::Late => return Err(lost(DOING)),
            Fate::Through | Fate::LostAfter => {}
        }
        let rows_before = self.row_count();
        let transacted = match &self.inner {
            Inner::Sound(store) => store.transact(id, work).await,
            Inner::Defective(store) => store.transact(id, work).await,
        };
        self.observe(id);
        if self.row_count() > rows_before
            && let Some(record) = record_of(id)
        {
            let mut shared = self.shared();
            let era = shared.log.era(record);
            let answer = crate::sample::outcome(201, "rows");
            shared.log.effect(Role { record, variant: 0 }, era, answer);
            if fate == Fate::LostAfter {
                shared.log.note(Event::AtomicLostAfter);
            }
        }
        yield_once().await;
        if fate == Fate::LostAfter { Err(lost(DOING)) } else { transacted }
    }
}

/// Returns the record of the cast that an id names; a defective store may show unknown ids.
pub(super) fn record_of(id: RecordId) -> Option<usize> {
    (0..RECORDS).find(|record| Role { record: *record, variant: 0 }.request().id == id)
}

fn lost(doing: &'static str) -> StoreError {
    StoreError::indeterminate(StoreErrorKind::Unavailable, doing)
}

fn refused(doing: &'static str) -> StoreError {
    StoreError::definite(StoreErrorKind::Unavailable, doing)
}

/// Returns the output of a future that does not wait, as those of a store in memory.
fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    // A planted defect may wait once before it writes.
    for _ in 0..3 {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(output);
        }
    }
    None
}
