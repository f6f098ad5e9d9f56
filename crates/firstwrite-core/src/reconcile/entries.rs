//! Input of a comparison: entries of our books and of the provider's, and how far each was read.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use super::Amount;
use crate::outbox::{MessageNumber, MessageState};
use crate::{RecordId, Tenant, Timestamp};

/// An effect that the provider reports.
#[derive(Clone, PartialEq, Eq)]
pub struct Theirs {
    /// Id that the provider gave it. An account in which two entries share one proves no absence.
    pub provider_id: String,
    /// The wire key it was made under, if the provider reports that.
    pub key: Option<String>,
    /// Amount, if the provider reports it.
    pub amount: Option<Amount>,
    /// Currency of the amount.
    pub currency: Option<String>,
    /// Time of the effect, by the provider's clock.
    pub at: Timestamp,
    /// The provider says that it was made. An entry with any other status, such as a pending one, proves
    /// nothing: neither that it was made nor that it was not. Failed ones are no entries.
    pub is_made: bool,
    /// The entry as the provider gave it, as JSON.
    pub raw: Bytes,
}

/// An effect that was asked for here.
#[derive(Clone, PartialEq, Eq)]
pub struct Ours {
    /// The message or record that asked for it.
    pub subject: Subject,
    /// The record it was asked for under.
    pub record: RecordId,
    /// The tenant that it belongs to.
    pub tenant: Tenant,
    /// The key that the provider was given.
    pub wire_key: String,
    /// Id that the provider gave it, if it reported one.
    pub provider_id: Option<String>,
    /// Amount, if the request has one.
    pub amount: Option<Amount>,
    /// Currency of the amount.
    pub currency: Option<String>,
    /// Time at which it was asked for: it was not sent earlier.
    pub at: Timestamp,
    /// Last time at which it may have been sent.
    pub until: Timestamp,
    /// Its state as known here.
    pub standing: Standing,
}

/// Kind and id of an entry of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A message of the outbox.
    Message(MessageNumber),
    /// A request whose handler called the provider itself.
    Record(RecordId),
}

/// State, as known here, of something that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It arrived.
    Arrived,
    /// It waits to be sent, perhaps again.
    Waiting,
    /// It is being sent.
    Sending,
    /// It is unknown whether it arrived.
    InDoubt,
    /// It was sent as often as may be and never arrived, as far as is known.
    GivenUp,
    /// It was refused, or an operator took it back: it is not expected there.
    Closed,
}

/// A time: from its beginning, up to its end and without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its first moment.
    pub from: Timestamp,
    /// The first moment after it.
    pub until: Timestamp,
}

/// Coverage of both books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// The time of which the provider was asked to give account.
    pub window: Window,
    /// The end of the account, if a person states it. The newest match is its end otherwise.
    pub stated_until: Option<Timestamp>,
    /// True if everything that the provider has of that time was read and understood.
    pub is_theirs_complete: bool,
    /// True if everything was read that could be the counterpart of an entry of theirs.
    pub is_ours_complete: bool,
    /// Time at which the provider was asked.
    pub now: Timestamp,
}

/// Rules by which books are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Time after the last sending by which the provider has certainly done it, or never will, and
    /// reports it; includes the difference of the clocks. Until then, nothing is missing.
    pub grace: Duration,
    /// Maximum difference between the times of two entries that match by their amounts, and the maximum
    /// time by which an entry may be dated before its request: the difference of the clocks.
    pub tolerance: Duration,
    /// True if a match by amount and time counts as proof. Set it only where the provider knows neither
    /// our keys nor reports its ids, and the amounts tell entries apart.
    pub is_amount_proof: bool,
}

impl Rules {
    /// Reports of most providers are complete within minutes; waiting an hour more does no harm.
    pub const GRACE: Duration = Duration::from_hours(1);
    /// Longer than a delivery takes, shorter than most people take to buy the same again.
    pub const TOLERANCE: Duration = Duration::from_mins(5);
}

impl Default for Rules {
    fn default() -> Self {
        Self { grace: Self::GRACE, tolerance: Self::TOLERANCE, is_amount_proof: false }
    }
}

/// Takes the proof from entries that are dated later than the moment `read_at` at which they were read, beyond
/// the difference of the clocks. Returns their places.
///
/// The date of such an entry is wrong, and dates tell the lives of a key apart and which entries are in a
/// window. So it counts as not decided, and the account that has it is not whole.
pub fn distrust_future(theirs: &mut [Theirs], read_at: Timestamp, rules: &Rules) -> Vec<usize> {
    let latest = read_at.plus(rules.tolerance);
    let mut places = Vec::new();
    for (place, their) in theirs.iter_mut().enumerate().filter(|(_, their)| latest < their.at) {
        their.is_made = false;
        places.push(place);
    }
    places
}

impl Window {
    /// Returns true if `at` is in the window.
    pub fn contains(&self, at: Timestamp) -> bool {
        self.from <= at && at < self.until
    }
}

impl Standing {
    /// Returns the standing of a message in `state`. `was_refused`: its last delivery ended with the
    /// destination's refusal.
    pub fn of_message(state: MessageState, was_refused: bool) -> Self {
        match state {
            MessageState::Waiting => Self::Waiting,
            MessageState::Sending => Self::Sending,
            MessageState::Unknown => Self::InDoubt,
            MessageState::Dead if was_refused => Self::Closed,
            MessageState::Dead => Self::GivenUp,
            MessageState::Delivered => Self::Arrived,
            MessageState::Refused | MessageState::Dropped => Self::Closed,
        }
    }

    /// Returns a short description, for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Arrived => "arrived",
            Self::Waiting => "waiting",
            Self::Sending => "being sent",
            Self::InDoubt => "in doubt",
            Self::GivenUp => "given up",
            Self::Closed => "refused or dropped",
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(number) => write!(f, "message {number}"),
            Self::Record(id) => write!(f, "record {id}"),
        }
    }
}

impl fmt::Debug for Theirs {
    /// Neither the key nor the entry itself: both are other people's data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Theirs")
            .field("provider_id", &self.provider_id)
            .field("has_key", &self.key.is_some())
            .field("amount", &self.amount)
            .field("currency", &self.currency)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Ours {
    /// Omits the key: it is other people's data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ours")
            .field("subject", &self.subject)
            .field("provider_id", &self.provider_id)
            .field("amount", &self.amount)
            .field("currency", &self.currency)
            .field("at", &self.at)
            .field("until", &self.until)
            .field("standing", &self.standing)
            .finish_non_exhaustive()
    }
}
