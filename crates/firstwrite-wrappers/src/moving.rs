//! Two stores used as one while records move from one to the other.
//!
//! New records are written to `store`; look-ups also read `other`. Every process writes first and looks
//! second. So if two processes have the stores the other way round and meet on a key, at least one sees the
//! other's record and withdraws its own before anything has run. If both do, both callers are told to come
//! back. If `other` cannot be read, nothing runs.
//!
//! 1. A new record is written into `store`, and stays only if there is no record in `other`.
//! 2. A record that `judge` lets an attempt take over is replaced in `store`. If it is in `other`, the
//!    attempt is written into `store` and the old record is removed from `other`, guarded by its state
//!    as seen: the second of two rivals finds that it has moved.
//! 3. Every other change is made where the record is. An uncertain one may be in both, since it was
//!    copied: its settlement is written to both.
//!
//! A handler's transaction cannot span two stores, so this one offers none.

use std::fmt;
use std::sync::Arc;

use firstwrite_core::{
    AuditEntry, Audited, Capabilities, Certainty, Change, Draft, Fence, Found, Guard, Inserted,
    Page, Query, Record, RecordId, Retention, Seen, State, StateFilter, StateKind, Store,
    StoreError, Swapped, UsagePage, UsageSums, delegate_store, store_methods,
};

/// A store that also reads another one, while records move from one to the other.
pub struct MovingStore {
    store: Arc<dyn Store>,
    other: Arc<dyn Store>,
}

/// Result of reading the other store after writing into the first.
enum LookUp {
    /// Nothing there stands in the way.
    Clear,
    /// The record found there; our own write is withdrawn.
    Withdrawn(Option<Box<Found>>),
}

impl MovingStore {
    /// New records go into `store`; those in `other` count too.
    pub fn new(store: Arc<dyn Store>, other: Arc<dyn Store>) -> Self {
        Self { store, other }
    }

    /// Returns the capabilities that both stores have. No transactions: a handler's could see only one of
    /// the stores.
    fn common_capabilities(&self) -> Capabilities {
        let (store, other) = (self.store.capabilities(), self.other.capabilities());
        Capabilities {
            transactions: false,
            outbox: store.outbox,
            durable: store.durable && other.durable,
            server_time: store.server_time && other.server_time,
            answers_within: store.answers_within.max(other.answers_within),
        }
    }

    async fn insert_looking(&self, draft: &Draft) -> Result<Inserted, StoreError> {
        // An optimisation: repeating a request of the other store costs no write. It proves nothing.
        if let Some(found) = self.other.get(draft.id).await? {
            return Ok(Inserted::Stands(Box::new(self.nearer(draft, found).await?)));
        }
        let inserted = self.store.insert(draft).await?;
        match &inserted {
            Inserted::Stands(found) if found.record.fence != draft.fence => return Ok(inserted),
            // Our own, and its acknowledgement was lost: it has not been looked for yet.
            Inserted::Stands(_) | Inserted::Done(_) => {}
        }
        match self.look(draft, None).await? {
            LookUp::Clear => Ok(inserted),
            LookUp::Withdrawn(Some(found)) => Ok(Inserted::Stands(found)),
            LookUp::Withdrawn(None) => Err(contended()),
        }
    }

    /// Returns the record that answers for `draft`, where `found` is in the other store.
    async fn nearer(&self, draft: &Draft, found: Found) -> Result<Found, StoreError> {
        match self.store.get(draft.id).await? {
            // Ours, and its acknowledgement was lost: no attempt would ever end it.
            Some(own) if own.record.fence == draft.fence && found.record.fence != draft.fence => {
                self.withdraw(draft).await.map_err(StoreError::after_lost_acknowledgement)?;
                Ok(found)
            }
            // Settled here; the copy there has not heard of it.
            Some(nearer) if is_spent(&found) || is_settled_copy(&nearer, &found) => Ok(nearer),
            Some(_) | None => Ok(found),
        }
    }

    /// Reads the other store, now that `draft` is in the first. `replaced` is the record that it takes
    /// over.
    async fn look(&self, draft: &Draft, replaced: Option<Seen>) -> Result<LookUp, StoreError> {
        let ended = self.look_once(draft, replaced).await;
        match ended {
            Ok(None) => Ok(LookUp::Clear),
            Ok(Some(stands)) => {
                self.withdraw(draft).await.map_err(StoreError::after_lost_acknowledgement)?;
                Ok(LookUp::Withdrawn(stands))
            }
            Err(error) => {
                // Nothing may run under it. If it cannot be withdrawn now, the caller does so later.
                let withdrawn = self.withdraw(draft).await;
                Err(match withdrawn {
                    Ok(()) if error.certainty() == Certainty::Definite => error,
                    Ok(()) | Err(_) => error.after_lost_acknowledgement(),
                })
            }
        }
    }

    /// Returns the record in the other store that stands in the way, if there is one, or was a moment ago.
    async fn look_once(
        &self,
        draft: &Draft,
        replaced: Option<Seen>,
    ) -> Result<Option<Option<Box<Found>>>, StoreError> {
        let Some(found) = self.other.get(draft.id).await? else {
            // After the look: what was lost before it is noticed now.
            self.other.check_history(draft.id).await?;
            return Ok(None);
        };
        let seen = found.record.seen();
        // A copy of what was just written.
        if seen.fence == draft.fence {
            return Ok(None);
        }
        let is_replaced = replaced.is_some_and(|replaced| replaced == seen || is_spent(&found));
        if !is_replaced {
            return Ok(Some(Some(Box::new(found))));
        }
        match self.other.swap(draft.id, Guard::Seen(seen), Change::Remove, None).await? {
            Swapped::Done(_) => Ok(None),
            Swapped::Moved(stands) => Ok(Some(stands)),
        }
    }

    /// Removes the record that was just written, under which nothing has run.
    async fn withdraw(&self, draft: &Draft) -> Result<(), StoreError> {
        let guard = match draft.state.kind() {
            StateKind::Reserved | StateKind::Uncertain => Guard::Owner(draft.fence),
            state @ StateKind::Completed => {
                Guard::Seen(Seen { fence: draft.fence, state, lease_until: None })
            }
        };
        self.store.swap(draft.id, guard, Change::Remove, None).await.map(drop)
    }

    async fn take_over(
        &self,
        guard: Guard,
        draft: Box<Draft>,
        audit: Option<&AuditEntry>,
    ) -> Result<Swapped, StoreError> {
        let replaced = match guard {
            Guard::Seen(seen) => Some(seen),
            Guard::Owner(_) => None,
        };
        let change = Change::TakeOver(draft.clone());
        let swapped = match self.store.swap(draft.id, guard, change, audit).await? {
            Swapped::Moved(None) => match self.replace_other(guard, &draft).await? {
                TakeOverResult::Written(inserted) => inserted,
                TakeOverResult::Moved(stands) => return Ok(Swapped::Moved(stands)),
            },
            swapped @ (Swapped::Done(_) | Swapped::Moved(Some(_))) => swapped,
        };
        match &swapped {
            Swapped::Moved(Some(found)) if found.record.fence != draft.fence => return Ok(swapped),
            Swapped::Moved(_) | Swapped::Done(_) => {}
        }
        Ok(match self.look(&draft, replaced).await? {
            LookUp::Clear => swapped,
            LookUp::Withdrawn(stands) => Swapped::Moved(stands),
        })
    }

    /// Writes the draft into the first store, if the record that it takes over is in the other.
    async fn replace_other(
        &self,
        guard: Guard,
        draft: &Draft,
    ) -> Result<TakeOverResult, StoreError> {
        let Some(found) = self.other.get(draft.id).await? else {
            return Ok(TakeOverResult::Moved(None));
        };
        let change = Change::TakeOver(Box::new(draft.clone()));
        if !guard.holds(&found.record, &change) {
            return Ok(TakeOverResult::Moved(Some(Box::new(found))));
        }
        Ok(TakeOverResult::Written(match self.store.insert(draft).await? {
            Inserted::Done(now) => Swapped::Done(now),
            Inserted::Stands(found) => Swapped::Moved(Some(found)),
        }))
    }

    async fn change(
        &self,
        id: RecordId,
        guard: Guard,
        change: Change,
        audit: Option<&AuditEntry>,
    ) -> Result<Swapped, StoreError> {
        let first = self.store.swap(id, guard, change.clone(), audit).await?;
        // It may have been copied while it was uncertain.
        let is_settled = matches!(guard, Guard::Seen(Seen { state: StateKind::Uncertain, .. }));
        match &first {
            Swapped::Done(_) if !is_settled => return Ok(first),
            Swapped::Moved(Some(found)) if found.record.fence == fence_of(guard) => {
                if is_settled && let Some(again) = repeated(found) {
                    self.other.swap(id, guard, again, audit).await?;
                }
                return Ok(first);
            }
            Swapped::Done(_) | Swapped::Moved(_) => {}
        }
        let second = self.other.swap(id, guard, change.clone(), audit).await;
        if matches!(first, Swapped::Done(_)) {
            // Half of it is written: what is left in the other store is settled by saying it again.
            return second.map(|_| first).map_err(StoreError::after_lost_acknowledgement);
        }
        let second = second?;
        if is_settled && matches!(second, Swapped::Done(_)) {
            let copied = self.store.swap(id, guard, change, audit).await;
            copied.map_err(StoreError::after_lost_acknowledgement)?;
        }
        Ok(match (first, second) {
            (_, done @ Swapped::Done(_)) => done,
            (first @ Swapped::Moved(Some(_)), Swapped::Moved(Some(second)))
                if second.record.fence != fence_of(guard) =>
            {
                first
            }
            (first @ Swapped::Moved(Some(_)), Swapped::Moved(None)) => first,
            (_, second) => second,
        })
    }

    async fn find(&self, id: RecordId) -> Result<Option<Found>, StoreError> {
        let found = self.store.get(id).await?;
        if found.as_ref().is_some_and(|found| !is_spent(found)) {
            return Ok(found);
        }
        Ok(match self.other.get(id).await? {
            Some(other) if found.is_none() || !is_spent(&other) => Some(other),
            Some(_) | None => found,
        })
    }
}

/// Result of writing a draft whose predecessor is in the other store.
enum TakeOverResult {
    /// The result of writing into the first store.
    Written(Swapped),
    /// The record to be taken over is no longer there.
    Moved(Option<Box<Found>>),
}

/// Returns true if the record is completed and is no longer replayed.
fn is_spent(found: &Found) -> bool {
    match &found.record.state {
        State::Completed { retained_until, .. } => *retained_until <= found.now,
        State::Reserved(_) | State::Uncertain { .. } => false,
    }
}

/// Returns true if `here` is the settlement of the uncertain record `there`.
fn is_settled_copy(here: &Found, there: &Found) -> bool {
    here.record.fence == there.record.fence
        && here.record.state.kind() == StateKind::Completed
        && there.record.state.kind() == StateKind::Uncertain
}

/// Returns the change that repeats a settlement of one store in the other, which has missed it.
fn repeated(settled: &Found) -> Option<Change> {
    let State::Completed { outcome, retained_until, kept_until } = &settled.record.state else {
        return None;
    };
    let retention = Retention {
        replay_for: retained_until.since(settled.now),
        linger_for: kept_until.since((*retained_until).max(settled.now)),
        refuses_spent: settled.record.retention.refuses_spent,
    };
    Some(Change::Complete { outcome: outcome.clone(), retention })
}

fn fence_of(guard: Guard) -> Fence {
    match guard {
        Guard::Owner(fence) => fence,
        Guard::Seen(seen) => seen.fence,
    }
}

/// Returns the error for a contended key: both the record in the way and our own write are gone, so the
/// same step may be tried again.
fn contended() -> StoreError {
    let kind = firstwrite_core::StoreErrorKind::Unavailable;
    StoreError::definite(kind, "writing under a key that is contended in two stores")
}

/// Returns a page of both, in the order of ids. A record that is in both is shown as it is in the first. Each
/// store has judged its lapsed leases by its own clock, so their page carries the later time.
async fn list_both(
    store: &dyn Store,
    other: &dyn Store,
    query: &Query,
) -> Result<Page, StoreError> {
    let first = store.list(query).await?;
    let second = other.list(query).await?;
    // Beyond where a page ends, nothing is known of that store.
    let end = first.next.into_iter().chain(second.next).min();
    let is_known = |record: &Record| end.is_none_or(|end| record.id <= end);
    let mut records: Vec<Record> =
        first.records.into_iter().chain(second.records).filter(is_known).collect();
    // Stable: of two with one id, the first store's stays.
    records.sort_by_key(|record| record.id);
    records.dedup_by_key(|record| record.id);
    let page = Page::of(records, query.limit.min(Query::LIMIT_MAX), end, first.now);
    Ok(match query.state {
        Some(StateFilter::Lapsed) => Page { next: None, now: first.now.max(second.now), ..page },
        Some(_) | None => page,
    })
}

/// Sums the usage of both stores. A record that is in both counts once, and only its id tells: so the
/// records are listed, which costs more than a store's own count.
async fn usage_both(
    store: &dyn Store,
    other: &dyn Store,
    after: Option<RecordId>,
    limit: usize,
) -> Result<UsagePage, StoreError> {
    let limit = limit.clamp(1, Query::LIMIT_MAX);
    let page = list_both(store, other, &Query { tenant: None, state: None, after, limit }).await?;
    let mut sums = UsageSums::default();
    for record in page.records {
        let usage = record.usage();
        sums.count(record.id, record.tenant, usage);
    }
    Ok(UsagePage { next: page.next, ..sums.page(limit) })
}

async fn reap_both(
    store: &dyn Store,
    other: &dyn Store,
    limit: usize,
) -> Result<usize, StoreError> {
    let reaped = store.reap(limit).await?;
    if reaped >= limit {
        return Ok(reaped);
    }
    Ok(reaped + other.reap(limit - reaped).await?)
}

/// Merges the audit entries of both stores; an entry that was written to both is returned once.
async fn audits_both(
    store: &dyn Store,
    other: &dyn Store,
    id: RecordId,
) -> Result<Vec<Audited>, StoreError> {
    let mut told = store.audits(id).await?;
    for audited in other.audits(id).await? {
        if told.iter().all(|known| known.entry != audited.entry) {
            told.push(audited);
        }
    }
    told.sort_by_key(|audited| audited.at);
    Ok(told)
}

impl Store for MovingStore {
    delegate_store!(store: outbox, documents);

    store_methods!(self;
        capabilities() => self.common_capabilities(),
        insert(draft) => self.insert_looking(draft),
        swap(id, guard, change, audit) => async move {
            match change {
                Change::TakeOver(draft) => self.take_over(guard, draft, audit).await,
                change @ (Change::Note { .. }
                | Change::Renew { .. }
                | Change::Complete { .. }
                | Change::MarkUncertain { .. }
                | Change::Remove) => self.change(id, guard, change, audit).await,
            }
        },
        get(id) => self.find(id),
        list(query) => list_both(&*self.store, &*self.other, query),
        usage(after, limit) => usage_both(&*self.store, &*self.other, after, limit),
        reap(limit) => reap_both(&*self.store, &*self.other, limit),
        audits(id) => audits_both(&*self.store, &*self.other, id),
        // The time of the first store. The other is asked too: while it is unavailable, nothing can run.
        now() => async move {
            self.other.now().await?;
            self.store.now().await
        },
        check_history(id) => async move {
            self.store.check_history(id).await?;
            self.other.check_history(id).await
        },
    );
}

impl fmt::Debug for MovingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MovingStore")
            .field("store", &self.store)
            .field("other", &self.other)
            .finish()
    }
}
