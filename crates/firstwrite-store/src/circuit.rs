//! When something that is away is left alone, and when it is tried again.
//!
//! 1. *Closed*: everybody passes. So many failures in a row open it; one success starts the count anew.
//! 2. *Open*: nobody passes for a while.
//! 3. After that while, one passes to try. If it succeeds, all may pass again; if it fails, the next
//!    while begins; if it is abandoned, the next caller tries.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Says whether something is to be asked.
#[derive(Debug)]
pub(crate) struct Circuit {
    failures_max: u32,
    open_for: Duration,
    state: Mutex<State>,
    is_open: watch::Sender<bool>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Closed { failures: u32 },
    Open { until: Instant },
    Trying,
}

/// The right to ask once. Whoever has it says how that ended.
#[derive(Debug)]
#[must_use = "say how it ended; if dropped, it counts as never asked"]
pub(crate) struct Pass<'a> {
    circuit: &'a Circuit,
    is_trial: bool,
}

impl Circuit {
    pub(crate) fn new(failures_max: u32, open_for: Duration) -> Self {
        let state = Mutex::new(State::Closed { failures: 0 });
        let failures_max = failures_max.max(1);
        Self { failures_max, open_for, state, is_open: watch::Sender::new(false) }
    }

    /// The right to ask now, unless it is to be left alone.
    pub(crate) fn enter(&self) -> Option<Pass<'_>> {
        let mut state = self.state();
        match *state {
            State::Closed { .. } => Some(Pass { circuit: self, is_trial: false }),
            State::Open { until } if until <= Instant::now() => {
                *state = State::Trying;
                Some(Pass { circuit: self, is_trial: true })
            }
            State::Open { .. } | State::Trying => None,
        }
    }

    /// Whether it is being left alone, or was and has not yet been found to be back.
    pub(crate) fn is_open(&self) -> bool {
        *self.is_open.borrow()
    }

    /// Tells of every opening and closing.
    pub(crate) fn watch(&self) -> watch::Receiver<bool> {
        self.is_open.subscribe()
    }

    /// When the next may try; `None` while all may pass, or somebody tries.
    pub(crate) fn next_trial(&self) -> Option<Instant> {
        match *self.state() {
            State::Open { until } => Some(until),
            State::Closed { .. } | State::Trying => None,
        }
    }

    fn open(&self, state: &mut State) {
        *state = State::Open { until: Instant::now() + self.open_for };
        self.is_open.send_replace(true);
    }

    /// Nothing here panics while it holds the lock, so a poisoned one is still whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pass<'_> {
    /// It is there.
    pub(crate) fn succeeded(mut self) {
        let mut state = self.circuit.state();
        // Who set out before it was opened says nothing about now.
        if self.is_trial || matches!(*state, State::Closed { .. }) {
            *state = State::Closed { failures: 0 };
            self.circuit.is_open.send_replace(false);
        }
        drop(state);
        self.is_trial = false;
    }

    /// It is away.
    pub(crate) fn failed(mut self) {
        let mut state = self.circuit.state();
        match &mut *state {
            _ if self.is_trial => self.circuit.open(&mut state),
            State::Closed { failures } => {
                *failures += 1;
                if *failures >= self.circuit.failures_max {
                    self.circuit.open(&mut state);
                }
            }
            State::Open { .. } | State::Trying => {}
        }
        drop(state);
        self.is_trial = false;
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.is_trial {
            *self.circuit.state() = State::Open { until: Instant::now() };
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const WHILE: Duration = Duration::from_secs(1);

    fn fail(circuit: &Circuit) {
        circuit.enter().unwrap().failed();
    }

    #[tokio::test(start_paused = true)]
    async fn only_failures_in_a_row_open_it() {
        let circuit = Circuit::new(3, WHILE);
        fail(&circuit);
        fail(&circuit);
        circuit.enter().unwrap().succeeded();
        fail(&circuit);
        fail(&circuit);
        assert!(!circuit.is_open());
        fail(&circuit);
        assert!(circuit.is_open() && circuit.enter().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn one_tries_and_decides_for_all() {
        let circuit = Circuit::new(1, WHILE);
        fail(&circuit);
        advance(WHILE).await;
        let trial = circuit.enter().unwrap();
        assert!(circuit.enter().is_none(), "one at a time");
        trial.failed();
        assert!(circuit.enter().is_none(), "the next while has begun");
        advance(WHILE).await;
        assert!(circuit.is_open(), "until somebody has found it there");
        circuit.enter().unwrap().succeeded();
        assert!(!circuit.is_open() && circuit.enter().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_trial_that_is_abandoned_is_the_next_callers() {
        let circuit = Circuit::new(1, WHILE);
        fail(&circuit);
        advance(WHILE).await;
        drop(circuit.enter().unwrap());
        assert!(circuit.is_open());
        assert!(circuit.enter().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_set_out_before_it_opened_does_not_close_it() {
        let circuit = Circuit::new(1, WHILE);
        let (early, other) = (circuit.enter().unwrap(), circuit.enter().unwrap());
        fail(&circuit);
        early.succeeded();
        assert!(circuit.is_open());
        other.failed();
        advance(WHILE).await;
        assert!(circuit.enter().is_some(), "nor does it lengthen the while");
    }
}
