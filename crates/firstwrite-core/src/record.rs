//! The record under a tenant and key, its state, and the fence that guards it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{Fingerprint, Key, OnLostAnswer, Outcome, RecordId, Tenant, Timestamp};

/// A store's entry under one tenant and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Digest of tenant and key; the primary key everywhere.
    pub id: RecordId,
    /// Tenant that owns the record.
    pub tenant: Tenant,
    /// Key that the client sent.
    pub key: Key,
    /// Method and path pattern, such as `POST /payments`; for people, never compared.
    pub operation: Arc<str>,
    /// Fingerprint of the first request.
    pub fingerprint: Fingerprint,
    /// The attempt that last owned the record.
    pub fence: Fence,
    /// Meaning of a lapsed lease, fixed when the record was reserved.
    pub on_lost_answer: OnLostAnswer,
    /// Time for which the outcome is replayed, fixed when the record was reserved: it applies to every way of
    /// completing.
    pub retention: Retention,
    /// Time at which the record was first written, by the store's clock; of a copy, when its original was.
    pub created_at: Timestamp,
    /// State of the record.
    pub state: State,
}

/// State of a record.
///
/// Not `non_exhaustive`: code that ignores a new state must not compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// An attempt holds the right to run the handler.
    Reserved(Lease),
    /// The outcome is known and never changes.
    Completed {
        /// Outcome replayed to every retry.
        outcome: Outcome,
        /// Time until which the outcome is replayed.
        retained_until: Timestamp,
        /// Time from which the record may be reaped; never before `retained_until`.
        kept_until: Timestamp,
    },
    /// The attempt ended with an unknown result; only proof settles it.
    Uncertain {
        /// Time at which the attempt was given up, by the store's clock. A probe that finds nothing proves
        /// nothing until long after this.
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

/// Time for which a reservation holds unless it is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The first instant at which the lease no longer holds.
    pub until: Timestamp,
}

/// A number that grows with each take-over; a late writer is refused by it.
///
/// The upper bits count take-overs of one record. The lower 40 bits are a nonce drawn by the
/// attempt, so that an attempt recognises its own write when an acknowledgement was lost, and so
/// that a record which was removed and reserved again never carries a fence of its former life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

/// New record that an attempt wants to write, where there is none or in place of the one it takes over.
///
/// Durations instead of instants: the store adds them to its own clock when it writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Digest of `tenant` and `key`.
    pub id: RecordId,
    /// Tenant that owns the record.
    pub tenant: Tenant,
    /// Key that the client sent.
    pub key: Key,
    /// Method and path pattern, for people.
    pub operation: Arc<str>,
    /// Fingerprint of the request.
    pub fingerprint: Fingerprint,
    /// The attempt's own fence.
    pub fence: Fence,
    /// Meaning of a lapsed lease.
    pub on_lost_answer: OnLostAnswer,
    /// Time for which the outcome will be replayed.
    pub retention: Retention,
    /// The state to begin in.
    pub state: DraftState,
}

/// The state a draft begins in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DraftState {
    /// Reserve first, complete later.
    Reserved {
        /// Time for which the reservation holds unless it is renewed.
        lease_for: Duration,
        /// Time since the request was made; zero, unless the record is a copy of another store's. Its age
        /// decides what a provider's account proves about it.
        asked_ago: Duration,
    },
    /// Written once, already completed: the atomic mode.
    Completed {
        /// Outcome of the request.
        outcome: Outcome,
    },
}

/// Time for which a completed record is replayed, time for which it stays, and the meaning of its key then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Time for which the outcome is replayed.
    pub replay_for: Duration,
    /// Further time for which the record stays, without being replayed, before it may be reaped.
    pub linger_for: Duration,
    /// True if the key is refused for as long as the record stays, instead of being free again.
    pub refuses_spent: bool,
}

/// Action of an operator or a reconciler on a record, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Name of the actor.
    pub actor: String,
    /// Name of the action, such as `release`.
    pub action: String,
    /// Reason, in the actor's words.
    pub reason: String,
}

impl AuditEntry {
    /// Action for an attempt that ended with an unknown result.
    pub const UNCERTAIN: &'static str = "uncertain";

    /// The reason where a store that one process writes to was opened by the next one.
    pub const OWNER_DIED: &'static str = "its process ended before the attempt did";

    /// Maximum length of a reason that the software writes itself, in characters: enough for a reader of the
    /// audit.
    const REASON_CHARACTERS_MAX: usize = 500;

    /// Makes the entry for an attempt that ended with an unknown result, written by the software itself.
    pub fn uncertain(why: &str) -> Self {
        let line = why.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
        Self {
            actor: "firstwrite".to_owned(),
            action: Self::UNCERTAIN.to_owned(),
            reason: line.take(Self::REASON_CHARACTERS_MAX).collect(),
        }
    }
}

/// An audit entry as a store holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audited {
    /// Time at which the entry was written, by the store's clock.
    pub at: Timestamp,
    /// The entry.
    pub entry: AuditEntry,
}

impl Record {
    /// Returns the record that a store writes for `draft` at `now`.
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

    /// Returns the time until which the lease holds, if there is one.
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

    /// Returns the time since the request was made.
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

    /// Returns the number of the attempt, from 1.
    pub const fn count(self) -> u64 {
        self.0 >> Self::NONCE_BITS
    }

    /// Restores a fence from its stored number.
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
