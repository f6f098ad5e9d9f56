//! The model's clock: ticks, and what they are to core.

use std::time::Duration;

use firstwrite_core::Timestamp;
use firstwrite_core::outbox::{ABSENCE_SHOWS_AFTER, Terms};

/// Half of the margin that a lease has, so that a claim's end falls between two steps of a delivery.
pub(super) const TICK: Duration = Duration::from_millis(7500);
/// Of one delivery: two ticks, so that it can be given up halfway.
pub(super) const TIMEOUT: Duration = Terms::LEASE_MARGIN;

/// The instant of a tick.
pub(super) fn at(tick: u16) -> Timestamp {
    Timestamp::EPOCH.plus(TICK * u32::from(tick))
}

/// Returns the number of ticks until `duration` is over.
pub(super) fn ticks(duration: Duration) -> u16 {
    let ticks = duration.as_millis().div_ceil(TICK.as_millis());
    u16::try_from(ticks).expect("the model's times are short")
}

/// The tick of an instant.
pub(super) fn tick_of(instant: Timestamp) -> u16 {
    ticks(instant.since(Timestamp::EPOCH))
}

/// Returns the number of ticks that an operator waits before a missing effect counts as absent.
pub(super) fn patience() -> u16 {
    ticks(ABSENCE_SHOWS_AFTER)
}
