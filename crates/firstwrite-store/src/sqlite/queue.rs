//! A bounded queue between tasks that ask and the threads that answer.
//!
//! A thread takes all waiting items at once, up to a limit, so that they share a commit.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    arrived: Condvar,
    length_max: usize,
}

/// Reason why an item was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The queue is full.
    Full,
    /// The queue is closed: no thread takes items from it any more.
    Closed,
}

struct State<T> {
    waiting: VecDeque<T>,
    /// Threads asleep in `take`. Waking costs a system call, so it is skipped if no thread sleeps.
    idle_count: usize,
    closed: bool,
}

impl<T> Queue<T> {
    pub(super) fn new(length_max: usize) -> Self {
        let state = State { waiting: VecDeque::new(), idle_count: 0, closed: false };
        Self { state: Mutex::new(state), arrived: Condvar::new(), length_max }
    }

    pub(super) fn push(&self, item: T) -> Result<(), Refused> {
        let mut state = self.state();
        if state.closed {
            return Err(Refused::Closed);
        }
        if state.waiting.len() >= self.length_max {
            return Err(Refused::Full);
        }
        state.waiting.push_back(item);
        if state.idle_count > 0 {
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// Waits until something is there and takes up to `count_max` of it. Nothing means that the
    /// queue is closed and empty.
    pub(super) fn take(&self, count_max: usize) -> VecDeque<T> {
        let mut state = self.state();
        while state.waiting.is_empty() && !state.closed {
            state.idle_count += 1;
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle_count -= 1;
        }
        take_up_to(&mut state.waiting, count_max)
    }

    /// Like [`take`](Self::take), but `None` if nothing is there within about `wait`.
    pub(super) fn take_within(&self, count_max: usize, wait: Duration) -> Option<VecDeque<T>> {
        let mut state = self.state();
        if state.waiting.is_empty() && !state.closed {
            state.idle_count += 1;
            let woken = self.arrived.wait_timeout(state, wait);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
            state.idle_count -= 1;
            if state.waiting.is_empty() && !state.closed {
                return None;
            }
        }
        Some(take_up_to(&mut state.waiting, count_max))
    }

    /// Refuses new items. Waiting ones are still taken.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.arrived.notify_all();
    }

    /// Nothing here panics while it holds the lock, so a poisoned one is still whole.
    fn state(&self) -> MutexGuard<'_, State<T>> {
        firstwrite_core::lock(&self.state)
    }
}

fn take_up_to<T>(waiting: &mut VecDeque<T>, count_max: usize) -> VecDeque<T> {
    if waiting.len() <= count_max {
        std::mem::take(waiting)
    } else {
        waiting.drain(..count_max).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_waits_is_taken_at_once_up_to_the_limit() {
        let queue = Queue::new(10);
        for number in 0..5 {
            queue.push(number).unwrap();
        }
        assert_eq!(queue.take(3), [0, 1, 2]);
        assert_eq!(queue.take(3), [3, 4]);
    }

    #[test]
    fn a_full_queue_refuses_instead_of_growing() {
        let queue = Queue::new(1);
        queue.push('a').unwrap();
        assert_eq!(queue.push('b'), Err(Refused::Full));
    }

    #[test]
    fn waiting_for_a_while_tells_nothing_there_from_closed() {
        let queue = Queue::new(10);
        assert_eq!(queue.take_within(10, Duration::ZERO), None);
        queue.push('a').unwrap();
        queue.push('b').unwrap();
        assert_eq!(queue.take_within(1, Duration::ZERO), Some(VecDeque::from(['a'])));
        queue.close();
        assert_eq!(queue.take_within(10, Duration::ZERO), Some(VecDeque::from(['b'])));
        assert_eq!(queue.take_within(10, Duration::ZERO), Some(VecDeque::new()));
    }

    #[test]
    fn a_closed_queue_is_drained_and_then_empty() {
        let queue = Queue::new(10);
        queue.push('a').unwrap();
        queue.close();
        assert_eq!(queue.push('b'), Err(Refused::Closed));
        assert_eq!(queue.take(10), ['a']);
        assert!(queue.take(10).is_empty());
    }
}
