//! A message as an item: what was written, what changes of it while it is under way, and how it ended.
//!
//! Messages under way and messages that have ended have different partition keys, so that a query for the one does
//! not read the other. A message moves once, and never back. Its large parts are in items of their own (`body.rs`):
//! an update is billed by the size of the whole item.

use aws_sdk_dynamodb::types::AttributeValue;
use firstwrite_core::encoding::as_i64;
use firstwrite_core::outbox::pending::Pending;
use firstwrite_core::outbox::{MessageNumber, MessageState, MessageView, Receipt, Standing};
use firstwrite_core::{Message, RecordId, StoreError, Timestamp};

use super::super::driver_error::corrupt;
use super::super::items::{
    CREATED_AT, DUE_AT, FENCE, ID, Item, KEY, STATE, Shards, TENANT, blob, bytes, fence, fence_of,
    instant, integer, key, number, optional, string, tenant_of, text,
};
use super::super::link::Link;

pub(super) const RECORD: &str = "record";
pub(super) const DESTINATION: &str = "destination";
pub(super) const ORDERING_KEY: &str = "ordering_key";
pub(super) const CONTENT_TYPE: &str = "content_type";
pub(super) const PAYLOAD_BYTES: &str = "payload_bytes";
/// Time before which the message is not delivered, even if it is released earlier.
pub(super) const NOT_BEFORE: &str = "not_before";
pub(super) const CLAIMED_AT: &str = "claimed_at";
pub(super) const DELIVERY_COUNT: &str = "delivery_count";
/// Number of times the message was handed over, including the times that do not count as a delivery attempt.
pub(super) const HANDED_OVER: &str = "handed_over";
const LAPSE_COUNT: &str = "lapse_count";
pub(super) const MAYBE_SENT_AT: &str = "maybe_sent_at";
pub(super) const STATUS: &str = "status";
pub(super) const PROBLEM: &str = "problem";
/// Receipt of the delivery, with the fence of its claim. The first receipt is kept.
pub(super) const RECEIPT: &str = "receipt";
pub(super) const PROVIDER_ID: &str = "provider_id";
pub(super) const ENDED_AT: &str = "ended_at";

/// Prefix of the shards of messages under way.
pub(super) const UNDER_WAY: &str = "m#";
/// Prefix of the shards of messages that have ended.
pub(super) const ENDED: &str = "e#";

/// A message that is under way, as it was read.
#[derive(Clone, Debug)]
pub(super) struct PendingItem {
    pub(super) item: Item,
    pub(super) pending: Pending,
}

/// Returns the shard of a message. Numbers that follow each other are spread.
pub(super) fn place(shards: Shards, number: MessageNumber) -> u16 {
    u16::try_from(number.0.rem_euclid(i64::from(shards.0.max(1)))).unwrap_or_default()
}

pub(super) fn shard(kind: &str, place: u16) -> String {
    format!("{kind}{place:02x}")
}

pub(super) fn sort_key(number: MessageNumber) -> [u8; 8] {
    number.0.max(0).to_be_bytes()
}

/// The primary key of a message that is under way, or has ended.
pub(super) fn key_of(link: &Link, kind: &str, number: MessageNumber) -> Item {
    key(shard(kind, place(link.shards, number)), &sort_key(number))
}

pub(super) fn number_of(item: &Item) -> Result<MessageNumber, StoreError> {
    let number = blob(item, ID)?.try_into().map(i64::from_be_bytes);
    number.map(MessageNumber).map_err(|_length| corrupt("a message's number has 8 bytes"))
}

/// The item of a message that is written at `now`, without its body.
pub(super) fn new(
    link: &Link,
    number_given: MessageNumber,
    message: &Message,
    now: Timestamp,
) -> Item {
    let not_before = now.plus(message.delay());
    // The claim finds out whether another message under its ordering key goes first.
    let pending = Pending::new(number_given, message, Some(not_before));
    let mut item = key_of(link, UNDER_WAY, number_given);
    let mut put = |name: &str, value: AttributeValue| item.insert(name.to_owned(), value);
    put(RECORD, bytes(message.record().as_bytes()));
    put(TENANT, text(message.tenant().as_str()));
    put(KEY, text(message.derived_key()));
    put(DESTINATION, text(message.destination()));
    put(CONTENT_TYPE, text(message.payload_type()));
    put(CREATED_AT, number(now.as_millis()));
    put(NOT_BEFORE, number(not_before.as_millis()));
    let payload_bytes = as_i64(message.payload().len());
    put(PAYLOAD_BYTES, number(payload_bytes));
    put(HANDED_OVER, number(0));
    if let Some(order) = message.ordering_key() {
        put(ORDERING_KEY, text(order));
    }
    for (name, value) in changing(&pending) {
        if let Some(value) = value {
            put(name, value);
        }
    }
    item
}

/// Returns the attributes of a message that change while it is under way.
pub(super) fn changing(pending: &Pending) -> [(&'static str, Option<AttributeValue>); 9] {
    let time = |at: Option<Timestamp>| at.map(|at| number(at.as_millis()));
    let standing = &pending.standing;
    [
        (STATE, Some(text(standing.state.as_str()))),
        (DUE_AT, time(pending.due_at())),
        (FENCE, Some(fence(pending.fence()))),
        (CLAIMED_AT, time(standing.claimed_at)),
        (DELIVERY_COUNT, Some(number(standing.delivery_count.into()))),
        (LAPSE_COUNT, Some(number(standing.lapse_count.into()))),
        (MAYBE_SENT_AT, time(standing.maybe_sent_at)),
        (STATUS, pending.status.map(|status| number(status.into()))),
        (PROBLEM, pending.problem.as_deref().map(text)),
    ]
}

impl PendingItem {
    /// Reads a message that is under way.
    pub(super) fn read(item: Item) -> Result<Self, StoreError> {
        let state = state_of(&item)?;
        if state.is_final() {
            return Err(corrupt("a message that has ended is under way"));
        }
        let standing = Standing {
            state,
            fence: Some(fence_of(&item)?).filter(|fence| fence.as_u64() != 0),
            claimed_at: optional(&item, CLAIMED_AT, instant)?,
            delivery_count: count(&item, DELIVERY_COUNT)?,
            lapse_count: count(&item, LAPSE_COUNT)?,
            maybe_sent_at: optional(&item, MAYBE_SENT_AT, instant)?,
            ..Standing::new(Timestamp::EPOCH)
        };
        let pending = Pending {
            number: number_of(&item)?,
            id: record_of(&item)?,
            destination: string(&item, DESTINATION)?.to_owned(),
            ordering_key: optional(&item, ORDERING_KEY, string)?.map(str::to_owned),
            standing,
            has_time: true,
            status: optional(&item, STATUS, status)?,
            problem: optional(&item, PROBLEM, string)?.map(str::to_owned),
        };
        let due_at = optional(&item, DUE_AT, instant)?;
        Ok(Self { item, pending: pending.due(due_at) })
    }

    /// Returns the number of times the message was handed over so far.
    pub(super) fn handed_over(&self) -> u32 {
        count(&self.item, HANDED_OVER).unwrap_or_default()
    }

    /// The message under this number, if it is under way.
    pub(super) async fn find(
        link: &Link,
        number: MessageNumber,
        doing: &'static str,
    ) -> Result<Option<Self>, StoreError> {
        let item = link.item_at(key_of(link, UNDER_WAY, number), doing).await?;
        item.map(Self::read).transpose()
    }
}

/// Returns the view of a message, whether it is under way or has ended.
pub(super) fn view(item: &Item) -> Result<MessageView, StoreError> {
    let state = state_of(item)?;
    let payload_bytes = integer(item, PAYLOAD_BYTES)?;
    let view = MessageView {
        number: number_of(item)?,
        record: record_of(item)?,
        tenant: tenant_of(item)?,
        derived_key: string(item, KEY)?.to_owned(),
        destination: string(item, DESTINATION)?.to_owned(),
        ordering_key: optional(item, ORDERING_KEY, string)?.map(str::to_owned),
        created_at: instant(item, CREATED_AT)?,
        state,
        fence: fence_of(item)?,
        due_at: None,
        delivery_count: count(item, HANDED_OVER)?,
        maybe_sent_at: None,
        handled_at: optional(item, ENDED_AT, instant)?,
        status: None,
        problem: None,
        receipt: receipt_of(item)?,
        payload_bytes: usize::try_from(payload_bytes).unwrap_or_default(),
    };
    if state.is_final() {
        return Ok(view);
    }
    Ok(PendingItem::read(item.clone())?.pending.shown_in(view))
}

pub(super) fn receipt_of(item: &Item) -> Result<Option<Receipt>, StoreError> {
    let Some(receipt) = item.get(RECEIPT) else { return Ok(None) };
    let receipt = receipt.as_m().map_err(|_other| corrupt("a receipt that is none"))?;
    let provider_id = optional(receipt, PROVIDER_ID, string)?.map(str::to_owned);
    Ok(Some(Receipt { provider_id }))
}

/// Returns the attribute that records the receipt of a message, under the claim with this fence.
pub(super) fn receipt(receipt: &Receipt, under: firstwrite_core::Fence) -> AttributeValue {
    let mut map = Item::from([(FENCE.to_owned(), fence(under))]);
    if let Some(id) = &receipt.provider_id {
        map.insert(PROVIDER_ID.to_owned(), text(id));
    }
    AttributeValue::M(map)
}

/// Returns true if a receipt for the delivery under this fence was recorded.
pub(super) fn has_arrived_under(item: &Item, under: firstwrite_core::Fence) -> bool {
    let receipt = item.get(RECEIPT).and_then(|receipt| receipt.as_m().ok());
    receipt.is_some_and(|receipt| fence_of(receipt).is_ok_and(|fence| fence == under))
}

pub(super) fn state_of(item: &Item) -> Result<MessageState, StoreError> {
    let word = string(item, STATE)?;
    let state = MessageState::ALL.into_iter().find(|state| state.as_str() == word);
    state.ok_or_else(|| corrupt("an unknown state of a message"))
}

pub(super) fn record_of(item: &Item) -> Result<RecordId, StoreError> {
    let id = blob(item, RECORD)?.try_into().map(RecordId::from_bytes);
    id.map_err(|_length| corrupt("an id has 16 bytes"))
}

pub(super) fn count(item: &Item, name: &str) -> Result<u32, StoreError> {
    u32::try_from(integer(item, name)?).map_err(|_range| corrupt("a count out of range"))
}

pub(super) fn status(item: &Item, name: &str) -> Result<u16, StoreError> {
    u16::try_from(integer(item, name)?).map_err(|_range| corrupt("a status out of range"))
}
