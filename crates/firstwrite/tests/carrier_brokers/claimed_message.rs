//! Messages to carry.

use bytes::Bytes;
use firstwrite::{Key, Tenant, Timestamp};
use firstwrite_core::outbox::{ClaimedMessage, MessageNumber};
use firstwrite_core::{Fence, RecordId};

pub(crate) const PAYLOAD: &[u8] = b"{\"amount\":1200,\"note\":\"\xc3\xa4\"}";

/// A message under a key of its own.
pub(crate) fn claimed_message() -> ClaimedMessage {
    let tenant = Tenant::new("acme").unwrap();
    let key = format!("order-{:016x}", fastrand::u64(..));
    ClaimedMessage {
        number: MessageNumber(1),
        fence: Fence::first(1),
        record: RecordId::of(&tenant, &Key::new(&key).unwrap()),
        tenant,
        derived_key: format!("{key}:notify"),
        destination: "events".to_owned(),
        content_type: "application/json".to_owned(),
        payload: Bytes::from_static(PAYLOAD),
        ordering_key: None,
        created_at: Timestamp::EPOCH,
        delivery_count: 0,
        lapse_count: 0,
        is_trial: false,
        maybe_sent_at: None,
        receipt: None,
        answers: None,
        claimed_at: Timestamp::from_millis(0),
        status: None,
        problem: None,
    }
}
