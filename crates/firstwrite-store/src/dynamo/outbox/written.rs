//! Messages with their payloads, for comparing with what a destination says it did.

use std::time::Duration;

use firstwrite_core::outbox::{MessageNumber, Written, WrittenPage, WrittenQuery};
use firstwrite_core::{StoreError, Timestamp};

use super::super::items::{CREATED_AT, Item, instant, number, optional, string, text};
use super::super::link::Link;
use super::super::write::Terms;
use super::body;
use super::listing::{Look, Range};
use super::message::{
    CLAIMED_AT, CONTENT_TYPE, DESTINATION, ENDED, ENDED_AT, UNDER_WAY, state_of, view,
};
use super::numbers::first_at;

const DOING: &str = "reading messages";

/// A process whose clock was set back goes on with greater numbers. By more than this it is not.
const SET_BACK_MAX: Duration = Duration::from_hours(24);

/// See [`firstwrite_core::outbox::Outbox::written`].
pub(super) async fn written(link: &Link, query: &WrittenQuery) -> Result<WrittenPage, StoreError> {
    let limit = query.limit.clamp(1, WrittenQuery::LIMIT_MAX);
    // No number is smaller than the time at which it was given out.
    let start = MessageNumber(first_at(query.from).saturating_sub(1));
    let range = Range {
        kinds: &[UNDER_WAY, ENDED],
        after: Some(query.after.map_or(start, |after| after.max(start))),
        until: Some(MessageNumber(first_at(query.until.plus(SET_BACK_MAX)))),
        limit: None,
    };
    let filter = |terms: &mut Terms| {
        let holds = [
            terms.is(DESTINATION, "=", text(&*query.destination)),
            terms.is(CREATED_AT, ">=", number(query.from.as_millis())),
            terms.is(CREATED_AT, "<", number(query.until.as_millis())),
        ];
        Some(holds.join(" AND "))
    };
    let Look { items, next } = range.look(link, DOING, filter).await?;
    let mut page = WrittenPage { messages: Vec::new(), next, now: link.now() };
    let mut bytes = 0;
    for item in &items {
        if page.messages.len() == limit || bytes > WrittenQuery::PAGE_BYTES_MAX {
            page.next = page.messages.last().map(|last| last.view.number);
            break;
        }
        let written = read(link, item).await?;
        bytes += written.payload.len();
        page.messages.push(written);
    }
    Ok(page)
}

async fn read(link: &Link, item: &Item) -> Result<Written, StoreError> {
    let (payload, answers) = body::load(link, item, DOING).await?;
    let handled = if state_of(item)?.is_final() { ENDED_AT } else { CLAIMED_AT };
    let handled_at: Option<Timestamp> = optional(item, handled, instant)?;
    Ok(Written {
        view: view(item)?,
        content_type: string(item, CONTENT_TYPE)?.to_owned(),
        payload,
        answers,
        handled_at,
    })
}
