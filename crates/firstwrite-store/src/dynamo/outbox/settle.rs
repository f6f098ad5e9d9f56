//! Writing down how claims ended: a transaction for each, on the condition that its fence still holds.

use aws_sdk_dynamodb::types::TransactWriteItem;
use firstwrite_core::outbox::{
    Cause, Delivery, Ending, Held, MessageState, Next, Received, Settlement,
};
use firstwrite_core::{StoreError, StoreErrorKind, Timestamp};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::super::fault::unavailable;
use super::super::link::Link;
use super::super::write::{self, Transaction};
use super::message::{RECEIPT, Standing, has_arrived_under};
use super::moves::{self, Ended};
use super::{answer, history, order};
use crate::pending::{Entry, Kind, Pending, Phase, said};

pub(super) const DOING: &str = "settling messages";

/// What is told of a message that was found to have arrived.
const FOUND: &str = "it was found to have arrived";

/// How often a message is looked at again that was moved in between.
pub(super) const TRIES_MAX: usize = 8;

/// Settled at the same time.
const AT_ONCE: usize = 16;

/// How claims were settled.
pub(super) struct Settled {
    /// For each, whether it held.
    pub(super) held: Vec<Held>,
    /// Whether somebody may go who waited for one of them.
    pub(super) has_released: bool,
}

/// See [`firstwrite_core::outbox::Outbox::settle`]. Each by itself: what was done before one of them failed
/// is done, and refused by its fence when it is sent again.
pub(super) async fn settle(
    link: &Link,
    receipts: &[Received],
    settlements: &[Settlement],
    tallies: &super::Counts,
) -> Result<Settled, StoreError> {
    link.writable(DOING)?;
    let now = link.now();
    let receiving: Vec<_> =
        receipts.iter().map(|received| history::receive(link, received, now)).collect();
    stream::iter(receiving).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let settling: Vec<_> =
        settlements.iter().map(|settlement| settle_one(link, settlement, now, tallies)).collect();
    let mut settling = stream::iter(settling).buffered(AT_ONCE);
    let mut settled = Settled { held: Vec::with_capacity(settlements.len()), has_released: false };
    while let Some((held, has_released)) = settling.try_next().await? {
        settled.held.push(held);
        settled.has_released |= has_released;
    }
    Ok(settled)
}

async fn settle_one(
    link: &Link,
    settlement: &Settlement,
    now: Timestamp,
    tallies: &super::Counts,
) -> Result<(Held, bool), StoreError> {
    let Settlement { number, fence, delivery, .. } = settlement;
    for _ in 0..TRIES_MAX {
        let standing = match Standing::find(link, *number, DOING).await {
            Err(error) if error.kind() == StoreErrorKind::Corrupt => {
                tracing::warn!(message = number.0, %error, "a message cannot be read");
                return Ok((Held::No, false));
            }
            found => found?,
        };
        let holds = |standing: &Standing| {
            standing.pending.phase == Phase::Sending && standing.pending.fence == *fence
        };
        let Some(standing) = standing.filter(holds) else {
            if let Some(delivery) = delivery {
                let received =
                    Received { number: *number, fence: *fence, delivery: delivery.clone() };
                history::receive(link, &received, now).await?;
            }
            return Ok((Held::No, false));
        };
        let (steps, becomes) = steps(link, &standing, settlement, now).await?;
        match write::transact(link, &steps, &write::new_token(), DOING).await? {
            Transaction::Done => {
                let was = &standing.pending;
                tallies.note(|tallies| tallies.moved(&was.destination, was.phase, becomes));
                return Ok((Held::Yes, was.ordering_key.is_some()));
            }
            // The message, its record or its line has moved since it was read.
            Transaction::Refused(..) => {}
        }
    }
    Err(unavailable(DOING, "a message does not stand still"))
}

/// What settles a message as it was read, and what it is counted as then.
async fn steps(
    link: &Link,
    standing: &Standing,
    settlement: &Settlement,
    now: Timestamp,
) -> Result<(Vec<TransactWriteItem>, Option<Kind>), StoreError> {
    let Settlement { number, fence, delivery, next, answer } = settlement;
    let Standing { item, pending: was } = standing;
    let (mut steps, becomes, found) = match next {
        Next::Delivered(receipt) => {
            let state = MessageState::Delivered;
            let ended = Ended { state, fence: *fence, at: now, receipt: Some(receipt) };
            let found = Delivery::new(Ending::Delivered(receipt.clone()), FOUND);
            let found = (!item.contains_key(RECEIPT)).then_some(found);
            (end(link, standing, &ended).await?, Some(Kind::Delivered), found)
        }
        Next::Refused => {
            let state = MessageState::Refused;
            let ended = Ended { state, fence: *fence, at: now, receipt: None };
            let told = Delivery::new(Ending::Refused, said(Cause::Refused));
            (end(link, standing, &ended).await?, None, Some(told))
        }
        Next::Waiting { .. } | Next::Unknown(_) | Next::Dead(_) => {
            let mut becomes: Pending = was.clone();
            becomes.proceed(delivery.as_ref(), next, now);
            let kind = becomes.phase.kind();
            (moves::change(link, was, &becomes), Some(kind), None)
        }
    };
    if let Some(told) = delivery.as_ref().or(found.as_ref())
        && !has_arrived_under(item, *fence)
    {
        let entry = Entry::of(*number, *fence, told);
        steps.push(history::put(link, &entry, now).in_transaction());
    }
    steps.extend(answer::step(link, was.id, answer.as_ref(), now).await?);
    Ok((steps, becomes))
}

/// The steps that end a message, and let its successor go.
pub(super) async fn end(
    link: &Link,
    standing: &Standing,
    ended: &Ended<'_>,
) -> Result<Vec<TransactWriteItem>, StoreError> {
    let mut steps = moves::end(link, standing, ended);
    steps.extend(order::leave(link, &standing.pending, ended.at, DOING).await?);
    Ok(steps)
}
