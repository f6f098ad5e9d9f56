//! Delivers messages under one ordering key one after the other.
//!
//! Each message stands in a line, and one at a time has its *turn*: from its first claim until it has ended. The
//! first in line takes the turn when it is free. A message that is found in the queue before its turn is taken out of
//! the queue (*parked*), and the message before it gets a mark that another one waits. A marked message cannot end
//! without looking at the line again and releasing its new first message.
//!
//! So a handler that writes a message under an ordering key need not know of other messages, and the transactions of
//! two handlers never conflict.

use aws_sdk_dynamodb::types::TransactWriteItem;
use firstwrite_core::outbox::MessageNumber;
use firstwrite_core::outbox::pending::Pending;
use firstwrite_core::{StoreError, Timestamp};
use sha2::{Digest as _, Sha256};

use super::super::items::{ID, SHARD, blob, instant, integer, key, number, optional};
use super::super::link::Link;
use super::super::partition::Partition;
use super::super::write::{self, Step, Terms, Transaction};
use super::message::{NOT_BEFORE, PendingItem, number_of, sort_key};
use super::moves::change;

const TURN: &str = "turn";
const WAITING: &str = "waiting";

/// Before every number.
const TURN_KEY: &[u8] = &[0];

/// Decision on whether a message may be claimed now.
pub(super) enum Turn {
    /// It may, with this in the same transaction.
    Takes(Option<Box<TransactWriteItem>>),
    /// It has to wait until this one has ended.
    Behind(MessageNumber),
}

/// Front of a line: the message that has the turn, and the first messages in order.
struct Line {
    turn: Option<MessageNumber>,
    first: Vec<MessageNumber>,
}

fn line_of(destination: &str, ordering_key: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(b"firstwrite order");
    for part in [destination, ordering_key] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let digest: [u8; 32] = hash.finalize().into();
    let (half, _) = digest.split_first_chunk().expect("16 of 32 bytes");
    format!("o#{:032x}", u128::from_be_bytes(*half))
}

/// The step that puts a message into its line.
pub(super) fn join(link: &Link, destination: &str, order: &str, number: MessageNumber) -> Step {
    Step::place(link, key(line_of(destination, order), &sort_key(number)))
}

async fn look(link: &Link, line: &str, doing: &'static str) -> Result<Line, StoreError> {
    // The turn, the one who asks, and one more.
    let asked = Partition { limit: Some(3), ..Partition::of(line) };
    let mut found = Line { turn: None, first: Vec::new() };
    for item in asked.ask(link, doing, |_| None).await?.items {
        if blob(&item, ID)? == TURN_KEY {
            found.turn = Some(MessageNumber(integer(&item, TURN)?));
        } else {
            found.first.push(number_of(&item)?);
        }
    }
    Ok(found)
}

/// Decides whether this message may be claimed now.
pub(super) async fn turn(
    link: &Link,
    was: &Pending,
    doing: &'static str,
) -> Result<Turn, StoreError> {
    let Some(order) = &was.ordering_key else { return Ok(Turn::Takes(None)) };
    let line = line_of(&was.destination, order);
    let Line { turn, first } = look(link, &line, doing).await?;
    match (turn, first.first()) {
        (Some(turn), _) if turn == was.number => Ok(Turn::Takes(None)),
        (Some(turn), _) => Ok(Turn::Behind(turn)),
        (None, Some(first)) if *first != was.number => Ok(Turn::Behind(*first)),
        (None, _) => {
            let mut item = key(line, TURN_KEY);
            item.insert(TURN.to_owned(), number(was.number.0));
            let mut terms = Terms::default();
            let free = format!("attribute_not_exists({})", terms.name(SHARD));
            let taken = Step::put(link, item, free, &terms).in_transaction();
            Ok(Turn::Takes(Some(Box::new(taken))))
        }
    }
}

/// Takes a message out of the queue until `before` has ended. Nothing is done if that has ended already.
pub(super) async fn park(
    link: &Link,
    was: &Pending,
    before: MessageNumber,
    doing: &'static str,
) -> Result<(), StoreError> {
    let Some(order) = &was.ordering_key else { return Ok(()) };
    let mut steps = change(link, was, &was.clone().due(None));
    let mut terms = Terms::default();
    let is_there = format!("attribute_exists({})", terms.name(SHARD));
    let change = format!("ADD {} {}", terms.name(WAITING), terms.value(number(1)));
    let key = key(line_of(&was.destination, order), &sort_key(before));
    steps.push(Step::update(link, key, change, is_there, &terms).in_transaction());
    // Refused: one of them has moved, and the next look sees where to.
    write::transact(link, &steps, &write::new_token(), doing).await.map(drop)
}

/// The steps that take a message out of its line with its end, and let the first of the others go.
pub(super) async fn leave(
    link: &Link,
    was: &Pending,
    now: Timestamp,
    doing: &'static str,
) -> Result<Vec<TransactWriteItem>, StoreError> {
    let Some(order) = &was.ordering_key else { return Ok(Vec::new()) };
    let line = line_of(&was.destination, order);
    let own = key(&*line, &sort_key(was.number));
    // In this order: who parks behind this one after the first look makes the condition fail.
    let waiting = match link.item_at(own.clone(), doing).await? {
        Some(item) => optional(&item, WAITING, integer)?,
        None => None,
    };
    let Line { turn, first } = look(link, &line, doing).await?;
    let mut terms = Terms::default();
    let unchanged = match waiting {
        Some(count) => terms.is(WAITING, "=", number(count)),
        None => format!("attribute_not_exists({})", terms.name(WAITING)),
    };
    let mut steps = vec![Step::delete(link, own, unchanged, &terms).in_transaction()];
    if turn == Some(was.number) {
        let mut terms = Terms::default();
        let has_it = terms.is(TURN, "=", number(was.number.0));
        steps.push(Step::delete(link, key(line, TURN_KEY), has_it, &terms).in_transaction());
    }
    if let Some(next) = first.into_iter().find(|number| *number != was.number) {
        steps.extend(release(link, next, now, doing).await?);
    }
    Ok(steps)
}

/// The steps that put a parked message back into the queue, after its rest if it is in doubt; none if it is not
/// parked.
async fn release(
    link: &Link,
    number: MessageNumber,
    now: Timestamp,
    doing: &'static str,
) -> Result<Vec<TransactWriteItem>, StoreError> {
    let Some(PendingItem { item, pending: was }) = PendingItem::find(link, number, doing).await?
    else {
        return Ok(Vec::new());
    };
    if !was.is_put_aside() {
        return Ok(Vec::new());
    }
    let due_at = Some(now.max(instant(&item, NOT_BEFORE)?).max(was.rested_at().unwrap_or(now)));
    Ok(change(link, &was, &was.clone().due(due_at)))
}

/// Lets the first in line go that waits for one that is gone. There should be none.
pub(super) async fn release_forgotten(
    link: &Link,
    parked: &Pending,
    now: Timestamp,
    doing: &'static str,
) -> Result<(), StoreError> {
    let Some(order) = &parked.ordering_key else { return Ok(()) };
    let Line { turn, first } = look(link, &line_of(&parked.destination, order), doing).await?;
    let (None, Some(first)) = (turn, first.first()) else { return Ok(()) };
    let steps = release(link, *first, now, doing).await?;
    if steps.is_empty() {
        return Ok(());
    }
    if let Transaction::Done = write::transact(link, &steps, &write::new_token(), doing).await? {
        tracing::warn!(message = first.0, "a message waited for one that is gone");
    }
    Ok(())
}
