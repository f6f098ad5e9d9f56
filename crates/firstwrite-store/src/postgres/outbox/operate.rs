//! Changes that operators and workers make to destinations.

use deadpool_postgres::Pool;
use firstwrite_core::outbox::{DestinationChange, OpeningChange, PauseChange};
use firstwrite_core::{RecordId, StoreError};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::parts::short_millis;
use crate::postgres::Shared;
use crate::postgres::columns::Id;
use crate::postgres::driver_error::{DriverError, failed_commit, no_connection};
use crate::postgres::link::PooledTransaction;
use crate::postgres::sql::{Parameters, Statement};

pub(super) const DOING: &str = "changing a destination";

/// The parts of a change, as the statement knows them.
const KEPT: i16 = 0;
const SET: i16 = 1;
const CLEARED: i16 = 2;
const TRIAL_NOW: i16 = 3;

/// See [`firstwrite_core::outbox::Outbox::put_destination`].
pub(super) async fn put_destination(
    shared: &Shared,
    pool: &Pool,
    destination: &str,
    change: &DestinationChange,
) -> Result<(), StoreError> {
    let (pause, by) = match &change.pause {
        None => (KEPT, None),
        Some(PauseChange::Paused(by)) => (SET, Some(by)),
        Some(PauseChange::Resumed) => (CLEARED, None),
    };
    let (opening, open_for, cause, opening_count) = match &change.opening {
        None => (KEPT, 0, None, 0),
        Some(OpeningChange::Open { open_for, cause, opening_count }) => {
            let count = i32::try_from(*opening_count).unwrap_or(i32::MAX);
            (SET, short_millis(*open_for), Some(cause), count)
        }
        Some(OpeningChange::Closed) => (CLEARED, 0, None, 0),
        Some(OpeningChange::TrialNow) => (TRIAL_NOW, 0, None, 0),
    };
    let audit = change.audit.as_ref();
    let given: [&(dyn ToSql + Sync); 13] = [
        &destination,
        &pause,
        &by.map(|by| &by.actor),
        &by.map(|by| &by.action),
        &by.map(|by| &by.reason),
        &opening,
        &open_for,
        &cause,
        &opening_count,
        &Id(RecordId::of_destination(destination)),
        &audit.map(|entry| &entry.actor),
        &audit.map(|entry| &entry.action),
        &audit.map(|entry| &entry.reason),
    ];
    write(shared, pool, DOING, &shared.sql.outbox.put_destination, &given).await.map(drop)
}

/// Runs one statement that writes, in a transaction of its own.
pub(in crate::postgres) async fn write(
    shared: &Shared,
    pool: &Pool,
    doing: &'static str,
    statement: &Statement,
    given: &Parameters<'_>,
) -> Result<Vec<Row>, StoreError> {
    let held =
        PooledTransaction::new(pool.get().await.map_err(|error| no_connection(doing)(&error))?);
    let link = held.link(shared);
    let rows = link.alone(&shared.server.begins().rare, statement, given).await;
    let rows = rows.map_err(failed_commit::<DriverError>(doing))?;
    held.settle();
    Ok(rows)
}
