//! Slots of lanes that work at a time. A lane that waits gives its slot to another one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_channel::oneshot;

/// Slots of one run of a queue. They are dropped together with all futures that ask for one.
#[derive(Debug)]
pub(crate) struct Slots {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// Lanes that ask for a slot, the first one first.
    asking: VecDeque<oneshot::Sender<()>>,
}

/// A slot that a lane took. It is free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Slot<'a> {
    slots: &'a Slots,
    /// False while the lane rests.
    is_held: AtomicBool,
}

impl Slots {
    pub(super) fn new(count: usize) -> Self {
        Self { state: Mutex::new(State { free: count, asking: VecDeque::new() }) }
    }

    /// Takes a slot, once there is one.
    pub(super) async fn take(&self) -> Slot<'_> {
        self.acquire().await;
        Slot { slots: self, is_held: AtomicBool::new(true) }
    }

    async fn acquire(&self) {
        let granted = {
            let mut state = self.state();
            if state.free > 0 {
                state.free -= 1;
                return;
            }
            let (grant, granted) = oneshot::channel();
            state.asking.push_back(grant);
            granted
        };
        // The sender is dropped with the slots only.
        granted.await.unwrap_or(());
    }

    fn release(&self) {
        let mut state = self.state();
        while let Some(next) = state.asking.pop_front() {
            if next.send(()).is_ok() {
                return;
            }
        }
        state.free += 1;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot<'_> {
    /// Waits without holding the slot; returns when a slot is held again.
    pub(crate) async fn rest<T>(&self, wait: impl Future<Output = T>) -> T {
        self.is_held.store(false, Ordering::Relaxed);
        self.slots.release();
        let done = wait.await;
        self.slots.acquire().await;
        self.is_held.store(true, Ordering::Relaxed);
        done
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if *self.is_held.get_mut() {
            self.slots.release();
        }
    }
}
