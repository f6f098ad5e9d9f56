//! Tells the payments of one wire key apart: the key is the same in every life of a client's key, so a probe can find
//! the payment of another message.

use firstwrite_core::Store;
use firstwrite_core::outbox::{
    ClaimedMessage, MessageQuery, MessageState, MessageView, Probed, Receipt, protocol,
};

/// Returns what a probe's *yes* says of `message`. Nothing, where the payment is, or may be, that of another
/// message under the same key.
pub(super) async fn whose_payment(
    store: &dyn Store,
    message: &ClaimedMessage,
    receipt: Receipt,
) -> Probed {
    let silent = |why: &str| Probed::Silent(why.to_owned());
    let Some(outbox) = store.outbox() else { return Probed::Happened(receipt) };
    let Ok(all) = protocol::messages_of(outbox, message.record).await else {
        return silent("whose payment it is cannot be looked up in the store");
    };
    // The oldest come first.
    if all.len() >= MessageQuery::OF_RECORD_MAX {
        return silent("too many messages under the key to tell whose payment it is");
    }
    let is_other = |view: &&MessageView| {
        view.number != message.number
            && view.derived_key == message.derived_key
            && view.destination == message.destination
    };
    for other in all.iter().filter(is_other) {
        let their_id = other.receipt.as_ref().and_then(|receipt| receipt.provider_id.as_deref());
        if their_id.is_some() && their_id == receipt.provider_id.as_deref() {
            return silent("the payment is that of another message under the key");
        }
        let is_later = message.created_at <= other.created_at;
        if is_later && their_id.is_none() && may_have_arrived(other) {
            return silent("the payment may be that of a later message under the key");
        }
    }
    Probed::Happened(receipt)
}

fn may_have_arrived(view: &MessageView) -> bool {
    view.maybe_sent_at.is_some()
        || matches!(
            view.state,
            MessageState::Sending | MessageState::Unknown | MessageState::Delivered
        )
}
