//! The store as one process sees it: every step takes time, may be refused, lost, or applied late, and the process may
//! be paused or killed around it.

use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::outbox::Outbox;
use firstwrite_core::{
    AuditEntry, Body, BoxFuture, Capabilities, Change, Conclusion, Draft, DraftState, Fence, Found,
    Guard, Inserted, MemoryStore, MemoryTx, Outcome, Page, Query, Record, RecordId, Retention,
    State, StateKind, Store, StoreError, StoreErrorKind, Swapped, Timestamp, Transacted,
    TransactionalStore, Write, delegate_store,
};
use tokio::time::{Instant, sleep};

use crate::defects::Defect;
use crate::events::Event;
use crate::ledger::{Effect, Kept};
use crate::loss::History;
use crate::reconcile::{self, is_reconciliation};
use crate::terms::{CLOCK_STEPS_MAX, STORE_LIMIT};
use crate::world::{Process, World};

/// One process's way to the store that all share.
#[derive(Clone, Debug)]
pub(crate) struct SimStore {
    pub(crate) memory: MemoryStore,
    pub(crate) process: Process,
}

/// A write, owned, because it may arrive after its sender has stopped waiting.
#[derive(Clone, Debug)]
enum Step {
    Insert(Draft),
    Swap(RecordId, Guard, Change, Option<AuditEntry>),
}

enum Done {
    Inserted(Inserted),
    Swapped(Swapped),
    /// The key is not known, and history was lost.
    HistoryLost,
}

/// Course of a step on its way to the store and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Through,
    SlowAcknowledgement,
    Refused,
    LostBefore,
    LostAfter,
    Late,
}

impl SimStore {
    fn world(&self) -> &World {
        self.process.world()
    }

    pub(crate) fn fate(&self) -> Fate {
        let mut state = self.world().state();
        let faults = match self.world().terms().store_faults {
            faults if faults > 0 && Instant::now() < state.trouble_until => 50,
            faults => faults,
        };
        if state.is_healed || state.rng.u8(..100) >= faults {
            return Fate::Through;
        }
        if state.rng.u8(..3) == 0 {
            state.trouble_until = Instant::now() + Duration::from_millis(state.rng.u64(1..3000));
        }
        match state.rng.u8(..6) {
            0 | 1 => Fate::SlowAcknowledgement,
            2 => Fate::Refused,
            3 => Fate::LostBefore,
            4 => Fate::LostAfter,
            _ => Fate::Late,
        }
    }

    /// The way there, for a step that writes or reads: an error if the store is away.
    pub(crate) async fn way_there(&self, doing: &'static str) -> Result<(), StoreError> {
        self.process.gate().await;
        self.world().hop().await;
        let away = self.world().state().away_until;
        if away <= Instant::now() {
            return Ok(());
        }
        let error = if self.world().chance(50) {
            StoreError::definite(StoreErrorKind::Unavailable, doing)
        } else {
            // The store does not answer: the driver gives up after its own limit.
            sleep(STORE_LIMIT).await;
            StoreError::indeterminate(StoreErrorKind::Unavailable, doing)
        };
        self.process.gate().await;
        Err(error)
    }

    pub(crate) async fn way_back(&self) {
        self.world().hop().await;
        self.process.may_pause();
        self.process.gate().await;
    }

    async fn write(&self, doing: &'static str, step: Step) -> Result<Done, StoreError> {
        self.way_there(doing).await?;
        let fate = self.fate();
        let lost = || StoreError::indeterminate(StoreErrorKind::Unavailable, doing);
        let ended = match fate {
            Fate::Through => Ok(self.apply(step)),
            Fate::SlowAcknowledgement => {
                let done = self.apply(step);
                self.world().passes(100, 1900).await;
                Ok(done)
            }
            Fate::Refused => {
                self.world().note(Event::StoreRefused, || doing.to_owned());
                Err(StoreError::definite(StoreErrorKind::Unavailable, doing))
            }
            Fate::LostBefore => {
                self.world().note(Event::LostBefore, || doing.to_owned());
                self.world().passes(0, 2000).await;
                Err(lost())
            }
            Fate::LostAfter => {
                self.apply(step);
                self.world().note(Event::LostAfter, || doing.to_owned());
                self.world().passes(0, 2000).await;
                Err(lost())
            }
            Fate::Late => {
                let late = self.clone();
                tokio::spawn(async move {
                    late.world().passes(10, 3000).await;
                    late.world().note(Event::LateApplied, || doing.to_owned());
                    let fence = match &step {
                        Step::Insert(draft) => Some(draft.fence),
                        Step::Swap(_, _, Change::TakeOver(draft), _) => Some(draft.fence),
                        Step::Swap(..) => None,
                    };
                    late.apply(step);
                    if let Some(fence) = fence
                        && let Some(attempt) =
                            late.world().state().ledger.attempts.get_mut(&fence.as_u64())
                    {
                        attempt.came_late = true;
                    }
                });
                self.world().passes(0, 2000).await;
                Err(lost())
            }
        };
        self.way_back().await;
        ended
    }

    pub(crate) async fn read<T>(
        &self,
        doing: &'static str,
        look: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.way_there(doing).await?;
        let found = match self.fate() {
            Fate::Through | Fate::Late => look.await,
            Fate::SlowAcknowledgement => {
                let found = look.await;
                self.world().passes(100, 1900).await;
                found
            }
            Fate::Refused | Fate::LostBefore | Fate::LostAfter => {
                Err(StoreError::definite(StoreErrorKind::Unavailable, doing))
            }
        };
        self.way_back().await;
        found
    }

    /// Applies a step in one go, and keeps the world's books.
    fn apply(&self, step: Step) -> Done {
        let world = self.world();
        match step {
            Step::Insert(draft) => {
                if world.has(Defect::ReservationNotDurable) && world.chance(10) {
                    return Done::Inserted(Inserted::Done(world.store_now()));
                }
                let is_unknown = now(self.memory.get(draft.id)).is_none();
                if is_unknown && self.is_history_lost(Defect::UnknownIgnoresLoss) {
                    return Done::HistoryLost;
                }
                let inserted = now(self.memory.insert(&draft));
                if matches!(inserted, Inserted::Done(_)) {
                    self.placed(&draft, None);
                }
                Done::Inserted(inserted)
            }
            Step::Swap(id, guard, change, audit) => {
                let (guard, change) = self.bent(id, guard, change);
                let before = now(self.memory.get(id)).map(|found| found.record);
                if world.has(Defect::LateOwnerIsRefused)
                    && matches!((&change, guard), (Change::Complete { .. }, Guard::Owner(_)))
                    && before.as_ref().is_some_and(|it| it.state.kind() == StateKind::Uncertain)
                {
                    return Done::Swapped(Swapped::Moved(now(self.memory.get(id)).map(Box::new)));
                }
                if world.has(Defect::CompletionNotDurable)
                    && matches!(change, Change::Complete { .. })
                    && world.chance(10)
                {
                    return Done::Swapped(Swapped::Done(world.store_now()));
                }
                let swapped = now(self.memory.swap(id, guard, change.clone(), audit.as_ref()));
                match (&swapped, before) {
                    (Swapped::Done(_), Some(before)) => {
                        self.swapped(&before, guard, change, audit.as_ref());
                    }
                    _ => world.note(Event::FencedOff, || format!("{guard:?}")),
                }
                Done::Swapped(swapped)
            }
        }
    }

    /// Returns true if history is lost, and the store does not overlook it.
    fn is_history_lost(&self, overlooked: Defect) -> bool {
        let world = self.world();
        let is_lost = world.state().history == History::Lost && !world.has(overlooked);
        if is_lost {
            world.note(Event::LossRefused, String::new);
        }
        is_lost
    }

    /// A swap that arrives by another way than this process's.
    pub(crate) fn apply_swap(&self, id: RecordId, guard: Guard, change: Change) -> Swapped {
        match self.apply(Step::Swap(id, guard, change, None)) {
            Done::Swapped(swapped) => swapped,
            Done::Inserted(_) | Done::HistoryLost => unreachable!("a swap is no insert"),
        }
    }

    /// Returns the step as a defective store would carry it out.
    fn bent(&self, id: RecordId, guard: Guard, change: Change) -> (Guard, Change) {
        let world = self.world();
        let stands = || now(self.memory.get(id)).map(|found| found.record.seen());
        let guard = match (&change, guard) {
            (Change::Remove, Guard::Owner(_)) if world.has(Defect::ReleaseIgnoresFence) => {
                stands().map_or(guard, Guard::Seen)
            }
            (Change::Complete { .. }, Guard::Owner(_))
                if world.has(Defect::CompleteIgnoresFence) =>
            {
                stands().map_or(guard, Guard::Seen)
            }
            _ => guard,
        };
        let change = match (change, guard) {
            (Change::MarkUncertain { .. }, Guard::Seen(_)) if world.has(Defect::SweepFrees) => {
                Change::Remove
            }
            (Change::MarkUncertain { .. }, Guard::Owner(_))
                if world.has(Defect::UncertainIsReleased) =>
            {
                Change::Remove
            }
            (change, Guard::Seen(_))
                if change.frees() && world.has(Defect::SweepForgetsPollers) =>
            {
                Change::Remove
            }
            (change, Guard::Owner(_))
                if change.frees() && world.has(Defect::ReleaseForgetsPollers) =>
            {
                Change::Remove
            }
            (change, _) => change,
        };
        (guard, change)
    }

    /// A draft stands now, in the place of `before`.
    fn placed(&self, draft: &Draft, before: Option<&State>) {
        let world = self.world();
        let mut state = world.state();
        let Some(key) = state.ledger.key_of(draft.id) else { return };
        let expired = match before {
            // A note of a release is no outcome: the key was free.
            Some(State::Completed { outcome, .. }) => !outcome.is_release_note(),
            Some(State::Reserved(_) | State::Uncertain { .. }) | None => false,
        };
        let promised_until = state.ledger.keys[key].promised_until.filter(|_| expired);
        if expired {
            state.ledger.keys[key].era += 1;
        }
        let lease = match draft.state {
            DraftState::Reserved { lease_for, .. } => lease_for,
            DraftState::Completed { .. } => Duration::ZERO,
        };
        state.ledger.reserved(key, draft.fence, self.process.number, lease);
        drop(state);
        let event = match before {
            None => Event::Reserved,
            Some(_) if expired => Event::ExpiredTakenOver,
            Some(_) => Event::TakenOver,
        };
        world.note(event, || {
            format!("key {key} by process {} as {:?}", self.process.number, draft.fence)
        });
        self.judge_retention(key, promised_until);
        if let DraftState::Completed { outcome, .. } = &draft.state {
            self.kept(key, outcome, draft.retention);
        }
    }

    /// An outcome that was promised for longer is gone.
    fn judge_retention(&self, key: usize, promised_until: Option<Timestamp>) {
        let now = self.world().store_now();
        if let Some(until) = promised_until.filter(|until| until.since(now) > CLOCK_STEPS_MAX) {
            let early = until.since(now);
            self.world().violation(|| {
                format!(
                    "the outcome of key {key} was forgotten {early:?} before its retention ended"
                )
            });
        }
    }

    fn swapped(&self, before: &Record, guard: Guard, change: Change, audit: Option<&AuditEntry>) {
        let retention = before.retention;
        let (fence, before) = (before.fence, &before.state);
        let world = self.world();
        let key = {
            let state = world.state();
            let attempt = state.ledger.attempts.get(&fence.as_u64());
            let Some(key) = attempt.map(|attempt| attempt.key) else { return };
            key
        };
        match change {
            Change::Note { .. } => {}
            Change::Renew { lease_for } => {
                world.note(Event::Renewed, || format!("key {key}"));
                let lapses_at = Instant::now() + lease_for;
                if let Some(attempt) = world.state().ledger.attempts.get_mut(&fence.as_u64()) {
                    attempt.lapses_at = lapses_at;
                }
            }
            Change::Complete { outcome, .. } if outcome.is_release_note() => {
                self.freed(key, fence, guard, audit);
            }
            Change::Complete { outcome, .. } => {
                if before.kind() == StateKind::Uncertain && audit.is_none() {
                    world.note(Event::CompletedLate, || format!("key {key}"));
                }
                if is_reconciliation(audit) {
                    reconcile::judge_completed(world, key, &outcome);
                }
                world.state().ledger.moved(key, fence, StateKind::Completed, Instant::now());
                self.kept(key, &outcome, retention);
            }
            Change::MarkUncertain { .. } => {
                world.note(Event::MarkedUncertain, || format!("key {key}, {fence:?}"));
                world.state().ledger.moved(key, fence, StateKind::Uncertain, Instant::now());
            }
            Change::TakeOver(draft) => self.placed(&draft, Some(before)),
            Change::Remove => self.freed(key, fence, guard, audit),
        }
    }

    /// The key is free again, or only a note of its release stands.
    fn freed(&self, key: usize, fence: Fence, guard: Guard, audit: Option<&AuditEntry>) {
        let world = self.world();
        let by = match audit {
            Some(entry) if entry.actor == "gateway" => "a probe",
            Some(_) if is_reconciliation(audit) => "a reconciliation",
            Some(_) => "an operator",
            None if matches!(guard, Guard::Seen(_)) => "a sweep",
            None => "its owner",
        };
        world.note(Event::Freed, || format!("key {key}, {fence:?} by {by}"));
        if is_reconciliation(audit) {
            reconcile::judge_freed(world, key, fence);
        }
        let mut state = world.state();
        let book = &mut state.ledger.keys[key];
        book.doubt = None;
        book.freed_by = Some(by);
        let attempt = state.ledger.attempts.get(&fence.as_u64()).copied();
        if let Some(attempt) = attempt.filter(|attempt| attempt.was_called && by == "its owner") {
            state.ledger.released.push((attempt, Instant::now()));
        }
    }

    /// Keys whose outcome was reaped begin a new era.
    fn note_reaped(&self, reaped: usize) {
        let world = self.world();
        let ids: Vec<Option<RecordId>> =
            world.state().ledger.keys.iter().map(|key| key.id).collect();
        for (key, id) in ids.into_iter().enumerate().filter(|_| reaped > 0) {
            let is_gone = id.is_some_and(|id| now(self.memory.get(id)).is_none());
            let mut state = world.state();
            let book = &mut state.ledger.keys[key];
            let has_kept = book.kept.last().is_some_and(|(era, _)| *era == book.era);
            if is_gone && has_kept {
                book.era += 1;
                let promised_until = book.promised_until;
                drop(state);
                self.judge_retention(key, promised_until);
                world.note(Event::Reaped, || format!("key {key}"));
            }
        }
    }

    /// An outcome is kept: in one era there is only one, but for the one that replaces an interim one.
    pub(crate) fn kept(&self, key: usize, outcome: &Outcome, retention: Retention) {
        let world = self.world();
        let promised_until = world.store_now().plus(retention.replay_for);
        let body = match &outcome.body {
            Body::Bytes(bytes) => bytes.clone(),
            Body::Tombstone | Body::Sealed(_) | Body::Released => bytes::Bytes::new(),
        };
        let kept = Kept { status: outcome.status, body, is_interim: outcome.is_interim };
        world.note(Event::Completed, || format!("key {key}: {} {:?}", kept.status, kept.body));
        let mut state = world.state();
        state.ledger.last_kept = Some((Instant::now(), retention.replay_for));
        let era = state.ledger.keys[key].era;
        let book = &mut state.ledger.keys[key];
        book.promised_until = Some(promised_until);
        let other = book.kept.iter().rev().find(|(of, _)| *of == era).map(|(_, kept)| kept.clone());
        book.kept.push((era, kept.clone()));
        let is_excused = book.has_lost_history;
        drop(state);
        let is_other = |other: &Kept| *other != kept && !other.is_interim && !is_excused;
        if let Some(other) = other.filter(is_other) {
            world.violation(|| format!("key {key} kept two answers: {other:?}, then {kept:?}"));
        }
    }
}

/// The result of a step of the store in memory, which never waits.
pub(crate) fn now<T>(step: impl Future<Output = Result<T, StoreError>>) -> T {
    let mut step = std::pin::pin!(step);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match step.as_mut().poll(&mut context) {
        std::task::Poll::Ready(Ok(done)) => done,
        std::task::Poll::Ready(Err(error)) => panic!("the store in memory failed: {error}"),
        std::task::Poll::Pending => panic!("the store in memory waited"),
    }
}

impl Store for SimStore {
    delegate_store!(memory: usage, audits, documents);

    fn capabilities(&self) -> Capabilities {
        Capabilities { answers_within: Some(STORE_LIMIT), ..self.memory.capabilities() }
    }

    fn insert<'a>(&'a self, draft: &'a Draft) -> BoxFuture<'a, Result<Inserted, StoreError>> {
        Box::pin(async move {
            const DOING: &str = "inserting a record";
            match self.write(DOING, Step::Insert(draft.clone())).await? {
                Done::Inserted(inserted) => Ok(inserted),
                Done::HistoryLost => Err(StoreError::definite(StoreErrorKind::HistoryLost, DOING)),
                Done::Swapped(_) => unreachable!("an insert is no swap"),
            }
        })
    }

    fn swap<'a>(
        &'a self,
        id: RecordId,
        guard: Guard,
        change: Change,
        audit: Option<&'a AuditEntry>,
    ) -> BoxFuture<'a, Result<Swapped, StoreError>> {
        let step = Step::Swap(id, guard, change, audit.cloned());
        Box::pin(async move {
            match self.write("changing a record", step).await? {
                Done::Swapped(swapped) => Ok(swapped),
                Done::Inserted(_) | Done::HistoryLost => unreachable!("a swap is no insert"),
            }
        })
    }

    fn get(&self, id: RecordId) -> BoxFuture<'_, Result<Option<Found>, StoreError>> {
        Box::pin(self.read("looking a record up", self.memory.get(id)))
    }

    fn list<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Page, StoreError>> {
        Box::pin(self.read("listing records", self.memory.list(query)))
    }

    fn reap(&self, limit: usize) -> BoxFuture<'_, Result<usize, StoreError>> {
        let step = async move {
            let reaped = self.memory.reap(limit).await?;
            self.note_reaped(reaped);
            Ok(reaped)
        };
        Box::pin(self.read("reaping", step))
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        Box::pin(self.read("asking for the time", self.memory.now()))
    }

    fn check_history(&self, id: RecordId) -> BoxFuture<'_, Result<(), StoreError>> {
        const DOING: &str = "checking the history";
        let look = async move {
            if self.is_history_lost(Defect::FreedIgnoresLoss) {
                return Err(StoreError::definite(StoreErrorKind::HistoryLost, DOING));
            }
            self.memory.check_history(id).await
        };
        Box::pin(self.read(DOING, look))
    }

    fn outbox(&self) -> Option<&dyn Outbox> {
        Some(self)
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
        self.way_there(DOING).await?;
        let lost = || StoreError::indeterminate(StoreErrorKind::Unavailable, DOING);
        let ended = match self.fate() {
            Fate::Through => self.commit(id, work).await,
            Fate::SlowAcknowledgement => {
                let done = self.commit(id, work).await;
                self.world().passes(100, 1900).await;
                done
            }
            Fate::Refused | Fate::Late => {
                Err(StoreError::definite(StoreErrorKind::Unavailable, DOING))
            }
            Fate::LostBefore => {
                self.world().note(Event::LostBefore, || DOING.to_owned());
                Err(lost())
            }
            Fate::LostAfter => {
                let done = self.commit(id, work).await;
                self.world().note(Event::LostAfter, || DOING.to_owned());
                done.and_then(|_| Err(lost()))
            }
        };
        self.way_back().await;
        ended
    }
}

impl SimStore {
    async fn commit<T, W>(&self, id: RecordId, work: W) -> Result<Transacted<T>, StoreError>
    where
        T: Send + 'static,
        W: for<'t> FnOnce(&mut MemoryTx<'t>, Option<Found>) -> Conclusion<T> + Send + 'static,
    {
        let world = self.world().clone();
        let written = Arc::new(std::sync::Mutex::new(None));
        let noted = Arc::clone(&written);
        let before = now(self.memory.get(id)).map(|found| found.record.state);
        let work = move |tx: &mut MemoryTx<'_>, found: Option<Found>| {
            let conclusion = work(tx, found);
            let draft = match &conclusion.write {
                Write::All(draft) => Some((draft.clone(), true)),
                Write::RecordOnly(draft) => Some((draft.clone(), false)),
                Write::Nothing => None,
            };
            *noted.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = draft;
            conclusion
        };
        let done = self.memory.transact(id, work).await?;
        let written = written.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let (Transacted::Done(..), Some((draft, has_rows))) = (&done, written) {
            let Some(key) = world.state().ledger.key_of(id) else { return Ok(done) };
            self.placed(&draft, before.as_ref());
            if has_rows {
                world.note(Event::AtomicCommitted, || format!("key {key}"));
                let mut state = world.state();
                let era = state.ledger.keys[key].era;
                let acted = state.ledger.act(Effect { key, variant: 0, era, request: 0 });
                drop(state);
                if let Err(words) = acted {
                    world.violation(|| words);
                }
            }
        }
        Ok(done)
    }
}
