//! Messages with their payloads, for comparing with what a destination says it did.

use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::outbox::{MessageNumber, Written, WrittenPage, WrittenQuery};
use firstwrite_core::{StoreError, Timestamp};
use mysql_async::Row;

use super::super::batch::time_in;
use super::super::listing::sql_count;
use super::super::pipeline::{Pipeline, Value};
use super::super::pool::Pool;
use super::super::rows::{bytes, instant_or_null, integer, is_null, owned_text};
use super::claim::answers;
use super::listing::{LOOKED_AT_MAX, PENDING_FROM, message_columns, message_joins, view};
use super::pending::PENDING_COLUMNS;

const DOING: &str = "reading messages";

/// Numbers grow with the time of writing, but for transactions that took long and clocks that were set back.
/// By more than this they are not apart.
const APART_MAX: Duration = Duration::from_hours(24);

/// Index of the first column after those of a view.
const WRITTEN_FROM: usize = PENDING_FROM + PENDING_COLUMNS;
/// Index of the column with the time of the last claim, in the pending row.
const CLAIMED_AT: usize = PENDING_FROM + 7;

/// See [`firstwrite_core::outbox::Outbox::written`].
pub(super) async fn written(
    pool: &Arc<Pool>,
    query: &WrittenQuery,
) -> Result<WrittenPage, StoreError> {
    let limit = query.limit.clamp(1, WrittenQuery::LIMIT_MAX);
    let after = if let Some(after) = query.after {
        after.0
    } else {
        let from = query.from.as_millis().saturating_sub(millis(APART_MAX));
        first_since(pool, from).await?.saturating_sub(1)
    };
    let mut pipeline = Pipeline::reading();
    let time = pipeline.add("SELECT @firstwrite_now", &[]);
    let sql = concat!(
        "SELECT ",
        message_columns!(),
        ", m.payload, m.answers, (SELECT MAX(d.at) FROM firstwrite_deliveries d \
         WHERE d.message = m.message AND d.ending IN ('delivered', 'refused', 'dropped')) \
         FROM (SELECT message FROM firstwrite_messages WHERE message > ? ORDER BY message LIMIT ?) s",
        message_joins!(),
        " WHERE m.destination = ? AND m.created_at >= ? AND m.created_at < ? \
         ORDER BY m.message LIMIT ?"
    );
    let place = pipeline.add(
        sql,
        &[
            Value::Int(after),
            Value::Int(sql_count(LOOKED_AT_MAX)),
            Value::Text(&query.destination),
            Value::Int(query.from.as_millis()),
            Value::Int(query.until.as_millis()),
            Value::Int(sql_count(limit + 1)),
        ],
    );
    // The last message that this page looks at, if there are more behind it that can be meant.
    let end = pipeline.add(
        "SELECT message, created_at FROM firstwrite_messages WHERE message > ? \
         ORDER BY message LIMIT 2 OFFSET ?",
        &[Value::Int(after), Value::Int(sql_count(LOOKED_AT_MAX - 1))],
    );
    let found = pool.send(DOING, &pipeline).await?;
    let mut page = WrittenPage { messages: Vec::new(), next: None, now: time_in(&found[time])? };
    let mut page_bytes = 0;
    for row in &found[place].rows {
        if page.messages.len() == limit || page_bytes > WrittenQuery::PAGE_BYTES_MAX {
            page.next = page.messages.last().map(|last| last.view.number);
            return Ok(page);
        }
        let written = written_row(row)?;
        page_bytes += written.payload.len();
        page.messages.push(written);
    }
    if let [last, behind] = found[end].rows.as_slice()
        && integer(behind, 1)? < query.until.plus(APART_MAX).as_millis()
    {
        page.next = Some(MessageNumber(integer(last, 0)?));
    }
    Ok(page)
}

fn written_row(row: &Row) -> Result<Written, StoreError> {
    let is_settled = is_null(row, PENDING_FROM);
    let handled_at = if is_settled { WRITTEN_FROM + 2 } else { CLAIMED_AT };
    Ok(Written {
        view: view(row)?,
        content_type: owned_text(row, 8)?,
        payload: bytes(row, WRITTEN_FROM)?.to_vec().into(),
        answers: answers(row, WRITTEN_FROM + 1)?,
        handled_at: instant_or_null(row, handled_at)?,
    })
}

/// The number of the first message that was written at `from` or later, by halving: times are not indexed,
/// which every message would have to pay for.
async fn first_since(pool: &Arc<Pool>, from: i64) -> Result<i64, StoreError> {
    let ask = async |sql: &str, values: &[Value<'_>]| {
        let mut pipeline = Pipeline::new();
        pipeline.add(sql, values);
        pool.send(DOING, &pipeline).await.map(|mut answers| answers.remove(0).rows)
    };
    let bounds = ask(
        "SELECT COALESCE(MIN(message), 0), COALESCE(MAX(message), 0) FROM firstwrite_messages",
        &[],
    )
    .await?;
    let Some(bounds) = bounds.first() else { return Ok(0) };
    let (mut low, mut high) = (integer(bounds, 0)?, integer(bounds, 1)?.saturating_add(1));
    while low < high {
        let middle = low + (high - low) / 2;
        let sql = "SELECT created_at FROM firstwrite_messages WHERE message >= ? \
                   ORDER BY message LIMIT 1";
        let created_at = match ask(sql, &[Value::Int(middle)]).await?.first() {
            Some(row) => Some(integer(row, 0)?),
            None => None,
        };
        if created_at.is_some_and(|created_at| created_at < from) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

fn millis(duration: Duration) -> i64 {
    Timestamp::EPOCH.plus(duration).as_millis()
}
