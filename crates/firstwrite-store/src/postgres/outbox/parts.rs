//! Conversions between the parts of a message and their columns.

use std::time::Duration;

use firstwrite_core::StoreError;
use firstwrite_core::outbox::{MessageState, PastEnding, Tally};

use crate::encoding::Unreadable;
use crate::postgres::driver_error::corrupt;
use crate::postgres::profiles::whole_millis;

/// Values of `state` in `pending`. A blocked message is waiting, for its predecessor.
pub(super) const WAITING: i16 = 0;
pub(super) const SENDING: i16 = 1;
pub(super) const UNKNOWN: i16 = 2;
pub(super) const DEAD: i16 = 3;

/// A lease or a pause longer than this means for ever.
const SPAN_MAX: Duration = Duration::from_hours(100 * 365 * 24);

/// The number of an ending in `deliveries`.
pub(super) fn ending_number(ending: PastEnding) -> i16 {
    match ending {
        PastEnding::Delivered => 0,
        PastEnding::Refused => 1,
        PastEnding::Retry => 2,
        PastEnding::Unknown => 3,
        PastEnding::Dropped => 4,
        PastEnding::NotThere => 5,
    }
}

pub(super) fn ending_word(number: i16) -> Result<&'static str, StoreError> {
    let ending = PastEnding::ALL.into_iter().find(|ending| ending_number(*ending) == number);
    ending.map(PastEnding::as_str).ok_or_else(|| corrupt("a delivery ended in an unknown way"))
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

pub(super) fn state_of(number: i16) -> Result<MessageState, StoreError> {
    let state = MessageState::ALL.into_iter().find(|state| state_number(*state) == number);
    state.ok_or_else(|| corrupt("a message is in an unknown state"))
}

pub(super) fn number_of(count: i32) -> u32 {
    u32::try_from(count).unwrap_or(0)
}

pub(in crate::postgres) fn short_millis(span: Duration) -> i64 {
    whole_millis(span.min(SPAN_MAX))
}

pub(super) fn unreadable(Unreadable(what): Unreadable) -> StoreError {
    corrupt(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_and_ending_comes_back() {
        for state in MessageState::ALL {
            assert_eq!(state_of(state_number(state)).unwrap(), state);
        }
        for ending in PastEnding::ALL {
            assert_eq!(ending_word(ending_number(ending)).unwrap(), ending.as_str());
        }
    }
}
