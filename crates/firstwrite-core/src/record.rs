//! What stands under a tenant and key: the record, its state, and the fence that guards it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{Fingerprint, Key, OnLostAnswer, Outcome, RecordId, Tenant, Timestamp};

/// What a store keeps under one tenant and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Digest of tenant and key; the primary key everywhere.
    pub id: RecordId,
    /// Whose record it is.
    pub tenant: Tenant,
    /// What the client called it.
    pub key: Key,
    /// Method and path pattern, such as `POST /payments`; for people, never compared.
    pub operation: Arc<str>,
    /// What the first request asked for.
    pub fingerprint: Fingerprint,
    /// The attempt that last owned the record.
    pub fence: Fence,
    /// What a lapsed lease means, fixed when the record was reserved.
    pub on_lost_answer: OnLostAnswer,
    /// How long the outcome will answer, fixed when the record was reserved: it holds for every way of
    /// completing.
    pub retention: Retention,
    /// When the record was first written, by the store's clock; of a copy, when its original was.
    pub created_at: Timestamp,
    /// How far the record has come.
    pub state: State,
}

/// How far a record has come.
///
/// Not `non_exhaustive`: a new state must be answered everywhere or the build fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// An attempt holds the right to run the handler.
    Reserved(Lease),
    /// The outcome is known and never changes.
    Completed {
        /// What every retry is answered with.
        outcome: Outcome,
        /// Until when the outcome is replayed.
        retained_until: Timestamp,
        /// From when on the record may be reaped; never before `retained_until`.
        kept_until: Timestamp,
    },
    /// The attempt ended and nobody knows how; only proof settles it.
    Uncertain {
        /// When the attempt was given up, by the store's clock. A probe that finds nothing proves nothing
        /// until long after this.
        since: Timestamp,
    },
}

/// A state without its content, for guards, listings and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StateKind {
    /// See [`State::Reserved`].
    Reserved,
    /// See [`State::Completed`].
    Completed,
    /// See [`State::Uncertain`].
    Uncertain,
}

/// How long a reservation stands unrenewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The first instant at which the lease no longer holds.
    pub until: Timestamp,
}

/// A number that grows with each take-over; a late writer is refused by it.
///
/// The upper bits count take-overs of one record. The lower 40 bits are a nonce drawn by the
/// attempt, so that an attempt recognises its own write when an acknowledgement was lost, and so
/// that a record which was removed and reserved again never wears a fence of its former life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

/// What an attempt wants to write where nothing stands, or in place of what it takes over.
///
/// Durations instead of instants: the store adds its own clock's time when it writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Digest of `tenant` and `key`.
    pub id: RecordId,
    /// Whose record it will be.
    pub tenant: Tenant,
    /// What the client called it.
    pub key: Key,
    /// Method and path pattern, for people.
    pub operation: Arc<str>,
    /// What the request asks for.
    pub fingerprint: Fingerprint,
    /// The attempt's own fence.
    pub fence: Fence,
    /// What a lapsed lease will mean.
    pub on_lost_answer: OnLostAnswer,
    /// How long the outcome will answer.
    pub retention: Retention,
    /// The state to begin in.
    pub state: DraftState,
}

/// The state a draft begins in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DraftState {
    /// Reserve first, complete later.
    Reserved {
        /// Until when the reservation stands unrenewed.
        lease_for: Duration,
        /// How long ago the request was made; zero, unless the record is a copy of another store's. Its
        /// age decides what a provider's account proves of it.
        asked_ago: Duration,
    },
    /// Written once, already completed: the atomic mode.
    Completed {
        /// What is remembered.
        outcome: Outcome,
    },
}

/// For how long a completed record answers, for how long it stays, and what its key means then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// How long the outcome is replayed.
    pub replay_for: Duration,
    /// How much longer the record stays, replaying no more, before it may be reaped.
    pub linger_for: Duration,
    /// Whether the key is refused for as long as the record stays, instead of being free again.
    pub refuses_spent: bool,
}

/// What an operator or a reconciler did to a record, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Who did it.
    pub actor: String,
    /// What was done, such as `release`.
    pub action: String,
    /// Why, in the actor's words.
    pub reason: String,
}

/// An audit entry as it stands in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audited {
    /// When it was written, by the store's clock.
    pub at: Timestamp,
    /// What was done.
    pub entry: AuditEntry,
}

impl Record {
    /// What a store writes for `draft` at `now`.
    pub fn from_draft(draft: &Draft, now: Timestamp) -> Self {
        Self {
            id: draft.id,
            tenant: draft.tenant.clone(),
            key: draft.key.clone(),
            operation: draft.operation.clone(),
            fingerprint: draft.fingerprint.clone(),
            fence: draft.fence,
            on_lost_answer: draft.on_lost_answer,
            retention: draft.retention,
            created_at: now.minus(draft.state.asked_ago()),
            state: State::from_draft(&draft.state, draft.retention, now),
        }
    }
}

impl State {
    /// The state that `draft` becomes when it is written at `now`.
    pub fn from_draft(draft: &DraftState, retention: Retention, now: Timestamp) -> Self {
        match draft {
            DraftState::Reserved { lease_for, .. } => {
                Self::Reserved(Lease { until: now.plus(*lease_for) })
            }
            DraftState::Completed { outcome } => Self::completed(outcome.clone(), retention, now),
        }
    }

    /// Completed at `now`, with the deadlines that follow from `retention`.
    ///
    /// An interim outcome stands until it is replaced: its retention begins then.
    pub fn completed(outcome: Outcome, retention: Retention, now: Timestamp) -> Self {
        if outcome.is_interim {
            let (retained_until, kept_until) = (Timestamp::NEVER, Timestamp::NEVER);
            return Self::Completed { outcome, retained_until, kept_until };
        }
        let retained_until = now.plus(retention.replay_for);
        let kept_until = retained_until.plus(retention.linger_for);
        Self::Completed { outcome, retained_until, kept_until }
    }

    /// The state without its content.
    pub fn kind(&self) -> StateKind {
        match self {
            Self::Reserved(_) => StateKind::Reserved,
            Self::Completed { .. } => StateKind::Completed,
            Self::Uncertain { .. } => StateKind::Uncertain,
        }
    }

    /// Until when the lease holds, where there is one.
    pub fn lease_until(&self) -> Option<Timestamp> {
        match self {
            Self::Reserved(lease) => Some(lease.until),
            Self::Completed { .. } | Self::Uncertain { .. } => None,
        }
    }
}

impl DraftState {
    /// A reservation of a request that is made now.
    pub fn reserved(lease_for: Duration) -> Self {
        Self::Reserved { lease_for, asked_ago: Duration::ZERO }
    }

    /// How long ago the request was made.
    pub fn asked_ago(&self) -> Duration {
        match self {
            Self::Reserved { asked_ago, .. } => *asked_ago,
            Self::Completed { .. } => Duration::ZERO,
        }
    }

    /// The state it will be, without its content.
    pub fn kind(&self) -> StateKind {
        match self {
            Self::Reserved { .. } => StateKind::Reserved,
            Self::Completed { .. } => StateKind::Completed,
        }
    }
}

impl StateKind {
    /// The word used in SQL, listings and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Completed => "completed",
            Self::Uncertain => "uncertain",
        }
    }
}

impl fmt::Display for StateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Fence {
    /// 40 bits make an accidental match of two lives of one record a one-in-10¹² event, and leave
    /// 23 bits for take-overs below the sign bit of SQL's signed integers.
    const NONCE_BITS: u32 = 40;
    const NONCE_MASK: u64 = (1 << Self::NONCE_BITS) - 1;
    const COUNT_MAX: u64 = (1 << (63 - Self::NONCE_BITS)) - 1;

    /// The fence of the first attempt.
    pub const fn first(nonce: u64) -> Self {
        Self((1 << Self::NONCE_BITS) | (nonce & Self::NONCE_MASK))
    }

    /// The fence of the attempt that takes over; always greater than this one.
    #[must_use]
    pub const fn next(self, nonce: u64) -> Self {
        let count = self.count() + 1;
        debug_assert!(
            count <= Self::COUNT_MAX,
            "a record cannot be taken over eight million times"
        );
        Self((count << Self::NONCE_BITS) | (nonce & Self::NONCE_MASK))
    }

    /// Which attempt this is, from 1.
    pub const fn count(self) -> u64 {
        self.0 >> Self::NONCE_BITS
    }

    /// From the number a store kept.
    pub const fn from_u64(number: u64) -> Self {
        Self(number)
    }

    /// The number to store; below 2⁶³.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fence({}·{:010x})", self.count(), self.0 & Self::NONCE_MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_grows_whatever_the_nonces_are() {
        let high = Fence::first(u64::MAX);
        assert!(high.next(0) > high);
        assert_eq!(high.next(0).count(), 2);
    }

    #[test]
    fn two_first_attempts_of_one_key_wear_different_fences() {
        assert_ne!(Fence::first(1), Fence::first(2));
    }

    #[test]
    fn a_fence_fits_a_signed_sql_integer() {
        let last = Fence::from_u64(Fence::COUNT_MAX << Fence::NONCE_BITS | Fence::NONCE_MASK);
        assert!(i64::try_from(last.as_u64()).is_ok());
    }
}
