//! Looking at messages: pages, previews of how many there are, and the story of one.

use std::sync::Arc;

use firstwrite_core::StoreError;
use firstwrite_core::outbox::{
    MessageNumber, MessagePage, MessageQuery, MessageState, MessageStory, MessageView, Receipt,
};
use mysql_async::Row;

use super::super::batch::time_in;
use super::super::listing::{ask_audits, audited, sql_count};
use super::super::pipeline::{Pipeline, Value};
use super::super::pool::Pool;
use super::super::rows::{
    bytes, count as small_count, fence, id, instant, integer, is_null, owned_text,
    owned_text_or_null, tenant,
};
use super::claim::answers;
use super::deliveries::{self, past_delivery};
use super::pending::{ordering_key, pending, state_number};
use crate::pending::settled_state;

/// Maximum number of messages that one page looks at. A page with few matches ends early and says where the next one
/// starts.
pub(super) const LOOKED_AT_MAX: usize = 20_000;

/// Columns of a message, of its pending row, and of the last row of its history, which says how a message ended that
/// is no longer pending. The messages are those in `s`.
macro_rules! message_columns {
    () => {
        concat!(
            "m.message, m.id, m.tenant, m.derived_key, m.destination, m.ordering_key, m.created_at, \
             LENGTH(m.payload), m.content_type, a.fence, a.provider_id, COALESCE(l.fence, 0), \
             (SELECT COUNT(*) FROM firstwrite_deliveries d \
              WHERE d.message = m.message AND d.ending <> 'dropped'), l.ending, ",
            super::pending::pending_columns!()
        )
    };
}
pub(super) use message_columns;

/// Index of the first column of the pending row.
pub(super) const PENDING_FROM: usize = 14;

macro_rules! message_joins {
    () => {
        " JOIN firstwrite_messages m ON m.message = s.message \
         LEFT JOIN firstwrite_pending p ON p.message = m.message \
         LEFT JOIN firstwrite_deliveries l ON l.message = m.message AND l.fence = \
             (SELECT MAX(d.fence) FROM firstwrite_deliveries d WHERE d.message = m.message) \
         LEFT JOIN firstwrite_deliveries a ON a.message = m.message AND a.fence = \
             (SELECT MIN(d.fence) FROM firstwrite_deliveries d \
              WHERE d.message = m.message AND d.ending = 'delivered')"
    };
}
pub(super) use message_joins;

/// Translates a query into SQL.
struct Filter<'q>(&'q MessageQuery);

impl Filter<'_> {
    /// Goes on with a statement that ends in an open bracket: which messages to look at, and which of them
    /// are meant.
    fn select(&self, pipeline: &mut Pipeline) {
        self.source(pipeline);
        pipeline.write(" LIMIT ?) s", &[Value::Int(sql_count(LOOKED_AT_MAX))]);
        pipeline.write(concat!(message_joins!(), " WHERE 1 = 1"), &[]);
        let query = self.0;
        if let Some(destination) = &query.destination {
            pipeline.write(" AND m.destination = ?", &[Value::Text(destination)]);
        }
        if let Some(state) = query.state {
            pipeline.write(
                " AND ? = CASE WHEN p.message IS NOT NULL THEN p.state \
                 WHEN l.ending = 'delivered' THEN 4 WHEN l.ending = 'refused' THEN 5 ELSE 6 END",
                &[Value::Int(state_number(state))],
            );
        }
        if let Some(tenant) = &query.tenant {
            let tenant = Value::Bytes(tenant.as_str().as_bytes());
            pipeline.write(" AND CAST(m.tenant AS BINARY) = ?", &[tenant]);
        }
        if let Some(problem) = &query.problem {
            let problem = Value::Text(problem);
            pipeline.write(
                " AND (INSTR(p.problem, ?) > 0 OR CAST(p.status AS CHAR) = ?)",
                &[problem, problem],
            );
        }
        if let Some(key) = &query.derived_key {
            pipeline.write(" AND m.derived_key = ?", &[Value::Text(key)]);
        }
        if let Some(record) = &query.record {
            pipeline.write(" AND m.id = ?", &[Value::Bytes(record.as_bytes())]);
        }
    }

    /// Goes on with the fewest messages that hold all that match, the oldest first.
    fn source(&self, pipeline: &mut Pipeline) {
        let after = Value::Int(self.0.after.map_or(i64::MIN, |number| number.0));
        // Without an index, which every message would pay for: a person asks this now and then.
        if let Some(key) = &self.0.derived_key {
            pipeline.write(
                "SELECT message FROM firstwrite_messages WHERE derived_key = ? AND message > ? \
                 ORDER BY message",
                &[Value::Text(key), after],
            );
            return;
        }
        if let Some(record) = &self.0.record {
            pipeline.write(
                "SELECT message FROM firstwrite_messages WHERE id = ? AND message > ? \
                 ORDER BY message",
                &[Value::Bytes(record.as_bytes()), after],
            );
            return;
        }
        match self.0.state {
            Some(state @ (MessageState::Unknown | MessageState::Dead)) => pipeline.write(
                "SELECT message FROM firstwrite_pending WHERE state = ? AND message > ? \
                 ORDER BY message",
                &[Value::Int(state_number(state)), after],
            ),
            Some(MessageState::Waiting | MessageState::Sending) => pipeline.write(
                "SELECT message FROM firstwrite_pending WHERE message > ? ORDER BY message",
                &[after],
            ),
            Some(MessageState::Delivered | MessageState::Refused | MessageState::Dropped)
            | None => pipeline.write(
                "SELECT message FROM firstwrite_messages WHERE message > ? ORDER BY message",
                &[after],
            ),
        }
    }
}

/// See [`firstwrite_core::outbox::Outbox::messages`].
pub(super) async fn messages(
    pool: &Arc<Pool>,
    query: &MessageQuery,
) -> Result<MessagePage, StoreError> {
    let limit = query.limit.clamp(1, MessageQuery::LIMIT_MAX);
    let filter = Filter(query);
    let mut pipeline = Pipeline::reading();
    let time = pipeline.add("SELECT @firstwrite_now", &[]);
    let place = pipeline.add(concat!("SELECT ", message_columns!(), " FROM ("), &[]);
    filter.select(&mut pipeline);
    // One more than asked for tells whether there is a next page.
    pipeline.write(" ORDER BY m.message LIMIT ?", &[Value::Int(sql_count(limit + 1))]);
    // The last message that this page looks at, if there are more behind it.
    let end = pipeline.add("", &[]);
    filter.source(&mut pipeline);
    pipeline.write(" LIMIT 2 OFFSET ?", &[Value::Int(sql_count(LOOKED_AT_MAX - 1))]);
    let answers = pool.send("listing messages", &pipeline).await?;
    let mut messages = answers[place].rows.iter().map(view).collect::<Result<Vec<_>, _>>()?;
    let is_full = messages.len() > limit;
    messages.truncate(limit);
    let next = match answers[end].rows.as_slice() {
        _ if is_full => messages.last().map(|message| message.number),
        // A key or a record has few messages, and no page of them ends early.
        [last, _behind] if query.derived_key.is_none() && query.record.is_none() => {
            Some(MessageNumber(integer(last, 0)?))
        }
        _ => None,
    };
    Ok(MessagePage { messages, next, now: time_in(&answers[time])? })
}

/// See [`firstwrite_core::outbox::Outbox::message`].
pub(super) async fn message(
    pool: &Arc<Pool>,
    number: MessageNumber,
) -> Result<Option<MessageStory>, StoreError> {
    const DOING: &str = "reading a message";
    let mut pipeline = Pipeline::reading();
    let time = pipeline.add("SELECT @firstwrite_now", &[]);
    let sql = concat!(
        "SELECT ",
        message_columns!(),
        ", m.payload, m.answers FROM (SELECT CAST(? AS SIGNED) AS message) s",
        message_joins!()
    );
    let place = pipeline.add(sql, &[Value::Int(number.0)]);
    let past = deliveries::look(&mut pipeline, number);
    let answered = pool.send(DOING, &pipeline).await?;
    let Some(row) = answered[place].rows.first() else { return Ok(None) };
    let message = view(row)?;
    let mut past = answered[past].rows.iter().map(past_delivery).collect::<Result<Vec<_>, _>>()?;
    past.reverse();
    let whole = PENDING_FROM + super::pending::PENDING_COLUMNS;
    let mut auditing = Pipeline::new();
    let audits = ask_audits(&mut auditing, message.record.as_bytes());
    let audits = audited(&pool.send(DOING, &auditing).await?[audits])?;
    Ok(Some(MessageStory {
        content_type: owned_text(row, 8)?,
        payload: bytes(row, whole)?.to_vec().into(),
        answers: answers(row, whole + 1)?,
        message,
        deliveries: past,
        audits,
        now: time_in(&answered[time])?,
    }))
}

/// Reads the columns of a message.
pub(super) fn view(row: &Row) -> Result<MessageView, StoreError> {
    let has_arrived = !is_null(row, 9);
    let receipt = if has_arrived {
        Some(Receipt { provider_id: owned_text_or_null(row, 10)? })
    } else {
        None
    };
    let view = MessageView {
        number: MessageNumber(integer(row, 0)?),
        record: id(row, 1)?,
        tenant: tenant(row, 2)?,
        derived_key: owned_text(row, 3)?,
        destination: owned_text(row, 4)?,
        ordering_key: ordering_key(row, 5)?,
        created_at: instant(row, 6)?,
        state: settled_state(owned_text_or_null(row, 13)?.as_deref()),
        fence: fence(row, 11)?,
        due_at: None,
        delivery_count: small_count(row, 12)?,
        maybe_sent_at: None,
        claimed_at: None,
        status: None,
        problem: None,
        receipt,
        payload_bytes: usize::try_from(integer(row, 7)?).unwrap_or_default(),
    };
    if is_null(row, PENDING_FROM) {
        return Ok(view);
    }
    let pending = pending(row, PENDING_FROM)?;
    Ok(pending.shown_in(view))
}
