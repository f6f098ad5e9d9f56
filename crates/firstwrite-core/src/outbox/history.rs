//! The history of a message: one row for each claim under which something was sent, and one for each
//! resolution.

use super::{Delivery, Ending, MessageNumber, Receipt, Received};
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
