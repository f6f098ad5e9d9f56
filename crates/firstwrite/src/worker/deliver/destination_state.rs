//! One worker's state of a destination: its concurrency limit, and whether its breaker is open.

use std::time::Duration;

use firstwrite_core::StoreError;
use firstwrite_core::outbox::{
    ConcurrencyLimit, DestinationView, FailureWindow, Outbox, Switch, protocol,
};

use super::Destination;
use super::delivery_task::Done;

#[derive(Debug)]
pub(super) struct DestinationState {
    pub(super) destination: Destination,
    pub(super) limit: ConcurrencyLimit,
    failures: FailureWindow,
    /// True if the breaker is open, as far as this worker knows.
    is_open: bool,
    /// True if the last claim found fewer messages than it asked for, or found the destination closed.
    pub(super) is_idle: bool,
}

/// Change of a destination that all workers must learn of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BreakerChange {
    /// It is out of order. Holds the cause.
    Off(String),
    /// It is back.
    On,
    /// Nothing was asked of it: the trial is still to be made.
    Untried,
}

impl DestinationState {
    pub(super) fn new(destination: Destination) -> Self {
        let limit = ConcurrencyLimit::new(destination.terms().concurrency_max);
        Self {
            destination,
            limit,
            failures: FailureWindow::default(),
            is_open: false,
            is_idle: false,
        }
    }

    /// Notes that a claim found the destination closed to all workers.
    pub(super) fn seen_closed(&mut self) {
        self.is_open = true;
        self.is_idle = true;
    }

    /// Notes that a claim took messages that are no trial, so the destination is open to all workers.
    pub(super) fn seen_in_use(&mut self) {
        if self.is_open {
            self.is_open = false;
            self.failures.clear();
            self.limit.restart();
        }
    }

    /// Learns from a delivery that has ended.
    pub(super) fn learn(&mut self, done: &Done) -> Option<BreakerChange> {
        if let Some(load) = done.load {
            self.limit.note(load);
        }
        let Some(was_there) = done.was_there else {
            return done.is_trial.then_some(BreakerChange::Untried);
        };
        if done.is_trial {
            self.failures.clear();
            self.limit.restart();
            self.is_open = !was_there;
            return Some(if was_there {
                BreakerChange::On
            } else {
                BreakerChange::Off(done.cause.clone())
            });
        }
        // What was under way when it was left alone says nothing new.
        if self.is_open || !self.failures.note(was_there) {
            return None;
        }
        self.failures.clear();
        self.is_open = true;
        Some(BreakerChange::Off(done.cause.clone()))
    }
}

/// Tells all workers.
pub(super) async fn tell(
    outbox: &dyn Outbox,
    destination: &str,
    change: BreakerChange,
) -> Result<(), StoreError> {
    let switch = match change {
        BreakerChange::On => {
            tracing::info!(destination, "back; deliveries go on, one at a time at first");
            Switch::Closed
        }
        BreakerChange::Untried => {
            let Some(DestinationView { open_until: Some(_), open_cause, .. }) =
                view(outbox, destination).await?
            else {
                return Ok(());
            };
            Switch::Open { open_for: Duration::ZERO, cause: open_cause.unwrap_or_default() }
        }
        BreakerChange::Off(cause) => {
            let before = view(outbox, destination).await?;
            let opening_count = before.map_or(0, |view| view.opening_count) + 1;
            let open_for = FailureWindow::open_for(opening_count, fastrand::f64());
            let open_for_ms = open_for.as_millis();
            tracing::warn!(destination, open_for_ms, opening_count, cause, "out of order");
            Switch::Open { open_for, cause }
        }
    };
    protocol::switch(outbox, destination, &switch).await
}

async fn view(
    outbox: &dyn Outbox,
    destination: &str,
) -> Result<Option<DestinationView>, StoreError> {
    let all = outbox.destinations().await?;
    Ok(all.into_iter().find(|view| view.name == destination))
}
