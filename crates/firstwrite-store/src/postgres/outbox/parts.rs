//! Conversions between the parts of a message and their columns.

use std::time::Duration;

use firstwrite_core::outbox::{MessageState, PastEnding, Tally};

use crate::postgres::profiles::whole_millis;

/// Values of `state` in `pending`. A blocked message is waiting, for its predecessor.
pub(super) const WAITING: i16 = 0;
pub(super) const SENDING: i16 = 1;
pub(super) const UNKNOWN: i16 = 2;
pub(super) const DEAD: i16 = 3;

/// A lease or a pause longer than this means for ever.
const SPAN_MAX: Duration = Duration::from_hours(100 * 365 * 24);

/// Endings of deliveries, by their numbers in `deliveries`.
pub(super) const ENDINGS: [PastEnding; 6] = [
    PastEnding::Delivered,
    PastEnding::Refused,
    PastEnding::Retry,
    PastEnding::Unknown,
    PastEnding::Dropped,
    PastEnding::NotThere,
];

/// The number of an ending in `deliveries`.
pub(super) fn ending_number(ending: PastEnding) -> i16 {
    let number = ENDINGS.iter().position(|one| *one == ending);
    number.and_then(|number| i16::try_from(number).ok()).expect("every ending has a number")
}

/// The number of a count in `tallies`.
pub(super) fn tally_number(tally: Tally) -> i16 {
    match tally {
        Tally::Open => 0,
        Tally::Unknown => 1,
        Tally::Dead => 2,
        Tally::Delivered => 3,
    }
}

/// The number by which statements that list messages know a state.
pub(super) fn state_number(state: MessageState) -> i16 {
    match state {
        MessageState::Waiting => WAITING,
        MessageState::Sending => SENDING,
        MessageState::Unknown => UNKNOWN,
        MessageState::Dead => DEAD,
        MessageState::Delivered => 5,
        MessageState::Dropped => 6,
        MessageState::Refused => 7,
    }
}

pub(in crate::postgres) fn short_millis(span: Duration) -> i64 {
    whole_millis(span.min(SPAN_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ending_has_a_number() {
        for ending in PastEnding::ALL {
            let number = usize::try_from(ending_number(ending)).unwrap();
            assert_eq!(ENDINGS[number], ending);
        }
    }
}
