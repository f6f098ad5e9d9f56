//! Messages of the outbox, for applications that look at them or carry them to destinations of their own.
//!
//! A handler writes a [`Message`](crate::Message) in its transaction; `worker::Deliver` hands it to
//! the [`Carrier`] of its destination, within the [`Terms`] of that destination; `carrier` has the carriers that come
//! with this crate. Both are of the feature `outbox`.

pub use firstwrite_core::outbox::{
    Answers, Carrier, Claim, ClaimedMessage, Delivery, DestinationView, Ending, MESSAGES_KEPT_FOR,
    MessageNumber, MessagePage, MessageQuery, MessageState, MessageStory, MessageView, Outbox,
    PastDelivery, Probed, Receipt, Terms, wire_key,
};
