//! Upkeep: fold the outbox's counts, and delete messages that were delivered long ago.

use std::time::Duration;

use firstwrite_core::outbox::MESSAGES_KEPT_FOR;
use firstwrite_core::{Store, StoreError};

use super::Load;

/// Counts are read as a sum of what was not yet folded: a few hundred rows at most.
pub const UPKEEP_EVERY: Duration = Duration::from_secs(10);
/// Small enough that other transactions do not wait for it.
pub const UPKEEP_LIMIT: usize = 1000;

/// Takes one turn; returns how many messages were deleted. A store without an outbox needs none.
pub async fn upkeep_once(store: &dyn Store, limit: usize) -> Result<usize, StoreError> {
    match store.outbox() {
        Some(outbox) => outbox.upkeep(MESSAGES_KEPT_FOR, limit).await,
        None => Ok(0),
    }
}

pub(super) fn load(deleted: usize) -> Load {
    if deleted < UPKEEP_LIMIT { Load::Light } else { Load::Full }
}
