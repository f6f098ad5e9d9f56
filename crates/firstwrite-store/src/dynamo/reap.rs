//! Deletes completed records past their time, in small steps.
//!
//! The service does the same by itself, free of charge and days late. A cursor walks over all records, so
//! that each call reads a bounded part of them.

use firstwrite_core::{RecordId, StateKind, StoreError};
use futures_util::{StreamExt as _, stream};
use tokio::sync::Mutex;

use super::items::{self, DUE_AT, FENCE, ID, Item, PARTS, STATE, fence_of, id_of, number};
use super::link::Link;
use super::listing::{Ask, Path, Walk};
use super::parts::{self, Parts};
use super::write::{self, Sent, Step, Terms};

/// Position at which the next step begins.
#[derive(Debug, Default)]
pub(super) struct Reaping {
    walk: Option<Walk>,
}

/// Deleted in one call.
const REAPED_MAX: usize = 500;

/// Answers read in one call, each of up to a megabyte, beyond one for each shard.
const ANSWERS_MAX: usize = 8;

/// Maximum number of records examined for one answer.
const LOOKED_AT_MAX: usize = 2000;

/// Deleted at a time.
const AT_ONCE: usize = 8;

pub(super) const DOING: &str = "reaping records";

/// See [`firstwrite_core::Store::reap`].
pub(super) async fn reap(
    link: &Link,
    reaping: &Mutex<Reaping>,
    limit: usize,
) -> Result<usize, StoreError> {
    link.writable(DOING)?;
    // One at a time in a process: two would walk the same way.
    let mut reaping = reaping.lock().await;
    let limit = limit.min(REAPED_MAX);
    let mut count = 0;
    for _ in 0..ANSWERS_MAX + usize::from(link.shards.0) {
        if count >= limit {
            break;
        }
        let from = reaping.walk.take();
        let from = from.unwrap_or_else(|| Walk::new(link, Path::RecordsLately, None));
        let mut walk = from.clone();
        let now = link.now();
        let filter = |terms: &mut Terms| {
            let is_completed = terms.is(STATE, "=", items::state(StateKind::Completed));
            Some(format!("{is_completed} AND {}", terms.is(DUE_AT, "<=", number(now.as_millis()))))
        };
        let shown = [ID, FENCE, PARTS];
        let ask = Ask { limit: LOOKED_AT_MAX, shown: &shown, doing: DOING };
        let due = walk.step(link, ask, filter).await?;
        let room = limit - count;
        let is_more = due.len() > room;
        let deleting =
            due.into_iter().take(room).map(|item| async move { delete(link, &item).await });
        let deleted: Vec<_> = stream::iter(deleting).buffer_unordered(AT_ONCE).collect().await;
        for deleted in deleted {
            count += usize::from(deleted?);
        }
        // What did not fit is found by the same look again.
        let next = if is_more { from } else { walk };
        if next.is_over(link) {
            return Ok(count);
        }
        reaping.walk = Some(next);
    }
    Ok(count)
}

/// Deletes one record, if it is unchanged since it was examined.
async fn delete(link: &Link, item: &Item) -> Result<bool, StoreError> {
    let id: RecordId = id_of(item)?;
    let mut terms = Terms::default();
    let condition = [
        terms.is(FENCE, "=", items::fence(fence_of(item)?)),
        terms.is(STATE, "=", items::state(StateKind::Completed)),
        terms.is(DUE_AT, "<=", number(link.now().as_millis())),
    ]
    .join(" AND ");
    let step = Step::delete(link, link.shards.key(id), condition, &terms);
    match write::send(link, step, DOING).await? {
        Sent::Done => {
            if let Some(parts) = Parts::of(item)? {
                parts::delete(link, id, parts).await;
            }
            Ok(true)
        }
        Sent::Refused(_) => Ok(false),
    }
}
