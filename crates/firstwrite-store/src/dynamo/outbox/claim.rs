//! Claims due messages under a lease: reads the front of a destination's queue, and claims each message in a
//! transaction of its own, on the condition that no other claim or move has changed it.

use std::collections::HashMap;

use firstwrite_core::outbox::pending::Parts;
use firstwrite_core::outbox::{ClaimRequest, Claimed, ClaimedMessage, Gate, MessageNumber};
use firstwrite_core::{StoreError, StoreErrorKind, Timestamp};
use futures_util::{StreamExt as _, stream};

use super::super::items::{CREATED_AT, Item, KEY, instant, string, tenant_of};
use super::super::link::Link;
use super::super::write::{self, Transaction};
use super::destinations::{self, Opening};
use super::message::{PendingItem, UNDER_WAY, key_of, number_of, receipt_of};
use super::order::Turn;
use super::queue::{Due, Queue};
use super::{body, moves, order};

const DOING: &str = "claiming messages";

/// Maximum number of messages claimed for one destination in one call.
const CLAIMED_MAX: usize = 256;

/// Maximum number of times a call looks further down a queue whose front is claimed by others or damaged.
const LOOKS_MAX: usize = 8;

/// Maximum number of messages that are claimed concurrently.
const AT_ONCE: usize = 16;

/// Number of destinations examined at the same time.
const DESTINATIONS_AT_ONCE: usize = 4;

/// Terms of a claim.
#[derive(Clone, Copy, Debug)]
struct Terms<'a> {
    request: &'a ClaimRequest,
    nonce: u64,
    opening: Opening,
    now: Timestamp,
}

/// See [`firstwrite_core::outbox::Outbox::claim`].
pub(super) async fn claim(
    link: &Link,
    requests: &[ClaimRequest],
    nonce: u64,
) -> Result<Claimed, StoreError> {
    link.writable(DOING)?;
    let now = link.now();
    let mut claimed = Claimed { messages: Vec::new(), now, closed: Vec::new() };
    let gates = destinations::gates(link, requests, now).await?;
    let mut open = Vec::new();
    for (request, opening) in requests.iter().zip(gates) {
        if opening.0 == Gate::Closed {
            claimed.closed.push(request.destination.clone());
        } else {
            open.push(Terms { request, nonce, opening, now });
        }
    }
    let taking: Vec<_> = open.into_iter().map(|terms| take_for(link, terms)).collect();
    let taken: Vec<_> = stream::iter(taking).buffered(DESTINATIONS_AT_ONCE).collect().await;
    let mut failure = None;
    for (messages, failed) in taken {
        claimed.messages.extend(messages);
        failure = failure.or(failed);
    }
    match failure {
        // What was taken is not given up for what was not.
        Some(error) if claimed.messages.is_empty() => Err(error),
        Some(error) => {
            tracing::warn!(%error, "not all that was wanted could be claimed");
            Ok(claimed)
        }
        None => Ok(claimed),
    }
}

/// Takes messages for one destination until there are enough; also what was taken before something failed.
async fn take_for(link: &Link, terms: Terms<'_>) -> (Vec<ClaimedMessage>, Option<StoreError>) {
    let count_max = terms.opening.0.room(terms.request.count_max.min(CLAIMED_MAX)).unwrap_or(0);
    let mut queue = Queue::new(link, &terms.request.destination, terms.now);
    let mut messages = Vec::new();
    for _ in 0..LOOKS_MAX {
        if messages.len() >= count_max {
            break;
        }
        let due = match queue.take(link, count_max - messages.len(), DOING).await {
            Ok(due) if due.is_empty() => break,
            Ok(due) => due,
            Err(error) => return (messages, Some(error)),
        };
        let items = match read(link, &due).await {
            Ok(items) => items,
            Err(error) => return (messages, Some(error)),
        };
        let taking: Vec<_> = items.into_iter().map(|item| take_one(link, item, terms)).collect();
        let taken: Vec<_> = stream::iter(taking).buffered(AT_ONCE).collect().await;
        for taken in taken {
            match taken {
                Ok(claimed_message) => messages.extend(claimed_message),
                Err(error) => return (messages, Some(error)),
            }
        }
    }
    (messages, None)
}

/// The messages in these places of the queue, in the same order.
async fn read(link: &Link, due: &[Due]) -> Result<Vec<Item>, StoreError> {
    let keys: Vec<Item> = due.iter().map(|(_, number)| key_of(link, UNDER_WAY, *number)).collect();
    let mut items: HashMap<MessageNumber, Item> = HashMap::with_capacity(due.len());
    for item in link.items_at(&keys, DOING).await? {
        items.insert(number_of(&item)?, item);
    }
    Ok(due.iter().filter_map(|(_, number)| items.remove(number)).collect())
}

/// Takes one message, unless it cannot be read, is not due any more, or has to wait for another one.
async fn take_one(
    link: &Link,
    item: Item,
    terms: Terms<'_>,
) -> Result<Option<ClaimedMessage>, StoreError> {
    match try_to_take(link, item, terms).await {
        Err(error) if error.kind() == StoreErrorKind::Corrupt => {
            tracing::warn!(%error, "a message cannot be read");
            Ok(None)
        }
        taken => taken,
    }
}

async fn try_to_take(
    link: &Link,
    item: Item,
    terms: Terms<'_>,
) -> Result<Option<ClaimedMessage>, StoreError> {
    let Terms { request, nonce, opening, now } = terms;
    let standing = PendingItem::read(item)?;
    let was = &standing.pending;
    if was.due_at().is_none_or(|at| at > now) {
        return Ok(None);
    }
    let turn = match order::turn(link, was, DOING).await? {
        Turn::Takes(step) => step,
        Turn::Behind(before) => {
            order::park(link, was, before, DOING).await?;
            return Ok(None);
        }
    };
    let becomes = was.claimed(nonce, now, request.lease_for);
    let item = &standing.item;
    let parts = Parts {
        tenant: tenant_of(item)?,
        derived_key: string(item, KEY)?.to_owned(),
        created_at: instant(item, CREATED_AT)?,
        content: body::load(link, item, DOING).await?,
        receipt: receipt_of(item)?,
    };
    let mut steps = moves::change(link, was, &becomes);
    steps.extend(turn.map(|taken| *taken));
    steps.extend(destinations::trial(link, request, opening, now));
    match write::transact(link, &steps, &write::new_token(), DOING).await? {
        Transaction::Done => Ok(Some(becomes.carried(parts, (opening.0 != Gate::Open, now)))),
        // Another worker has claimed it, has its turn, or makes the trial.
        Transaction::Refused(..) => Ok(None),
    }
}
