//! Duplicates that meet in this process: one leads and asks the store, the others follow.
//!
//! A thousand copies of one request cost one look-up in the store. The table holds the attempts in flight,
//! whose number is limited: an attempt outlives a caller who hangs up, and callers can do that quickly. An
//! entry is removed when its leader's guard is dropped, panics included.
//!
//! Admission of leaders, when there are many ([`seats`]):
//!
//! 1. While there are free seats and no request waits for one, any request may lead: one tenant alone may have
//!    all of them.
//! 2. When there is none, a tenant that has less than its share waits for one, in turn and for a while; the
//!    others are refused.
//! 3. While a request waits, a tenant that has its share gets no more.

mod seats;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use firstwrite_core::{
    Fingerprint, Found, Outcome, Policy, RecordId, Rejection, Request, StoreErrorKind, Verdict,
};
use http::header::RETRY_AFTER;
use http::{HeaderValue, Response};
use tokio::sync::Notify;

use crate::body::ResponseBody;
use crate::exchange::{AnswerWhen, Exchange};
use crate::observe::{Place, RequestResult};
use crate::respond::{self, IDEMPOTENCY_OUTCOME};
pub(crate) use seats::{IsJoint, Seat, Waiting};
use seats::{Seats, Wanted};

/// The attempts of this process.
pub(crate) struct Running {
    attempts: Mutex<HashMap<RecordId, Arc<InFlight>>>,
    seats: Arc<Seats>,
}

/// Role of a request: it leads, follows, waits or is refused.
#[derive(Debug)]
pub(crate) enum Joined {
    Lead(Lead),
    Follow(Follow),
    /// There are too many attempts for another one to begin now, and this one's turn may come.
    Wait(Waiting),
    /// There are too many attempts for another one to begin.
    Full,
}

/// The right to be the only one of this process at its key.
#[derive(Debug)]
#[must_use = "followers wait for its end"]
pub(crate) struct Lead {
    running: Arc<Running>,
    in_flight: Arc<InFlight>,
    ended: Option<Ended>,
    _seat: Seat,
    /// An attempt goes on when its caller hangs up, and takes up its place for as long.
    _place: Arc<Place>,
}

/// A place behind the leader.
#[derive(Debug)]
pub(crate) struct Follow {
    in_flight: Arc<InFlight>,
}

/// Progress of an attempt.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// The leader asks the store for the record under the key. Until it knows, it is unknown which of two
    /// differing requests is the wrong one.
    Asking,
    /// The leader owns the key, and its handler runs.
    Owned,
    /// It is over.
    Ended(Ended),
}

/// Result of an attempt, as far as others under the same key may know.
#[derive(Clone, Debug)]
pub(crate) enum Ended {
    /// There is a record under the key; the same request is answered from it.
    Stands {
        verdict: Verdict,
        /// The request that the record was made for, where the answer depends on it.
        stored: Option<Fingerprint>,
    },
    /// The store could not be asked, or would not tell, and nothing was run.
    StoreFailed(StoreErrorKind),
    /// There is no record under the key, and no new one may be made.
    Refused(Box<Rejection>),
    /// The attempt ran and was released with this answer; followers get it too and do not run.
    Released(Arc<ReleasedAnswer>),
    /// The key is free, or this process does not know: ask the store.
    Open,
}

/// The answer of an attempt that was released, as its followers get it.
#[derive(Debug)]
pub(crate) struct ReleasedAnswer {
    outcome: Outcome,
    retry_after: HeaderValue,
    is_in_doubt: bool,
    /// The refusal that the answer is, if it is one: its document is written anew for each caller.
    refusal: Option<Rejection>,
}

struct InFlight {
    request: Arc<Request>,
    answer_when: AnswerWhen,
    phase: Mutex<Phase>,
    /// Wakes waiting followers when the phase changes.
    moved: Notify,
}

impl Running {
    pub(crate) fn new(
        attempts_max: usize,
        tenant_attempts_max: usize,
        joint: Option<IsJoint>,
    ) -> Self {
        let seats = Arc::new(Seats::new(attempts_max, tenant_attempts_max, joint));
        Self { attempts: Mutex::default(), seats }
    }

    /// Leads if no other request of this process is at the same key, else follows.
    ///
    /// `seat`: the seat that the request waited for, if it did.
    pub(crate) fn join(
        self: &Arc<Self>,
        exchange: &Exchange,
        place: &Arc<Place>,
        seat: Option<Seat>,
    ) -> Joined {
        let Exchange { request, answer_when, .. } = exchange;
        let mut attempts = self.attempts();
        if let Some(first) = attempts.get(&request.id) {
            return Joined::Follow(Follow::behind(first));
        }
        let wanted = seat.map_or_else(|| self.seats.take(&request.tenant.owner()), Wanted::Seat);
        let seat = match wanted {
            Wanted::Seat(seat) => seat,
            Wanted::Wait(waiting) => return Joined::Wait(waiting),
            Wanted::Full => return Joined::Full,
        };
        let in_flight = Arc::new(InFlight {
            request: Arc::clone(request),
            // For followers to know.
            answer_when: *answer_when,
            phase: Mutex::new(Phase::Asking),
            moved: Notify::new(),
        });
        attempts.insert(request.id, Arc::clone(&in_flight));
        let (running, place) = (Arc::clone(self), Arc::clone(place));
        Joined::Lead(Lead { running, in_flight, ended: None, _seat: seat, _place: place })
    }

    fn attempts(&self) -> MutexGuard<'_, HashMap<RecordId, Arc<InFlight>>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the attempt under `id`, if one runs in this process.
    pub(crate) fn watch(&self, id: RecordId) -> Option<Follow> {
        let attempts = self.attempts();
        attempts.get(&id).map(Follow::behind)
    }

    /// Returns some attempt of this process, if there is one.
    pub(crate) fn any(&self) -> Option<Follow> {
        let attempts = self.attempts();
        attempts.values().next().map(Follow::behind)
    }

    /// Returns the number of attempts of this process.
    pub(crate) fn count(&self) -> usize {
        self.attempts().len()
    }
}

impl Lead {
    /// The key is this attempt's, durably where its mode makes it so.
    pub(crate) fn owned(&self) {
        self.in_flight.move_to(Phase::Owned);
    }

    /// Tells the followers how it ended.
    pub(crate) fn end(mut self, ended: Ended) {
        self.ended = Some(ended);
    }
}

impl Drop for Lead {
    /// Leaves the table before the followers wake up, so that one that asks anew does not meet
    /// what has just ended.
    fn drop(&mut self) {
        self.running.attempts().remove(&self.in_flight.request.id);
        self.in_flight.move_to(Phase::Ended(self.ended.take().unwrap_or(Ended::Open)));
    }
}

impl Follow {
    fn behind(in_flight: &Arc<InFlight>) -> Self {
        Self { in_flight: Arc::clone(in_flight) }
    }

    /// Returns the fingerprint of the leader's request.
    pub(crate) fn fingerprint(&self) -> &Fingerprint {
        &self.in_flight.request.fingerprint
    }

    /// Returns true if the leader was accepted early, so that callers can poll for its result.
    pub(crate) fn is_accepted(&self) -> bool {
        self.in_flight.answer_when == AnswerWhen::Accepted
    }

    /// Waits until the leader owns the key or has ended: as long as the store takes to answer.
    pub(crate) async fn decided(&mut self) -> Phase {
        self.when(|phase| !matches!(phase, Phase::Asking)).await
    }

    /// Waits until the leader has ended.
    pub(crate) async fn ended(&mut self) -> Ended {
        match self.when(|phase| matches!(phase, Phase::Ended(_))).await {
            Phase::Ended(ended) => ended,
            Phase::Asking | Phase::Owned => Ended::Open,
        }
    }

    async fn when(&mut self, reached: impl Fn(&Phase) -> bool) -> Phase {
        loop {
            // Waiting begins before looking, so that nothing is missed in between.
            let mut moved = std::pin::pin!(self.in_flight.moved.notified());
            moved.as_mut().enable();
            let phase = self.in_flight.phase();
            if reached(&phase) {
                return phase;
            }
            moved.await;
        }
    }
}

impl InFlight {
    fn phase(&self) -> Phase {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn move_to(&self, phase: Phase) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
        self.moved.notify_waiters();
    }
}

impl ReleasedAnswer {
    /// Keeps what followers may see of `answer`: its body only where it was gathered whole.
    pub(crate) fn of(answer: &Response<ResponseBody>, policy: &Policy) -> Self {
        let retry_after = answer.headers().get(RETRY_AFTER).cloned();
        let retry_after = retry_after.unwrap_or_else(|| respond::seconds(policy.retry_after));
        let headers = policy.kept_headers.keep(answer.headers());
        let body = answer.body().gathered().unwrap_or_default();
        Self {
            outcome: Outcome::new(answer.status(), headers, body),
            retry_after,
            is_in_doubt: answer.headers().contains_key(IDEMPOTENCY_OUTCOME),
            refusal: answer.extensions().get::<Rejection>().cloned(),
        }
    }

    /// The follower's answer.
    pub(crate) fn response(&self) -> Response<ResponseBody> {
        // Not kept, so it does not expire.
        let mut response = respond::first(&self.outcome, None);
        response.headers_mut().insert(RETRY_AFTER, self.retry_after.clone());
        if self.is_in_doubt {
            respond::mark_in_doubt(response.headers_mut());
        }
        if let Some(refusal) = &self.refusal {
            response.extensions_mut().insert(refusal.clone());
        }
        response.extensions_mut().insert(RequestResult::Followed);
        response
    }
}

impl Ended {
    /// Makes the result for a record found under the key, as judged.
    pub(crate) fn stands(verdict: Verdict, found: Option<&Found>) -> Self {
        // The stored fingerprint explains a mismatch, and says how to take the request's own again.
        let is_wanted = matches!(verdict, Verdict::Mismatch | Verdict::Unreadable);
        let stored = found.filter(|_| is_wanted).map(|found| found.record.fingerprint.clone());
        Self::Stands { verdict, stored }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.attempts().len();
        f.debug_struct("Running").field("attempt_count", &count).finish_non_exhaustive()
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").field("id", &self.request.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
