//! The one connection of a carrier.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use firstwrite_core::outbox::Delivery;
use tokio::time::timeout;

use super::retry;

/// A connection, or whatever a client keeps in its place.
pub(in crate::carrier) trait Session: Send + Sync + 'static {
    /// Returns true if it seems usable, as far as is known without asking.
    fn is_open(&self) -> bool;
}

/// Holds a session while it is good, and opens the next when a delivery needs one.
///
/// Nothing reconnects in the background. Of many deliveries that need a session at once, one connects and all
/// share its result, failures too: a broker that is down sees one attempt and not one per message.
#[derive(Debug)]
pub(in crate::carrier) struct Slot<S> {
    current: Mutex<Option<Arc<S>>>,
    /// Error of the last attempt, if it failed; held while connecting.
    connecting: tokio::sync::Mutex<Option<String>>,
    /// Number of attempts that have ended.
    attempt_count: AtomicU64,
    connect_for: Duration,
}

impl<S: Session> Slot<S> {
    pub(in crate::carrier) fn new(connect_for: Duration) -> Self {
        Self {
            current: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            attempt_count: AtomicU64::new(0),
            connect_for,
        }
    }

    /// The session, opened by `connect` if there is none. The error is the end of a delivery of which
    /// not a byte was sent.
    pub(in crate::carrier) async fn get(
        &self,
        connect: impl AsyncFnOnce() -> Result<S, String>,
    ) -> Result<Arc<S>, Delivery> {
        if let Some(session) = self.current() {
            return Ok(session);
        }
        // Connecting is rare and its state large; a delivery should not carry it around.
        let opened = timeout(self.connect_for, Box::pin(self.open(connect()))).await;
        opened
            .unwrap_or_else(|_| Err(format!("no answer in {} ms", self.connect_for.as_millis())))
            .map_err(|why| retry(format!("cannot connect: {why}")))
    }

    /// Stops handing out `session`; deliveries that use it now may go on.
    pub(in crate::carrier) fn forget(&self, session: &Arc<S>) {
        let mut current = self.lock();
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, session)) {
            *current = None;
        }
    }

    async fn open(
        &self,
        connect: impl Future<Output = Result<S, String>>,
    ) -> Result<Arc<S>, String> {
        let seen = self.attempt_count.load(Ordering::Acquire);
        let mut failure = self.connecting.lock().await;
        if let Some(session) = self.current() {
            return Ok(session);
        }
        if self.attempt_count.load(Ordering::Acquire) != seen
            && let Some(why) = &*failure
        {
            return Err(why.clone());
        }
        let opened = connect.await.map(Arc::new);
        self.attempt_count.fetch_add(1, Ordering::Release);
        *failure = opened.as_ref().err().cloned();
        if let Ok(session) = &opened {
            *self.lock() = Some(Arc::clone(session));
        }
        opened
    }

    fn current(&self) -> Option<Arc<S>> {
        self.lock().as_ref().filter(|session| session.is_open()).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<S>>> {
        // What it holds is whole at every moment.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use firstwrite_core::outbox::Ending;
    use tokio::sync::Notify;

    use super::*;

    struct Line(AtomicBool);

    impl Session for Line {
        fn is_open(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn line() -> Line {
        Line(AtomicBool::new(true))
    }

    const LONG: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn many_who_wait_share_one_attempt_and_its_failure() {
        let slot = Arc::new(Slot::new(LONG));
        let (attempts, go) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let (slot, attempts, go) = (slot.clone(), attempts.clone(), go.clone());
                tokio::spawn(async move {
                    let connect = async || {
                        attempts.fetch_add(1, Ordering::Relaxed);
                        go.notified().await;
                        Err::<Line, _>("refused".to_owned())
                    };
                    slot.get(connect).await.err()
                })
            })
            .collect();
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
        go.notify_one();
        for task in tasks {
            let delivery = task.await.unwrap().unwrap();
            assert_eq!(delivery.ending, Ending::Retry);
            assert_eq!(delivery.detail, "cannot connect: refused");
        }
        assert_eq!(attempts.load(Ordering::Relaxed), 1);
        assert!(slot.get(async || Ok(line())).await.is_ok(), "the next one tries again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_says_nothing_is_given_up() {
        let slot = Slot::<Line>::new(LONG);
        let delivery = slot.get(std::future::pending).await.err().unwrap();
        assert_eq!(delivery.detail, "cannot connect: no answer in 60000 ms");
    }

    #[tokio::test]
    async fn a_session_is_kept_until_it_is_forgotten_or_closed() {
        let slot = Slot::new(LONG);
        let first = slot.get(async || Ok(line())).await.unwrap();
        let same = slot.get(async || Ok(line())).await.unwrap();
        assert!(Arc::ptr_eq(&first, &same));
        slot.forget(&first);
        let second = slot.get(async || Ok(line())).await.unwrap();
        assert!(!Arc::ptr_eq(&first, &second));
        slot.forget(&first);
        assert!(Arc::ptr_eq(&second, &slot.get(async || Ok(line())).await.unwrap()));
        second.0.store(false, Ordering::Relaxed);
        assert!(!Arc::ptr_eq(&second, &slot.get(async || Ok(line())).await.unwrap()));
    }
}
