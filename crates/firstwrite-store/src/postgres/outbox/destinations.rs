//! Destinations: pauses, openings of their breakers, and counts.

use std::sync::Arc;

use firstwrite_core::outbox::{DestinationChange, DestinationView, OpeningChange, PauseChange};
use firstwrite_core::{RecordId, StoreError};
use tokio_postgres::types::ToSql;

use super::parts::short_millis;
use crate::postgres::Shared;
use crate::postgres::columns::Id;
use crate::rows::destination;

pub(super) const DOING: &str = "changing a destination";

/// The parts of a change, as the statement knows them.
const KEPT: i16 = 0;
const SET: i16 = 1;
const CLEARED: i16 = 2;
const TRIAL_NOW: i16 = 3;

/// See [`firstwrite_core::outbox::Outbox::put_destination`].
pub(super) async fn put(
    shared: &Arc<Shared>,
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
    shared.write_alone(DOING, &shared.sql.outbox.put_destination, &given).await.map(drop)
}

/// See [`firstwrite_core::outbox::Outbox::destinations`].
pub(super) async fn list(shared: &Arc<Shared>) -> Result<Vec<DestinationView>, StoreError> {
    let all = &shared.sql.outbox.destinations;
    let rows = shared.read_alone("listing destinations", all, &[]).await?;
    rows.iter().map(destination).collect()
}
