//! Duplicates that meet in this process: one leads and asks the store, the others follow.
//!
//! A thousand copies of one request cost one look into the store. The table holds the attempts in flight,
//! of which there is a limit: an attempt outlives a caller who hangs up, and callers can do that quickly. An
//! entry goes when its leader's guard is dropped, panics included.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use firstwrite_core::{
    Fingerprint, Found, Outcome, Policy, RecordId, Rejection, Request, StoreErrorKind, Timestamp,
    Verdict,
};
use http::header::{CONTENT_LENGTH, RETRY_AFTER};
use http::{HeaderValue, Response};
use tokio::sync::Notify;

use crate::body::{Gathered, ResponseBody, gather};
use crate::exchange::AnswerWhen;
use crate::observe::{How, Place};
use crate::respond;

/// The attempts of this process.
pub(crate) struct Running {
    attempts: Mutex<HashMap<RecordId, Arc<InFlight>>>,
    attempts_max: usize,
}

/// Whether a request leads or follows.
#[derive(Debug)]
pub(crate) enum Joined {
    Lead(Lead),
    Follow(Follow),
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
    /// An attempt goes on when its caller hangs up, and takes up its place for as long.
    _place: Arc<Place>,
}

/// A place behind the leader.
#[derive(Debug)]
pub(crate) struct Follow {
    in_flight: Arc<InFlight>,
}

/// How far an attempt has come.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// The leader asks the store what stands under the key. Until it knows, nobody can say which
    /// of two differing requests is the wrong one.
    Asking,
    /// The leader owns the key, and its handler runs.
    Owned,
    /// It is over.
    Ended(Ended),
}

/// How an attempt ended, as far as others under the same key may know.
#[derive(Clone, Debug)]
pub(crate) enum Ended {
    /// This stands under the key; the same request is answered from it.
    Stands {
        verdict: Verdict,
        /// The request that the record was made for, where the answer depends on it.
        stored: Option<StoredRequest>,
    },
    /// The store could not be asked, or would not tell, and nothing was run.
    StoreFailed(StoreErrorKind),
    /// Nothing stands under the key, and nothing new may.
    Refused(Box<Rejection>),
    /// The attempt ran and was released with this answer; followers get it too and do not run.
    Released(Arc<ReleasedAnswer>),
    /// The key is free, or nobody here knows: ask the store.
    Open,
}

/// The request under whose key another one came.
#[derive(Clone, Debug)]
pub(crate) struct StoredRequest {
    pub(crate) fingerprint: Fingerprint,
    /// [`Found::outlasts_stragglers`]
    pub(crate) outlasts_stragglers: bool,
}

/// The answer of an attempt that was released, as its followers get it.
#[derive(Debug)]
pub(crate) struct ReleasedAnswer {
    outcome: Outcome,
    retry_after: HeaderValue,
}

struct InFlight {
    request: Arc<Request>,
    answer_when: AnswerWhen,
    phase: Mutex<Phase>,
    /// Tells whoever waits that the phase is another one.
    moved: Notify,
}

impl Running {
    pub(crate) fn new(attempts_max: usize) -> Self {
        Self { attempts: Mutex::default(), attempts_max }
    }

    /// Leads if nobody of this process is at the same key, else follows.
    ///
    /// `answer_when`: what the request prefers, for followers to know if it leads.
    pub(crate) fn join(
        self: &Arc<Self>,
        request: &Arc<Request>,
        answer_when: AnswerWhen,
        place: &Arc<Place>,
    ) -> Joined {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = attempts.len() >= self.attempts_max;
        match attempts.entry(request.id) {
            Entry::Occupied(entry) => Joined::Follow(Follow::behind(entry.get())),
            Entry::Vacant(_) if is_full => Joined::Full,
            Entry::Vacant(entry) => {
                let in_flight = Arc::new(InFlight {
                    request: Arc::clone(request),
                    answer_when,
                    phase: Mutex::new(Phase::Asking),
                    moved: Notify::new(),
                });
                entry.insert(Arc::clone(&in_flight));
                let (running, place) = (Arc::clone(self), Arc::clone(place));
                Joined::Lead(Lead { running, in_flight, ended: None, _place: place })
            }
        }
    }

    /// The attempt under `id`, if one runs in this process.
    pub(crate) fn watch(&self, id: RecordId) -> Option<Follow> {
        let attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.get(&id).map(Follow::behind)
    }

    /// Some attempt of this process, if there is one.
    pub(crate) fn any(&self) -> Option<Follow> {
        let attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.values().next().map(Follow::behind)
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
        let mut attempts = self.running.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.remove(&self.in_flight.request.id);
        drop(attempts);
        self.in_flight.move_to(Phase::Ended(self.ended.take().unwrap_or(Ended::Open)));
    }
}

impl Follow {
    fn behind(in_flight: &Arc<InFlight>) -> Self {
        Self { in_flight: Arc::clone(in_flight) }
    }

    /// What the leader asked for.
    pub(crate) fn fingerprint(&self) -> &Fingerprint {
        &self.in_flight.request.fingerprint
    }

    /// Whether the leader was accepted early, so that its end will be told to whoever asks.
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
    /// Keeps what followers may see of `answer`, and hands back the answer itself.
    pub(crate) async fn of(
        answer: Response<ResponseBody>,
        policy: &Policy,
    ) -> (Response<ResponseBody>, Self) {
        let (mut parts, body) = answer.into_parts();
        let retry_after = parts.headers.get(RETRY_AFTER).cloned();
        let retry_after = retry_after.unwrap_or_else(|| respond::seconds(policy.retry_after));
        let headers = policy.kept_headers.keep(&parts.headers);
        let (kept, body) = match gather(body, policy.response_bytes_max).await {
            Ok(Gathered::Whole(bytes)) => {
                parts.headers.remove(CONTENT_LENGTH);
                (bytes.clone(), ResponseBody::whole(bytes))
            }
            Ok(Gathered::Over { prefix, rest }) => {
                (Bytes::new(), ResponseBody::prefixed(prefix, rest))
            }
            Err(error) => {
                tracing::warn!(%error, "the answer of a released attempt broke off");
                parts.headers.remove(CONTENT_LENGTH);
                (Bytes::new(), ResponseBody::whole(Bytes::new()))
            }
        };
        let outcome = Outcome::new(parts.status, headers, kept);
        (Response::from_parts(parts, body), Self { outcome, retry_after })
    }

    /// The follower's answer.
    pub(crate) fn response(&self) -> Response<ResponseBody> {
        // Not kept, so it does not expire.
        let mut response = respond::first(&self.outcome, Timestamp::NEVER);
        response.headers_mut().insert(RETRY_AFTER, self.retry_after.clone());
        response.extensions_mut().insert(How::Followed);
        response
    }
}

impl Ended {
    /// What was found under the key, as judged.
    pub(crate) fn stands(verdict: Verdict, found: Option<&Found>) -> Self {
        // The stored fingerprint explains a mismatch, and says how to take the request's own again.
        let is_wanted = matches!(verdict, Verdict::Mismatch | Verdict::Unreadable);
        let stored = found.filter(|_| is_wanted).map(|found| StoredRequest {
            fingerprint: found.record.fingerprint.clone(),
            outlasts_stragglers: found.outlasts_stragglers(),
        });
        Self::Stands { verdict, stored }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("Running").field("attempt_count", &attempts.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").field("id", &self.request.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
