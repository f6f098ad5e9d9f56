//! What a worker knows of one destination: how much to ask of it, and whether to leave it alone.

use std::time::Duration;

use firstwrite_core::StoreError;
use firstwrite_core::outbox::{DestinationView, Outbox, Pace, Sightings, Switch};

use super::Destination;
use super::errand::Done;

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) destination: Destination,
    pub(super) pace: Pace,
    sightings: Sightings,
    /// Whether it is left alone, as far as this worker knows.
    is_open: bool,
    /// Whether there was nothing more to claim when it was last looked.
    pub(super) is_idle: bool,
}

/// What is to be told to all workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Turned {
    /// It is out of order. Why.
    Off(String),
    /// It is back.
    On,
    /// Nothing was asked of it: the trial is still to be made.
    Untried,
}

impl Lane {
    pub(super) fn new(destination: Destination) -> Self {
        let pace = Pace::new(destination.terms().concurrency_max);
        Self { destination, pace, sightings: Sightings::default(), is_open: false, is_idle: false }
    }

    /// A claim found it closed to everybody.
    pub(super) fn seen_closed(&mut self) {
        self.is_open = true;
        self.is_idle = true;
    }

    /// A claim took messages that are no trial: it is open to everybody.
    pub(super) fn seen_in_use(&mut self) {
        if self.is_open {
            self.is_open = false;
            self.sightings.clear();
            self.pace.restart();
        }
    }

    /// Learns from an errand.
    pub(super) fn learn(&mut self, done: &Done) -> Option<Turned> {
        if let Some(strain) = done.strain {
            self.pace.note(strain);
        }
        let Some(was_there) = done.was_there else {
            return done.is_trial.then_some(Turned::Untried);
        };
        if done.is_trial {
            self.sightings.clear();
            self.pace.restart();
            self.is_open = !was_there;
            return Some(if was_there { Turned::On } else { Turned::Off(done.cause.clone()) });
        }
        // What was under way when it was left alone says nothing new.
        if self.is_open || !self.sightings.note(was_there) {
            return None;
        }
        self.sightings.clear();
        self.is_open = true;
        Some(Turned::Off(done.cause.clone()))
    }
}

/// Tells all workers.
pub(super) async fn tell(
    outbox: &dyn Outbox,
    destination: &str,
    turned: Turned,
) -> Result<(), StoreError> {
    let switch = match turned {
        Turned::On => {
            tracing::info!(destination, "back; deliveries go on, one at a time at first");
            Switch::Closed
        }
        Turned::Untried => {
            let Some(DestinationView { open_until: Some(_), open_cause, .. }) =
                view(outbox, destination).await?
            else {
                return Ok(());
            };
            Switch::Open { open_for: Duration::ZERO, cause: open_cause.unwrap_or_default() }
        }
        Turned::Off(cause) => {
            let before = view(outbox, destination).await?;
            let opening_count = before.map_or(0, |view| view.opening_count) + 1;
            let open_for = Sightings::open_for(opening_count, fastrand::f64());
            let open_for_ms = open_for.as_millis();
            tracing::warn!(destination, open_for_ms, opening_count, cause, "out of order");
            Switch::Open { open_for, cause }
        }
    };
    outbox.switch(destination, &switch).await
}

async fn view(
    outbox: &dyn Outbox,
    destination: &str,
) -> Result<Option<DestinationView>, StoreError> {
    let all = outbox.destinations().await?;
    Ok(all.into_iter().find(|view| view.name == destination))
}
