//! How the parts of a message are written in columns.

use std::time::Duration;

use firstwrite_core::StoreError;
use firstwrite_core::outbox::{Ending, MessageState};

use crate::encoding::Unreadable;
use crate::postgres::fault::corrupt;
use crate::postgres::profiles::whole_millis;

/// What `state` is in `pending`. Blocked is waiting, for a predecessor.
pub(super) const WAITING: i16 = 0;
pub(super) const SENDING: i16 = 1;
pub(super) const UNKNOWN: i16 = 2;
pub(super) const DEAD: i16 = 3;

/// What `ending` is in `deliveries`.
pub(super) const DELIVERED: i16 = 0;
pub(super) const REFUSED: i16 = 1;
pub(super) const DROPPED: i16 = 4;

/// A detail is a few words: an answer that is a whole page is cut off.
const DETAIL_BYTES_MAX: usize = 500;

/// A lease or a pause longer than this means for ever.
const SPAN_MAX: Duration = Duration::from_hours(100 * 365 * 24);

pub(super) fn ending_number(ending: &Ending) -> i16 {
    match ending {
        Ending::Delivered(_) => DELIVERED,
        Ending::Refused => REFUSED,
        Ending::Retry => 2,
        Ending::Unknown => 3,
        Ending::NotThere => 5,
    }
}

pub(super) fn ending_word(number: i16) -> Result<&'static str, StoreError> {
    Ok(match number {
        DELIVERED => "delivered",
        REFUSED => "refused",
        2 => "retry",
        3 => "unknown",
        DROPPED => "dropped",
        5 => "not_there",
        _ => return Err(corrupt("a delivery ended in an unknown way")),
    })
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

/// A text column takes every character but zero; longer texts are cut between two characters.
pub(super) fn cut(text: &str) -> String {
    let mut text = text.replace('\0', "\u{fffd}");
    let mut end = DETAIL_BYTES_MAX.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
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
    fn texts_are_cut_between_characters_and_take_no_zero() {
        assert_eq!(cut("a\0b"), "a\u{fffd}b");
        assert_eq!(cut(&"ü".repeat(300)).len(), 500);
        assert_eq!(cut(&format!("a{}", "ü".repeat(300))).len(), 499);
    }

    #[test]
    fn every_state_and_ending_comes_back() {
        for state in MessageState::ALL {
            assert_eq!(state_of(state_number(state)).unwrap(), state);
        }
        for ending in [Ending::Refused, Ending::Retry, Ending::NotThere, Ending::Unknown] {
            assert_eq!(ending_word(ending_number(&ending)).unwrap(), ending.as_str());
        }
    }
}
