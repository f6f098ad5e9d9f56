//! Applies moves: a transaction for each, on the condition that the message is as it was read.

use aws_sdk_dynamodb::types::TransactWriteItem;
use firstwrite_core::outbox::{Becomes, ClaimStatus, HistoryRow, Kept, Move, PastEnding};
use firstwrite_core::{Outcome, RecordId, StoreError, StoreErrorKind, Timestamp};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::super::audit;
use super::super::driver_error::unavailable;
use super::super::items::{self, FENCE, INTERIM, Item, fence_of, retention};
use super::super::link::Link;
use super::super::parts;
use super::super::swap::changes;
use super::super::write::{self, Step, Terms, Transaction};
use super::message::{PendingItem, RECEIPT, has_arrived_under};
use super::moves::{self, Ended};
use super::{Counts, history, order};

const DOING: &str = "moving messages";
const ANSWERING: &str = "answering a record";

/// Maximum number of tries of a move whose message is moved by others in between.
pub(super) const TRIES_MAX: usize = 8;

/// Maximum number of messages that are moved concurrently.
const AT_ONCE: usize = 16;

/// See [`firstwrite_core::outbox::Outbox::apply`]. Each by itself: the moves before one that fails are taken,
/// and refused by their guards when they are sent again.
pub(super) async fn apply(
    link: &Link,
    receipts: &[HistoryRow],
    moves: &[Move],
    counts: &Counts,
) -> Result<Vec<ClaimStatus>, StoreError> {
    link.writable(DOING)?;
    let now = link.now();
    let receiving: Vec<_> = receipts.iter().map(|row| history::receive(link, row, now)).collect();
    stream::iter(receiving).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let moving: Vec<_> = moves.iter().map(|step| apply_one(link, step, now, counts)).collect();
    stream::iter(moving).buffered(AT_ONCE).try_collect().await
}

async fn apply_one(
    link: &Link,
    step: &Move,
    now: Timestamp,
    counts: &Counts,
) -> Result<ClaimStatus, StoreError> {
    for _ in 0..TRIES_MAX {
        let standing = match PendingItem::find(link, step.number, DOING).await {
            Err(error) if error.kind() == StoreErrorKind::Corrupt => {
                tracing::warn!(message = step.number.0, %error, "a message cannot be read");
                return Ok(ClaimStatus::Lost);
            }
            found => found?,
        };
        let Some(standing) = standing.filter(|found| found.pending.is_under(step.guard, now))
        else {
            if let Some(row) = step.history.as_ref().filter(|row| row.is_due(false, None)) {
                history::receive(link, row, now).await?;
            }
            return Ok(ClaimStatus::Lost);
        };
        let steps = steps(link, &standing, step, now).await?;
        let was = &standing.pending;
        let ended = match &step.audit {
            Some(entry) => {
                audit::send(link, &audit::of_record(was.id), steps, entry, (now, DOING)).await?
            }
            None => write::transact(link, &steps, &write::new_token(), DOING).await?,
        };
        match ended {
            Transaction::Done => {
                let state = step.becomes.state().unwrap_or(was.state());
                let (from, to) = (was.state().tally(), state.tally());
                counts.note(|tallies| tallies.moved(&was.destination, from, to));
                return Ok(ClaimStatus::Current);
            }
            // The message, its record or its line has moved since it was read.
            Transaction::Refused(..) => {}
        }
    }
    Err(unavailable(DOING, "a message does not stand still"))
}

/// The steps that move a message as it was read.
async fn steps(
    link: &Link,
    standing: &PendingItem,
    step: &Move,
    now: Timestamp,
) -> Result<Vec<TransactWriteItem>, StoreError> {
    let was = &standing.pending;
    let row = due_row(link, standing, step).await?;
    let is_handed_over = row.is_some_and(|row| row.ending != PastEnding::Dropped);
    let mut steps = match &step.becomes {
        Becomes::Pending(_) => {
            moves::change_after(link, was, &was.moved(&step.becomes, now), is_handed_over)
        }
        Becomes::MaybeSent(_) => moves::change(link, was, &was.moved(&step.becomes, now)),
        Becomes::Settled(state) => {
            let told = step.history.as_ref();
            let ended = Ended {
                state: *state,
                fence: told.map_or(was.fence(), |row| row.fence),
                at: now,
                receipt: told.and_then(HistoryRow::receipt),
                is_handed_over,
            };
            let mut steps = moves::end(link, standing, &ended);
            steps.extend(order::leave(link, was, now, DOING).await?);
            steps
        }
    };
    steps.extend(row.map(|row| history::put(link, row, now).in_transaction()));
    steps.extend(answer_step(link, was.id, step.answer.as_ref(), now).await?);
    Ok(steps)
}

/// The row that goes with the move into the history of a message.
async fn due_row<'a>(
    link: &Link,
    standing: &PendingItem,
    step: &'a Move,
) -> Result<Option<&'a HistoryRow>, StoreError> {
    let Some(row) = &step.history else { return Ok(None) };
    // The row of a receipt stands.
    if has_arrived_under(&standing.item, row.fence) {
        return Ok(None);
    }
    let is_first_receipt =
        row.ending == PastEnding::Delivered && !standing.item.contains_key(RECEIPT);
    let last = match row.kept {
        Kept::IfNew if !is_first_receipt => history::last(link, row.number).await?,
        Kept::IfNew | Kept::WithMove | Kept::Always => None,
    };
    Ok(Some(row).filter(|row| row.is_due(true, last.as_ref().map(|past| &*past.ending))))
}

/// The step that puts `outcome` in the place of the interim one under `id`; `None` if there is no such one. Its
/// retention begins now.
async fn answer_step(
    link: &Link,
    id: RecordId,
    outcome: Option<&Outcome>,
    now: Timestamp,
) -> Result<Option<TransactWriteItem>, StoreError> {
    let Some(outcome) = outcome else { return Ok(None) };
    let Some(item) = link.item(id, ANSWERING).await? else { return Ok(None) };
    match replace_interim(link, id, &item, outcome, now).await {
        Ok(step) => Ok(step),
        // The message is settled all the same: what it did is known, whatever its record says.
        Err(error) if error.kind() == StoreErrorKind::Corrupt => {
            tracing::warn!(record = %id, %error, "an interim answer cannot be replaced");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn replace_interim(
    link: &Link,
    id: RecordId,
    item: &Item,
    outcome: &Outcome,
    now: Timestamp,
) -> Result<Option<TransactWriteItem>, StoreError> {
    if !item.contains_key(INTERIM) {
        return Ok(None);
    }
    let retention = retention(item)?;
    let last = Outcome { is_interim: false, ..outcome.clone() };
    let written = parts::complete(link, id, &last, retention, (now, ANSWERING)).await?;
    let mut terms = Terms::default();
    let condition = [
        terms.is(FENCE, "=", items::fence(fence_of(item)?)),
        format!("attribute_exists({})", terms.name(INTERIM)),
    ];
    let change = changes(&mut terms, written);
    let key = link.shards.key(id);
    let step = Step::update(link, key, change, condition.join(" AND "), &terms);
    Ok(Some(step.in_transaction()))
}
