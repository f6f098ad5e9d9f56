//! The first half of clearing a history loss, on the runtime's clock.

use std::time::Duration;

use firstwrite_core::{HistoryClearance, Store, StoreError};

/// Time before messages are marked again that workers moved meanwhile: long enough for a worker to end its claims
/// on a loaded server.
const MARK_PAUSE: Duration = Duration::from_millis(250);

/// See [`HistoryClearance::mark`].
pub(crate) async fn mark(
    store: &dyn Store,
    by: (&str, &str),
) -> Result<HistoryClearance, StoreError> {
    HistoryClearance::mark(store, by, async || tokio::time::sleep(MARK_PAUSE).await).await
}
