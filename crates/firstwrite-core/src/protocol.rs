//! The protocol's moves, written once over any store: reserve, renew, complete, release, mark
//! uncertain, settle, sweep, and the atomic mode that does it all in one commit.
//!
//! Every move carries a fence. A step whose acknowledgement was lost is settled by doing it again
//! under the same fence and recognising its own write; nothing is guessed.

use std::time::Duration;

use http::StatusCode;

use crate::judge::judge_lapsed;
use crate::record::Retention;
use crate::store::{Change, Found, Guard, Inserted, Query, Swapped};
use crate::{
    AuditEntry, Certainty, Draft, DraftState, Fence, Outcome, Policy, Record, RecordId, Request,
    State, StateKind, Store, StoreError, StoreErrorKind, Timestamp, Verdict, judge,
};

mod atomic;
mod history_loss;

pub use atomic::{Atomic, AtomicStart, OpenAttempt, abandon, atomic, begin, conclude, is_interim};
pub use history_loss::mark_given_up_now;

/// Number of times a step is tried again after it met a rival or lost an acknowledgement. Each retry
/// means that another process changed the same record in between; more than a few in a row is a fault.
const ROUNDS_MAX: usize = 8;

/// Audit reason for an attempt that a sweep gives up.
const LEASE_RAN_OUT: &str = "its lease ran out: the process died or was paused, or lost its store";

/// The right to run the handler once.
///
/// It is a value that completing takes away, so completing twice does not compile:
///
/// ```compile_fail,E0382
/// use firstwrite_core::{MemoryStore, Outcome, protocol};
///
/// async fn twice(store: &MemoryStore, right: protocol::Reservation, outcome: Outcome) {
///     protocol::complete(store, right, outcome.clone()).await.unwrap();
///     protocol::complete(store, right, outcome).await.unwrap();
/// }
/// ```
#[derive(Debug)]
#[must_use = "complete or release it; if dropped, it frees only when the lease runs out"]
pub struct Reservation {
    id: RecordId,
    fence: Fence,
    lease_until: Timestamp,
    lease_for: Duration,
    retention: Retention,
    strays: Vec<Fence>,
}

/// Result of a request to reserve.
#[derive(Debug)]
pub enum Reserved {
    /// The caller owns the key and may run.
    Granted(Reservation),
    /// The caller must not run; the verdict says why. Never `Fresh` or `TakeOver`. What was found
    /// is there to explain a mismatch. The fences are those of writes that may still arrive, see
    /// [`Unreserved::may_stand`].
    Refused(Verdict, Box<Found>, Vec<Fence>),
}

/// A reservation that failed.
#[derive(Debug)]
pub struct Unreserved {
    /// The failure.
    pub error: StoreError,
    /// The fences of writes that may stand all the same, because their acknowledgement was lost. Nothing
    /// was run under them: [`withdraw`] each when the store is back.
    pub may_stand: Vec<Fence>,
}

/// Result of keeping an answer without a reservation.
#[derive(Debug)]
pub enum Kept {
    /// The outcome is kept until then; every retry gets it.
    Done {
        /// Time until which it is replayed.
        retained_until: Timestamp,
    },
    /// A rival came first; the verdict tells its state. Never `Fresh` or `TakeOver`.
    Refused(Verdict, Box<Found>),
}

/// Result of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The lease holds again.
    Current,
    /// Another attempt owns the key now, or the record is settled; this attempt can no longer complete.
    Lost,
}

/// Result of a completion.
#[derive(Debug)]
pub enum Completed {
    /// The outcome is kept until then; every retry gets it.
    Kept {
        /// Time until which it is replayed.
        retained_until: Timestamp,
    },
    /// The attempt came too late. Holds the record under the key now, if any.
    Late(Option<Box<Found>>),
}

/// Result of marking an attempt as uncertain.
#[derive(Debug, PartialEq, Eq)]
pub enum Marked {
    /// Only proof settles the record now.
    Uncertain,
    /// Another process has ended the attempt or taken it over. Holds the record under the key now, if
    /// any.
    Late(Option<Box<Found>>),
}

/// A completion that could not be written. The right to complete is still the caller's.
#[derive(Debug)]
pub struct Undone {
    /// Reservation whose completion failed.
    pub reservation: Reservation,
    /// The outcome to keep.
    pub outcome: Outcome,
    /// The failure.
    pub error: StoreError,
}

/// Result of an operator's or a reconciler's inquiry.
#[derive(Debug)]
pub enum Settlement {
    /// It happened, and this is its outcome.
    Happened {
        /// Outcome replayed to every retry, for as long as the record's own retention lasts.
        outcome: Outcome,
    },
    /// It is proven not to have happened: the key is free, and a note tells clients that poll.
    NotHappened,
}

/// Permission for a settlement to end an attempt that is still alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// Only uncertain records, and reserved ones whose lease ran out.
    No,
    /// Live attempts too. The live owner is refused by its fence when it comes back, but what it
    /// does in between is not undone.
    Yes,
}

/// Result of a settlement.
#[derive(Debug, PartialEq, Eq)]
pub enum Settled {
    /// The record was settled.
    Done,
    /// There is no record under that key, or only a note of an attempt that was released.
    Absent,
    /// Another attempt owns the key by now; what was found out is not about it.
    Moved,
    /// The record is completed: its outcome never changes.
    AlreadyCompleted,
    /// An attempt holds the lease for this much longer, and force was not given.
    StillHeld(Duration),
    /// The store lost history, so it proves nothing that nothing was found, and force was not given.
    HistoryLost,
}

/// Counts of one sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Keys that are free again.
    pub freed: usize,
    /// Records that now wait for proof.
    pub uncertain: usize,
    /// Records that had moved on by themselves.
    pub moved: usize,
}

impl Swept {
    /// Returns the number of records that this sweep changed.
    pub fn changed(&self) -> usize {
        self.freed + self.uncertain
    }
}

impl Reservation {
    /// Returns the id of the record.
    pub fn id(&self) -> RecordId {
        self.id
    }

    /// Returns the fence that every later write of this attempt carries.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// The fences of earlier writes of this call whose acknowledgements were lost: they may still arrive once
    /// the key is free again. [`withdraw`] each when the attempt has ended, but the reservation's own fence only
    /// where it ended with a release: an uncertain record has it too.
    pub fn strays(&self) -> &[Fence] {
        &self.strays
    }

    /// Returns the length of the lease; renew well before it has passed.
    pub fn lease_for(&self) -> Duration {
        self.lease_for
    }

    /// Returns the time until which the lease holds, by the store's clock.
    pub fn lease_until(&self) -> Timestamp {
        self.lease_until
    }
}

/// Reserves the request's key, or says why not.
///
/// `nonce` must be drawn at random for each call; it makes the attempt's fence its own. Costs one
/// round trip when fresh or refused, two for a take-over.
pub async fn reserve(
    store: &dyn Store,
    request: &Request,
    policy: &Policy,
    nonce: u64,
) -> Result<Reserved, Box<Unreserved>> {
    let state = DraftState::reserved(policy.lease);
    crate::crash_point!("reserve-before");
    let (fence, state, strays) = match place(store, request, policy, nonce, &state).await? {
        Placed::Written(fence, state, strays) => (fence, state, strays),
        Placed::Refused(verdict, found, may_stand) => {
            return Ok(Reserved::Refused(verdict, found, may_stand));
        }
    };
    let lease_until = state.lease_until().unwrap_or_default();
    let lease_for = policy.lease;
    let (id, retention) = (request.id, policy.record_retention());
    crate::crash_point!("reserve-after");
    Ok(Reserved::Granted(Reservation { id, fence, lease_until, lease_for, retention, strays }))
}

/// Keeps an answer that came without a reservation and without an effect, such as a refusal that a
/// handler in atomic mode gave before it began its transaction.
pub async fn keep(
    store: &dyn Store,
    request: &Request,
    policy: &Policy,
    nonce: u64,
    outcome: Outcome,
) -> Result<Kept, StoreError> {
    let state = DraftState::Completed { outcome };
    let placed = place(store, request, policy, nonce, &state).await;
    Ok(match placed.map_err(|unreserved| unreserved.error)? {
        Placed::Written(_, State::Completed { retained_until, .. }, _) => {
            Kept::Done { retained_until }
        }
        Placed::Written(_, State::Reserved(_) | State::Uncertain { .. }, _) => {
            return Err(StoreError::definite(StoreErrorKind::Corrupt, "keeping an outcome"));
        }
        Placed::Refused(verdict, found, _) => Kept::Refused(verdict, found),
    })
}

/// Renews the lease; call it at about a third of the lease's length.
pub async fn renew(
    store: &dyn Store,
    reservation: &mut Reservation,
) -> Result<Renewed, StoreError> {
    let change = Change::Renew { lease_for: reservation.lease_for };
    match store.swap(reservation.id, Guard::Owner(reservation.fence), change, None).await? {
        Swapped::Done(now) => {
            reservation.lease_until = now.plus(reservation.lease_for);
            Ok(Renewed::Current)
        }
        Swapped::Moved(_) => Ok(Renewed::Lost),
    }
}

/// Writes the outcome down. Only after this may the answer go to the client.
pub async fn complete(
    store: &dyn Store,
    reservation: Reservation,
    outcome: Outcome,
) -> Result<Completed, Box<Undone>> {
    let retention = reservation.retention;
    crate::crash_point!("complete-before");
    let mut lost_acknowledgement = false;
    loop {
        let change = Change::Complete { outcome: outcome.clone(), retention };
        let guard = Guard::Owner(reservation.fence);
        match store.swap(reservation.id, guard, change, None).await {
            Ok(Swapped::Done(now)) => {
                crate::crash_point!("complete-after");
                return Ok(Completed::Kept { retained_until: now.plus(retention.replay_for) });
            }
            Ok(Swapped::Moved(found)) => {
                // Our own write, whose acknowledgement was lost. The fence alone does not prove it:
                // an operator who settles a live attempt leaves its fence and another outcome.
                if let Some(found) = &found
                    && found.record.fence == reservation.fence
                    && let State::Completed { outcome: kept, retained_until, .. } =
                        &found.record.state
                    && *kept == outcome
                {
                    return Ok(Completed::Kept { retained_until: *retained_until });
                }
                return Ok(Completed::Late(found));
            }
            Err(error) => {
                if let Err(error) = once_more(error, &mut lost_acknowledgement) {
                    return Err(Box::new(Undone { reservation, outcome, error }));
                }
            }
        }
    }
}

/// Frees the key: nothing happened, and a retry runs afresh.
///
/// Removing twice is harmless, so a lost acknowledgement needs no reading back.
pub async fn release(store: &dyn Store, reservation: Reservation) -> Result<(), StoreError> {
    withdraw(store, reservation.id, reservation.fence).await.map(drop)
}

/// Frees a key whose reservation no attempt holds: the store never confirmed its write, or a release
/// failed. Nothing that counts was run under `fence`, and nothing ever may be. If the record carries
/// another fence, nothing changes.
pub async fn withdraw(
    store: &dyn Store,
    id: RecordId,
    fence: Fence,
) -> Result<Swapped, StoreError> {
    finish(store, id, fence, &Change::Remove, None).await
}

/// Frees a key as [`withdraw`] does, and leaves a note of `status` for clients that were told to poll
/// for the result. The note stays for `noted_for` or until the key is used again.
pub async fn release_noted(
    store: &dyn Store,
    (id, fence): (RecordId, Fence),
    status: StatusCode,
    noted_for: Duration,
) -> Result<Swapped, StoreError> {
    finish(store, id, fence, &Change::free_noted(status, noted_for), None).await
}

/// Records that the attempt ended with an unknown result; only proof settles the record now. `why` goes
/// into the audit, for the operator who looks into it.
pub async fn mark_uncertain(
    store: &dyn Store,
    reservation: Reservation,
    why: &str,
) -> Result<Marked, StoreError> {
    let (id, fence) = (reservation.id, reservation.fence);
    let audit = AuditEntry::uncertain(why);
    Ok(match finish(store, id, fence, &Change::MARK_UNCERTAIN, Some(&audit)).await? {
        Swapped::Done(_) => Marked::Uncertain,
        // Our own mark, whose acknowledgement was lost.
        Swapped::Moved(Some(found))
            if found.record.fence == reservation.fence
                && matches!(found.record.state, State::Uncertain { .. }) =>
        {
            Marked::Uncertain
        }
        Swapped::Moved(found) => Marked::Late(found),
    })
}

/// Settles a record by what was found out about its attempt, with an audit entry in the same step.
///
/// `seen` is the record that was looked into. The finding is about the attempt whose fence it carries,
/// and settles no other: a second finding that comes after the key was freed and used again would
/// otherwise free, or answer for, an attempt that was never looked into. A finding of nothing is refused while a
/// history loss is open, and if it was made before the record was marked as given up at a later time.
pub async fn settle(
    store: &dyn Store,
    seen: &Record,
    settlement: Settlement,
    force: Force,
    audit: &AuditEntry,
) -> Result<Settled, StoreError> {
    let mut sight = store.get(seen.id).await?.map(Box::new);
    for _ in 0..ROUNDS_MAX {
        let Some(found) = sight else { return Ok(Settled::Absent) };
        if found.record.fence != seen.fence {
            return Ok(Settled::Moved);
        }
        let is_absence = matches!(settlement, Settlement::NotHappened) && force == Force::No;
        if is_absence && is_given_up_later(&found.record, seen) {
            return Ok(Settled::Moved);
        }
        match &found.record.state {
            State::Completed { outcome, .. } if outcome.is_release_note() => {
                return Ok(Settled::Absent);
            }
            State::Completed { .. } => return Ok(Settled::AlreadyCompleted),
            State::Reserved(lease) if found.now < lease.until && force == Force::No => {
                return Ok(Settled::StillHeld(lease.until.since(found.now)));
            }
            State::Reserved(_) | State::Uncertain { .. } => {}
        }
        if is_absence && is_history_lost(store, seen.id).await? {
            return Ok(Settled::HistoryLost);
        }
        let change = match &settlement {
            Settlement::Happened { outcome } => {
                let (outcome, retention) = (outcome.clone(), found.record.retention);
                Change::Complete { outcome, retention }
            }
            Settlement::NotHappened => Change::free_given_up(),
        };
        let guard = Guard::Seen(found.record.seen());
        match store.swap(seen.id, guard, change, Some(audit)).await? {
            Swapped::Done(_) => return Ok(Settled::Done),
            Swapped::Moved(found) => sight = found,
        }
    }
    Err(StoreError::definite(StoreErrorKind::Unavailable, "settling a contended key"))
}

/// Returns true if a record was marked as given up after it was `seen`.
fn is_given_up_later(found: &Record, seen: &Record) -> bool {
    match (&found.state, &seen.state) {
        (State::Uncertain { since: now }, State::Uncertain { since: before }) => now > before,
        _ => false,
    }
}

/// Returns true if acknowledged history is missing that could be about this record.
async fn is_history_lost(store: &dyn Store, id: RecordId) -> Result<bool, StoreError> {
    match store.check_history(id).await {
        Ok(()) => Ok(false),
        Err(error) if error.kind() == StoreErrorKind::HistoryLost => Ok(true),
        Err(error) => Err(error),
    }
}

/// One turn of the sweep: frees keys whose attempt died where running again is safe, and marks the
/// others uncertain. Looks at no more than `limit` records.
pub async fn sweep_once(store: &dyn Store, limit: usize) -> Result<Swept, StoreError> {
    let mut swept = Swept::default();
    let page = store.list(&Query::lapsed(limit)).await?;
    for record in page.records {
        let Some(change) = judge_lapsed(&record, page.now) else { continue };
        let frees = change.frees();
        let audit = (!frees).then(|| AuditEntry::uncertain(LEASE_RAN_OUT));
        let guard = Guard::Seen(record.seen());
        match store.swap(record.id, guard, change, audit.as_ref()).await? {
            Swapped::Done(_) if frees => swept.freed += 1,
            Swapped::Done(_) => swept.uncertain += 1,
            Swapped::Moved(_) => swept.moved += 1,
        }
        crate::crash_point!("sweep-between");
    }
    Ok(swept)
}

/// Result of writing a record where there is none or the old one may be replaced.
enum Placed {
    Written(Fence, State, Vec<Fence>),
    Refused(Verdict, Box<Found>, Vec<Fence>),
}

/// Writes a record in `state` where there is none, or in place of the one that `judge` lets it take over.
async fn place(
    store: &dyn Store,
    request: &Request,
    policy: &Policy,
    nonce: u64,
    state: &DraftState,
) -> Result<Placed, Box<Unreserved>> {
    let mut fence = Fence::first(nonce);
    let mut take_over = None;
    let mut may_stand = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let draft = draft(request, policy, fence, state.clone());
        let retention = draft.retention;
        let stands = match write(store, draft, take_over).await {
            Ok(Swapped::Done(now)) => {
                if let Err(error) = check_freed(store, request.id, take_over, state).await {
                    may_stand.push(fence);
                    return Err(Box::new(Unreserved { error, may_stand }));
                }
                let state = State::from_draft(state, retention, now);
                return Ok(Placed::Written(fence, state, may_stand));
            }
            Ok(Swapped::Moved(stands)) => stands,
            Err(error) => {
                let is_repeated = !may_stand.is_empty();
                if error.certainty() == Certainty::Indeterminate && !may_stand.contains(&fence) {
                    may_stand.push(fence);
                }
                if is_repeated {
                    let error = error.after_lost_acknowledgement();
                    return Err(Box::new(Unreserved { error, may_stand }));
                }
                if may_stand.is_empty() {
                    return Err(Box::new(Unreserved { error, may_stand }));
                }
                continue;
            }
        };
        let Some(found) = stands else {
            // What stood there was removed in between: the key is free.
            (fence, take_over) = (Fence::first(nonce), None);
            continue;
        };
        // Our own write, whose acknowledgement was lost.
        let found_kind = found.record.state.kind();
        if found.record.fence == fence && found_kind == state.kind() {
            if let Err(error) = check_freed(store, request.id, take_over, state).await {
                return Err(Box::new(Unreserved { error, may_stand }));
            }
            return Ok(Placed::Written(fence, found.record.state, may_stand));
        }
        // A sweep met our own unacknowledged reservation. Nothing ran under it, so there is nothing to
        // find out.
        if may_stand.contains(&found.record.fence)
            && matches!(found.record.state, State::Uncertain { .. })
        {
            fence = found.record.fence.next(nonce);
            take_over = Some(Guard::Seen(found.record.seen()));
            continue;
        }
        match judge(Some(&found), request) {
            Verdict::TakeOver { from } => {
                fence = from.next(nonce);
                take_over = Some(Guard::Seen(found.record.seen()));
            }
            Verdict::Fresh => (fence, take_over) = (Fence::first(nonce), None),
            verdict @ (Verdict::Replay { .. }
            | Verdict::InProgress { .. }
            | Verdict::Mismatch
            | Verdict::Uncertain
            | Verdict::Expired
            | Verdict::Unreadable) => {
                return Ok(Placed::Refused(verdict, found, may_stand));
            }
        }
    }
    let error = StoreError::definite(StoreErrorKind::Unavailable, "writing under a contended key");
    Err(Box::new(Unreserved { error, may_stand }))
}

/// Checks the history where a reservation has replaced a note of a release or an outcome past its time. Such a
/// record says that the key is free, and like a key that is not known it may have been used in what was lost.
async fn check_freed(
    store: &dyn Store,
    id: RecordId,
    replaced: Option<Guard>,
    state: &DraftState,
) -> Result<(), StoreError> {
    let was_free =
        matches!(replaced, Some(Guard::Seen(seen)) if seen.state == StateKind::Completed);
    if was_free && state.kind() == StateKind::Reserved {
        store.check_history(id).await?;
    }
    Ok(())
}

/// One step of `place`: an insert, or a take-over of what was judged.
async fn write(
    store: &dyn Store,
    draft: Draft,
    take_over: Option<Guard>,
) -> Result<Swapped, StoreError> {
    match take_over {
        Some(guard) => store.swap(draft.id, guard, Change::TakeOver(Box::new(draft)), None).await,
        None => Ok(match store.insert(&draft).await? {
            Inserted::Done(now) => Swapped::Done(now),
            Inserted::Stands(found) => Swapped::Moved(Some(found)),
        }),
    }
}

fn draft(request: &Request, policy: &Policy, fence: Fence, state: DraftState) -> Draft {
    Draft {
        id: request.id,
        tenant: request.tenant.clone(),
        key: request.key.clone(),
        operation: request.operation.clone(),
        fingerprint: request.fingerprint.clone(),
        fence,
        on_lost_answer: policy.on_lost_answer,
        retention: policy.record_retention(),
        state,
    }
}

/// Lets a step whose acknowledgement was lost be done once more under the same fence, where it
/// either takes effect or meets its own earlier write.
fn once_more(error: StoreError, lost_acknowledgement: &mut bool) -> Result<(), StoreError> {
    if *lost_acknowledgement {
        return Err(error.after_lost_acknowledgement());
    }
    if error.certainty() == Certainty::Definite {
        return Err(error);
    }
    *lost_acknowledgement = true;
    Ok(())
}

async fn finish(
    store: &dyn Store,
    id: RecordId,
    fence: Fence,
    change: &Change,
    audit: Option<&AuditEntry>,
) -> Result<Swapped, StoreError> {
    let mut lost_acknowledgement = false;
    loop {
        match store.swap(id, Guard::Owner(fence), change.clone(), audit).await {
            Ok(swapped) => return Ok(swapped),
            Err(error) => once_more(error, &mut lost_acknowledgement)?,
        }
    }
}

#[cfg(test)]
mod tests;
