//! A store around [`MemoryStore`] that makes one mistake at a time.
//!
//! A mistake is planted by rewriting what goes in or what comes out; without one, every step goes
//! through as it is.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::{
    AuditEntry, Audited, Body, BoxFuture, Capabilities, Change, Conclusion, Draft, DraftState,
    Found, Guard, Inserted, KeptHeaders, MemoryStore, MemoryTx, Outcome, Page, PartDigests, Policy,
    Query, Record, RecordId, Request, Retention, State, StateFilter, StateKind, Store, StoreError,
    StoreErrorKind, Swapped, Timestamp, Transacted, TransactionalStore, Usage, UsagePage, Write,
};

use firstwrite_core::Documents;
use firstwrite_core::outbox::Outbox;

use super::Defect;
use crate::{ManualClock, sample};

/// A store that makes one mistake, or none. Clones share one content.
#[derive(Clone, Debug)]
pub struct DefectiveStore {
    defect: Option<Defect>,
    clock: ManualClock,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    memory: MemoryStore,
    /// For [`Defect::AckBeforeWrite`]: what a restart goes back to, one write behind.
    disk: MemoryStore,
    disk_clock: ManualClock,
    unwritten: Option<(Timestamp, Step)>,
    /// For [`Defect::ForgetsTenant`]: under which id a key's record really stands.
    aliases: BTreeMap<RecordId, RecordId>,
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Box<Draft>),
    Swap(RecordId, Guard, Box<Change>),
}

impl DefectiveStore {
    /// An empty store with one mistake, or with none.
    pub fn new(clock: ManualClock, defect: Option<Defect>) -> Self {
        let disk_clock = ManualClock::new();
        let shared = Shared {
            memory: MemoryStore::new(clock.reader()),
            disk: MemoryStore::new(disk_clock.reader()),
            disk_clock,
            unwritten: None,
            aliases: BTreeMap::new(),
        };
        Self { defect, clock, shared: Arc::new(Mutex::new(shared)) }
    }

    /// The sound store inside.
    pub fn memory(&self) -> MemoryStore {
        self.shared().memory.clone()
    }

    /// Ends the process and begins again with what is durable.
    pub async fn restart(&self) {
        // A sound store has everything on disk: the content in memory is what was written.
        if self.has(Defect::AckBeforeWrite) {
            let mut shared = self.shared();
            shared.unwritten = None;
            shared.memory = shared.disk.clone();
        }
        yield_once().await;
    }

    pub(super) fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Under which id the record of `id` really stands.
    fn place(&self, id: RecordId) -> RecordId {
        self.shared().aliases.get(&id).copied().unwrap_or(id)
    }

    /// Writes down a step for the disk, which is always one step behind.
    async fn write_behind(&self, step: Step) {
        if !self.has(Defect::AckBeforeWrite) {
            return;
        }
        let due = {
            let mut shared = self.shared();
            let due = shared.unwritten.replace((self.clock.now(), step));
            if let Some((at, _)) = &due {
                shared.disk_clock.set(*at);
            }
            due.map(|(_, step)| (shared.disk.clone(), step))
        };
        match due {
            Some((disk, Step::Insert(draft))) => drop(disk.insert(&draft).await),
            Some((disk, Step::Swap(id, guard, change))) => {
                drop(disk.swap(id, guard, *change, None).await);
            }
            None => {}
        }
    }

    async fn insert_wrongly(&self, draft: &Draft) -> Result<Inserted, StoreError> {
        let mut draft = self.spoil_draft(draft.clone());
        let asked = draft.id;
        if self.has(Defect::ForgetsTenant) {
            draft.id = RecordId::of(&sample::tenant("everybody"), &draft.key);
            self.shared().aliases.insert(asked, draft.id);
        }
        let memory = self.memory();
        if self.has(Defect::CheckThenInsert) && memory.get(draft.id).await?.is_none() {
            yield_once().await;
            // Nothing stood there when it was looked at: write over whatever came since.
            if let Some(found) = memory.get(draft.id).await? {
                let guard = Guard::Seen(found.record.seen());
                memory.swap(draft.id, guard, Change::Remove, None).await?;
            }
        }
        let inserted = memory.insert(&draft).await?;
        if matches!(inserted, Inserted::Done(_)) {
            self.write_behind(Step::Insert(Box::new(draft))).await;
        }
        Ok(match inserted {
            Inserted::Stands(found) => Inserted::Stands(Box::new(self.spoil_found(asked, *found))),
            done @ Inserted::Done(_) => done,
        })
    }

    async fn swap_wrongly(
        &self,
        asked: RecordId,
        guard: Guard,
        change: Change,
        audit: Option<&AuditEntry>,
    ) -> Result<Swapped, StoreError> {
        let (memory, id) = (self.memory(), self.place(asked));
        let mut change = self.spoil_change(change);
        let mut guard = guard;
        if let Some(Found { record, .. }) = memory.get(id).await? {
            guard = self.spoil_guard(guard, &record, &change);
            if let (Change::TakeOver(draft), Defect::TakeOverKeepsOldFence) =
                (&mut change, self.defect.unwrap_or(Defect::BodyAsText))
            {
                draft.fence = record.fence;
            }
            if self.has(Defect::RenewRevivesUncertain)
                && let Change::Renew { lease_for } = change
                && record.state.kind() == StateKind::Uncertain
            {
                change = Change::TakeOver(Box::new(reserve_again(&record, lease_for)));
            }
        } else if self.has(Defect::AuditWithoutChange) {
            self.audit_anyway(id, audit).await?;
        }
        let entry = audit.filter(|_| !self.has(Defect::ChangeWithoutAudit));
        let swapped = memory.swap(id, guard, change.clone(), entry).await?;
        Ok(match swapped {
            Swapped::Done(now) => {
                self.write_behind(Step::Swap(id, guard, Box::new(change))).await;
                Swapped::Done(now)
            }
            Swapped::Moved(found) => {
                if self.has(Defect::AuditWithoutChange) && found.is_some() {
                    self.audit_anyway(id, audit).await?;
                }
                Swapped::Moved(found.map(|found| Box::new(self.spoil_found(asked, *found))))
            }
        })
    }

    /// Writes an audit entry by a change that changes nothing.
    async fn audit_anyway(
        &self,
        id: RecordId,
        audit: Option<&AuditEntry>,
    ) -> Result<(), StoreError> {
        let memory = self.memory();
        if let (Some(entry), Some(found)) = (audit, memory.get(id).await?)
            && let State::Completed { outcome, retained_until, kept_until } =
                found.record.state.clone()
        {
            let retention = Retention {
                replay_for: retained_until.since(found.now),
                linger_for: kept_until.since(retained_until),
                refuses_spent: found.record.retention.refuses_spent,
            };
            let guard = Guard::Seen(found.record.seen());
            let change = Change::Complete { outcome, retention };
            memory.swap(id, guard, change, Some(entry)).await?;
        }
        Ok(())
    }

    fn spoil_guard(&self, guard: Guard, record: &Record, change: &Change) -> Guard {
        let now = record.seen();
        match (guard, self.defect) {
            (Guard::Owner(_), Some(Defect::NoFenceCompare))
                if now.state != StateKind::Completed =>
            {
                Guard::Owner(now.fence)
            }
            (Guard::Owner(fence), Some(Defect::OwnerGuardIgnoresState)) if fence == now.fence => {
                Guard::Seen(now)
            }
            (Guard::Seen(seen), Some(Defect::SeenGuardIgnoresRenewal)) => {
                Guard::Seen(firstwrite_core::Seen { lease_until: now.lease_until, ..seen })
            }
            (Guard::Seen(seen), Some(Defect::SeenGuardIgnoresState)) if seen.fence == now.fence => {
                Guard::Seen(now)
            }
            (_, Some(Defect::CompletedCanChange))
                if now.state == StateKind::Completed
                    && matches!(change, Change::Complete { .. }) =>
            {
                Guard::Seen(now)
            }
            (guard, _) => guard,
        }
    }

    fn spoil_change(&self, change: Change) -> Change {
        match change {
            Change::Renew { lease_for } => Change::Renew { lease_for: self.spoil_lease(lease_for) },
            Change::Complete { outcome, retention } => Change::Complete {
                outcome: self.spoil_outcome(outcome),
                retention: self.spoil_retention(retention),
            },
            Change::TakeOver(draft) => Change::TakeOver(Box::new(self.spoil_draft(*draft))),
            Change::Note { ago } => {
                let is_now = self.has(Defect::CopiedNoteIsNew);
                Change::Note { ago: if is_now { Duration::ZERO } else { ago } }
            }
            Change::MarkUncertain { ago } => {
                let is_now = self.has(Defect::CopyIsUncertainSinceNow);
                Change::MarkUncertain { ago: if is_now { Duration::ZERO } else { ago } }
            }
            Change::Remove => Change::Remove,
        }
    }

    fn spoil_draft(&self, mut draft: Draft) -> Draft {
        draft.state = match draft.state {
            DraftState::Reserved { lease_for, mut asked_ago } => {
                if self.has(Defect::CopyForgetsItsAge) {
                    asked_ago = Duration::ZERO;
                }
                DraftState::Reserved { lease_for: self.spoil_lease(lease_for), asked_ago }
            }
            DraftState::Completed { outcome } => {
                draft.retention = self.spoil_retention(draft.retention);
                DraftState::Completed { outcome: self.spoil_outcome(outcome) }
            }
        };
        if self.has(Defect::PartDigestsDropped) {
            let whole = &draft.fingerprint;
            draft.fingerprint = firstwrite_core::Fingerprint::from_stored(
                whole.version(),
                whole.form(),
                *whole.digest(),
                PartDigests::default(),
            )
            .keyed_by(whole.secret());
        }
        draft
    }

    fn spoil_lease(&self, lease_for: Duration) -> Duration {
        if self.has(Defect::LeaseByCallerClock) {
            return lease_for.saturating_add(Duration::from_hours(1));
        }
        if self.has(Defect::LeaseByLaggingClock) {
            return lease_for.saturating_sub(Duration::from_millis(1));
        }
        lease_for
    }

    fn spoil_retention(&self, retention: Retention) -> Retention {
        if self.has(Defect::RetentionEqualsLease) {
            return Retention { replay_for: Policy::LEASE_DEFAULT, ..retention };
        }
        retention
    }

    fn spoil_outcome(&self, mut outcome: Outcome) -> Outcome {
        if self.has(Defect::HeadersInMap) {
            let map: BTreeMap<String, _> = outcome
                .headers
                .iter()
                .map(|(name, value)| (name.to_string(), (name.clone(), value.clone())))
                .collect();
            outcome.headers = KeptHeaders::from_pairs(map.into_values().collect());
        }
        outcome.body = match outcome.body {
            Body::Bytes(bytes) if self.has(Defect::BodyAsText) => {
                Body::Bytes(Bytes::from(String::from_utf8_lossy(&bytes).into_owned()))
            }
            Body::Tombstone if self.has(Defect::TombstoneAsEmptyBody) => Body::Bytes(Bytes::new()),
            Body::Released if self.has(Defect::ReleasedAsTombstone) => Body::Tombstone,
            same @ (Body::Bytes(_) | Body::Tombstone | Body::Sealed(_) | Body::Released) => same,
        };
        outcome
    }

    /// Spoils a record that was found. A store that forgets tenants returns it under the id that was asked for.
    fn spoil_found(&self, asked: RecordId, mut found: Found) -> Found {
        if self.has(Defect::ForgetsTenant) {
            found.record.id = asked;
        }
        if self.has(Defect::RetentionForgotten) {
            found.record.retention = Policy::default().record_retention();
        }
        if let State::Uncertain { since } = &mut found.record.state
            && self.has(Defect::UncertainSinceCreation)
        {
            *since = found.record.created_at;
        }
        found
    }

    async fn reap_wrongly(&self, limit: usize) -> Result<usize, StoreError> {
        let memory = self.memory();
        if self.has(Defect::ReaperIgnoresLimit) {
            return memory.reap(usize::MAX).await;
        }
        let doomed: fn(&State) -> bool = match self.defect {
            Some(Defect::ReaperIgnoresState) => |state| !matches!(state, State::Completed { .. }),
            Some(Defect::ReaperIgnoresKeptUntil) => {
                |state| matches!(state, State::Completed { .. })
            }
            Some(_) | None => return memory.reap(limit).await,
        };
        let query = Query { tenant: None, state: None, after: None, limit };
        let mut reaped = 0;
        for record in memory.list(&query).await?.records {
            if doomed(&record.state) {
                let guard = Guard::Seen(record.seen());
                memory.swap(record.id, guard, Change::Remove, None).await?;
                reaped += 1;
            }
        }
        Ok(reaped)
    }

    async fn usage_wrongly(
        &self,
        after: Option<RecordId>,
        limit: usize,
    ) -> Result<UsagePage, StoreError> {
        let mut page = self.memory().usage(after, limit).await?;
        if self.has(Defect::UsageMixesTenants)
            && let Some((first, _)) = page.tenants.first().cloned()
        {
            let mut sum = Usage::default();
            for (_, usage) in &page.tenants {
                sum.add(*usage);
            }
            page.tenants = vec![(first, sum)];
        }
        if self.has(Defect::UsageForgetsBytes) {
            page.tenants.iter_mut().for_each(|(_, usage)| usage.bytes = 0);
        }
        if self.has(Defect::UsageEndsEarly) && after.is_some() {
            page.next = None;
        }
        Ok(page)
    }

    async fn list_wrongly(&self, query: &Query) -> Result<Page, StoreError> {
        let mut query = query.clone();
        if self.has(Defect::ListForgetsTenant) {
            query.tenant = None;
        }
        let ignores_time =
            query.state == Some(StateFilter::Lapsed) && self.has(Defect::LapsedIgnoresTime);
        if ignores_time {
            query.state = Some(StateFilter::Reserved);
        }
        let mut page = self.memory().list(&query).await?;
        if ignores_time {
            // The time is made up as well, or the sweep would see through it.
            page = Page { next: None, now: Timestamp::from_millis(i64::MAX), ..page };
        }
        if self.has(Defect::ListSkipsLastOfPage) && page.next.is_some() {
            page.records.pop();
        }
        Ok(page)
    }
}

impl Store for DefectiveStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            transactions: true,
            outbox: true,
            durable: true,
            server_time: true,
            answers_within: None,
        }
    }

    fn insert<'a>(&'a self, draft: &'a Draft) -> BoxFuture<'a, Result<Inserted, StoreError>> {
        Box::pin(self.insert_wrongly(draft))
    }

    fn swap<'a>(
        &'a self,
        id: RecordId,
        guard: Guard,
        change: Change,
        audit: Option<&'a AuditEntry>,
    ) -> BoxFuture<'a, Result<Swapped, StoreError>> {
        Box::pin(self.swap_wrongly(id, guard, change, audit))
    }

    fn get(&self, id: RecordId) -> BoxFuture<'_, Result<Option<Found>, StoreError>> {
        Box::pin(async move {
            let found = self.memory().get(self.place(id)).await?;
            Ok(found.map(|found| self.spoil_found(id, found)))
        })
    }

    fn list<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Page, StoreError>> {
        Box::pin(self.list_wrongly(query))
    }

    fn usage(
        &self,
        after: Option<RecordId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<UsagePage, StoreError>> {
        Box::pin(self.usage_wrongly(after, limit))
    }

    fn reap(&self, limit: usize) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(self.reap_wrongly(limit))
    }

    fn audits(&self, id: RecordId) -> BoxFuture<'_, Result<Vec<Audited>, StoreError>> {
        Box::pin(async move { self.memory().audits(self.place(id)).await })
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        Box::pin(async move { Ok(self.clock.now()) })
    }

    fn check_history(&self, _id: RecordId) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn outbox(&self) -> Option<&dyn Outbox> {
        Some(self)
    }

    fn documents(&self) -> Option<&dyn Documents> {
        Some(self)
    }
}

impl TransactionalStore for DefectiveStore {
    type Tx<'t> = MemoryTx<'t>;

    async fn transact<T, W>(&self, id: RecordId, work: W) -> Result<Transacted<T>, StoreError>
    where
        T: Send + 'static,
        W: for<'t> FnOnce(&mut MemoryTx<'t>, Option<Found>) -> Conclusion<T> + Send + 'static,
    {
        let (memory, store) = (self.memory(), self.clone());
        let transacted = memory
            .transact(self.place(id), move |tx: &mut MemoryTx<'_>, found| {
                let found = found.map(|found| store.spoil_found(id, found));
                if !store.has(Defect::PanicCommitsRows) {
                    let conclusion = work(tx, found);
                    let write = store.spoil_write(conclusion.write);
                    return Conclusion { write, answer: Some(conclusion.answer) };
                }
                match catch_unwind(AssertUnwindSafe(|| work(tx, found))) {
                    Ok(Conclusion { write, answer }) => Conclusion { write, answer: Some(answer) },
                    Err(_) => Conclusion { write: Write::All(Box::new(stray())), answer: None },
                }
            })
            .await?;
        match transacted {
            Transacted::Done(Some(answer), now) => Ok(Transacted::Done(answer, now)),
            Transacted::Done(None, _) => {
                // The rows are committed; the record that carried them goes.
                if let Some(found) = memory.get(id).await? {
                    let guard = Guard::Seen(found.record.seen());
                    memory.swap(id, guard, Change::Remove, None).await?;
                }
                Err(StoreError::definite(StoreErrorKind::Panicked, "running a handler"))
            }
            Transacted::Rival(found) => Ok(Transacted::Rival(found)),
        }
    }
}

impl DefectiveStore {
    fn spoil_write(&self, write: Write) -> Write {
        match write {
            Write::RecordOnly(draft) if self.has(Defect::ClientErrorCommitsRows) => {
                Write::All(Box::new(self.spoil_draft(*draft)))
            }
            Write::All(draft) => Write::All(Box::new(self.spoil_draft(*draft))),
            Write::RecordOnly(draft) => Write::RecordOnly(Box::new(self.spoil_draft(*draft))),
            Write::Nothing => Write::Nothing,
        }
    }
}

/// A draft that makes `record` reserved again.
fn reserve_again(record: &Record, lease_for: Duration) -> Draft {
    Draft {
        id: record.id,
        tenant: record.tenant.clone(),
        key: record.key.clone(),
        operation: record.operation.clone(),
        fingerprint: record.fingerprint.clone(),
        fence: record.fence,
        on_lost_answer: record.on_lost_answer,
        retention: record.retention,
        state: DraftState::reserved(lease_for),
    }
}

/// A record that carries a panicked handler's rows into the store.
fn stray() -> Draft {
    let request: Request = sample::request(&sample::tenant("stray"), &sample::key("stray"), 0);
    let fence = firstwrite_core::Fence::first(0);
    sample::completed(&request, &Policy::default(), fence, sample::outcome(500, "panicked"))
}

/// Lets others go first, under any executor.
pub(crate) fn yield_once() -> YieldOnce {
    YieldOnce { yielded: false }
}

/// See [`yield_once`].
#[derive(Debug)]
pub(crate) struct YieldOnce {
    yielded: bool,
}

impl Future for YieldOnce {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
