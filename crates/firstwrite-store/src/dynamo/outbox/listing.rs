//! Reads messages: bounded scans, and everything about one message.
//!
//! Messages are spread over shards, and each shard is in the order of numbers: a scan asks all of them and merges.

use firstwrite_core::StoreError;
use firstwrite_core::outbox::{
    Among, MessageNumber, MessageState, MessageStory, Scan, ScanPage, Scanned,
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::super::audit;
use super::super::items::{Item, KEY, STATE, bytes, text};
use super::super::link::Link;
use super::super::partition::Partition;
use super::super::write::Terms;
use super::message::{ENDED, RECORD, UNDER_WAY, key_of, number_of, shard, sort_key, view};
use super::{body, history, queue};

/// Some of the messages in a range of numbers.
pub(super) struct Look {
    /// In the order of their numbers.
    pub(super) items: Vec<Item>,
    /// Number of the last message that was looked at, if there may be more.
    pub(super) next: Option<MessageNumber>,
}

/// Messages that are examined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range<'a> {
    /// Those under way, those that have ended, or both, in this order: a message moves from the one to the other.
    pub(super) kinds: &'a [&'a str],
    pub(super) after: Option<MessageNumber>,
    pub(super) until: Option<MessageNumber>,
    /// Maximum number of messages to read in each shard; one megabyte of them if absent.
    pub(super) limit: Option<usize>,
}

impl Range<'_> {
    /// Asks every shard once.
    pub(super) async fn look(
        &self,
        link: &Link,
        doing: &'static str,
        filter: impl Fn(&mut Terms) -> Option<String>,
    ) -> Result<Look, StoreError> {
        let bound = |number: MessageNumber| sort_key(number).to_vec();
        let (mut items, mut next): (Vec<Item>, Option<MessageNumber>) = (Vec::new(), None);
        for kind in self.kinds {
            let asking = (0..link.shards.0).map(|place| {
                let asked = Partition {
                    after: self.after.map(bound),
                    until: self.until.map(bound),
                    limit: self.limit,
                    ..Partition::of(shard(kind, place))
                };
                let filter = &filter;
                async move { asked.ask(link, doing, |terms| filter(terms)).await }
            });
            let mut answers = stream::iter(asking).buffered(queue::AT_ONCE);
            while let Some(answer) = answers.try_next().await? {
                if let Some(ended_at) = answer.ended_at {
                    let ended_at = number_at(&ended_at);
                    next = Some(next.map_or(ended_at, |next| next.min(ended_at)));
                }
                items.extend(answer.items);
            }
        }
        // Behind where one shard ended, others' messages are not all that there are.
        let number = |item: &Item| number_of(item).unwrap_or(MessageNumber(i64::MAX));
        items.retain(|item| next.is_none_or(|next| number(item) <= next));
        // One that moved between two looks is in both; the later look is right.
        items.reverse();
        items.sort_by_key(number);
        items.dedup_by_key(|item| number(item));
        Ok(Look { items, next })
    }
}

fn number_at(sort_key: &[u8]) -> MessageNumber {
    MessageNumber(sort_key.try_into().map_or(0, i64::from_be_bytes))
}

/// See [`firstwrite_core::outbox::Outbox::scan`].
pub(super) async fn scan(link: &Link, scan: &Scan) -> Result<ScanPage, StoreError> {
    const DOING: &str = "listing messages";
    let all: &[&str] = &[UNDER_WAY, ENDED];
    let dead = || text(MessageState::Dead.as_str());
    let unknown = || text(MessageState::Unknown.as_str());
    // The service applies the filter itself, to send less. It still reads the filtered items.
    let (kinds, wanted) = match &scan.among {
        Among::Everything => (all, None),
        Among::Pending => (&all[..1], None),
        Among::Unknown => (&all[..1], Some((STATE, unknown()))),
        Among::Dead => (&all[..1], Some((STATE, dead()))),
        Among::Record(record) => (all, Some((RECORD, bytes(record.as_bytes())))),
        Among::Key(key) => (all, Some((KEY, text(key)))),
    };
    // Each shard's part of the page, and one more, since they are not equal.
    let part = scan.row_max().div_ceil(usize::from(link.shards.0.max(1))) + 1;
    let limit = wanted.is_none().then_some(part);
    let range = Range { kinds, after: scan.after, until: None, limit };
    let filter =
        |terms: &mut Terms| wanted.as_ref().map(|(name, value)| terms.is(name, "=", value.clone()));
    let Look { items, next } = range.look(link, DOING, filter).await?;
    let mut messages = Vec::with_capacity(items.len().min(scan.row_max()));
    for item in items.iter().take(scan.row_max()) {
        let view = view(item).map_err(|error| {
            let number = number_of(item).map_or(0, |number| number.0);
            let cause = format!("message {number} cannot be read: {error}");
            StoreError::definite(error.kind(), DOING).caused_by(cause)
        })?;
        let is_wanted = scan.contents_to.as_ref() == Some(&view.destination);
        let content = if is_wanted { Some(body::load(link, item, DOING).await?) } else { None };
        messages.push(Scanned { view, content });
    }
    let mut page = ScanPage::new(messages, scan, link.now());
    page.next = page.next.or(next);
    Ok(page)
}

/// See [`firstwrite_core::outbox::Outbox::message`].
pub(super) async fn story(
    link: &Link,
    number: MessageNumber,
) -> Result<Option<MessageStory>, StoreError> {
    const DOING: &str = "reading a message";
    let mut item = None;
    for kind in [UNDER_WAY, ENDED] {
        if item.is_none() {
            item = link.item_at(key_of(link, kind, number), DOING).await?;
        }
    }
    let Some(item) = item else { return Ok(None) };
    let message = view(&item)?;
    let content = body::load(link, &item, DOING).await?;
    let deliveries = history::past_deliveries(link, number).await?;
    let audits = audit::list(link, &audit::of_record(message.record)).await?;
    Ok(Some(MessageStory { message, content, deliveries, audits, now: link.now() }))
}
