//! Outcomes encrypted at rest, in any store.
//!
//! 1. An outcome's headers and body are sealed together with AES-256-GCM before they reach the store.
//!    Its status stays readable.
//! 2. The key is the tenant's own, derived from a key of the [`KeyRing`]. Which one is written beside
//!    the outcome, so keys can be rotated.
//! 3. What is sealed is bound to its record, its attempt (fence), its status, and to whether it is
//!    interim. Copied to another record or attempt, or altered by one bit, it does not open.
//! 4. What does not open is an error ([`StoreErrorKind::Corrupt`]) that says why, and an alarm: it is logged,
//!    within limits, and counted ([`SealedStore::unopened`]). In a listing it stays sealed. Nothing of it is
//!    handed out.
//! 5. An outcome that is not sealed does not open either: another program put it there. Where outcomes from
//!    before sealing stand, or an application completes records itself, the ring is told to read them
//!    ([`KeyRing::reading_plain`]). The stored form tells them apart, whatever an outcome contains.
//! 6. Nothing new is begun for a tenant that was dropped: it is refused before it can run. Of what is
//!    under way, only the status is kept.
//!
//! The final answer that a message brings is sealed too. What is *not* sealed: keys, tenants,
//! operations, fingerprints, audit entries, findings, the messages of the outbox with the answers
//! prepared in them, and what handlers in atomic mode commit in their own transactions.

mod alarm;
pub(crate) mod envelope;
mod key_ring;
mod outbox;

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use firstwrite_core::outbox::Outbox;
use firstwrite_core::{
    AuditEntry, Change, Draft, DraftState, Fence, Found, Guard, Inserted, KeptHeaders, Outcome,
    Page, Query, Record, RecordId, State, Store, StoreError, StoreErrorKind, Swapped, Tenant,
    delegate_store, store_methods,
};
use quick_cache::sync::Cache;

use alarm::Alarm;
pub use alarm::UnopenedCounts;
use envelope::{Bond, OpenFailure};
pub use key_ring::{KeyRing, KeyRingError, SealingKey};

/// A store in front of another, which it gives outcomes sealed.
pub struct SealedStore {
    inner: Arc<dyn Store>,
    ring: RwLock<Arc<KeyRing>>,
    /// Tenants of the records that were reserved here: a completion does not carry the tenant.
    tenants: Cache<RecordId, Tenant>,
    alarm: Alarm,
}

/// Maximum number of remembered tenants: more than are under way at once. For others, the store is asked.
const TENANTS_MAX: usize = 65_536;

impl SealedStore {
    /// In front of `inner`, with these keys.
    pub fn new(inner: Arc<dyn Store>, ring: KeyRing) -> Self {
        let tenants = Cache::new(TENANTS_MAX);
        Self { inner, ring: RwLock::new(Arc::new(ring)), tenants, alarm: Alarm::default() }
    }

    /// Switches to other keys: after a rotation, or when a tenant is dropped. Outcomes that only the former
    /// keys could open no longer open.
    pub fn replace_keys(&self, ring: KeyRing) {
        *self.ring.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(ring);
    }

    /// Returns how often outcomes could not be opened, by reason.
    pub fn unopened(&self) -> UnopenedCounts {
        self.alarm.counts()
    }

    fn ring(&self) -> Arc<KeyRing> {
        Arc::clone(&self.ring.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the draft as the store gets it; an error for a tenant for whom nothing may be written.
    fn sealed_draft(&self, draft: &Draft) -> Result<Draft, StoreError> {
        let ring = self.ring();
        let state = match &draft.state {
            // Refused now rather than when its outcome is there and cannot be kept.
            DraftState::Reserved { .. } => {
                ring.for_writing(&draft.tenant).map_err(envelope::refused)?;
                draft.state.clone()
            }
            DraftState::Completed { outcome } => {
                let bond = Bond { id: draft.id, fence: draft.fence, tenant: &draft.tenant };
                let outcome = envelope::seal(&ring, bond, outcome)?;
                DraftState::Completed { outcome }
            }
        };
        Ok(Draft { state, ..draft.clone() })
    }

    /// Returns the outcome of finished work as the store gets it. For a tenant that was dropped meanwhile
    /// it is the status alone: the key is spent all the same, and a retry must not run.
    fn sealed_ending(&self, bond: Bond<'_>, outcome: &Outcome) -> Result<Outcome, StoreError> {
        let ring = self.ring();
        if ring.is_dropped(bond.tenant) && !outcome.is_release_note() {
            return Ok(Outcome::tombstone(outcome.status, KeptHeaders::default()));
        }
        envelope::seal(&ring, bond, outcome)
    }

    async fn insert_sealed(&self, draft: &Draft) -> Result<Inserted, StoreError> {
        let sealed = self.sealed_draft(draft)?;
        match self.inner.insert(&sealed).await? {
            Inserted::Done(at) => {
                self.remember(draft);
                Ok(Inserted::Done(at))
            }
            Inserted::Stands(found) => Ok(Inserted::Stands(Box::new(self.opened(*found)?))),
        }
    }

    async fn swap_sealed(
        &self,
        id: RecordId,
        guard: Guard,
        change: Change,
        audit: Option<&AuditEntry>,
    ) -> Result<Swapped, StoreError> {
        let mut next = None;
        let change = match change {
            Change::Complete { outcome, retention } => {
                // There is no record, so no guard can hold.
                let Some(tenant) = self.tenant_of(id).await? else {
                    return Ok(Swapped::Moved(None));
                };
                let bond = Bond { id, fence: fence_of(guard), tenant: &tenant };
                let outcome = self.sealed_ending(bond, &outcome)?;
                Change::Complete { outcome, retention }
            }
            Change::TakeOver(draft) => {
                let sealed = self.sealed_draft(&draft)?;
                next = Some(draft);
                Change::TakeOver(Box::new(sealed))
            }
            same @ (Change::Note { .. }
            | Change::Renew { .. }
            | Change::MarkUncertain { .. }
            | Change::Remove) => same,
        };
        let is_renewal = matches!(change, Change::Renew { .. });
        match self.inner.swap(id, guard, change, audit).await? {
            Swapped::Done(at) => {
                match next {
                    Some(draft) => self.remember(&draft),
                    None if is_renewal => {}
                    None => drop(self.tenants.remove(&id)),
                }
                Ok(Swapped::Done(at))
            }
            Swapped::Moved(None) => Ok(Swapped::Moved(None)),
            Swapped::Moved(Some(found)) => Ok(Swapped::Moved(Some(Box::new(self.opened(*found)?)))),
        }
    }

    fn remember(&self, draft: &Draft) {
        if matches!(draft.state, DraftState::Reserved { .. }) {
            self.tenants.insert(draft.id, draft.tenant.clone());
        }
    }

    /// Returns the tenant of a record, if there is one. An id never belongs to another tenant.
    async fn tenant_of(&self, id: RecordId) -> Result<Option<Tenant>, StoreError> {
        if let Some(tenant) = self.tenants.get(&id) {
            return Ok(Some(tenant));
        }
        Ok(self.inner.get(id).await?.map(|found| found.record.tenant))
    }

    /// Returns `found` with its outcome opened; an error if it does not open.
    fn opened(&self, found: Found) -> Result<Found, StoreError> {
        let Found { mut record, now } = found;
        let opened = match outcome_in(&record) {
            None => return Ok(Found { record, now }),
            Some(outcome) => envelope::open(&self.ring(), Bond::of(&record), outcome),
        };
        match opened {
            Ok(plain) => {
                put(&mut record, plain);
                Ok(Found { record, now })
            }
            Err(why) => {
                self.alarm.raise(record.id, why);
                let error = StoreError::definite(StoreErrorKind::Corrupt, "opening an outcome");
                Err(error.caused_by(why))
            }
        }
    }

    /// A page with the outcomes opened that can be: one that is damaged must not hide the others.
    async fn list_opened(&self, query: &Query) -> Result<Page, StoreError> {
        let mut page = self.inner.list(query).await?;
        let ring = self.ring();
        for record in &mut page.records {
            let Some(outcome) = outcome_in(record) else { continue };
            match envelope::open(&ring, Bond::of(record), outcome) {
                Ok(plain) => put(record, plain),
                Err(why) => {
                    tracing::warn!(record_id = %record.id, %why, "an outcome stays sealed");
                    // An outcome that was never sealed is not shown either.
                    if why == OpenFailure::Plain {
                        let closed = Outcome::sealed(outcome.status, Bytes::new());
                        put(record, closed);
                    }
                }
            }
        }
        Ok(page)
    }
}

/// The attempt for which a swap under `guard` completes the record.
fn fence_of(guard: Guard) -> Fence {
    match guard {
        Guard::Owner(fence) => fence,
        Guard::Seen(seen) => seen.fence,
    }
}

/// The outcome of a record, if it has one.
fn outcome_in(record: &Record) -> Option<&Outcome> {
    match &record.state {
        State::Completed { outcome, .. } => Some(outcome),
        State::Reserved(_) | State::Uncertain { .. } => None,
    }
}

/// Puts `plain` in the place of the outcome as it was stored.
fn put(record: &mut Record, plain: Outcome) {
    if let State::Completed { outcome, .. } = &mut record.state {
        *outcome = plain;
    }
}

impl Store for SealedStore {
    delegate_store!(
        inner: capabilities,
        usage,
        reap,
        audits,
        now,
        check_history,
        documents
    );

    store_methods!(self;
        insert(draft) => self.insert_sealed(draft),
        swap(id, guard, change, audit) => self.swap_sealed(id, guard, change, audit),
        get(id) => async move {
            let found = self.inner.get(id).await?;
            found.map(|found| self.opened(found)).transpose()
        },
        list(query) => self.list_opened(query),
        outbox() => self.inner.outbox().map(|_| self as &dyn Outbox),
    );
}

impl fmt::Debug for SealedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedStore")
            .field("inner", &self.inner)
            .field("ring", &self.ring())
            .finish_non_exhaustive()
    }
}
