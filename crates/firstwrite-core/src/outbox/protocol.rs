//! The steps of workers and operators, written once over any outbox.

use std::time::Duration;

use super::{
    Among, ClaimStatus, Counted, DestinationChange, DestinationView, HistoryRow, MessageNumber,
    MessagePage, MessageQuery, MessageState, MessageView, Move, Outbox, Received, Resolution, Scan,
    Scanned, Settlement, Switch, Written, WrittenPage, WrittenQuery, after_history_loss,
    after_redrive, after_resolution, after_settlement,
};
use crate::{AuditEntry, Fence, RecordId, StoreError, StoreErrorKind, Timestamp};

/// Largest number of pages that a count or a search reads: takes as long as a person is willing to wait.
const COUNT_PAGES_MAX: usize = 200;

/// Largest number of scans for one page, each of [`Scan::LIMIT_MAX`] messages at most. A page with few
/// matches ends early and says where the next one starts.
const SCANS_MAX: usize = 20;

/// Numbers grow with the time of writing, except for long transactions and clocks that were set back. By
/// more than this they are not out of order.
const OUT_OF_ORDER_MAX: Duration = Duration::from_hours(24);

/// Number of messages that are marked in one commit: other commits of a file wait meanwhile.
const MARKED_AT_ONCE: usize = 250;

/// Number of times that messages which were moved since they were read are read and marked again, each after a
/// pause. Nothing is claimed meanwhile, so they are moved by workers that end their claims, and come to rest.
const MARK_TRIES_MAX: usize = 20;

/// A search by time that comes as close as this is not worth another step.
const CLOSE_ENOUGH: Duration = Duration::from_hours(1);

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
        let page = messages(outbox, &query).await?;
        let redriven_of = |dead: &MessageView| after_redrive(dead, page.now, by);
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

/// Marks every message that is not settled as one that may have been sent, with an audit entry each. Returns
/// how many.
///
/// For a store that lost history, before the loss is cleared: while it is open, nothing is claimed, so nothing
/// is sent before it is marked. If this fails halfway, the loss stays open and it can be done again. `pause` is
/// waited for before messages that were moved meanwhile are marked again.
///
/// # Errors
/// Those of the outbox. The messages that were marked before stay marked.
pub async fn mark_maybe_sent<O: Outbox + ?Sized>(
    outbox: &O,
    by: &AuditEntry,
    pause: impl AsyncFn(),
) -> Result<usize, StoreError> {
    let (among, limit) = (Among::Pending, MARKED_AT_ONCE);
    let mut scan = Scan { among, contents_to: None, after: None, limit };
    let mut marked = 0;
    loop {
        let page = outbox.scan(&scan).await?;
        let views = page.messages.into_iter().map(|found| found.view).collect();
        marked += mark_all(outbox, views, by, &pause).await?;
        scan.after = page.next;
        if scan.after.is_none() {
            return Ok(marked);
        }
    }
}

/// Marks messages as they were seen, and those that have moved since as they are found then.
async fn mark_all<O: Outbox + ?Sized>(
    outbox: &O,
    mut views: Vec<MessageView>,
    by: &AuditEntry,
    pause: &impl AsyncFn(),
) -> Result<usize, StoreError> {
    let mut marked = 0;
    for tried in 0..MARK_TRIES_MAX {
        if views.is_empty() {
            return Ok(marked);
        }
        if tried > 0 {
            pause().await;
        }
        let moves: Vec<Move> = views.iter().map(|seen| after_history_loss(seen, by)).collect();
        let held = outbox.apply(&[], &moves).await?;
        let mut moved = Vec::new();
        for (view, held) in views.iter().zip(held) {
            if held == ClaimStatus::Current {
                marked += 1;
            } else if let Some(story) = outbox.message(view.number).await? {
                moved.push(story.message);
            }
        }
        moved.retain(|view| !view.state.is_final());
        views = moved;
    }
    let doing = "marking messages that may have been sent";
    let error = StoreError::definite(StoreErrorKind::Unavailable, doing);
    Err(error.caused_by("messages do not stand still; clear the history loss again"))
}

/// One page of the messages that `query` matches, the oldest first. It may have fewer than asked for, or
/// none, and a next page all the same.
///
/// # Errors
/// Those of the outbox.
pub async fn messages<O: Outbox + ?Sized>(
    outbox: &O,
    query: &MessageQuery,
) -> Result<MessagePage, StoreError> {
    let limit = query.limit.clamp(1, MessageQuery::LIMIT_MAX);
    let mut scan = Scan { among: query.among(), contents_to: None, after: query.after, limit };
    let mut page = MessagePage { messages: Vec::new(), next: None, now: Timestamp::EPOCH };
    for _ in 0..SCANS_MAX {
        let found = outbox.scan(&scan).await?;
        (page.next, page.now) = (found.next, found.now);
        for Scanned { view, .. } in found.messages {
            if !query.matches(&view) {
                continue;
            }
            if page.messages.len() == limit {
                page.next = page.messages.last().map(|last| last.number);
                return Ok(page);
            }
            page.messages.push(view);
        }
        if page.next.is_none() || page.messages.len() == limit {
            break;
        }
        // The first look was for a query that matches everything.
        (scan.after, scan.limit) = (page.next, Scan::LIMIT_MAX);
    }
    Ok(page)
}

/// One page of messages with their contents, the oldest first: for comparing with what the destination says
/// it did.
///
/// # Errors
/// Those of the outbox.
pub async fn written<O: Outbox + ?Sized>(
    outbox: &O,
    query: &WrittenQuery,
) -> Result<WrittenPage, StoreError> {
    let limit = query.limit.clamp(1, WrittenQuery::LIMIT_MAX);
    let end = query.until.plus(OUT_OF_ORDER_MAX);
    let after = match query.after {
        Some(after) => Some(after),
        None => before_time(outbox, query.from).await?,
    };
    let mut scan =
        Scan { among: Among::Everything, contents_to: None, after, limit: Scan::LIMIT_MAX };
    let mut page = WrittenPage { messages: Vec::new(), next: None, now: Timestamp::EPOCH };
    for _ in 0..SCANS_MAX {
        let found = outbox.scan(&scan).await?;
        // Contents are read only as far as a page goes, since stores do not bound their size.
        let (mut matched, mut bytes, mut wanted) = (0, 0, 0);
        for (place, Scanned { view, .. }) in found.messages.iter().enumerate() {
            if matched == limit || bytes > WrittenQuery::PAGE_BYTES_MAX {
                break;
            }
            if query.matches(view) {
                (matched, bytes, wanted) = (matched + 1, bytes + view.payload_bytes, place + 1);
            }
        }
        if matched > 0 {
            (scan.contents_to, scan.limit) = (Some(query.destination.clone()), wanted);
            let found = outbox.scan(&scan).await?;
            let meant = found.messages.into_iter().filter(|one| query.matches(&one.view));
            let messages = meant
                .filter_map(|Scanned { view, content }| Some(Written { view, content: content? }))
                .collect();
            return Ok(WrittenPage { messages, next: found.next, now: found.now });
        }
        let is_over = found.messages.last().is_some_and(|last| last.view.created_at >= end);
        (page.next, page.now) = (found.next.filter(|_| !is_over), found.now);
        scan.after = page.next;
        if scan.after.is_none() {
            break;
        }
    }
    Ok(page)
}

/// A number before all messages that can have been written at `from` or later; `None` if every message can.
/// Found by steps that grow and then by halving: times are not indexed, which every message would pay for.
async fn before_time<O: Outbox + ?Sized>(
    outbox: &O,
    from: Timestamp,
) -> Result<Option<MessageNumber>, StoreError> {
    let from = from.minus(OUT_OF_ORDER_MAX);
    let older_behind = async |number: Option<i64>| {
        let after = number.map(MessageNumber);
        let scan = Scan { among: Among::Everything, contents_to: None, after, limit: 1 };
        let first = outbox.scan(&scan).await?.messages.into_iter().next();
        let first = first.map(|first| (first.view.number.0, first.view.created_at));
        Ok::<_, StoreError>(first.filter(|(_, created_at)| *created_at < from))
    };
    let Some((mut low, mut written_at)) = older_behind(None).await? else { return Ok(None) };
    let mut step: i64 = 1;
    while let Some(older) = older_behind(Some(low.saturating_add(step))).await? {
        (low, written_at) = older;
        step = step.saturating_mul(8);
    }
    let mut high = low.saturating_add(step);
    while high - low > 1 && written_at.plus(CLOSE_ENOUGH) < from {
        let middle = low + (high - low) / 2;
        match older_behind(Some(middle)).await? {
            Some(older) => (low, written_at) = older,
            None => high = middle,
        }
    }
    Ok(Some(MessageNumber(low)))
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
        let page = messages(outbox, &query).await?;
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
        let page = messages(outbox, &query).await?;
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

#[cfg(test)]
mod tests;
