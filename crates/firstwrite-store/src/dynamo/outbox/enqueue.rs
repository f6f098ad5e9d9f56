//! Enqueues messages: the steps that are added to the transaction of the handler that writes a message.

use std::sync::atomic::{AtomicI64, Ordering};

use aws_sdk_dynamodb::types::TransactWriteItem;
use firstwrite_core::outbox::MessageNumber;
use firstwrite_core::{Message, StoreError, Timestamp};

use super::super::driver_error::{unavailable, unsupported};
use super::super::items::SHARD;
use super::super::link::Link;
use super::super::write::{self, Step, Terms, Transaction};
use super::message::{PendingItem, new};
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
    let pending = PendingItem::read(item.clone())?.pending;
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

/// Gives out the numbers of messages: the time of writing, and behind it a few digits that tell apart what was written
/// in the same millisecond.
///
/// Each process draws them by itself, so no write waits for a shared counter. Numbers of one process grow; numbers of
/// two processes are in order as far as their clocks agree. If two processes draw the same number, the condition under
/// which a message is written refuses the second.
#[derive(Debug, Default)]
pub(in super::super) struct Numbers {
    last: AtomicI64,
}

/// The first moment of 2025. Counted from there, numbers are below 2⁵³ until the year 2094: programs that read JSON
/// with floating-point numbers keep them whole.
const EPOCH: i64 = 1_735_689_600_000;
const DIGITS: u32 = 12;
const MILLIS_MAX: i64 = (1 << (63 - DIGITS)) - 1;

/// The first number of a millisecond is drawn from the lower half, so that there is room behind it.
const DRAWN_FROM: i64 = 1 << (DIGITS - 1);

/// Maximum step between two numbers of the same millisecond. Steps are drawn at random, so that two processes that
/// collide once do not collide on every following number.
const STEP_MAX: i64 = 8;

impl Numbers {
    /// A number that is greater than all before it.
    pub(in super::super) fn next(&self, now: Timestamp) -> i64 {
        let by_time = first_at(now).saturating_add(fastrand::i64(0..DRAWN_FROM));
        let step = fastrand::i64(1..=STEP_MAX);
        let greater = |last: i64| by_time.max(last.saturating_add(step));
        let before = self
            .last
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(greater(last)));
        greater(before.unwrap_or_default())
    }
}

/// The smallest number that can have been given out at a time or later, by a clock that was never set back.
pub(super) fn first_at(at: Timestamp) -> i64 {
    at.as_millis().saturating_sub(EPOCH).clamp(0, MILLIS_MAX) << DIGITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_grow_and_tell_the_time() {
        let numbers = Numbers::default();
        let at = Timestamp::from_millis(4_102_444_800_000);
        let given: Vec<i64> = (0..100).map(|_| numbers.next(at)).collect();
        assert!(given.is_sorted_by(|before, after| before < after));
        assert!(given[0] >= first_at(at));
        let earlier = Timestamp::from_millis(at.as_millis() - 5000);
        assert!(numbers.next(earlier) > given[99], "a clock that was set back makes none smaller");
        let later = Timestamp::from_millis(at.as_millis() + 5000);
        assert!(numbers.next(later) >= first_at(later));
        assert!(numbers.next(Timestamp::NEVER) > 0);
        let in_2090 = Timestamp::from_millis(3_786_912_000_000);
        assert!(Numbers::default().next(in_2090) < 1 << 53);
    }
}
