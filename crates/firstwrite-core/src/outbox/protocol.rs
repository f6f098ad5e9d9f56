//! The steps of workers and operators, written once over any outbox.

use super::{
    ClaimStatus, Counted, DestinationChange, DestinationView, HistoryRow, MessageNumber,
    MessageQuery, MessageState, MessageView, Move, Outbox, Received, Resolution, Settlement,
    Switch, after_redrive, after_resolution, after_settlement,
};
use crate::{AuditEntry, Fence, RecordId, StoreError};

/// Largest number of pages that a count or a search reads: takes as long as a person is willing to wait.
const COUNT_PAGES_MAX: usize = 200;

/// Writes down receipts and how claims ended, in one commit: for each settlement, whether its claim was
/// still current.
///
/// A receipt is kept whether or not the claim is current: it is the truth about the destination.
///
/// # Errors
/// Those of the outbox.
pub async fn settle<O: Outbox + ?Sized>(
    outbox: &O,
    receipts: &[Received],
    settlements: &[Settlement],
) -> Result<Vec<ClaimStatus>, StoreError> {
    let receipts: Vec<HistoryRow> = receipts.iter().filter_map(HistoryRow::of_received).collect();
    let moves: Vec<Move> = settlements.iter().map(after_settlement).collect();
    outbox.apply(&receipts, &moves).await
}

/// Ends the wait of a message that is unknown, dead or waiting, on an operator's word, with an audit entry
/// in the same commit. `seen` is the fence that the message had when it was looked into.
///
/// # Errors
/// Those of the outbox.
pub async fn resolve<O: Outbox + ?Sized>(
    outbox: &O,
    number: MessageNumber,
    seen: Fence,
    resolution: &Resolution,
    by: &AuditEntry,
) -> Result<ClaimStatus, StoreError> {
    let step = after_resolution(number, seen, resolution, by);
    let held = outbox.apply(&[], &[step]).await?;
    Ok(held.first().copied().unwrap_or(ClaimStatus::Lost))
}

/// Puts back up to `limit` of the dead letters that `query` matches, under their old keys, with their counts
/// at zero and an audit entry each. Messages in other states stay as they are.
///
/// # Errors
/// Those of the outbox. The letters that were put back before stay put back.
pub async fn redrive<O: Outbox + ?Sized>(
    outbox: &O,
    query: &MessageQuery,
    limit: usize,
    by: &AuditEntry,
) -> Result<usize, StoreError> {
    if query.state.is_some_and(|state| state != MessageState::Dead) {
        return Ok(0);
    }
    let mut query = MessageQuery { state: Some(MessageState::Dead), ..query.clone() };
    let mut redriven = 0;
    while redriven < limit {
        query.limit = (limit - redriven).min(MessageQuery::LIMIT_MAX);
        let page = outbox.messages(&query).await?;
        let redriven_of =
            |dead: &MessageView| after_redrive(dead.number, dead.fence, dead.maybe_sent_at, by);
        let moves: Vec<Move> = page.messages.iter().map(redriven_of).collect();
        if !moves.is_empty() {
            let held = outbox.apply(&[], &moves).await?;
            redriven += held.into_iter().filter(|held| *held == ClaimStatus::Current).count();
        }
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    Ok(redriven)
}

/// Counts the messages that `query` matches, up to [`MessageQuery::COUNT_MAX`] and over a bounded number of
/// pages.
///
/// # Errors
/// Those of the outbox.
pub async fn count<O: Outbox + ?Sized>(
    outbox: &O,
    query: &MessageQuery,
) -> Result<Counted, StoreError> {
    let mut query = MessageQuery { limit: MessageQuery::LIMIT_MAX, ..query.clone() };
    let mut count = 0;
    for _ in 0..COUNT_PAGES_MAX {
        let page = outbox.messages(&query).await?;
        count += page.messages.len();
        query.after = page.next;
        if query.after.is_none() || count > MessageQuery::COUNT_MAX {
            break;
        }
    }
    let is_more = query.after.is_some() || count > MessageQuery::COUNT_MAX;
    Ok(Counted { count: count.min(MessageQuery::COUNT_MAX), is_more })
}

/// The messages that were written for one record, the oldest first, at most
/// [`MessageQuery::OF_RECORD_MAX`].
///
/// # Errors
/// Those of the outbox.
pub async fn messages_of<O: Outbox + ?Sized>(
    outbox: &O,
    record: RecordId,
) -> Result<Vec<MessageView>, StoreError> {
    let limit = MessageQuery::OF_RECORD_MAX;
    let mut query = MessageQuery { record: Some(record), limit, ..MessageQuery::default() };
    let mut found = Vec::new();
    for _ in 0..COUNT_PAGES_MAX {
        let page = outbox.messages(&query).await?;
        found.extend(page.messages);
        query.after = page.next;
        if query.after.is_none() || found.len() >= limit {
            break;
        }
    }
    found.truncate(limit);
    Ok(found)
}

/// Leaves a destination alone, or says that it is back.
///
/// # Errors
/// Those of the outbox.
pub async fn switch<O: Outbox + ?Sized>(
    outbox: &O,
    destination: &str,
    switch: &Switch,
) -> Result<(), StoreError> {
    let seen = find(outbox, destination).await?;
    if seen.is_none() && *switch == Switch::Closed {
        return Ok(());
    }
    outbox.put_destination(destination, &DestinationChange::switch(seen.as_ref(), switch)).await
}

/// Pauses a destination until it is resumed, by an operator. Messages that are already claimed go on.
///
/// # Errors
/// Those of the outbox.
pub async fn pause<O: Outbox + ?Sized>(
    outbox: &O,
    destination: &str,
    by: &AuditEntry,
) -> Result<(), StoreError> {
    outbox.put_destination(destination, &DestinationChange::pause(by)).await
}

/// Ends a pause, and lets a destination that is left alone be tried at once. A destination that is not known
/// stays unknown.
///
/// # Errors
/// Those of the outbox.
pub async fn resume<O: Outbox + ?Sized>(
    outbox: &O,
    destination: &str,
    by: &AuditEntry,
) -> Result<(), StoreError> {
    if find(outbox, destination).await?.is_none() {
        return Ok(());
    }
    outbox.put_destination(destination, &DestinationChange::resume(by)).await
}

async fn find<O: Outbox + ?Sized>(
    outbox: &O,
    destination: &str,
) -> Result<Option<DestinationView>, StoreError> {
    let all = outbox.destinations().await?;
    Ok(all.into_iter().find(|seen| seen.name == destination))
}
