//! The atomic mode: business rows, messages and the outcome in one commit.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;

use super::draft;
use crate::store::{Conclusion, Found, Transacted, Write};
use crate::{
    DraftState, Fence, Outcome, Policy, Request, StoreError, StoreErrorKind, Timestamp,
    TransactionalStore, Verdict, judge,
};

/// How an atomic attempt ended.
#[derive(Debug)]
pub enum Atomic<E> {
    /// The handler ran and its answer is kept: every retry gets it.
    Kept {
        /// What the handler answered.
        response: Response<Bytes>,
        /// Until when it is replayed.
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
        let fence = match judge(found.as_ref(), &request, &policy) {
            Verdict::Fresh => Fence::first(nonce),
            Verdict::TakeOver { from } => from.next(nonce),
            verdict @ (Verdict::Replay { .. }
            | Verdict::InProgress { .. }
            | Verdict::Mismatch
            | Verdict::Uncertain
            | Verdict::Expired
            | Verdict::Unreadable) => {
                return nothing(Attempt::Refused(verdict, found.map(Box::new)));
            }
        };
        match work(tx) {
            Ok(response) => conclude(response, &request, &policy, fence),
            Err(error) => nothing(Attempt::Failed(error)),
        }
    };
    let replay_for = rival_policy.retention;
    Ok(match store.transact(id, run).await? {
        Transacted::Done(Attempt::Kept(response), now) => {
            Atomic::Kept { response, retained_until: now.plus(replay_for) }
        }
        Transacted::Done(Attempt::RolledBack(response), _) => Atomic::RolledBack(response),
        Transacted::Done(Attempt::Failed(error), _) => Atomic::Failed(error),
        Transacted::Done(Attempt::Refused(verdict, found), _) => Atomic::Refused(verdict, found),
        Transacted::Rival(found) => match judge(Some(&found), &rival_request, &rival_policy) {
            // The rival is gone again already; the caller's retry will run.
            Verdict::Fresh | Verdict::TakeOver { .. } => {
                return Err(StoreError::definite(
                    StoreErrorKind::Unavailable,
                    "running a handler on a contended key",
                ));
            }
            verdict @ (Verdict::Replay { .. }
            | Verdict::InProgress { .. }
            | Verdict::Mismatch
            | Verdict::Uncertain
            | Verdict::Expired
            | Verdict::Unreadable) => Atomic::Refused(verdict, Some(found)),
        },
    })
}

/// What the work inside the transaction hands out of it.
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
fn conclude<E>(
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
    let state = DraftState::Completed { outcome, retention: policy.retention() };
    let draft = Box::new(draft(request, policy, fence, state));
    let write = if status.is_client_error() { Write::RecordOnly(draft) } else { Write::All(draft) };
    Conclusion { write, answer: Attempt::Kept(response) }
}
