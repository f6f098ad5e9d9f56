//! Changes of a destination: pauses by operators, and openings by workers that found it out of order.

use std::time::Duration;

use super::{DestinationView, shortened};
use crate::AuditEntry;

/// One atomic change of a destination, complete as it is written. Parts that are `None` stay as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationChange {
    /// The pause.
    pub pause: Option<PauseChange>,
    /// The opening of its breaker.
    pub opening: Option<OpeningChange>,
    /// An entry for the audit of the destination, which is kept under
    /// [`RecordId::of_destination`](crate::RecordId::of_destination).
    pub audit: Option<AuditEntry>,
}

/// A change of a pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PauseChange {
    /// The destination is paused from now on, for this reason.
    Paused(AuditEntry),
    /// It is not paused.
    Resumed,
}

/// A change of an opening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpeningChange {
    /// The destination is left alone from now on.
    Open {
        /// For this long.
        open_for: Duration,
        /// The cause, in a few words for people.
        cause: String,
        /// Number of openings in a row, this one included.
        opening_count: u32,
    },
    /// If the destination is left alone, it is due for a trial at once.
    TrialNow,
    /// It is not left alone.
    Closed,
}

/// Change of a destination's breaker that a worker asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Switch {
    /// The breaker opens.
    Open {
        /// Time for which it stays open, from now on.
        open_for: Duration,
        /// The cause, in a few words for people.
        cause: String,
    },
    /// The breaker closes: the destination is back.
    Closed,
}

impl DestinationChange {
    /// The change that pauses a destination.
    pub fn pause(by: &AuditEntry) -> Self {
        let pause = Some(PauseChange::Paused(by.clone()));
        Self { pause, opening: None, audit: Some(by.clone()) }
    }

    /// The change that ends a pause, and lets a destination that is left alone be tried at once.
    pub fn resume(by: &AuditEntry) -> Self {
        Self {
            pause: Some(PauseChange::Resumed),
            opening: Some(OpeningChange::TrialNow),
            audit: Some(by.clone()),
        }
    }

    /// The change that leaves a destination alone, which was seen like this, or says that it is back.
    pub fn switch(seen: Option<&DestinationView>, switch: &Switch) -> Self {
        let opening = match switch {
            Switch::Open { open_for, cause } => OpeningChange::Open {
                open_for: *open_for,
                cause: shortened(cause),
                opening_count: seen.map_or(0, |seen| seen.opening_count).saturating_add(1),
            },
            Switch::Closed => OpeningChange::Closed,
        };
        Self { pause: None, opening: Some(opening), audit: None }
    }
}
