//! Reap: delete records past their retention.

use std::time::Duration;

use firstwrite_core::{Store, StoreError};

use super::Load;

/// An hour of slack stands between retention and reaping; a minute more costs only space.
pub const REAP_EVERY: Duration = Duration::from_mins(1);
/// A small batch never locks traffic out.
pub const REAP_LIMIT: usize = 500;

/// One turn of the reaping: deletes up to `limit` records that no longer answer.
pub async fn reap_once(store: &dyn Store, limit: usize) -> Result<usize, StoreError> {
    store.reap(limit).await
}

pub(super) fn say(reaped: usize) {
    if reaped > 0 {
        tracing::info!(reaped, "records past their retention were deleted");
    }
}

pub(super) fn load(reaped: usize) -> Load {
    if reaped < REAP_LIMIT { Load::Light } else { Load::Full }
}
