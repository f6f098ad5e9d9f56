//! Periodic upkeep: deletes messages that ended long ago, recounts those under way, and releases parked messages that
//! were forgotten.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use firstwrite_core::encoding::as_i64;
use firstwrite_core::outbox::pending::Pending;
use firstwrite_core::outbox::{MessageNumber, Tally};
use firstwrite_core::{StoreError, StoreErrorKind, Timestamp};
use futures_util::{StreamExt as _, stream};

use super::super::items::{FENCE, Item, fence, fence_of, integer, number};
use super::super::link::Link;
use super::super::partition::Partition;
use super::super::write::{self, Step, Terms, Transaction};
use super::destinations::{self, count_name};
use super::enqueue::first_at;
use super::listing::{Look, Range};
use super::message::{ENDED, ENDED_AT, PendingItem, UNDER_WAY, key_of, number_of, shard};
use super::{body, history, order};

const DOING: &str = "keeping messages up";

/// Maximum number of messages deleted in one call.
const DELETED_MAX: usize = 500;

/// Number of messages deleted at the same time, each with its history and its body.
const AT_ONCE: usize = 8;

/// Maximum number of messages examined in each shard in one call.
const LOOKED_AT_MAX: usize = 1000;

/// Maximum number of answers that a count reads in one call, each of up to a megabyte.
const ANSWERS_MAX: usize = 8;

/// A count that goes over several calls.
#[derive(Debug, Default)]
pub(super) struct Recount {
    /// Position at which to continue; the beginning if absent.
    cursor: Option<Cursor>,
    counted: BTreeMap<(String, Tally), i64>,
    /// Counts that the destinations' items held when the recount began.
    written: BTreeMap<(String, Tally), i64>,
}

/// A place among all messages that are under way.
#[derive(Debug, Default)]
struct Cursor {
    shard: u16,
    after: Option<Vec<u8>>,
}

/// Tallies that are counted again. Delivered messages are not under way, and their number only grows.
const COUNTED: [Tally; 3] = [Tally::Open, Tally::Unknown, Tally::Dead];

/// Deletes up to `limit` messages that ended `kept_for` ago.
pub(super) async fn delete_ended(
    link: &Link,
    kept_for: Duration,
    limit: usize,
) -> Result<usize, StoreError> {
    let now = link.now();
    let kept_for_millis = as_i64(kept_for.as_millis());
    let cutoff = Timestamp::from_millis(now.as_millis().saturating_sub(kept_for_millis));
    // Numbers tell when a message was written, and it ended no earlier.
    let until = first_at(Timestamp::from_millis(cutoff.as_millis().saturating_add(1)));
    let range = Range {
        kinds: &[ENDED],
        after: None,
        until: Some(MessageNumber(until.saturating_sub(1))),
        limit: Some(LOOKED_AT_MAX),
    };
    let filter = |terms: &mut Terms| Some(terms.is(ENDED_AT, "<=", number(cutoff.as_millis())));
    let Look { items, .. } = range.look(link, DOING, filter).await?;
    let due = items.iter().take(limit.min(DELETED_MAX));
    let deleting: Vec<_> = due.map(|item| delete(link, item)).collect();
    let deleted: Vec<_> = stream::iter(deleting).buffer_unordered(AT_ONCE).collect().await;
    let mut count = 0;
    for deleted in deleted {
        match deleted {
            Ok(deleted) => count += usize::from(deleted),
            // One damaged item must not keep the others for ever.
            Err(error) if error.kind() == StoreErrorKind::Corrupt => {
                tracing::warn!(%error, "a message cannot be deleted");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// Deletes one message. Its body and history go first, so that a failure leaves no orphaned items.
async fn delete(link: &Link, item: &Item) -> Result<bool, StoreError> {
    let message = number_of(item)?;
    let mut keys = body::keys_of(item)?;
    keys.extend(history::keys(link, message, DOING).await?);
    for key in keys {
        write::send(link, Step::remove(link, key), DOING).await?;
    }
    let mut terms = Terms::default();
    let is_same = terms.is(FENCE, "=", fence(fence_of(item)?));
    let step = Step::delete(link, key_of(link, ENDED, message), is_same, &terms);
    Ok(matches!(write::send(link, step, DOING).await?, Transaction::Done))
}

impl Recount {
    /// Goes on counting what is under way. When all of it is counted, what the destinations say is put right.
    pub(super) async fn go_on(&mut self, link: &Link) -> Result<(), StoreError> {
        if self.cursor.is_none() {
            self.written = written(link).await?;
            self.counted.clear();
        }
        let Cursor { shard: mut place, mut after } = self.cursor.take().unwrap_or_default();
        for _ in 0..ANSWERS_MAX + usize::from(link.shards.0) {
            let asked = Partition { after, ..Partition::of(shard(UNDER_WAY, place)) };
            let answer = asked.ask(link, DOING, |_| None).await?;
            self.count(link, answer.items).await?;
            after = answer.ended_at;
            if after.is_none() {
                place += 1;
            }
            if place >= link.shards.0 {
                return self.put_right(link).await;
            }
        }
        self.cursor = Some(Cursor { shard: place, after });
        Ok(())
    }

    async fn count(&mut self, link: &Link, items: Vec<Item>) -> Result<(), StoreError> {
        let mut lines: HashSet<(String, Option<String>)> = HashSet::new();
        for item in items {
            let Ok(PendingItem { pending, .. }) = PendingItem::read(item) else { continue };
            let Pending { destination, ordering_key, .. } = &pending;
            if let Some(tally) = pending.state().tally() {
                *self.counted.entry((destination.clone(), tally)).or_default() += 1;
            }
            // The first that is met of a line stands for it.
            if pending.is_put_aside() && lines.insert((destination.clone(), ordering_key.clone())) {
                order::release_forgotten(link, &pending, link.now(), DOING).await?;
            }
        }
        Ok(())
    }

    /// Adds the differences, so that what others add meanwhile stands.
    async fn put_right(&self, link: &Link) -> Result<(), StoreError> {
        let mut wrong: BTreeMap<&str, destinations::Differences> = BTreeMap::new();
        for (name, kind) in self.counted.keys().chain(self.written.keys()) {
            let of = |counts: &BTreeMap<_, i64>| {
                counts.get(&(name.clone(), *kind)).copied().unwrap_or_default()
            };
            let difference = of(&self.counted) - of(&self.written);
            let entry = (kind.as_str(), difference);
            let known = wrong.entry(name).or_default();
            if difference != 0 && !known.contains(&entry) {
                known.push(entry);
            }
        }
        for (name, differences) in wrong.into_iter().filter(|(_, all)| !all.is_empty()) {
            tracing::info!(destination = name, ?differences, "counts of messages are put right");
            destinations::add_counts(link, name, &differences).await?;
        }
        Ok(())
    }
}

/// Reads the counts that the destinations' items hold.
async fn written(link: &Link) -> Result<BTreeMap<(String, Tally), i64>, StoreError> {
    let mut written = BTreeMap::new();
    for item in destinations::items(link, DOING).await? {
        let name = destinations::name_of(&item)?;
        for kind in COUNTED {
            let count = integer(&item, &count_name(kind.as_str())).unwrap_or_default();
            written.insert((name.clone(), kind), count);
        }
    }
    Ok(written)
}
