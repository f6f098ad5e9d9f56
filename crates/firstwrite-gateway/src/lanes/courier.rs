//! Wakes from other threads, handed to a lane together.
//!
//! A store answers all requests of a batch at the same moment. Each answer would write to the lane's event
//! descriptor; through a courier only the first of them does, and the lane wakes the rest itself.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

use tokio::sync::Notify;

use super::current;

/// Tasks to wake on one lane.
pub(super) struct Courier {
    lane: usize,
    waiting: Mutex<Vec<Waker>>,
    called: Notify,
}

/// One task's waker, by way of the courier.
struct Errand {
    task: Waker,
    courier: Arc<Courier>,
}

impl Courier {
    pub(super) fn new(lane: usize) -> Self {
        Self { lane, waiting: Mutex::default(), called: Notify::new() }
    }

    /// Wakes the waiting tasks on the lane itself, for ever.
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

impl Wake for Errand {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if current() == self.courier.lane {
            self.task.wake_by_ref();
        } else {
            self.courier.hand_over(self.task.clone());
        }
    }
}

/// Runs a task whose wakes go by way of `courier`.
pub(super) async fn by<F: Future>(courier: Arc<Courier>, task: F) -> F::Output {
    let mut task = pin!(task);
    let mut known: Option<(Arc<Errand>, Waker)> = None;
    poll_fn(move |context| {
        let (_, waker) = match &mut known {
            Some(known) if known.0.task.will_wake(context.waker()) => known,
            stale => {
                let (task, courier) = (context.waker().clone(), Arc::clone(&courier));
                let errand = Arc::new(Errand { task, courier });
                stale.insert((Arc::clone(&errand), Waker::from(errand)))
            }
        };
        task.as_mut().poll(&mut Context::from_waker(waker))
    })
    .await
}
