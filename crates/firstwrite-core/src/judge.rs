//! The protocol: decides what to do with a request, given the record under its key.
//!
//! 1. No record: the request is *fresh*.
//! 2. The attempt was released and left a note for its pollers, or the outcome's retention has ended:
//!    the key is *taken over* as if it were free. If the record marks its key as spent, the end of
//!    retention makes it *expired* instead.
//! 3. The fingerprint was taken by another version or with another secret: *unreadable*, nothing runs.
//!    A caller that knows that version and secret takes the request's fingerprint again that way, and
//!    asks anew.
//! 4. The fingerprint differs: *mismatch*, whether or not the first request has ended.
//! 5. Completed: *replay*; *unreadable* if its outcome is sealed and was not opened.
//! 6. Uncertain: *uncertain*, until it is proven what happened.
//! 7. Reserved, and the lease holds: *in progress*.
//! 8. Reserved, and the lease ran out: *take over* where running again is safe, else *uncertain*.

use std::sync::Arc;
use std::time::Duration;

use crate::fingerprint::Comparison;
use crate::store::{Change, Found};
use crate::{
    Body, Fence, Fingerprint, Key, OnLostAnswer, Outcome, Record, RecordId, State, Tenant,
    Timestamp,
};

/// A request as the protocol sees it.
#[derive(Clone, Debug)]
pub struct Request {
    /// Digest of tenant and key.
    pub id: RecordId,
    /// Tenant that owns the key, from verified credentials.
    pub tenant: Tenant,
    /// Key that the client chose for the action.
    pub key: Key,
    /// Method and path pattern, for people.
    pub operation: Arc<str>,
    /// Fingerprint of the request.
    pub fingerprint: Fingerprint,
}

/// Decision on a request.
///
/// Not `non_exhaustive`: a forgotten arm must not compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is no record under the key: reserve it and run.
    Fresh,
    /// The next attempt may replace the record and run.
    TakeOver {
        /// The fence of what is taken over; the next one grows from it.
        from: Fence,
    },
    /// Answer with the first outcome.
    Replay {
        /// Response of the first attempt.
        outcome: Outcome,
        /// Time until which it is replayed.
        retained_until: Timestamp,
    },
    /// Another attempt holds the lease.
    InProgress {
        /// Time until the lease runs out if it is not renewed.
        remaining: Duration,
    },
    /// The key was used for a different request.
    Mismatch,
    /// The first attempt ended, and its result is unknown.
    Uncertain,
    /// The key was spent, and its record remembers that.
    Expired,
    /// The record's fingerprint was taken another way than the request's, or its outcome is sealed.
    Unreadable,
}

/// Decides what to do with a request, given the record under its key.
///
/// The only place where the protocol is decided. Exhaustive on purpose: code that ignores a new state must not
/// compile. The record holds everything that the decision depends on, so two processes with different policies
/// judge it alike.
pub fn judge(found: Option<&Found>, request: &Request) -> Verdict {
    let Some(Found { record, now }) = found else { return Verdict::Fresh };
    debug_assert_eq!(record.id, request.id, "a store answered for another record");
    if let State::Completed { outcome, .. } = &record.state
        && outcome.is_release_note()
    {
        return Verdict::TakeOver { from: record.fence };
    }
    // Past retention and not yet reaped: its outcome is no longer replayed.
    if let State::Completed { retained_until, .. } = &record.state
        && retained_until <= now
    {
        return if record.retention.refuses_spent {
            Verdict::Expired
        } else {
            Verdict::TakeOver { from: record.fence }
        };
    }
    match request.fingerprint.compare(&record.fingerprint) {
        Comparison::OtherWay => return Verdict::Unreadable,
        // Before "in progress": a different request is wrong whether or not the first has ended.
        Comparison::Different => return Verdict::Mismatch,
        Comparison::Same => {}
    }
    match &record.state {
        // A process with the encryption key can answer; this one must not answer with what it cannot
        // read.
        State::Completed { outcome: Outcome { body: Body::Sealed(_), .. }, .. } => {
            Verdict::Unreadable
        }
        State::Completed { outcome, retained_until, .. } => {
            Verdict::Replay { outcome: outcome.clone(), retained_until: *retained_until }
        }
        State::Uncertain { .. } => Verdict::Uncertain,
        State::Reserved(lease) if *now < lease.until => {
            Verdict::InProgress { remaining: lease.until.since(*now) }
        }
        State::Reserved(_) => match record.on_lost_answer {
            OnLostAnswer::Resend => Verdict::TakeOver { from: record.fence },
            // The effect may have happened; only proof settles it.
            OnLostAnswer::Uncertain | OnLostAnswer::Ask(_) => Verdict::Uncertain,
        },
    }
}

/// Decides what a sweep does with a record, if anything: the same choice as rules 7 and 8, made for
/// keys that no request asks about.
pub fn judge_lapsed(record: &Record, now: Timestamp) -> Option<Change> {
    match &record.state {
        State::Reserved(lease) if lease.until <= now => Some(match record.on_lost_answer {
            OnLostAnswer::Resend => Change::free_given_up(),
            OnLostAnswer::Uncertain | OnLostAnswer::Ask(_) => Change::MARK_UNCERTAIN,
        }),
        State::Reserved(_) | State::Completed { .. } | State::Uncertain { .. } => None,
    }
}

/// Decides what becomes of a record whose owner is certainly gone, if anything: the same as when its lease has
/// run out, whatever the lease says. For a store that only one process at a time writes to.
pub fn judge_orphan(record: &Record) -> Option<Change> {
    judge_lapsed(record, Timestamp::NEVER)
}

#[cfg(test)]
mod tests;
