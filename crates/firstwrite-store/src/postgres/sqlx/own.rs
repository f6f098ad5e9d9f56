//! Steps on the store's own connections in support of transactions on the application's sqlx pool.

use firstwrite_core::{Found, RecordId, StoreError};

use crate::postgres::driver_error::{definite, no_connection};
use crate::postgres::history_loss::verify_history_to_write;
use crate::postgres::link::PooledTransaction;
use crate::postgres::tx::{BEGINNING, look_again};
use crate::postgres::{Inner, PostgresStore};

impl PostgresStore {
    /// Waits for dropped transactions on `id` that are being rolled back.
    pub(super) async fn ready_for(&self, id: RecordId) -> Result<(), StoreError> {
        self.writes(BEGINNING)?;
        self.inner.shared.releases.wait(id).await;
        Ok(())
    }

    /// Checks that the server has all acknowledged writes.
    pub(super) async fn verify_history(&self) -> Result<(), StoreError> {
        let Inner { shared, pool, .. } = &*self.inner;
        let held = PooledTransaction::new(
            pool.get().await.map_err(|error| no_connection(BEGINNING)(&error))?,
        );
        verify_history_to_write(shared, held.link(shared).client)
            .await
            .map_err(definite(BEGINNING))?;
        held.settle();
        Ok(())
    }

    /// Looks up the record under `id` on the server, as it is now.
    pub(super) async fn look_up(&self, id: RecordId) -> Result<Option<Found>, StoreError> {
        let client =
            self.inner.pool.get().await.map_err(|error| no_connection(BEGINNING)(&error))?;
        let held = PooledTransaction::new(client);
        let found = look_again(&held.link(&self.inner.shared), id).await?;
        held.settle();
        Ok(found)
    }
}
