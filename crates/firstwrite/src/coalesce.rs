//! Duplicates that meet in this process: one leads and asks the store, the others follow.
//!
//! A thousand copies of one request cost one look into the store. The table holds the attempts in flight,
//! of which there is a limit: an attempt outlives a caller who hangs up, and callers can do that quickly. An
//! entry goes when its leader's guard is dropped, panics included.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use firstwrite_core::{Fingerprint, Found, RecordId, Rejection, Request, StoreErrorKind, Verdict};
use tokio::sync::Notify;

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
        /// What the record was made for, to explain a mismatch.
        stored: Option<Fingerprint>,
    },
    /// The store could not be asked, or would not tell, and nothing was run.
    StoreFailed(StoreErrorKind),
    /// Nothing stands under the key, and nothing new may.
    Refused(Box<Rejection>),
    /// The key is free, or nobody here knows: ask the store.
    Open,
}

struct InFlight {
    request: Arc<Request>,
    phase: Mutex<Phase>,
    /// Tells whoever waits that the phase is another one.
    moved: Notify,
}

impl Running {
    pub(crate) fn new(attempts_max: usize) -> Self {
        Self { attempts: Mutex::default(), attempts_max }
    }

    /// Leads if nobody of this process is at the same key, else follows.
    pub(crate) fn join(self: &Arc<Self>, request: &Arc<Request>) -> Joined {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = attempts.len() >= self.attempts_max;
        match attempts.entry(request.id) {
            Entry::Occupied(entry) => Joined::Follow(Follow::behind(entry.get())),
            Entry::Vacant(_) if is_full => Joined::Full,
            Entry::Vacant(entry) => {
                let in_flight = Arc::new(InFlight {
                    request: Arc::clone(request),
                    phase: Mutex::new(Phase::Asking),
                    moved: Notify::new(),
                });
                entry.insert(Arc::clone(&in_flight));
                Joined::Lead(Lead { running: Arc::clone(self), in_flight, ended: None })
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

impl Ended {
    /// What was found under the key, as judged.
    pub(crate) fn stands(verdict: Verdict, found: Option<&Found>) -> Self {
        // Only a mismatch is explained by the stored fingerprint.
        let stored = found
            .filter(|_| verdict == Verdict::Mismatch)
            .map(|found| found.record.fingerprint.clone());
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
