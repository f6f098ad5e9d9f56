//! Bounds the calls under way, and with them the connections to upstreams: each is an open file, of which the
//! system grants so many, and a client may begin a hundred calls on one connection of its own (HTTP/2).
//!
//! A part of the room is for attempts under keys alone, so that requests without protection, which anybody may
//! send and never end, do not keep them from being made. Where some callers are verified, a quarter of the attempts
//! is for them alone: all others together can be as many as they like, and take as long as the API does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use firstwrite::Attempt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::Calling;
use crate::tenants::{is_unverified, owner};

/// The party that a call is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Caller<'a> {
    /// A request that passes through without protection.
    Passing,
    /// An attempt, which may call only while it owns its key.
    Attempt(&'a Attempt),
    /// The gateway itself, to find out what became of an attempt.
    Probe,
}

/// Calls under way, and connections to all servers.
#[derive(Debug)]
pub(super) struct Room {
    passing: Arc<Semaphore>,
    protected: Arc<Semaphore>,
    /// Attempts of tenants that the gateway did not verify, where it verifies others.
    unverified: Option<Arc<Semaphore>>,
    open: Arc<AtomicUsize>,
    open_max: usize,
}

/// The right to have one call under way.
#[derive(Debug)]
pub(crate) struct CallPermit {
    _call: OwnedSemaphorePermit,
    _unverified: Option<OwnedSemaphorePermit>,
}

/// One open connection.
#[derive(Debug)]
pub(super) struct Open(Arc<AtomicUsize>);

impl Room {
    pub(super) fn new(calling: &Calling) -> Self {
        let open_max = calling.upstream_connections_max.min(Semaphore::MAX_PERMITS);
        let protected = calling.protected_max().min(Semaphore::MAX_PERMITS);
        let passing = open_max.saturating_sub(protected).max(1);
        let permits = |count| Arc::new(Semaphore::new(count));
        let (passing, protected) = (permits(passing), permits(protected));
        Self { passing, protected, unverified: None, open: Arc::default(), open_max }
    }

    /// The same, with a quarter of the attempts for verified callers.
    pub(super) fn with_quarter_for_verified(self, calling: &Calling) -> Self {
        let seats_max = calling.seats_max().min(Semaphore::MAX_PERMITS);
        let unverified_max = (seats_max - seats_max.div_ceil(4)).max(1);
        Self { unverified: Some(Arc::new(Semaphore::new(unverified_max))), ..self }
    }

    /// Returns the right to make a call, if there is room for it. Attempts wait for it as long as for a
    /// connection; what passes through does not, because it may wait for uploads that never end, nor do attempts
    /// beyond those of unverified callers.
    pub(super) async fn permit(&self, caller: Caller<'_>, calling: &Calling) -> Option<CallPermit> {
        let unverified = self.unverified.as_ref().filter(|_| caller.is_unverified());
        let unverified =
            unverified.map(|all| Arc::clone(all).try_acquire_owned()).transpose().ok()?;
        let call = match caller {
            Caller::Passing => Arc::clone(&self.passing).try_acquire_owned().ok()?,
            Caller::Attempt(_) | Caller::Probe => {
                let permit = Arc::clone(&self.protected).acquire_owned();
                timeout(calling.connect_within, permit).await.ok()?.ok()?
            }
        };
        Some(CallPermit { _call: call, _unverified: unverified })
    }

    /// Returns true if a further connection needs the place of one that is not used.
    pub(super) fn is_full(&self) -> bool {
        self.open.load(Ordering::Relaxed) >= self.open_max
    }

    /// The count of open connections, for those who open them.
    pub(super) fn open(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.open)
    }
}

impl<'a> Caller<'a> {
    pub(crate) fn of(attempt: Option<&'a Attempt>) -> Self {
        attempt.map_or(Self::Passing, Self::Attempt)
    }

    pub(super) fn attempt(self) -> Option<&'a Attempt> {
        match self {
            Self::Attempt(attempt) => Some(attempt),
            Self::Passing | Self::Probe => None,
        }
    }

    /// Returns true for an attempt of a tenant that the gateway did not verify.
    fn is_unverified(self) -> bool {
        self.attempt().is_some_and(|attempt| is_unverified(&owner(attempt.tenant())))
    }
}

impl Open {
    pub(super) fn one(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
