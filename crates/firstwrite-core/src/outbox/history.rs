//! Books of the outbox, to which every move adds: history rows and counts.
//!
//! The history of a message has one row for each claim under which something was sent, and one for each
//! resolution. The counts of messages by destination and state are kept as the differences that each step makes.

use std::collections::BTreeMap;

use super::{Delivery, Ending, MessageNumber, MessageState, Receipt, Received};
use crate::Fence;

/// A row in the history of a message. There is one for each fence: of two the first stands, but a row that
/// says delivered replaces one that does not, since a receipt is the truth about the destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRow {
    /// Which message.
    pub number: MessageNumber,
    /// The claim or the resolution that it is about.
    pub fence: Fence,
    /// The ending.
    pub ending: PastEnding,
    /// The HTTP status, where there was one.
    pub status: Option<u16>,
    /// A few words for people.
    pub detail: String,
    /// The provider's id, if it gave one.
    pub provider_id: Option<String>,
    /// Condition under which the row is written.
    pub kept: Kept,
}

/// An ending as the history has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PastEnding {
    /// The message arrived.
    Delivered,
    /// The destination will never take it.
    Refused,
    /// The delivery had no effect.
    Retry,
    /// Something answered in the destination's place.
    NotThere,
    /// The delivery may have had its effect.
    Unknown,
    /// An operator gave the message up.
    Dropped,
}

/// Condition under which a history row is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// With the move, if its guard holds.
    WithMove,
    /// In any case, as long as the message exists.
    Always,
    /// With the move, unless the row with the greatest fence has this ending already.
    IfNew,
}

/// The counts of a destination in which a message can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tally {
    /// Messages that wait or are being sent.
    Open,
    /// Messages that may have arrived.
    Unknown,
    /// Dead letters.
    Dead,
    /// Messages that ever arrived.
    Delivered,
}

/// Differences of counts, by destination.
#[derive(Debug, Default)]
pub struct Tallies(BTreeMap<(String, Tally), i64>);

/// Problems and details are cut to this length: enough to recognise them, never a whole error page.
const TEXT_BYTES_MAX: usize = 500;

/// As much of a text as is kept. Zero characters, which not every database takes, are replaced.
pub fn shortened(text: &str) -> String {
    let mut text = text.replace('\0', "\u{fffd}");
    text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
    text
}

impl HistoryRow {
    /// The row of a delivery under the claim with this number and fence.
    pub(super) fn of((number, fence): (MessageNumber, Fence), delivery: &Delivery) -> Self {
        let (ending, provider_id, kept) = match &delivery.ending {
            Ending::Delivered(receipt) => {
                (PastEnding::Delivered, receipt.provider_id.as_deref().map(shortened), Kept::Always)
            }
            Ending::Refused => (PastEnding::Refused, None, Kept::WithMove),
            Ending::Retry => (PastEnding::Retry, None, Kept::WithMove),
            Ending::NotThere => (PastEnding::NotThere, None, Kept::WithMove),
            Ending::Unknown => (PastEnding::Unknown, None, Kept::WithMove),
        };
        let detail = shortened(&delivery.detail);
        Self { number, fence, ending, status: delivery.status, detail, provider_id, kept }
    }

    /// The history row of a receipt that is written before its settlement. `None` if nothing arrived.
    pub fn of_received(received: &Received) -> Option<Self> {
        let Received { number, fence, delivery } = received;
        let Ending::Delivered(_) = delivery.ending else { return None };
        Some(Self::of((*number, *fence), delivery))
    }

    /// Returns true if this row replaces a row of the same fence with the ending `stands`.
    pub fn replaces(&self, stands: &str) -> bool {
        self.ending == PastEnding::Delivered && stands != PastEnding::Delivered.as_str()
    }

    /// Returns true if the row is to be written. `guard_held` says whether the guard of its move held;
    /// `last` is the ending of the history row with the greatest fence.
    pub fn is_due(&self, guard_held: bool, last: Option<&str>) -> bool {
        match self.kept {
            Kept::Always => true,
            Kept::WithMove => guard_held,
            Kept::IfNew => guard_held && last != Some(self.ending.as_str()),
        }
    }

    /// The receipt, if the message arrived.
    pub fn receipt(&self) -> Option<Receipt> {
        let is_delivered = self.ending == PastEnding::Delivered;
        is_delivered.then(|| Receipt { provider_id: self.provider_id.clone() })
    }
}

impl PastEnding {
    /// Every ending.
    pub const ALL: [Self; 6] =
        [Self::Delivered, Self::Refused, Self::Retry, Self::NotThere, Self::Unknown, Self::Dropped];

    /// The word used in SQL, listings and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Refused => "refused",
            Self::Retry => "retry",
            Self::NotThere => "not_there",
            Self::Unknown => "unknown",
            Self::Dropped => "dropped",
        }
    }
}

impl Tallies {
    /// Adds to one count.
    pub fn add(&mut self, destination: &str, tally: Tally, count: i64) {
        *self.0.entry((destination.to_owned(), tally)).or_default() += count;
    }

    /// Moves a message from one count to another, or to none.
    pub fn moved(&mut self, destination: &str, from: Option<Tally>, to: Option<Tally>) {
        for (tally, count) in [(from, -1), (to, 1)] {
            if let Some(tally) = tally {
                self.add(destination, tally, count);
            }
        }
    }

    /// Adds the differences that `taken` has for a destination.
    pub fn put_back(&mut self, taken: &Self, destination: &str) {
        for ((name, tally), count) in taken.0.iter().filter(|((name, _), _)| name == destination) {
            self.add(name, *tally, *count);
        }
    }

    /// The destinations and counts that differ, and by how much.
    pub fn differences(&self) -> impl Iterator<Item = (&str, Tally, i64)> {
        let differing = self.0.iter().filter(|(_, count)| **count != 0);
        differing.map(|((destination, tally), count)| (&**destination, *tally, *count))
    }
}

impl Tally {
    /// The word used in SQL and listings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Unknown => "unknown",
            Self::Dead => "dead",
            Self::Delivered => "delivered",
        }
    }
}

impl MessageState {
    /// The count in which a message in this state is, if any.
    pub fn tally(self) -> Option<Tally> {
        match self {
            Self::Waiting | Self::Sending => Some(Tally::Open),
            Self::Unknown => Some(Tally::Unknown),
            Self::Dead => Some(Tally::Dead),
            Self::Delivered => Some(Tally::Delivered),
            Self::Refused | Self::Dropped => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters_and_hold_no_zero() {
        assert_eq!(shortened("a\0b"), "a\u{fffd}b");
        assert_eq!(shortened(&"ü".repeat(400)).len(), 500);
        assert_eq!(shortened(&format!("a{}", "ü".repeat(400))).len(), 499);
    }
}
