//! Queue of due messages, ordered by time: one small item for each message, at the time when it becomes due or when
//! its claim ends.
//!
//! Each item is written in one transaction with the message it names, so a scan finds due messages and nothing else.
//! The queue of a destination has as many shards as the table's records, so that none of them is hot; a scan asks all
//! of them and merges.

use std::collections::VecDeque;

use firstwrite_core::outbox::MessageNumber;
use firstwrite_core::{StoreError, Timestamp};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::super::driver_error::corrupt;
use super::super::items::{ID, Item, blob, key};
use super::super::link::Link;
use super::super::partition::Partition;
use super::message::place;

/// A place in the queue.
pub(super) type Due = (Timestamp, MessageNumber);

/// Maximum number of items read from one shard at a time.
const LOOKED_AT_MAX: usize = 100;

/// Number of shards asked at the same time.
pub(super) const AT_ONCE: usize = 16;

fn shard(destination: &str, place: u16) -> String {
    format!("q#{place:02x}#{destination}")
}

fn sort_key((at, number): Due) -> [u8; 16] {
    let mut sort_key = [0; 16];
    sort_key[..8].copy_from_slice(&at.as_millis().max(0).to_be_bytes());
    sort_key[8..].copy_from_slice(&number.0.max(0).to_be_bytes());
    sort_key
}

/// The primary key of a place in the queue.
pub(super) fn key_of(link: &Link, destination: &str, due: Due) -> Item {
    key(shard(destination, place(link.shards, due.1)), &sort_key(due))
}

fn read(item: &Item) -> Result<Due, StoreError> {
    let wrong = || corrupt("a place in a queue has 16 bytes");
    let (at, number) = blob(item, ID)?.split_first_chunk().ok_or_else(wrong)?;
    let number = number.try_into().map_err(|_length| wrong())?;
    let at = Timestamp::from_millis(i64::from_be_bytes(*at));
    Ok((at, MessageNumber(i64::from_be_bytes(number))))
}

/// Returns the time when the oldest due message of a destination became due.
pub(super) async fn oldest(
    link: &Link,
    destination: &str,
    now: Timestamp,
) -> Result<Option<Timestamp>, StoreError> {
    let mut queue = Queue::new(link, destination, now);
    Ok(queue.take(link, 1, "listing destinations").await?.first().map(|(at, _)| *at))
}

/// The messages of one destination that are due, the longest due first.
pub(super) struct Queue {
    shards: Vec<Shard>,
}

struct Shard {
    /// Next page to ask for; `None` if there are no more.
    next: Option<Partition>,
    read: VecDeque<Due>,
}

impl Queue {
    pub(super) fn new(link: &Link, destination: &str, now: Timestamp) -> Self {
        let until = sort_key((now, MessageNumber(i64::MAX))).to_vec();
        let shards = (0..link.shards.0).map(|place| {
            let asked = Partition::of(shard(destination, place));
            let next = Some(Partition { until: Some(until.clone()), ..asked });
            Shard { next, read: VecDeque::new() }
        });
        Self { shards: shards.collect() }
    }

    /// The next of them, at most `count`; none if there are no more.
    pub(super) async fn take(
        &mut self,
        link: &Link,
        count: usize,
        doing: &'static str,
    ) -> Result<Vec<Due>, StoreError> {
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            // Which is the first of all is known when the first of each is.
            let empty = self.shards.iter_mut().filter(|shard| shard.read.is_empty());
            let limit = (count - taken.len()).min(LOOKED_AT_MAX);
            let filling: Vec<_> = empty.map(|shard| shard.fill(link, limit, doing)).collect();
            stream::iter(filling).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
            let firsts = self.shards.iter_mut().filter(|shard| !shard.read.is_empty());
            let Some(first) = firsts.min_by_key(|shard| shard.read.front().copied()) else { break };
            taken.extend(first.read.pop_front());
        }
        Ok(taken)
    }
}

impl Shard {
    async fn fill(
        &mut self,
        link: &Link,
        limit: usize,
        doing: &'static str,
    ) -> Result<(), StoreError> {
        while self.read.is_empty() {
            let Some(asked) = self.next.take() else { break };
            let answer = Partition { limit: Some(limit), ..asked.clone() };
            let answer = answer.ask(link, doing, |_| None).await?;
            for item in &answer.items {
                self.read.push_back(read(item)?);
            }
            self.next = answer.ended_at.map(|after| Partition { after: Some(after), ..asked });
        }
        Ok(())
    }
}
