//! The atomic mode: the handler's rows, its messages and the outcome in one commit.
//!
//! The handler gets a slot, which it may use once: for a closure that the store runs ([`Atomic`]),
//! or for a transaction that it holds over its own awaits ([`Transaction`]). If it answers without
//! using it (an extractor refused the body, say), the answer alone is kept. Whatever happens, the
//! store's unique record is the arbiter: a commit that comes second finds a rival and is rolled
//! back.

use std::any::{Any, type_name};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use firstwrite_core::protocol::{self, Atomic as Atomically, Kept};
use firstwrite_core::{
    AsyncTransactionalStore, Body, BoxFuture, Certainty, Found, Outcome, Rejection, Store,
    StoreError, StoreErrorKind, TransactionalStore, Verdict, judge,
};
use http::{Extensions, Response};

use crate::attempt::{self, Attempt, Ran, Reply};
use crate::body::ResponseBody;
use crate::coalesce::{Ended, Lead};
use crate::exchange::{Call, Exchange};
use crate::layer::{PolicyMismatch, Shared};
use crate::lines::{Lines, say};
use crate::respond;

mod answer;
mod closure;
mod error;
mod held;

pub use answer::AtomicAnswer;
pub use closure::Atomic;
pub use error::ExtractorError;
pub use held::Transaction;
use held::{Begin, Holding};

/// A store with transactions that atomic handlers join, by the extractor that is theirs: [`Atomic`] for
/// stores that run closures (SQLite), [`Transaction`] for stores whose transactions a handler holds
/// (PostgreSQL, MySQL, DynamoDB).
///
/// Every [`TransactionalStore`] and every [`AsyncTransactionalStore`] is one; it cannot be implemented
/// otherwise.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no transactions that a handler could join",
    note = "use `IdempotencyLayer::new` and a policy in reserved mode, or a store with transactions"
)]
pub trait AtomicStore<Extractor>: Store + Clone {
    #[doc(hidden)]
    fn transactions(&self) -> Transactions;
}

/// The transactions of a layer's store, as its handlers use them.
#[derive(Clone)]
pub struct Transactions {
    kind: Kind,
    /// Type that handlers take.
    extractor: &'static str,
}

#[derive(Clone)]
enum Kind {
    /// Handlers hand a closure to the store, which is here under its own type.
    Closure(Arc<dyn Any + Send + Sync>),
    /// Handlers hold a transaction that was begun for them.
    Held(Arc<dyn Begin>),
}

impl<S: TransactionalStore + Clone> AtomicStore<Atomic<S>> for S {
    fn transactions(&self) -> Transactions {
        let kind = Kind::Closure(Arc::new(self.clone()));
        Transactions { kind, extractor: type_name::<Atomic<S>>() }
    }
}

impl<S: AsyncTransactionalStore + Clone> AtomicStore<Transaction<S>> for S {
    fn transactions(&self) -> Transactions {
        let kind = Kind::Held(Arc::new(Holding(self.clone())));
        Transactions { kind, extractor: type_name::<Transaction<S>>() }
    }
}

impl fmt::Debug for Transactions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Transactions").field(&self.extractor).finish()
    }
}

/// Result of asking for the right to run.
pub(crate) enum Opened {
    Run(Slot),
    Refused(Verdict, Option<Box<Found>>),
}

/// Passes a handler what it needs to join the transaction, and takes back how that ended.
pub(crate) struct Slot {
    attempt: Attempt,
    exchange: Arc<Exchange>,
    /// For the extractor that knows its type: the store, or the place of an open transaction.
    content: Arc<dyn Any + Send + Sync>,
    /// The same place, if there is one, for the cleanup after the handler.
    place: Option<Arc<dyn Close>>,
    used: Mutex<Used>,
    /// Type that handlers of this layer take.
    extractor: &'static str,
    lines: Arc<Lines>,
}

/// Use that a handler made of its slot.
#[derive(Clone, Debug)]
enum Used {
    /// Nothing: it changed nothing.
    No,
    /// It let go of a transaction in which it had begun to work: that was undone.
    LetGo,
    /// The end of the transaction was begun; it may still commit.
    Concluding,
    Ended(Ended),
}

/// A place where a transaction may be left open.
trait Close: Send + Sync {
    /// Undoes what was left open and lets nothing begin any more. Says what was done with it.
    fn close<'a>(&'a self, slot: &'a Slot) -> BoxFuture<'a, Used>;
}

/// Asks for the right to run, runs the handler with a slot, answers.
pub(crate) async fn attempt(
    shared: &Shared,
    lead: Lead,
    exchange: &Arc<Exchange>,
    mut call: Call,
    mut reply: Reply,
) {
    let Some(Transactions { kind, extractor }) = &shared.transactions else {
        return misconfigured(exchange, lead, reply);
    };
    let opened = match kind {
        Kind::Closure(store) => look_up(&*shared.store, exchange, store).await,
        Kind::Held(store) => store.begin(exchange).await,
    };
    let ended = match opened {
        Ok(Opened::Run(slot)) => {
            lead.owned();
            reply.accepted(exchange);
            let slot = Arc::new(Slot { extractor, lines: Arc::clone(&shared.lines), ..slot });
            call.parts.extensions.insert(slot.attempt.clone());
            call.parts.extensions.insert(Arc::clone(&slot));
            let ran = attempt::run(call, exchange, &shared.lines).await;
            let used = slot.close().await;
            let (response, ended) = conclude(shared, exchange, used, ran).await;
            lead.end(ended);
            reply.answered(response);
            return;
        }
        Ok(Opened::Refused(verdict, found)) => Ended::stands(verdict, found.as_deref()),
        Err(error) => {
            shared.lines.not_looked_up(&error, Some(exchange.request.id));
            Ended::StoreFailed(error.kind())
        }
    };
    lead.end(ended.clone());
    reply.refused(ended, call);
}

/// The policy is atomic and the layer has no transactions. A layer refuses such a policy when it
/// is built, unless its resolver makes policies up as requests come.
fn misconfigured(exchange: &Exchange, lead: Lead, reply: Reply) {
    let operation = &*exchange.request.operation;
    tracing::error!(operation, "{}", PolicyMismatch::NoTransactions);
    lead.end(Ended::Open);
    reply.answered(respond::misconfigured());
}

/// Looks the key up, for a handler that will hand a closure to `store`.
async fn look_up(
    records: &dyn Store,
    exchange: &Arc<Exchange>,
    store: &Arc<dyn Any + Send + Sync>,
) -> Result<Opened, StoreError> {
    let found = records.get(exchange.request.id).await?;
    Ok(match judge(found.as_ref(), &exchange.request) {
        Verdict::Fresh | Verdict::TakeOver { .. } => {
            Opened::Run(Slot::new(exchange, Arc::clone(store), None))
        }
        verdict @ (Verdict::Replay { .. }
        | Verdict::InProgress { .. }
        | Verdict::Mismatch
        | Verdict::Uncertain
        | Verdict::Expired
        | Verdict::Unreadable) => Opened::Refused(verdict, found.map(Box::new)),
    })
}

impl Slot {
    /// Returns the slot that the layer left in the extensions of a request in atomic mode.
    fn of(extensions: &Extensions) -> Result<&Arc<Self>, ExtractorError> {
        extensions.get::<Arc<Self>>().ok_or_else(|| {
            if extensions.get::<Attempt>().is_some() {
                ExtractorError::NotAtomic
            } else {
                ExtractorError::NoAttempt
            }
        })
    }

    /// Makes the error for a handler that takes `Extractor`, which is not the layer's.
    fn other_than<Extractor>(&self) -> ExtractorError {
        ExtractorError::OtherStore { layer: self.extractor, handler: type_name::<Extractor>() }
    }

    fn new(
        exchange: &Arc<Exchange>,
        content: Arc<dyn Any + Send + Sync>,
        place: Option<Arc<dyn Close>>,
    ) -> Self {
        Self {
            attempt: Attempt::atomic(&exchange.request),
            exchange: Arc::clone(exchange),
            content,
            place,
            used: Mutex::new(Used::No),
            extractor: "",
            lines: Arc::default(),
        }
    }

    fn begin(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Used::Concluding;
    }

    fn used(&self) -> Used {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The handler has ended: says what it did with its slot.
    async fn close(&self) -> Used {
        match &self.place {
            Some(place) => place.close(self).await,
            None => self.used(),
        }
    }

    /// Writes down how the transaction ended, and makes the answer that goes with it.
    fn end<E>(
        &self,
        ended: Result<Atomically<E>, StoreError>,
    ) -> Result<Response<ResponseBody>, E> {
        let (response, ended) = match ended {
            Ok(Atomically::Kept { mut response, retained_until }) => {
                let verdict = Verdict::Replay { outcome: self.outcome(&response), retained_until };
                respond::stamp(response.headers_mut(), retained_until);
                (Ok(response.map(ResponseBody::whole)), Ended::Stands { verdict, stored: None })
            }
            Ok(Atomically::RolledBack(response)) => {
                (Ok(response.map(ResponseBody::whole)), Ended::Open)
            }
            Ok(Atomically::Failed(error)) => (Err(error), Ended::Open),
            Ok(Atomically::Refused(verdict, found)) => {
                let response = respond::verdict(&verdict, &self.exchange.policy);
                (Ok(response), Ended::stands(verdict, found.as_deref()))
            }
            Err(error) => (Ok(self.store_failed(&error)), Ended::Open),
        };
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Used::Ended(ended);
        response
    }

    /// Returns the outcome that the transaction has kept of an answer.
    fn outcome(&self, response: &Response<Bytes>) -> Outcome {
        let policy = &self.exchange.policy;
        let (status, headers, body) = (response.status(), response.headers(), response.body());
        if body.len() > policy.response_bytes_max {
            return attempt::tombstone(status, headers, policy);
        }
        let outcome = attempt::outcome(status, headers, body.clone(), policy);
        if protocol::is_interim(response) { outcome.interim() } else { outcome }
    }

    fn store_failed(&self, error: &StoreError) -> Response<ResponseBody> {
        let record_id = self.exchange.request.id;
        say!(self.lines.transaction_failed, error, %error, %record_id, "a transaction failed");
        match (error.kind(), error.certainty()) {
            (StoreErrorKind::Panicked, _) => respond::failed(),
            (kind, Certainty::Definite) => respond::store_failed(kind),
            // It may have been committed: a retry under the same key finds out.
            (_, Certainty::Indeterminate) => respond::rejection(&Rejection::outcome_unknown_now()),
        }
    }
}

/// Returns the answer to the caller, and the result for the followers, once the handler has ended.
async fn conclude(
    shared: &Shared,
    exchange: &Exchange,
    used: Used,
    ran: Ran,
) -> (Response<ResponseBody>, Ended) {
    let (policy, lines) = (&exchange.policy, &*shared.lines);
    match (used, ran) {
        (Used::Ended(Ended::Stands { verdict, stored }), ran) => {
            let answer = as_it_stands(&verdict, ran, exchange, lines);
            (answer, Ended::Stands { verdict, stored })
        }
        (
            Used::Ended(
                ended @ (Ended::Open
                | Ended::Released(_)
                | Ended::StoreFailed(_)
                | Ended::Refused(_)),
            ),
            ran,
        ) => (as_given(ran), ended),
        (Used::LetGo, ran) => (not_committed(ran, exchange, lines), Ended::Open),
        (Used::No | Used::Concluding, Ran::Kept(parts, body)) => {
            let outcome = attempt::outcome(parts.status, &parts.headers, body.clone(), policy);
            let answer = Response::from_parts(parts, ResponseBody::whole(body));
            keep(shared, exchange, outcome, answer).await
        }
        (Used::No | Used::Concluding, Ran::TooLarge(answer)) => {
            let outcome = attempt::tombstone(answer.status(), answer.headers(), policy);
            keep(shared, exchange, outcome, answer).await
        }
        (Used::No | Used::Concluding, Ran::NotKept(answer)) => (answer, Ended::Open),
        (Used::No, Ran::Lost(_)) => (respond::failed(), Ended::Open),
        (Used::Concluding, Ran::Lost(_)) => {
            (respond::rejection(&Rejection::outcome_unknown_now()), Ended::Open)
        }
    }
}

/// The handler's own answer to an attempt of which nothing stays.
fn as_given(ran: Ran) -> Response<ResponseBody> {
    match ran {
        Ran::Kept(parts, body) => Response::from_parts(parts, ResponseBody::whole(body)),
        Ran::TooLarge(answer) | Ran::NotKept(answer) => answer,
        Ran::Lost(_) => respond::failed(),
    }
}

/// Returns the answer of a handler that worked in its transaction and dropped it. A refusal is its way of
/// giving up; but the caller must not be told that something was done when it was undone.
fn not_committed(ran: Ran, exchange: &Exchange, lines: &Lines) -> Response<ResponseBody> {
    let answer = as_given(ran);
    if answer.status().is_client_error() || answer.status().is_server_error() {
        return answer;
    }
    let record_id = exchange.request.id;
    say!(lines.not_committed, error, %record_id, "the handler answered without committing its transaction");
    respond::failed()
}

/// The answer that goes with what stands under the key. The handler's own is passed on only if it
/// is what was committed: a handler that broke, or changed the answer, after its transaction must
/// not make the first answer differ from every retry's.
fn as_it_stands(
    verdict: &Verdict,
    ran: Ran,
    exchange: &Exchange,
    lines: &Lines,
) -> Response<ResponseBody> {
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
                say!(lines.not_as_committed, error, %record_id, "the handler's answer is not the one it committed");
            }
            (Ran::Lost(_), _) => {}
        }
    }
    respond::verdict(verdict, &exchange.policy)
}

/// Keeps an answer that was given without a transaction, unless a rival came first.
async fn keep(
    shared: &Shared,
    exchange: &Exchange,
    outcome: Outcome,
    mut answer: Response<ResponseBody>,
) -> (Response<ResponseBody>, Ended) {
    let (request, policy) = (&exchange.request, &exchange.policy);
    let nonce = fastrand::u64(..);
    match protocol::keep(&*shared.store, request, policy, nonce, outcome.clone()).await {
        Ok(Kept::Done { retained_until }) => {
            respond::stamp(answer.headers_mut(), retained_until);
            let verdict = Verdict::Replay { outcome, retained_until };
            (answer, Ended::Stands { verdict, stored: None })
        }
        Ok(Kept::Refused(verdict, found)) => {
            let answer = respond::verdict(&verdict, policy);
            (answer, Ended::stands(verdict, Some(&found)))
        }
        Err(error) => {
            shared.lines.not_written(&error, request.id);
            (respond::rejection(&Rejection::outcome_unknown_now()), Ended::Open)
        }
    }
}

#[cfg(test)]
#[cfg(feature = "axum")]
mod tests;
