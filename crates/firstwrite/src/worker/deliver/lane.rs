//! What a worker knows of one destination: how much to ask of it, and whether to leave it alone.

use firstwrite_core::StoreError;
use firstwrite_core::outbox::{Outbox, Pace, Sightings, Switch};

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
        let was_there = done.was_there?;
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
        Turned::Off(cause) => {
            let all = outbox.destinations().await?;
            let before = all.iter().find(|view| view.name == destination);
            let opening_count = before.map_or(0, |view| view.opening_count) + 1;
            let open_for = Sightings::open_for(opening_count, fastrand::f64());
            let open_for_ms = open_for.as_millis();
            tracing::warn!(destination, open_for_ms, opening_count, cause, "out of order");
            Switch::Open { open_for, cause }
        }
    };
    outbox.switch(destination, &switch).await
}
