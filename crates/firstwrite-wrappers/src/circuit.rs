//! A circuit breaker: stops calls to something unavailable, and tries it again later.
//!
//! 1. *Closed*: every call passes. A number of consecutive failures opens it; one success resets the count.
//! 2. *Open*: no call passes for a while.
//! 3. After that, one call passes as a probe. If it succeeds, all calls pass again; if it fails, the breaker
//!    stays open for another while; if it is abandoned, the next caller probes.

use std::sync::Mutex;
use std::time::Duration;

use firstwrite_core::lock;
use tokio::sync::watch;
use tokio::time::Instant;

/// A circuit breaker.
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

/// Permission for one call. Its holder reports the result.
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

    /// Returns permission for a call, unless the breaker is open.
    pub(crate) fn enter(&self) -> Option<Pass<'_>> {
        let mut state = lock(&self.state);
        match *state {
            State::Closed { .. } => Some(Pass { circuit: self, is_trial: false }),
            State::Open { until } if until <= Instant::now() => {
                *state = State::Trying;
                Some(Pass { circuit: self, is_trial: true })
            }
            State::Open { .. } | State::Trying => None,
        }
    }

    /// Returns true if it is open, or was and has not yet been found to be available again.
    pub(crate) fn is_open(&self) -> bool {
        *self.is_open.borrow()
    }

    /// Tells of every opening and closing.
    pub(crate) fn watch(&self) -> watch::Receiver<bool> {
        self.is_open.subscribe()
    }

    /// Returns the time of the next probe; `None` while all calls may pass, or one is probing.
    pub(crate) fn next_trial(&self) -> Option<Instant> {
        match *lock(&self.state) {
            State::Open { until } => Some(until),
            State::Closed { .. } | State::Trying => None,
        }
    }

    fn open(&self, state: &mut State) {
        *state = State::Open { until: Instant::now() + self.open_for };
        self.is_open.send_replace(true);
    }
}

impl Pass<'_> {
    /// Reports that the call succeeded.
    pub(crate) fn succeeded(mut self) {
        let mut state = lock(&self.circuit.state);
        // A call that began before the breaker opened says nothing about the present.
        if self.is_trial || matches!(*state, State::Closed { .. }) {
            *state = State::Closed { failures: 0 };
            self.circuit.is_open.send_replace(false);
        }
        drop(state);
        self.is_trial = false;
    }

    /// Reports that the call failed.
    pub(crate) fn failed(mut self) {
        let mut state = lock(&self.circuit.state);
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
            *lock(&self.circuit.state) = State::Open { until: Instant::now() };
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
        assert!(circuit.is_open(), "until a call succeeds");
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
    async fn a_call_from_before_it_opened_does_not_close_it() {
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
