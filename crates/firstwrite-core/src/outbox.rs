//! The outbox: messages written with the effect they follow from, and how they are delivered.
//!
//! A worker *claims* messages for a while, hands each to its destination, and *settles* how that
//! ended. What is decided on the way is decided by [`next_step`], [`after_delivery`] and
//! [`after_probe`]; what is written for it, by [`after_settlement`], [`after_resolution`],
//! [`after_redrive`] and [`after_history_loss`]; when a destination is left alone, by [`FailureWindow`]; how much is asked of it, by
//! [`ConcurrencyLimit`]; whose turn it is, by [`FairShare`]. An [`Outbox`] keeps, and decides nothing; [`protocol`] is what
//! workers and operators do with one.

mod answers;
mod delivery;
mod destination;
mod fair_share;
mod history;
mod load_control;
mod moves;
#[doc(hidden)]
pub mod pending;
pub mod protocol;
mod rules;
mod scan;
mod standing;
mod terms;
mod view;
mod wire_key;

use std::fmt;
use std::time::Duration;

pub use answers::Answers;
pub(crate) use answers::fill;
pub use delivery::{
    Carrier, Claim, ClaimedMessage, Delivery, Ending, MessageNumber, Probed, Receipt,
};
pub use destination::{DestinationChange, OpeningChange, PauseChange, Switch};
pub use fair_share::{FairShare, SlotRequest};
pub use history::{HistoryRow, Kept, PastEnding, Tallies, Tally, shortened};
pub use load_control::{ConcurrencyLimit, FailureWindow, Gate, Load};
pub use moves::{
    Becomes, MaybeSentDraft, Move, MoveGuard, PendingDraft, Problem, after_history_loss,
    after_redrive, after_resolution, after_settlement,
};
pub use rules::{
    ABSENCE_SHOWS_AFTER, Cause, LAPSE_COUNT_MAX, Moment, Next, REST_AFTER_LOSS, Sent, Step,
    absence_shows_from, after_delivery, after_probe, given_back, next_step, rested_at,
};
pub use scan::{
    Among, MessageContent, Scan, ScanPage, Scanned, Written, WrittenPage, WrittenQuery,
};
pub use standing::Standing;
pub use terms::Terms;
pub use view::{
    Counted, DestinationView, MessagePage, MessageQuery, MessageState, MessageStory, MessageView,
    PastDelivery,
};
pub(crate) use wire_key::{WIRE_KEY_BYTES_MAX, is_hexadecimal};
pub use wire_key::{is_wire_key, wire_key, wire_key_of};

use crate::{BoxFuture, Fence, Message, Outcome, StoreError, Timestamp};

/// Stores messages until they are delivered, and the history of their deliveries.
pub trait Outbox: fmt::Debug + Send + Sync {
    /// Writes a message in a commit of its own. Its twin inside a handler's transaction is `enqueue`
    /// of that transaction.
    fn enqueue<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Takes due messages under a lease, each with a fence of its own, made of `nonce`.
    ///
    /// Nothing is taken for a destination that is paused or left alone. One that is due for a trial
    /// gives one message, marked so, and is left alone again for the length of the lease. A message
    /// whose claim ran out is taken again, and may have been sent: its `maybe_sent_at` and
    /// `lapse_count` say so. Of the messages under one ordering key only the oldest that has not been
    /// delivered is ever taken.
    fn claim<'a>(
        &'a self,
        requests: &'a [ClaimRequest],
        nonce: u64,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>>;

    /// Writes receipts into the history, and takes each move whose guard holds, with its history row, answer
    /// and audit entry: all in one commit, or one commit for each message. For each move, whether it was
    /// taken.
    ///
    /// A receipt, and a history row that is kept [`Kept::Always`], is written whether or not a guard holds.
    fn apply<'a>(
        &'a self,
        receipts: &'a [HistoryRow],
        moves: &'a [Move],
    ) -> BoxFuture<'a, Result<Vec<ClaimStatus>, StoreError>>;

    /// Writes a change of a destination and its audit entry, in one commit. A destination that is not known
    /// becomes known.
    fn put_destination<'a>(
        &'a self,
        destination: &'a str,
        change: &'a DestinationChange,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Every destination that ever had a message or a pause, with its counts as last folded.
    fn destinations(&self) -> BoxFuture<'_, Result<Vec<DestinationView>, StoreError>>;

    /// Everything about one message, its deliveries included.
    fn message(
        &self,
        number: MessageNumber,
    ) -> BoxFuture<'_, Result<Option<MessageStory>, StoreError>>;

    /// One bounded look at messages. What it finds is filtered by [`protocol`].
    fn scan<'a>(&'a self, scan: &'a Scan) -> BoxFuture<'a, Result<ScanPage, StoreError>>;

    /// Folds counts, lets successors of settled messages go, and deletes up to `limit` delivered
    /// messages that have been kept for `kept_for`. Returns how many were deleted.
    fn upkeep(&self, kept_for: Duration, limit: usize) -> BoxFuture<'_, Result<usize, StoreError>>;

    /// Returns when there may be something to claim that was not there before: a commit in this
    /// process, or word of one elsewhere. May miss some: it only saves the time until the next look.
    fn wait_for_work(&self) -> BoxFuture<'_, ()>;
}

/// A worker's request for messages of one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRequest {
    /// Which destination.
    pub destination: String,
    /// At most this many.
    pub count_max: usize,
    /// Length of the claim's lease.
    pub lease_for: Duration,
}

/// Messages that a claim took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The messages.
    pub messages: Vec<ClaimedMessage>,
    /// The store's clock at that moment.
    pub now: Timestamp,
    /// The destinations among the wanted ones for which nothing was taken because they are paused or
    /// left alone.
    pub closed: Vec<String>,
}

/// That a delivery under a claim arrived; durable before anything follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Which message.
    pub number: MessageNumber,
    /// The claim's fence.
    pub fence: Fence,
    /// Result of the delivery: [`Ending::Delivered`].
    pub delivery: Delivery,
}

/// Ending of a claim: the result of its delivery and the message's next state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The claim.
    pub claim: Claim,
    /// The delivery that was made under it and is not yet written down, if there was one.
    pub delivery: Option<Delivery>,
    /// Next state of the message.
    pub next: Next,
    /// Outcome that replaces the record's interim answer in the same commit, if the record has one.
    pub answer: Option<Outcome>,
}

/// Result of a step that requires a current claim, or a message that has not changed since it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimStatus {
    /// The condition held, and the step was done.
    Current,
    /// Another worker or operator has the message by now, or it is settled; nothing was done.
    Lost,
}

/// An operator's or a reconciliation's statement about a message: a fact or a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// It arrived.
    Delivered {
        /// The provider's id of what it made of the message, if it gave one.
        receipt: Receipt,
        /// Outcome that replaces the record's interim answer, if the record has one.
        answer: Option<Outcome>,
    },
    /// It did not arrive: it is sent again, as if never sent.
    NotDelivered,
    /// It did not arrive and never will. A successor under its ordering key goes on.
    Refused {
        /// Outcome that replaces the record's interim answer, if the record has one.
        answer: Option<Outcome>,
    },
    /// It is not to be delivered any more, whether it arrived or not. A successor under its ordering key
    /// goes on.
    Dropped,
}

/// A delivered message is kept this long: longer than destinations report what they did, so that a
/// reconciliation finds it.
pub const MESSAGES_KEPT_FOR: Duration = Duration::from_hours(14 * 24);
