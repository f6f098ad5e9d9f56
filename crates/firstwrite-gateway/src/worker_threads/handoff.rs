//! Wakes from other threads, handed to a thread together.
//!
//! A store answers all requests of a batch at the same moment. Each answer would write to the thread's event
//! descriptor; through a handoff only the first of them does, and the thread wakes the rest itself.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

use tokio::sync::Notify;

use super::current;

/// Tasks to wake on one thread.
pub(super) struct Handoff {
    thread: usize,
    waiting: Mutex<Vec<Waker>>,
    called: Notify,
}

/// One task's waker, by way of the handoff.
struct HandoffWaker {
    task: Waker,
    handoff: Arc<Handoff>,
}

impl Handoff {
    pub(super) fn new(thread: usize) -> Self {
        Self { thread, waiting: Mutex::default(), called: Notify::new() }
    }

    /// Wakes the waiting tasks on the thread itself, for ever.
    pub(super) async fn run(&self) {
        let mut taken = Vec::new();
        loop {
            self.called.notified().await;
            std::mem::swap(&mut *self.lock(), &mut taken);
            taken.drain(..).for_each(Waker::wake);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hand_over(&self, task: Waker) {
        let mut waiting = self.lock();
        let is_first = waiting.is_empty();
        waiting.push(task);
        drop(waiting);
        if is_first {
            self.called.notify_one();
        }
    }
}

impl Wake for HandoffWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if current() == self.handoff.thread {
            self.task.wake_by_ref();
        } else {
            self.handoff.hand_over(self.task.clone());
        }
    }
}

/// Runs a task whose wakes go by way of `handoff`.
pub(super) async fn by<F: Future>(handoff: Arc<Handoff>, task: F) -> F::Output {
    let mut task = pin!(task);
    let mut known: Option<(Arc<HandoffWaker>, Waker)> = None;
    poll_fn(move |context| {
        let (_, waker) = match &mut known {
            Some(known) if known.0.task.will_wake(context.waker()) => known,
            stale => {
                let (task, handoff) = (context.waker().clone(), Arc::clone(&handoff));
                let errand = Arc::new(HandoffWaker { task, handoff });
                stale.insert((Arc::clone(&errand), Waker::from(errand)))
            }
        };
        task.as_mut().poll(&mut Context::from_waker(waker))
    })
    .await
}
