//! Messages and destinations as operators see them.

use deadpool_postgres::Pool;
use firstwrite_core::outbox::{
    DestinationView, MessageNumber, MessagePage, MessageQuery, MessageState, MessageStory,
    MessageView, PastDelivery, Receipt,
};
use firstwrite_core::{AuditEntry, Audited, Fence, StoreError, Tenant, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::parts::{ending_word, number_of, state_number, state_of, unreadable};
use crate::encoding::decode_answers;
use crate::postgres::Shared;
use crate::postgres::columns::{At, Id};
use crate::postgres::driver_error::{DriverError, corrupt, definite, no_connection};
use crate::postgres::link::{Link, PooledTransaction};
use crate::postgres::listing::audited;
use crate::postgres::rows::column;

/// Maximum number of messages that one page looks at: see [`crate::postgres::listing`].
pub(super) const LOOKED_AT_MAX: i64 = 20_000;

/// See [`firstwrite_core::outbox::Outbox::messages`].
pub(super) async fn messages(
    shared: &Shared,
    pool: &Pool,
    query: &MessageQuery,
) -> Result<MessagePage, StoreError> {
    snapshot(shared, pool, "listing messages", async |link, now| page(link, query, now).await).await
}

async fn page(
    link: &Link<'_>,
    query: &MessageQuery,
    now: Timestamp,
) -> Result<MessagePage, DriverError> {
    let limit = query.limit.clamp(1, MessageQuery::LIMIT_MAX);
    // One more than asked for tells whether there is a next page.
    let row_max = i64::try_from(limit + 1).unwrap_or(i64::MAX);
    let sql = &link.sql().outbox;
    let given = Given::new(query, row_max, LOOKED_AT_MAX);
    let (statement, end) = match query.state {
        Some(MessageState::Unknown | MessageState::Dead) => (&sql.list_held, &sql.end_held),
        Some(MessageState::Waiting | MessageState::Sending) => {
            (&sql.list_pending, &sql.end_pending)
        }
        Some(MessageState::Delivered | MessageState::Refused | MessageState::Dropped) | None => {
            (&sql.list_log, &sql.end_log)
        }
    };
    let rows = match query.record {
        Some(record) => {
            let [after, destination, tenant, key, problem, state, row_max, _] = given.parameters();
            let id = Id(record);
            let given = [after, destination, tenant, key, problem, state, row_max, &id];
            link.query(&sql.list_record, &given).await?
        }
        None => link.query(statement, &given.parameters()).await?,
    };
    let messages: Result<Vec<MessageView>, StoreError> = rows.iter().map(view).collect();
    let mut messages = messages?;
    let is_full = messages.len() > limit;
    messages.truncate(limit);
    let next = if is_full {
        messages.last().map(|message| message.number)
    } else if query.record.is_none() {
        let looked_at = Given::new(query, LOOKED_AT_MAX - 1, LOOKED_AT_MAX + 1);
        match &link.query(end, &looked_at.parameters()).await?[..] {
            [last, _behind] => Some(MessageNumber(column(last, 0)?)),
            _ => None,
        }
    } else {
        None
    };
    Ok(MessagePage { messages, next, now })
}

/// See [`firstwrite_core::outbox::Outbox::message`].
pub(super) async fn message(
    shared: &Shared,
    pool: &Pool,
    number: MessageNumber,
) -> Result<Option<MessageStory>, StoreError> {
    snapshot(shared, pool, "reading a message", async |link, now| {
        let after = MessageNumber(number.0.saturating_sub(1));
        let query = MessageQuery { after: Some(after), ..MessageQuery::default() };
        let sql = &link.sql().outbox;
        let rows = link.query(&sql.list_log, &Given::new(&query, 1, 1).parameters()).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let message = view(row)?;
        if message.number != number {
            return Ok(None);
        }
        let whole = link.query(&sql.whole, &[&number.0]).await?;
        let whole = whole.first().ok_or_else(|| corrupt("a message that was there is gone"))?;
        let answers: Option<&[u8]> = column(whole, 1)?;
        let answers = answers.map(decode_answers).transpose().map_err(unreadable)?;
        let deliveries = link.query(&sql.deliveries, &[&number.0]).await?;
        let audits = link.query(&link.sql().audits, &[&Id(message.record)]).await?;
        let deliveries: Result<Vec<PastDelivery>, StoreError> =
            deliveries.iter().map(past).collect();
        let audits: Result<Vec<Audited>, StoreError> = audits.iter().map(audited).collect();
        Ok(Some(MessageStory {
            message,
            content_type: column(row, 17)?,
            payload: column::<Vec<u8>>(whole, 0)?.into(),
            answers: answers.map(Box::new),
            deliveries: deliveries?,
            audits: audits?,
            now,
        }))
    })
    .await
}

/// See [`firstwrite_core::outbox::Outbox::destinations`].
pub(super) async fn destinations(
    shared: &Shared,
    pool: &Pool,
) -> Result<Vec<DestinationView>, StoreError> {
    let rows = snapshot(shared, pool, "listing destinations", async |link, _now| {
        link.query(&link.sql().outbox.destinations, &[]).await
    })
    .await?;
    rows.iter().map(destination).collect()
}

/// Reads in one snapshot, on a pooled connection.
pub(in crate::postgres) async fn snapshot<T>(
    shared: &Shared,
    pool: &Pool,
    doing: &'static str,
    read: impl AsyncFnOnce(&Link<'_>, Timestamp) -> Result<T, DriverError>,
) -> Result<T, StoreError> {
    let held =
        PooledTransaction::new(pool.get().await.map_err(|error| no_connection(doing)(&error))?);
    let link = held.link(shared);
    let clock = link.begin(&shared.server.begins().snapshot, &link.sql().now, &[]).await;
    let clock = clock.map_err(definite(doing))?;
    let now = clock.first().map(|row| column::<At>(row, 0)).transpose()?.and_then(At::instant);
    let now = now.ok_or_else(|| corrupt("the clock has stopped"))?;
    let found = read(&link, now).await.map_err(definite(doing))?;
    link.commit().await.map_err(definite(doing))?;
    held.settle();
    Ok(found)
}

/// The parameters of a list.
struct Given<'a> {
    after: i64,
    destination: Option<&'a str>,
    tenant: Option<&'a str>,
    derived_key: Option<&'a str>,
    problem: Option<&'a str>,
    state: Option<i16>,
    row_max: i64,
    looked_at_max: i64,
}

impl<'a> Given<'a> {
    fn new(query: &'a MessageQuery, row_max: i64, looked_at_max: i64) -> Self {
        Self {
            after: query.after.map_or(-1, |after| after.0),
            destination: query.destination.as_deref(),
            tenant: query.tenant.as_ref().map(Tenant::as_str),
            derived_key: query.derived_key.as_deref(),
            problem: query.problem.as_deref(),
            state: query.state.map(state_number),
            row_max,
            looked_at_max,
        }
    }

    fn parameters(&self) -> [&(dyn ToSql + Sync); 8] {
        [
            &self.after,
            &self.destination,
            &self.tenant,
            &self.derived_key,
            &self.problem,
            &self.state,
            &self.row_max,
            &self.looked_at_max,
        ]
    }
}

pub(super) fn view(row: &Row) -> Result<MessageView, StoreError> {
    let at = |index| column::<Option<At>>(row, index).map(|at| at.and_then(At::instant));
    let has_arrived: bool = column(row, 14)?;
    let provider_id: Option<String> = column(row, 15)?;
    Ok(MessageView {
        number: MessageNumber(column(row, 0)?),
        record: column::<Id>(row, 1)?.0,
        tenant: Tenant::new(column(row, 2)?)
            .map_err(|_not_a_tenant| corrupt("a name that cannot be a tenant's"))?,
        derived_key: column(row, 3)?,
        destination: column(row, 4)?,
        ordering_key: column(row, 5)?,
        created_at: at(6)?.ok_or_else(|| corrupt("an instant is missing"))?,
        state: state_of(column(row, 7)?)?,
        fence: Fence::from_u64(column::<i64>(row, 8)?.cast_unsigned()),
        due_at: at(9)?,
        delivery_count: number_of(column(row, 10)?),
        maybe_sent_at: at(11)?,
        claimed_at: at(18)?,
        status: status(row, 12)?,
        problem: column(row, 13)?,
        receipt: has_arrived.then_some(Receipt { provider_id }),
        payload_bytes: usize::try_from(column::<i32>(row, 16)?).unwrap_or(0),
    })
}

fn past(row: &Row) -> Result<PastDelivery, StoreError> {
    let at = column::<At>(row, 0)?.instant();
    Ok(PastDelivery {
        at: at.ok_or_else(|| corrupt("an instant is missing"))?,
        fence: Fence::from_u64(column::<i64>(row, 1)?.cast_unsigned()),
        ending: ending_word(column(row, 2)?)?.to_owned(),
        status: status(row, 3)?,
        detail: column(row, 4)?,
        provider_id: column(row, 5)?,
    })
}

fn destination(row: &Row) -> Result<DestinationView, StoreError> {
    let at = |index| column::<Option<At>>(row, index).map(|at| at.and_then(At::instant));
    let word = |index| column::<Option<String>>(row, index).map(Option::unwrap_or_default);
    let paused = match at(1)? {
        Some(at) => {
            let entry = AuditEntry { actor: word(2)?, action: word(3)?, reason: word(4)? };
            Some(Audited { at, entry })
        }
        None => None,
    };
    Ok(DestinationView {
        name: column(row, 0)?,
        paused,
        open_until: at(5)?,
        open_cause: column(row, 6)?,
        opening_count: number_of(column(row, 7)?),
        open_count: column(row, 8)?,
        unknown_count: column(row, 9)?,
        dead_count: column(row, 10)?,
        delivered_count: column(row, 11)?,
        oldest_due_at: at(12)?,
    })
}

fn status(row: &Row, index: usize) -> Result<Option<u16>, StoreError> {
    Ok(column::<Option<i32>>(row, index)?.and_then(|status| u16::try_from(status).ok()))
}
