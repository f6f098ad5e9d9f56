//! Bounds the calls under way, and with them the connections to upstreams: each is an open file, of which the
//! system grants so many, and a client may begin a hundred calls on one connection of its own (HTTP/2).
//!
//! A part of the room is for attempts under keys alone, so that requests without protection, which anybody may
//! send and never end, do not keep them from being made.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use firstwrite::Attempt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::Calling;

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
    open: Arc<AtomicUsize>,
    open_max: usize,
}

/// The right to have one call under way.
pub(crate) type CallPermit = OwnedSemaphorePermit;

/// One open connection.
#[derive(Debug)]
pub(super) struct Open(Arc<AtomicUsize>);

impl Room {
    pub(super) fn new(calling: &Calling) -> Self {
        let open_max = calling.upstream_connections_max.min(Semaphore::MAX_PERMITS);
        let protected = calling.protected_max().min(Semaphore::MAX_PERMITS);
        let passing = open_max.saturating_sub(protected).max(1);
        let permits = |count| Arc::new(Semaphore::new(count));
        let open = Arc::default();
        Self { passing: permits(passing), protected: permits(protected), open, open_max }
    }

    /// Returns the right to make a call, if there is room for it. Attempts wait for it as long as for a
    /// connection; what passes through does not, because it may wait for uploads that never end.
    pub(super) async fn permit(&self, caller: Caller<'_>, calling: &Calling) -> Option<CallPermit> {
        match caller {
            Caller::Passing => Arc::clone(&self.passing).try_acquire_owned().ok(),
            Caller::Attempt(_) | Caller::Probe => {
                let permit = Arc::clone(&self.protected).acquire_owned();
                timeout(calling.connect_within, permit).await.ok()?.ok()
            }
        }
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
