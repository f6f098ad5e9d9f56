//! What operators and workers say about destinations and single messages.

use deadpool_postgres::Pool;
use firstwrite_core::outbox::{
    Held, MessageNumber, MessageQuery, MessageState, Resolution, Switch,
};
use firstwrite_core::{AuditEntry, Fence, StoreError, Tenant};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::parts::{DELIVERED, DROPPED, REFUSED, cut, short_millis};
use crate::encoding::encode_outcome;
use crate::postgres::Shared;
use crate::postgres::fault::{Trouble, corrupt, definite, failed_commit, no_connection};
use crate::postgres::link::Held as Held_;
use crate::postgres::rows::column;
use crate::postgres::sql::{Parameters, Statement};

/// That a message did not arrive, as [`resolve.sql`] knows it.
const NOT_DELIVERED: i16 = -1;

/// See [`firstwrite_core::outbox::Outbox::switch`].
pub(super) async fn switch(
    shared: &Shared,
    pool: &Pool,
    destination: &str,
    switch: &Switch,
) -> Result<(), StoreError> {
    const DOING: &str = "switching a destination";
    let sql = &shared.sql.outbox;
    match switch {
        Switch::Open { open_for, cause } => {
            let given: [&(dyn ToSql + Sync); 3] =
                [&destination, &short_millis(*open_for), &cut(cause)];
            write(shared, pool, DOING, &sql.open, &given).await.map(drop)
        }
        Switch::Closed => write(shared, pool, DOING, &sql.close, &[&destination]).await.map(drop),
    }
}

/// See [`firstwrite_core::outbox::Outbox::pause`].
pub(super) async fn pause(
    shared: &Shared,
    pool: &Pool,
    destination: &str,
    by: &AuditEntry,
) -> Result<(), StoreError> {
    let given: [&(dyn ToSql + Sync); 4] = [&destination, &by.actor, &by.action, &by.reason];
    let pause = &shared.sql.outbox.pause;
    write(shared, pool, "pausing a destination", pause, &given).await.map(drop)
}

/// See [`firstwrite_core::outbox::Outbox::resume`].
pub(super) async fn resume(
    shared: &Shared,
    pool: &Pool,
    destination: &str,
    by: &AuditEntry,
) -> Result<(), StoreError> {
    let resume = &shared.sql.outbox.resume;
    write(shared, pool, "resuming a destination", resume, &[&destination]).await?;
    tracing::info!(destination, actor = by.actor, reason = by.reason, "a destination was resumed");
    Ok(())
}

/// See [`firstwrite_core::outbox::Outbox::redrive`].
pub(super) async fn redrive(
    shared: &Shared,
    pool: &Pool,
    query: &MessageQuery,
    limit: usize,
    by: &AuditEntry,
) -> Result<usize, StoreError> {
    const DOING: &str = "redriving messages";
    if query.state.is_some_and(|state| state != MessageState::Dead) {
        return Ok(0);
    }
    let tenant = query.tenant.as_ref().map(Tenant::as_str);
    let after = query.after.map_or(-1, |after| after.0);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let given: [&(dyn ToSql + Sync); 8] = [
        &query.destination,
        &tenant,
        &query.derived_key,
        &query.problem,
        &after,
        &limit,
        &by.actor,
        &by.reason,
    ];
    let rows = write(shared, pool, DOING, &shared.sql.outbox.redrive, &given).await?;
    let count: i64 = match rows.first() {
        Some(row) => column(row, 0)?,
        None => return Err(corrupt("a redrive does not say how many")),
    };
    Ok(usize::try_from(count).unwrap_or(0))
}

/// See [`firstwrite_core::outbox::Outbox::resolve`].
pub(super) async fn resolve(
    shared: &Shared,
    pool: &Pool,
    (number, seen): (MessageNumber, Fence),
    resolution: &Resolution,
    by: &AuditEntry,
) -> Result<Held, StoreError> {
    const DOING: &str = "resolving a message";
    let (found, provider_id, answer) = match resolution {
        Resolution::Delivered { receipt, answer } => {
            (DELIVERED, receipt.provider_id.as_deref().map(cut), answer.as_ref())
        }
        Resolution::NotDelivered => (NOT_DELIVERED, None, None),
        Resolution::Refused { answer } => (REFUSED, None, answer.as_ref()),
        Resolution::Dropped => (DROPPED, None, None),
    };
    // Another fence than any that was seen, so that a second finding is refused.
    let next = seen.next(seen.as_u64()).as_u64().cast_signed();
    let action = format!("{} message {number}", by.action);
    let given: [&(dyn ToSql + Sync); 9] = [
        &number.0,
        &seen.as_u64().cast_signed(),
        &next,
        &found,
        &provider_id,
        &answer.map(encode_outcome),
        &by.actor,
        &action,
        &by.reason,
    ];
    let held = Held_::new(pool.get().await.map_err(|error| no_connection(DOING)(&error))?);
    let link = held.link(shared);
    let sql = &link.sql().outbox;
    let begun = link.begin(&shared.server.begins().rare, &sql.resolve, &given).await;
    let found = begun.map_err(definite(DOING))?;
    link.query(&sql.let_go, &[&vec![number.0]]).await.map_err(definite(DOING))?;
    link.commit().await.map_err(failed_commit(DOING))?;
    held.settle();
    Ok(if found.is_empty() { Held::No } else { Held::Yes })
}

/// Runs one statement that writes, in a transaction of its own.
pub(in crate::postgres) async fn write(
    shared: &Shared,
    pool: &Pool,
    doing: &'static str,
    statement: &Statement,
    given: &Parameters<'_>,
) -> Result<Vec<Row>, StoreError> {
    let held = Held_::new(pool.get().await.map_err(|error| no_connection(doing)(&error))?);
    let link = held.link(shared);
    let rows = link.alone(&shared.server.begins().rare, statement, given).await;
    let rows = rows.map_err(failed_commit::<Trouble>(doing))?;
    held.settle();
    Ok(rows)
}
