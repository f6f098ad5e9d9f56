//! Locks on records within this process: those with a handler at work, and those with a commit of unknown
//! result.
//!
//! DynamoDB has no lock that a handler could hold. Between processes only the commit decides; within one, a
//! rival is told at once. And while the result of a commit is unknown, a look-up that does not find it must
//! not be taken as proof that it failed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use firstwrite_core::RecordId;
use tokio::time::Instant;

/// Locks by record. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Locks {
    locks: Arc<Mutex<HashMap<RecordId, Lock>>>,
}

#[derive(Clone, Copy, Debug)]
enum Lock {
    Held,
    /// A commit may still take effect until then.
    Unresolved(Instant),
}

/// A lock that is given back when it is dropped.
#[derive(Debug)]
pub(super) struct HeldLock {
    locks: Locks,
    id: RecordId,
}

/// Time after which no commit can still take effect: longer than the service works on any call.
const UNRESOLVED_FOR: Duration = Duration::from_secs(30);

impl Locks {
    /// Takes the lock of `id`, unless this process holds it already or has a commit of unknown result under it.
    pub(super) fn hold(&self, id: RecordId) -> Option<HeldLock> {
        let mut locks = self.locks();
        match locks.get(&id) {
            Some(Lock::Held) => return None,
            Some(Lock::Unresolved(until)) if Instant::now() < *until => return None,
            Some(Lock::Unresolved(_)) | None => {}
        }
        locks.insert(id, Lock::Held);
        Some(HeldLock { locks: self.clone(), id })
    }

    /// Nothing here panics while it holds the lock, so a poisoned one is still whole.
    fn locks(&self) -> MutexGuard<'_, HashMap<RecordId, Lock>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldLock {
    /// Keeps the lock until the commit under it can no longer take effect.
    pub(super) fn leave_unresolved(self) {
        let mut locks = self.locks.locks();
        let now = Instant::now();
        locks.retain(|_, lock| !matches!(lock, Lock::Unresolved(until) if *until <= now));
        locks.insert(self.id, Lock::Unresolved(now + UNRESOLVED_FOR));
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        let mut locks = self.locks.locks();
        if matches!(locks.get(&self.id), Some(Lock::Held)) {
            locks.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lock_comes_back_when_it_is_certain_how_it_ended() {
        let (locks, id) = (Locks::default(), RecordId::from_bytes([7; 16]));
        let held = locks.hold(id).unwrap();
        assert!(locks.hold(id).is_none());
        drop(held);
        locks.hold(id).unwrap().leave_unresolved();
        assert!(locks.hold(id).is_none());
        tokio::time::advance(UNRESOLVED_FOR).await;
        assert!(locks.hold(id).is_some());
        assert!(locks.locks().is_empty());
    }
}
