//! What operators do to messages: put dead letters back, and say how it ended where nobody else can.

use firstwrite_core::outbox::{Held, MessageNumber, MessageQuery, MessageState, Resolution};
use firstwrite_core::{AuditEntry, Fence, StoreError, Timestamp};

use super::super::audit;
use super::super::fault::unavailable;
use super::super::link::Link;
use super::super::write::Transaction;
use super::message::Standing;
use super::moves::{self, Ended};
use super::settle::{TRIES_MAX, end};
use super::{Counts, answer, history, listing};
use crate::pending::{DELIVERED, DROPPED, Entry, Kind, Pending, Phase, REFUSED};

/// Put back in one call.
const REDRIVEN_MAX: usize = 1000;

/// See [`firstwrite_core::outbox::Outbox::redrive`]. Each in a transaction of its own.
pub(super) async fn redrive(
    link: &Link,
    query: &MessageQuery,
    limit: usize,
    by: &AuditEntry,
    counts: &Counts,
) -> Result<usize, StoreError> {
    const DOING: &str = "redriving messages";
    link.writable(DOING)?;
    if query.state.is_some_and(|state| state != MessageState::Dead) {
        return Ok(0);
    }
    let limit = limit.min(REDRIVEN_MAX);
    let mut query = MessageQuery { state: Some(MessageState::Dead), ..query.clone() };
    let mut redriven = 0;
    while redriven < limit {
        let (dead, next) = listing::page(link, &query, limit - redriven, DOING).await?;
        for view in dead {
            redriven += usize::from(redrive_one(link, view.number, by, counts).await?);
        }
        query.after = next;
        if next.is_none() {
            break;
        }
    }
    Ok(redriven)
}

async fn redrive_one(
    link: &Link,
    number: MessageNumber,
    by: &AuditEntry,
    counts: &Counts,
) -> Result<bool, StoreError> {
    const DOING: &str = "redriving messages";
    let Some(Standing { pending: was, .. }) = Standing::find(link, number, DOING).await? else {
        return Ok(false);
    };
    if was.phase != Phase::Dead {
        return Ok(false);
    }
    let now = link.now();
    let becomes = Pending {
        phase: Phase::Waiting,
        due_at: Some(now),
        delivery_count: 0,
        lapse_count: 0,
        ..was.clone()
    };
    let steps = moves::change(link, &was, &becomes);
    let entry = acted(by, &format!("redrive message {number}"));
    match audit::send(link, &audit::of_record(was.id), steps, &entry, (now, DOING)).await? {
        Transaction::Done => {
            counts.note(|tallies| tallies.moved(&was.destination, was.phase, Some(Kind::Open)));
            Ok(true)
        }
        // Somebody else has done something about it.
        Transaction::Refused(..) => Ok(false),
    }
}

/// See [`firstwrite_core::outbox::Outbox::resolve`].
pub(super) async fn resolve(
    link: &Link,
    (number, seen): (MessageNumber, Fence),
    resolution: &Resolution,
    by: &AuditEntry,
    counts: &Counts,
) -> Result<Held, StoreError> {
    const DOING: &str = "resolving a message";
    link.writable(DOING)?;
    for _ in 0..TRIES_MAX {
        let now = link.now();
        let standing = Standing::find(link, number, DOING).await?;
        let Some(standing) = standing.filter(|standing| {
            let was = &standing.pending;
            let is_being_sent = was.phase == Phase::Sending && was.due_at > Some(now);
            was.fence == seen && !is_being_sent
        }) else {
            return Ok(Held::No);
        };
        let (steps, becomes) = steps(link, &standing, resolution, by, now).await?;
        let was = &standing.pending;
        let entry = acted(by, &format!("{} message {number}", by.action));
        match audit::send(link, &audit::of_record(was.id), steps, &entry, (now, DOING)).await? {
            Transaction::Done => {
                counts.note(|tallies| tallies.moved(&was.destination, was.phase, becomes));
                return Ok(Held::Yes);
            }
            Transaction::Refused(..) => {}
        }
    }
    Err(unavailable(DOING, "a message does not stand still"))
}

/// What a resolution does to a message as it was read, and what it is counted as then.
async fn steps(
    link: &Link,
    standing: &Standing,
    resolution: &Resolution,
    by: &AuditEntry,
    now: Timestamp,
) -> Result<(Vec<aws_sdk_dynamodb::types::TransactWriteItem>, Option<Kind>), StoreError> {
    let was = &standing.pending;
    // No claim can have this count: the next one is made from it.
    let fence = was.fence.next(0);
    let (state, ending, receipt, answer, becomes) = match resolution {
        Resolution::Delivered { receipt, answer } => {
            let (state, becomes) = (MessageState::Delivered, Some(Kind::Delivered));
            (state, DELIVERED, Some(receipt), answer.as_ref(), becomes)
        }
        Resolution::Refused { answer } => {
            (MessageState::Refused, REFUSED, None, answer.as_ref(), None)
        }
        Resolution::Dropped => (MessageState::Dropped, DROPPED, None, None, None),
        Resolution::NotDelivered => {
            let becomes = Pending {
                phase: Phase::Waiting,
                // Whether another one is before it is found out by whoever claims it.
                due_at: Some(now),
                fence,
                delivery_count: 0,
                lapse_count: 0,
                maybe_sent_at: None,
                ..was.clone()
            };
            return Ok((moves::change(link, was, &becomes), Some(Kind::Open)));
        }
    };
    let mut steps = end(link, standing, &Ended { state, fence, at: now, receipt }).await?;
    let provider_id = receipt.and_then(|receipt| receipt.provider_id.as_deref());
    let entry =
        Entry { number: was.number, fence, ending, status: None, detail: &by.reason, provider_id };
    steps.push(history::put(link, &entry, now).in_transaction());
    steps.extend(answer::step(link, was.id, answer, now).await?);
    Ok((steps, becomes))
}

fn acted(by: &AuditEntry, action: &str) -> AuditEntry {
    AuditEntry { action: action.to_owned(), ..by.clone() }
}
