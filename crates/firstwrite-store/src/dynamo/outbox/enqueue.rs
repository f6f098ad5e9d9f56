//! Enqueues messages: the steps that are added to the transaction of the handler that writes a message.

use aws_sdk_dynamodb::types::TransactWriteItem;
use firstwrite_core::outbox::MessageNumber;
use firstwrite_core::{Message, StoreError, Timestamp};

use super::super::driver_error::{unavailable, unsupported};
use super::super::items::SHARD;
use super::super::link::Link;
use super::super::write::{self, Step, Terms, Transaction};
use super::message::{Standing, new};
use super::numbers::Numbers;
use super::{body, moves, order};

const DOING: &str = "enqueuing a message";

/// Maximum size of a message's ordering key and content type together. The rest of the item's 409 600 bytes is left
/// for later changes.
const HEAD_BYTES_MAX: usize = 100_000;

/// The service takes 4 MB in one transaction, keys and names included.
const BODY_PARTS_MAX: usize = 9;

/// Maximum number of tries when the drawn message number is already taken.
pub(in super::super) const TRIES_MAX: u32 = 4;

/// Returns the number of transaction items that a message takes. Refuses a message that no transaction can hold.
pub(in super::super) fn item_count(message: &Message) -> Result<usize, StoreError> {
    let order = message.ordering_key().unwrap_or_default();
    if order.len() + message.payload_type().len() > HEAD_BYTES_MAX {
        return Err(unsupported(DOING, "an ordering key and a content type have at most 100 kB"));
    }
    let parts = body::part_count(message);
    if parts > BODY_PARTS_MAX {
        return Err(unsupported(DOING, "a payload and its answers have at most 3.6 MB"));
    }
    Ok(2 + usize::from(message.ordering_key().is_some()) + parts)
}

/// The steps that write a message at `now`. The first is refused if its number is taken.
pub(in super::super) fn steps(
    link: &Link,
    numbers: &Numbers,
    message: &Message,
    now: Timestamp,
) -> Result<Vec<TransactWriteItem>, StoreError> {
    let number = MessageNumber(numbers.next(now));
    let mut item = new(link, number, message, now);
    let parts = body::store(&mut item, number, message);
    let pending = Standing::read(item.clone())?.pending;
    let mut terms = Terms::default();
    let is_free = format!("attribute_not_exists({})", terms.name(SHARD));
    let mut steps = vec![Step::put(link, item, is_free, &terms)];
    steps.extend(moves::enter(link, &pending));
    if let Some(key) = message.ordering_key() {
        steps.push(order::join(link, message.destination(), key, number));
    }
    steps.extend(parts.into_iter().map(|part| Step::place(link, part)));
    Ok(steps.into_iter().map(Step::in_transaction).collect())
}

/// Writes a message in a transaction of its own.
pub(super) async fn enqueue(
    link: &Link,
    numbers: &Numbers,
    message: &Message,
) -> Result<(), StoreError> {
    item_count(message)?;
    for _ in 0..TRIES_MAX {
        let steps = steps(link, numbers, message, link.now())?;
        match write::transact(link, &steps, &write::new_token(), DOING).await? {
            Transaction::Done => return Ok(()),
            Transaction::Refused(..) => {}
        }
    }
    Err(unavailable(DOING, "the numbers that were drawn are taken"))
}
