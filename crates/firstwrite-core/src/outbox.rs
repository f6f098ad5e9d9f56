//! The outbox: messages written with the effect they follow from, and how they are delivered.
//!
//! A worker *claims* messages for a while, hands each to its destination, and *settles* how that
//! ended. What is decided on the way is decided by [`next_step`], [`after_delivery`] and
//! [`after_probe`]; when a destination is left alone, by [`Sightings`]; how much is asked of it, by
//! [`Pace`]; whose turn it is, by [`Turns`]. An [`Outbox`] keeps, and decides nothing.

mod answers;
mod breaker;
mod delivery;
mod pace;
mod rules;
mod standing;
mod terms;
mod turns;
mod view;
mod wire_key;
mod written;

use std::fmt;
use std::time::Duration;

pub use answers::Answers;
pub(crate) use answers::fill;
pub use breaker::{Gate, Sightings};
pub use delivery::{Carrier, Delivery, Ending, MessageNumber, Parcel, Probed, Receipt};
pub use pace::{Pace, Strain};
pub use rules::{
    ABSENCE_SHOWS_AFTER, Cause, LAPSE_COUNT_MAX, Moment, Next, Sent, Step, absence_shows_from,
    after_delivery, after_probe, given_back, next_step,
};
pub use standing::Standing;
pub use terms::Terms;
pub use turns::{Turns, Wish};
pub use view::{
    Counted, DestinationView, MessagePage, MessageQuery, MessageState, MessageStory, MessageView,
    PastDelivery,
};
pub use wire_key::{is_wire_key, wire_key, wire_key_of};
pub use written::{Written, WrittenPage, WrittenQuery};

use crate::{AuditEntry, BoxFuture, Fence, Message, Outcome, StoreError, Timestamp};

/// Where messages are kept until they are delivered, and how that went.
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
        wants: &'a [Want],
        nonce: u64,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>>;

    /// Writes down receipts and how claims ended, in one commit: for each settlement, whether its claim
    /// still held.
    ///
    /// A receipt is kept whether or not the claim still holds: it is the truth about the destination.
    fn settle<'a>(
        &'a self,
        receipts: &'a [Received],
        settlements: &'a [Settlement],
    ) -> BoxFuture<'a, Result<Vec<Held>, StoreError>>;

    /// Leaves a destination alone, or says that it is back.
    fn switch<'a>(
        &'a self,
        destination: &'a str,
        switch: &'a Switch,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Pauses a destination until it is resumed, by an operator. Messages already claimed go on.
    fn pause<'a>(
        &'a self,
        destination: &'a str,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Ends a pause, and lets a destination that is left alone be tried at once.
    fn resume<'a>(
        &'a self,
        destination: &'a str,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Every destination that ever had a message or a pause, with its counts as last folded.
    fn destinations(&self) -> BoxFuture<'_, Result<Vec<DestinationView>, StoreError>>;

    /// One page of messages, the oldest first.
    fn messages<'a>(
        &'a self,
        query: &'a MessageQuery,
    ) -> BoxFuture<'a, Result<MessagePage, StoreError>>;

    /// How many messages `query` matches, counted up to [`MessageQuery::COUNT_MAX`].
    fn count<'a>(&'a self, query: &'a MessageQuery) -> BoxFuture<'a, Result<Counted, StoreError>>;

    /// Everything about one message, its deliveries included.
    fn message(
        &self,
        number: MessageNumber,
    ) -> BoxFuture<'_, Result<Option<MessageStory>, StoreError>>;

    /// One page of messages with what was to be delivered, the oldest first: for comparing with what the
    /// destination says it did.
    fn written<'a>(
        &'a self,
        query: &'a WrittenQuery,
    ) -> BoxFuture<'a, Result<WrittenPage, StoreError>>;

    /// Puts back up to `limit` of the dead letters that `query` matches, under their old keys, with
    /// their counts at zero, and an audit entry each. Messages in other states are left as they are.
    fn redrive<'a>(
        &'a self,
        query: &'a MessageQuery,
        limit: usize,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<usize, StoreError>>;

    /// Ends the wait of a message that is unknown, dead or waiting, on somebody's word, with an audit
    /// entry in the same commit. `seen` is the fence it wore when it was looked into.
    fn resolve<'a>(
        &'a self,
        number: MessageNumber,
        seen: Fence,
        resolution: &'a Resolution,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<Held, StoreError>>;

    /// Folds counts, lets successors of settled messages go, and deletes up to `limit` delivered
    /// messages that have been kept for `kept_for`. Returns how many were deleted.
    fn upkeep(&self, kept_for: Duration, limit: usize) -> BoxFuture<'_, Result<usize, StoreError>>;

    /// Returns when there may be something to claim that was not there before: a commit in this
    /// process, or word of one elsewhere. May miss some: it only saves the time until the next look.
    fn nudged(&self) -> BoxFuture<'_, ()>;
}

/// How many messages a worker wants for a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// Which destination.
    pub destination: String,
    /// At most this many.
    pub count_max: usize,
    /// How long the claim stands.
    pub lease_for: Duration,
}

/// What a claim took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The messages.
    pub parcels: Vec<Parcel>,
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
    /// How the delivery ended: [`Ending::Delivered`].
    pub delivery: Delivery,
}

/// How a claim ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// Which message.
    pub number: MessageNumber,
    /// The claim's fence.
    pub fence: Fence,
    /// The delivery that was made under it and is not yet written down, if there was one.
    pub delivery: Option<Delivery>,
    /// What becomes of the message.
    pub next: Next,
    /// What the record's interim answer is replaced with, in the same commit, if it has one.
    pub answer: Option<Outcome>,
}

/// Whether a claim or a sight still held when it was acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// It did, and the step was done.
    Yes,
    /// Somebody else has the message by now, or it is settled; nothing was done.
    No,
}

/// Whether a destination is to be left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Switch {
    /// For this long, and why.
    Open {
        /// From now on.
        open_for: Duration,
        /// In a few words, for people.
        cause: String,
    },
    /// It is back.
    Closed,
}

/// What somebody found out about a message, or decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// It arrived.
    Delivered {
        /// What the provider calls it.
        receipt: Receipt,
        /// What the record's interim answer is replaced with, if it has one.
        answer: Option<Outcome>,
    },
    /// It did not arrive: it is sent again, as if never sent.
    NotDelivered,
    /// It did not arrive and never will. A successor under its ordering key goes on.
    Refused {
        /// What the record's interim answer is replaced with, if it has one.
        answer: Option<Outcome>,
    },
    /// It is not to be delivered any more, whether it arrived or not. A successor under its ordering key
    /// goes on.
    Dropped,
}

/// A delivered message is kept this long: longer than destinations report what they did, so that a
/// reconciliation finds it.
pub const MESSAGES_KEPT_FOR: Duration = Duration::from_hours(14 * 24);
