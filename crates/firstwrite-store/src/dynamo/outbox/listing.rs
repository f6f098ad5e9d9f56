//! Looking at messages: pages, previews of how many there are, and the story of one.
//!
//! Messages are spread over shards, and each shard is in the order of numbers: a page asks all of them and merges.

use firstwrite_core::outbox::{
    MessageNumber, MessagePage, MessageQuery, MessageState, MessageStory, MessageView,
};
use firstwrite_core::{StoreError, Tenant};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::super::audit;
use super::super::items::{Item, KEY, STATE, TENANT, bytes, string, text};
use super::super::link::Link;
use super::super::partition::Partition;
use super::super::write::Terms;
use super::message::{
    CONTENT_TYPE, DESTINATION, ENDED, RECORD, UNDER_WAY, key_of, number_of, shard, sort_key, view,
};
use super::{body, history, queue};

/// Some of the messages in a range of numbers.
pub(super) struct Look {
    /// In the order of their numbers.
    pub(super) items: Vec<Item>,
    /// Number of the last message that was looked at, if there may be more.
    pub(super) next: Option<MessageNumber>,
}

/// Which messages are looked at.
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

/// Returns the kinds of shards that hold messages in a state.
fn kinds(state: Option<MessageState>) -> &'static [&'static str] {
    match state {
        None => &[UNDER_WAY, ENDED],
        Some(state) if state.is_final() => &[ENDED],
        Some(_) => &[UNDER_WAY],
    }
}

/// Builds the filter that the service applies itself, to send less. It still reads the filtered items.
fn filter(terms: &mut Terms, query: &MessageQuery) -> Option<String> {
    let wanted = [
        (STATE, query.state.map(MessageState::as_str)),
        (DESTINATION, query.destination.as_deref()),
        (TENANT, query.tenant.as_ref().map(Tenant::as_str)),
        (KEY, query.derived_key.as_deref()),
    ];
    let wanted = wanted.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let mut holds: Vec<String> =
        wanted.map(|(name, value)| terms.is(name, "=", text(value))).collect();
    let record = query.record.as_ref().map(|record| bytes(record.as_bytes()));
    holds.extend(record.map(|record| terms.is(RECORD, "=", record)));
    (!holds.is_empty()).then(|| holds.join(" AND "))
}

/// Returns true if a message that [`filter`] lets through matches the rest of the query.
fn is_meant(query: &MessageQuery, view: &MessageView) -> bool {
    query.problem.as_ref().is_none_or(|wanted| {
        view.problem.as_ref().is_some_and(|problem| problem.contains(wanted))
            || view.status.is_some_and(|status| status.to_string() == *wanted)
    })
}

/// See [`firstwrite_core::outbox::Outbox::messages`].
pub(super) async fn messages(link: &Link, query: &MessageQuery) -> Result<MessagePage, StoreError> {
    const DOING: &str = "listing messages";
    let limit = query.limit.clamp(1, MessageQuery::LIMIT_MAX);
    let is_whole = *query
        == MessageQuery { after: query.after, limit: query.limit, ..MessageQuery::default() };
    let range = Range {
        kinds: kinds(query.state),
        after: query.after,
        until: None,
        // One more than asked for tells whether there is a next page.
        limit: is_whole.then_some(limit + 1),
    };
    let Look { items, mut next } = range.look(link, DOING, |terms| filter(terms, query)).await?;
    let mut messages = items.iter().map(view).collect::<Result<Vec<_>, _>>()?;
    messages.retain(|view| is_meant(query, view));
    if messages.len() > limit {
        messages.truncate(limit);
        next = messages.last().map(|view| view.number);
    }
    Ok(MessagePage { messages, next, now: link.now() })
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
    let (payload, answers) = body::load(link, &item, DOING).await?;
    let deliveries = history::past_deliveries(link, number).await?;
    let audits = audit::list(link, &audit::of_record(message.record)).await?;
    let content_type = string(&item, CONTENT_TYPE)?.to_owned();
    let now = link.now();
    Ok(Some(MessageStory { message, content_type, payload, answers, deliveries, audits, now }))
}
