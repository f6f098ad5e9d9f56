//! The atomic mode: the handler's rows, its messages and the outcome in one commit.
//!
//! The handler gets a slot, which it may use once. If it answers without using it (an extractor
//! refused the body, say), the answer alone is kept. Whatever happens, the store's unique record
//! is the arbiter: a commit that comes second finds a rival and is rolled back.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use axum::response::Response as AxumResponse;
use bytes::Bytes;
use firstwrite_core::protocol::{self, Atomic as Atomically, Kept};
use firstwrite_core::{
    Body, Certainty, Outcome, Policy, Rejection, RejectionKind, Request, Store, StoreError,
    StoreErrorKind, TransactionalStore, Verdict, judge,
};
use http::{Response, StatusCode};

use crate::attempt::{self, Attempt, Ran, Reply};
use crate::body::ResponseBody;
use crate::coalesce::{Ended, Lead};
use crate::exchange::{Call, Exchange};
use crate::layer::Shared;
use crate::respond;

/// The right to do the work of a request in one transaction with its record.
///
/// An extractor; the operation's policy must be in [`Mode::Atomic`](firstwrite_core::Mode::Atomic)
/// and the layer built by
/// [`IdempotencyLayer::transactional`](crate::IdempotencyLayer::transactional) over the same `S`.
pub struct Atomic<S> {
    store: S,
    slot: Arc<Slot>,
}

/// Where a handler finds what it needs to join the transaction, and leaves how that ended.
pub(crate) struct Slot {
    attempt: Attempt,
    request: Arc<Request>,
    policy: Arc<Policy>,
    store: Arc<dyn Any + Send + Sync>,
    used: Mutex<Used>,
}

/// What a handler did with its slot.
#[derive(Clone, Debug)]
enum Used {
    No,
    /// The transaction was begun; it may still commit.
    Begun,
    Ended(Ended),
}

/// Looks the key up, runs the handler with a slot, answers.
pub(crate) async fn attempt(
    shared: &Shared,
    lead: Lead,
    exchange: &Arc<Exchange>,
    mut call: Call,
    mut reply: Reply,
) {
    let Some(store) = &shared.transactional else {
        return attempt::misconfigured(exchange, lead, reply);
    };
    let (request, policy) = (&exchange.request, &exchange.policy);
    let ended = match shared.store.get(request.id).await {
        Ok(found) => match judge(found.as_ref(), request, policy) {
            Verdict::Fresh | Verdict::TakeOver { .. } => {
                lead.owned();
                reply.accepted(exchange);
                let slot = Arc::new(Slot::new(exchange, Arc::clone(store)));
                call.parts.extensions.insert(slot.attempt.clone());
                call.parts.extensions.insert(Arc::clone(&slot));
                let ran = attempt::run(call, policy).await;
                let (response, ended) = conclude(&*shared.store, exchange, slot.used(), ran).await;
                lead.end(ended);
                reply.answered(response);
                return;
            }
            verdict @ (Verdict::Replay { .. }
            | Verdict::InProgress { .. }
            | Verdict::Mismatch
            | Verdict::Uncertain
            | Verdict::Expired
            | Verdict::Unreadable) => Ended::stands(verdict, found.as_ref()),
        },
        Err(error) => {
            tracing::error!(%error, record_id = %request.id, "a key could not be looked up");
            Ended::StoreFailed
        }
    };
    lead.end(ended.clone());
    reply.refused(ended, call);
}

impl<S: TransactionalStore + Clone> Atomic<S> {
    pub(crate) fn of(slot: &Arc<Slot>) -> Option<Self> {
        let store = slot.store.downcast_ref::<S>()?.clone();
        Some(Self { store, slot: Arc::clone(slot) })
    }

    /// The attempt this is.
    pub fn attempt(&self) -> &Attempt {
        &self.slot.attempt
    }

    /// Does `work` in one transaction with the request's record, and answers.
    ///
    /// A kept answer below 400 commits what `work` wrote; a kept 4xx rolls it back and keeps the
    /// answer; a 5xx rolls everything back, and a retry runs afresh. If `work` fails, everything is
    /// rolled back and the error is the caller's to answer with, which is not kept.
    ///
    /// `work` must not change anything but through the transaction: it is undone with it. Give
    /// the answer to the client as it is: retries get what was committed.
    pub async fn run<E, W>(self, work: W) -> Result<AxumResponse, E>
    where
        E: Send + 'static,
        W: for<'t> FnOnce(&mut S::Tx<'t>, &Attempt) -> Result<Response<Bytes>, E> + Send + 'static,
    {
        let Self { store, slot } = self;
        slot.begin();
        let attempt = slot.attempt.clone();
        let work = move |tx: &mut S::Tx<'_>| work(tx, &attempt);
        let (request, policy) = (Arc::clone(&slot.request), Arc::clone(&slot.policy));
        let ran = protocol::atomic(&store, request, policy, fastrand::u64(..), work).await;
        let (response, ended) = match ran {
            Ok(Atomically::Kept { mut response, retained_until }) => {
                let verdict = Verdict::Replay { outcome: slot.outcome(&response), retained_until };
                respond::stamp(response.headers_mut(), retained_until);
                (response.map(ResponseBody::whole), Ended::Stands { verdict, stored: None })
            }
            Ok(Atomically::RolledBack(response)) => {
                (response.map(ResponseBody::whole), Ended::Open)
            }
            Ok(Atomically::Failed(error)) => {
                slot.end(Ended::Open);
                return Err(error);
            }
            Ok(Atomically::Refused(verdict, found)) => {
                let response = respond::verdict(&verdict, &slot.policy, Vec::new());
                (response, Ended::stands(verdict, found.as_deref()))
            }
            Err(error) => (slot.store_failed(&error), Ended::Open),
        };
        slot.end(ended);
        Ok(response.map(axum::body::Body::new))
    }
}

impl Slot {
    fn new(exchange: &Exchange, store: Arc<dyn Any + Send + Sync>) -> Self {
        Self {
            attempt: Attempt::new(&exchange.request, None),
            request: Arc::clone(&exchange.request),
            policy: Arc::clone(&exchange.policy),
            store,
            used: Mutex::new(Used::No),
        }
    }

    fn begin(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Used::Begun;
    }

    fn end(&self, ended: Ended) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Used::Ended(ended);
    }

    fn used(&self) -> Used {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the transaction has kept of an answer.
    fn outcome(&self, response: &Response<Bytes>) -> Outcome {
        let (status, headers, body) = (response.status(), response.headers(), response.body());
        if body.len() > self.policy.response_bytes_max {
            return attempt::tombstone(status, headers, &self.policy);
        }
        attempt::outcome(status, headers, body.clone(), &self.policy)
    }

    fn store_failed(&self, error: &StoreError) -> Response<ResponseBody> {
        tracing::error!(%error, record_id = %self.request.id, "a transaction failed");
        match (error.kind(), error.certainty()) {
            (StoreErrorKind::Panicked, _) => respond::failed(StatusCode::INTERNAL_SERVER_ERROR),
            (_, Certainty::Definite) => {
                respond::rejection(&Rejection::new(RejectionKind::StoreUnavailable))
            }
            // It may have been committed: a retry under the same key finds out.
            (_, Certainty::Indeterminate) => respond::rejection(&Rejection::outcome_unknown_now()),
        }
    }
}

/// What goes to the caller and to whoever follows, once the handler has ended.
async fn conclude(
    store: &dyn Store,
    exchange: &Exchange,
    used: Used,
    ran: Ran,
) -> (Response<ResponseBody>, Ended) {
    let policy = &exchange.policy;
    match (used, ran) {
        (Used::Ended(Ended::Stands { verdict, stored }), ran) => {
            let answer = as_it_stands(&verdict, ran, exchange);
            (answer, Ended::Stands { verdict, stored })
        }
        (Used::Ended(ended @ (Ended::Open | Ended::StoreFailed)), Ran::Kept(parts, body)) => {
            (Response::from_parts(parts, ResponseBody::whole(body)), ended)
        }
        (
            Used::Ended(ended @ (Ended::Open | Ended::StoreFailed)),
            Ran::TooLarge(answer) | Ran::NotKept(answer),
        ) => (answer, ended),
        (Used::Ended(ended @ (Ended::Open | Ended::StoreFailed)), Ran::Lost) => {
            (respond::failed(StatusCode::INTERNAL_SERVER_ERROR), ended)
        }
        (Used::No | Used::Begun, Ran::Kept(parts, body)) => {
            let outcome = attempt::outcome(parts.status, &parts.headers, body.clone(), policy);
            let answer = Response::from_parts(parts, ResponseBody::whole(body));
            keep(store, exchange, outcome, answer).await
        }
        (Used::No | Used::Begun, Ran::TooLarge(answer)) => {
            let outcome = attempt::tombstone(answer.status(), answer.headers(), policy);
            keep(store, exchange, outcome, answer).await
        }
        (Used::No | Used::Begun, Ran::NotKept(answer)) => (answer, Ended::Open),
        (Used::No, Ran::Lost) => (respond::failed(StatusCode::INTERNAL_SERVER_ERROR), Ended::Open),
        (Used::Begun, Ran::Lost) => {
            (respond::rejection(&Rejection::outcome_unknown_now()), Ended::Open)
        }
    }
}

/// The answer that goes with what stands under the key. The handler's own is passed on only if it
/// is what was committed: a handler that broke, or changed the answer, after its transaction must
/// not make the first answer differ from every retry's.
fn as_it_stands(verdict: &Verdict, ran: Ran, exchange: &Exchange) -> Response<ResponseBody> {
    if let Verdict::Replay { outcome, .. } = verdict {
        match (ran, &outcome.body) {
            (Ran::Kept(parts, body), Body::Bytes(kept))
                if parts.status == outcome.status && body == *kept =>
            {
                return Response::from_parts(parts, ResponseBody::whole(body));
            }
            (Ran::TooLarge(answer), Body::Tombstone) if answer.status() == outcome.status => {
                return answer;
            }
            (Ran::Kept(..) | Ran::TooLarge(_) | Ran::NotKept(_), _) => {
                let record_id = exchange.request.id;
                tracing::error!(%record_id, "the handler's answer is not the one it committed");
            }
            (Ran::Lost, _) => {}
        }
    }
    respond::verdict(verdict, &exchange.policy, Vec::new())
}

/// Keeps an answer that was given without a transaction, unless a rival came first.
async fn keep(
    store: &dyn Store,
    exchange: &Exchange,
    outcome: Outcome,
    mut answer: Response<ResponseBody>,
) -> (Response<ResponseBody>, Ended) {
    let (request, policy) = (&exchange.request, &exchange.policy);
    let nonce = fastrand::u64(..);
    match protocol::keep(store, request, policy, nonce, outcome.clone()).await {
        Ok(Kept::Done { retained_until }) => {
            respond::stamp(answer.headers_mut(), retained_until);
            let verdict = Verdict::Replay { outcome, retained_until };
            (answer, Ended::Stands { verdict, stored: None })
        }
        Ok(Kept::Refused(verdict, found)) => {
            let answer = respond::verdict(&verdict, policy, Vec::new());
            (answer, Ended::stands(verdict, Some(&found)))
        }
        Err(error) => {
            tracing::error!(%error, record_id = %request.id, "an outcome could not be written");
            (respond::rejection(&Rejection::outcome_unknown_now()), Ended::Open)
        }
    }
}

impl<S> fmt::Debug for Atomic<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Atomic").field("attempt", &self.slot.attempt).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
