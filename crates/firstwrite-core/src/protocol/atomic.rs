//! The atomic mode: business rows, messages and the outcome in one commit.
//!
//! [`atomic`] hands a closure to a store that runs it; [`begin`], [`conclude`] and [`abandon`] are
//! its twin for stores whose transactions a handler holds over its own awaits. Both decide by the
//! same `judge` and the same `decide`.

use std::convert::Infallible;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytes::Bytes;
use http::Response;

use super::draft;
use crate::store::{BeginResult, Conclusion, Found, Transacted, Write};
use crate::{
    AsyncTransactionalStore, Certainty, DraftState, Fence, Interim, Outcome, Policy, Request,
    State, StoreError, StoreErrorKind, Timestamp, TransactionalStore, Verdict, judge,
};

/// Result of an atomic attempt.
#[derive(Debug)]
pub enum Atomic<E> {
    /// The handler ran and its answer is kept: every retry gets it.
    Kept {
        /// Response of the handler.
        response: Response<Bytes>,
        /// Time until which it is replayed.
        retained_until: Timestamp,
    },
    /// The handler ran and its answer is not one that is kept (a 5xx, say): everything it wrote was
    /// rolled back, and a retry runs afresh.
    RolledBack(Response<Bytes>),
    /// The handler gave up: everything it wrote was rolled back, and a retry runs afresh.
    Failed(E),
    /// The handler did not run, or its work was rolled back because a rival came first.
    Refused(Verdict, Option<Box<Found>>),
}

/// Runs `work` in one transaction with the record of `request`.
///
/// A kept answer below 400 commits what `work` wrote; a kept 4xx rolls it back and keeps the answer.
pub async fn atomic<S, E, W>(
    store: &S,
    request: Arc<Request>,
    policy: Arc<Policy>,
    nonce: u64,
    work: W,
) -> Result<Atomic<E>, StoreError>
where
    S: TransactionalStore,
    E: Send + 'static,
    W: for<'t> FnOnce(&mut S::Tx<'t>) -> Result<Response<Bytes>, E> + Send + 'static,
{
    let (id, rival_request, rival_policy) = (request.id, Arc::clone(&request), Arc::clone(&policy));
    let run = move |tx: &mut S::Tx<'_>, found: Option<Found>| {
        let fence = match right_to_run(found.as_ref(), &request, nonce) {
            Ok(fence) => fence,
            Err(verdict) => return nothing(Attempt::Refused(verdict, found.map(Box::new))),
        };
        let worked = work(tx);
        crate::crash_point!("atomic-worked");
        match worked {
            Ok(response) => decide(response, &request, &policy, fence),
            Err(error) => nothing(Attempt::Failed(error)),
        }
    };
    Ok(match store.transact(id, run).await? {
        Transacted::Done(Attempt::Kept(response), now) => {
            let retained_until = retained_until(&response, &rival_policy, now);
            Atomic::Kept { response, retained_until }
        }
        Transacted::Done(Attempt::RolledBack(response), _) => Atomic::RolledBack(response),
        Transacted::Done(Attempt::Failed(error), _) => Atomic::Failed(error),
        Transacted::Done(Attempt::Refused(verdict, found), _) => Atomic::Refused(verdict, found),
        Transacted::Rival(found) => {
            Atomic::Refused(refused_by(&found, &rival_request)?, Some(found))
        }
    })
}

/// Result of beginning a transaction that a handler will hold.
#[derive(Debug)]
pub enum AtomicStart<Tx> {
    /// The handler may work in it; end it with [`conclude`] or [`abandon`].
    Run(OpenAttempt<Tx>),
    /// The handler must not run; the verdict says why. Nothing is open. What stands is missing where
    /// a rival is at work that has not committed anything yet.
    Refused(Verdict, Option<Box<Found>>),
}

/// An open transaction and the right to run the handler in it, once. Dropped, it is rolled back.
#[derive(Debug)]
#[must_use = "conclude or abandon it; if dropped, everything in it is rolled back"]
pub struct OpenAttempt<Tx> {
    tx: Tx,
    fence: Fence,
    request: Arc<Request>,
    policy: Arc<Policy>,
}

/// Begins a transaction on the record of `request` and judges that record.
pub async fn begin<S: AsyncTransactionalStore>(
    store: &S,
    request: Arc<Request>,
    policy: Arc<Policy>,
    nonce: u64,
) -> Result<AtomicStart<S::Tx>, StoreError> {
    let (tx, found) = match store.begin(request.id).await? {
        BeginResult::Open(tx, found) => (tx, found),
        BeginResult::Stands(found) => {
            let verdict = refused_by(&found, &request)?;
            return Ok(AtomicStart::Refused(verdict, Some(found)));
        }
        // A rival works on the key and has written nothing that could be compared.
        BeginResult::Busy => {
            let verdict = Verdict::InProgress { remaining: policy.retry_after };
            return Ok(AtomicStart::Refused(verdict, None));
        }
    };
    crate::crash_point!("begin-after");
    match right_to_run(found.as_deref(), &request, nonce) {
        Ok(fence) => Ok(AtomicStart::Run(OpenAttempt { tx, fence, request, policy })),
        Err(verdict) => {
            store.conclude(tx, Write::Nothing).await?;
            Ok(AtomicStart::Refused(verdict, found))
        }
    }
}

/// Ends a transaction with the handler's answer: commits everything, the record alone, or nothing,
/// as its status says.
///
/// Where the acknowledgement of the commit is lost, the record is asked for under its lock: if that
/// can be had, the transaction is over, and what stands from then on says how it ended.
pub async fn conclude<S: AsyncTransactionalStore>(
    store: &S,
    held: OpenAttempt<S::Tx>,
    response: Response<Bytes>,
) -> Result<Atomic<Infallible>, StoreError> {
    let OpenAttempt { tx, fence, request, policy } = held;
    let Conclusion { write, answer } = decide::<Infallible>(response, &request, &policy, fence);
    let is_written = !matches!(write, Write::Nothing);
    crate::crash_point!("conclude-before");
    let ended = match store.conclude(tx, write).await {
        Err(error) if is_written && error.certainty() == Certainty::Indeterminate => {
            return how_it_ended(store, error, &request, fence, answer).await;
        }
        ended => ended?,
    };
    crate::crash_point!("conclude-after");
    Ok(match (ended, answer) {
        (Transacted::Done((), now), Attempt::Kept(response)) => {
            let retained_until = retained_until(&response, &policy, now);
            Atomic::Kept { response, retained_until }
        }
        (Transacted::Done((), _), Attempt::RolledBack(response)) => Atomic::RolledBack(response),
        (Transacted::Done((), _), Attempt::Refused(verdict, found)) => {
            Atomic::Refused(verdict, found)
        }
        (Transacted::Done((), _), Attempt::Failed(never)) => match never {},
        (Transacted::Rival(found), _) => {
            Atomic::Refused(refused_by(&found, &request)?, Some(found))
        }
    })
}

/// Ends a transaction in which the handler gave up: nothing of it stays.
pub async fn abandon<S: AsyncTransactionalStore>(
    store: &S,
    held: OpenAttempt<S::Tx>,
) -> Result<(), StoreError> {
    store.conclude(held.tx, Write::Nothing).await.map(drop)
}

/// Finds out how a transaction ended whose commit was not acknowledged.
async fn how_it_ended<S: AsyncTransactionalStore>(
    store: &S,
    lost: StoreError,
    request: &Request,
    fence: Fence,
    answer: Attempt<Infallible>,
) -> Result<Atomic<Infallible>, StoreError> {
    // Whatever fails now, what is not known is still whether the first commit took effect. A lock that can
    // be had proves that the transaction is over, but what is found with it may be older than the lock. What
    // is found the second time is not: that look-up began after the transaction was over.
    let mut found = None;
    for _ in 0..2 {
        found = match store.begin(request.id).await {
            Ok(BeginResult::Open(tx, found)) => {
                if store.conclude(tx, Write::Nothing).await.is_err() {
                    return Err(lost);
                }
                found
            }
            Ok(BeginResult::Stands(found)) => Some(found),
            Ok(BeginResult::Busy) | Err(_) => return Err(lost),
        };
        if found.as_ref().is_some_and(|found| found.record.fence == fence) {
            break;
        }
    }
    match (found.map(|found| found.record), answer) {
        (Some(record), Attempt::Kept(response)) if record.fence == fence => match record.state {
            State::Completed { retained_until, .. } => {
                Ok(Atomic::Kept { response, retained_until })
            }
            State::Reserved(_) | State::Uncertain { .. } => Err(lost),
        },
        // The transaction is over and our record is not there: nothing of it was kept.
        _ => Err(StoreError::definite(StoreErrorKind::Unavailable, "committing a handler's work")
            .caused_by(lost)),
    }
}

/// The fence of the attempt that may run now, or why none may.
fn right_to_run(found: Option<&Found>, request: &Request, nonce: u64) -> Result<Fence, Verdict> {
    match judge(found, request) {
        Verdict::Fresh => Ok(Fence::first(nonce)),
        Verdict::TakeOver { from } => Ok(from.next(nonce)),
        verdict @ (Verdict::Replay { .. }
        | Verdict::InProgress { .. }
        | Verdict::Mismatch
        | Verdict::Uncertain
        | Verdict::Expired
        | Verdict::Unreadable) => Err(verdict),
    }
}

/// Returns the verdict for an attempt that lost to a rival.
fn refused_by(rival: &Found, request: &Request) -> Result<Verdict, StoreError> {
    match right_to_run(Some(rival), request, 0) {
        Err(verdict) => Ok(verdict),
        // The rival is gone again already; the caller's retry will run.
        Ok(_) => Err(StoreError::definite(
            StoreErrorKind::Unavailable,
            "running a handler on a contended key",
        )),
    }
}

/// Result that the work inside the transaction passes out of it.
enum Attempt<E> {
    Kept(Response<Bytes>),
    RolledBack(Response<Bytes>),
    Failed(E),
    Refused(Verdict, Option<Box<Found>>),
}

fn nothing<E>(answer: Attempt<E>) -> Conclusion<Attempt<E>> {
    Conclusion { write: Write::Nothing, answer }
}

/// Decides what an answer commits.
fn decide<E>(
    response: Response<Bytes>,
    request: &Request,
    policy: &Policy,
    fence: Fence,
) -> Conclusion<Attempt<E>> {
    let status = response.status();
    if !policy.kept_statuses.keeps(status) {
        return nothing(Attempt::RolledBack(response));
    }
    let headers = policy.kept_headers.keep(response.headers());
    let outcome = if response.body().len() > policy.response_bytes_max {
        Outcome::tombstone(status, headers)
    } else {
        Outcome::new(status, headers, response.body().clone())
    };
    let outcome = if is_interim(&response) { outcome.interim() } else { outcome };
    let state = DraftState::Completed { outcome };
    let draft = Box::new(draft(request, policy, fence, state));
    let write = if status.is_client_error() { Write::RecordOnly(draft) } else { Write::All(draft) };
    Conclusion { write, answer: Attempt::Kept(response) }
}

/// Returns true if an answer only stands in for the one that a message will bring. A refusal keeps no
/// message.
pub fn is_interim(response: &Response<Bytes>) -> bool {
    response.extensions().get::<Interim>().is_some() && response.status().is_success()
}

/// Returns the time until which an answer written at `now` is kept.
fn retained_until(response: &Response<Bytes>, policy: &Policy, now: Timestamp) -> Timestamp {
    if is_interim(response) { Timestamp::NEVER } else { now.plus(policy.retention) }
}

impl<Tx> Deref for OpenAttempt<Tx> {
    type Target = Tx;

    fn deref(&self) -> &Tx {
        &self.tx
    }
}

impl<Tx> DerefMut for OpenAttempt<Tx> {
    fn deref_mut(&mut self) -> &mut Tx {
        &mut self.tx
    }
}
