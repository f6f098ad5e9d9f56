//! Messages with their payloads, for comparing with what a destination says it did.

use std::time::Duration;

use deadpool_postgres::Pool;
use firstwrite_core::outbox::{MessageNumber, Written, WrittenPage, WrittenQuery};
use firstwrite_core::{StoreError, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::listing::{LOOKED_AT_MAX, snapshot, view};
use super::parts::unreadable;
use crate::encoding::decode_answers;
use crate::postgres::Shared;
use crate::postgres::columns::At;
use crate::postgres::driver_error::{DriverError, corrupt};
use crate::postgres::link::Link;
use crate::postgres::rows::column;

/// Maximum by which numbers are out of order with the time of writing. They grow with it, except for long
/// transactions and a server clock that was set back.
const OUT_OF_ORDER_MAX: Duration = Duration::from_hours(24);

/// Index of the first column after those of a list.
const WRITTEN_FROM: usize = 20;

/// See [`firstwrite_core::outbox::Outbox::written`].
pub(super) async fn written(
    shared: &Shared,
    pool: &Pool,
    query: &WrittenQuery,
) -> Result<WrittenPage, StoreError> {
    snapshot(shared, pool, "reading messages", async |link, now| page(link, query, now).await).await
}

async fn page(
    link: &Link<'_>,
    query: &WrittenQuery,
    now: Timestamp,
) -> Result<WrittenPage, DriverError> {
    let limit = query.limit.clamp(1, WrittenQuery::LIMIT_MAX);
    let after = match query.after {
        Some(after) => after.0,
        None => first_since(link, query.from).await?.saturating_sub(1),
    };
    let sql = &link.sql().outbox;
    // One more than asked for tells whether there is a next page.
    let row_max = i64::try_from(limit + 1).unwrap_or(i64::MAX);
    let bytes_max = i64::try_from(WrittenQuery::PAGE_BYTES_MAX).unwrap_or(i64::MAX);
    let (from, until) = (At::Instant(query.from), At::Instant(query.until));
    let none: Option<&str> = None;
    let any: Option<i16> = None;
    let given: [&(dyn ToSql + Sync); 11] = [
        &after,
        &query.destination,
        &none,
        &none,
        &none,
        &any,
        &row_max,
        &LOOKED_AT_MAX,
        &from,
        &until,
        &bytes_max,
    ];
    let rows = link.query(&sql.written, &given).await?;
    let mut messages = Vec::with_capacity(rows.len().min(limit));
    let mut next = None;
    for row in &rows {
        let payload: Option<Vec<u8>> = column(row, WRITTEN_FROM)?;
        let Some(payload) = payload.filter(|_| messages.len() < limit) else {
            next = messages.last().map(|last: &Written| last.view.number);
            break;
        };
        messages.push(read(row, payload)?);
    }
    if next.is_none() {
        next = looked_at_last(link, after, query).await?;
    }
    Ok(WrittenPage { messages, next, now })
}

fn read(row: &Row, payload: Vec<u8>) -> Result<Written, StoreError> {
    let answers: Option<Vec<u8>> = column(row, WRITTEN_FROM + 1)?;
    let answers = answers.map(|bytes| decode_answers(&bytes).map_err(unreadable)).transpose()?;
    Ok(Written {
        view: view(row)?,
        content_type: column(row, 17)?,
        payload: payload.into(),
        answers: answers.map(Box::new),
        handled_at: column::<Option<At>>(row, WRITTEN_FROM + 2)?.and_then(At::instant),
    })
}

/// The last message that a page after `after` looks at, if there are more behind it that can be meant.
async fn looked_at_last(
    link: &Link<'_>,
    after: i64,
    query: &WrittenQuery,
) -> Result<Option<MessageNumber>, DriverError> {
    let last = LOOKED_AT_MAX - 1;
    let rows = link.query(&link.sql().outbox.written_end, &[&after, &last]).await?;
    let [last, behind] = &rows[..] else { return Ok(None) };
    let is_over = instant(behind)? >= query.until.plus(OUT_OF_ORDER_MAX);
    let last: i64 = column(last, 0)?;
    Ok((!is_over).then_some(MessageNumber(last)))
}

/// The number of the first message that may have been written at `from` or later, by halving: times are
/// not indexed, which every message would have to pay for.
async fn first_since(link: &Link<'_>, from: Timestamp) -> Result<i64, DriverError> {
    let slack = i64::try_from(OUT_OF_ORDER_MAX.as_millis()).unwrap_or(i64::MAX);
    let from = Timestamp::from_millis(from.as_millis().saturating_sub(slack));
    let sql = &link.sql().outbox;
    let bounds = link.query(&sql.written_bounds, &[]).await?;
    let bounds = bounds.first().ok_or_else(|| corrupt("numbers have no bounds"))?;
    let (mut low, mut high): (i64, i64) = (column(bounds, 0)?, column(bounds, 1)?);
    high = high.saturating_add(1);
    while low < high {
        let middle = low + (high - low) / 2;
        let rows = link.query(&sql.written_end, &[&(middle - 1), &0_i64]).await?;
        let is_before = match rows.first() {
            Some(row) => instant(row)? < from,
            None => false,
        };
        if is_before {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

fn instant(row: &Row) -> Result<Timestamp, StoreError> {
    column::<At>(row, 1)?.instant().ok_or_else(|| corrupt("an instant is missing"))
}
