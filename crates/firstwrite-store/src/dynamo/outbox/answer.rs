//! Replacing a record's interim answer with the last one, once, in the transaction that settles its message.

use aws_sdk_dynamodb::types::TransactWriteItem;
use firstwrite_core::{Outcome, RecordId, StoreError, StoreErrorKind, Timestamp};

use super::super::items::{self, FENCE, INTERIM, Item, fence_of, retention};
use super::super::link::Link;
use super::super::parts;
use super::super::swap::changes;
use super::super::write::{Step, Terms};

const DOING: &str = "answering a record";

/// The step that puts `outcome` in the place of the interim one under `id`; `None` if there is no such one. Its
/// retention begins now.
pub(super) async fn step(
    link: &Link,
    id: RecordId,
    outcome: Option<&Outcome>,
    now: Timestamp,
) -> Result<Option<TransactWriteItem>, StoreError> {
    let Some(outcome) = outcome else { return Ok(None) };
    let Some(item) = link.item(id, DOING).await? else { return Ok(None) };
    match replace(link, id, &item, outcome, now).await {
        Ok(step) => Ok(step),
        // The message is settled all the same: what it did is known, whatever its record says.
        Err(error) if error.kind() == StoreErrorKind::Corrupt => {
            tracing::warn!(record = %id, %error, "an interim answer cannot be replaced");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn replace(
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
    let written = parts::complete(link, id, &last, retention, (now, DOING)).await?;
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
