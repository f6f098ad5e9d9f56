//! What the store does on its own connections for transactions of somebody else's pool.

use firstwrite_core::{Found, RecordId, StoreError};

use crate::postgres::doubt::greet_to_write;
use crate::postgres::fault::{definite, no_connection};
use crate::postgres::link::Held;
use crate::postgres::tx::{BEGINNING, look_again};
use crate::postgres::{Inner, PostgresStore};

impl PostgresStore {
    /// Waits for what must be over before a transaction on `id` begins.
    pub(super) async fn ready_for(&self, id: RecordId) -> Result<(), StoreError> {
        self.writes(BEGINNING)?;
        self.inner.shared.releases.wait(id).await;
        Ok(())
    }

    /// Asks the server whether it has what was acknowledged.
    pub(super) async fn greet(&self) -> Result<(), StoreError> {
        let Inner { shared, pool, .. } = &*self.inner;
        let held = Held::new(pool.get().await.map_err(|error| no_connection(BEGINNING)(&error))?);
        greet_to_write(shared, held.link(shared).client).await.map_err(definite(BEGINNING))?;
        held.settle();
        Ok(())
    }

    /// What stands under `id`, as the server has it now.
    pub(super) async fn look_up(&self, id: RecordId) -> Result<Option<Found>, StoreError> {
        let client =
            self.inner.pool.get().await.map_err(|error| no_connection(BEGINNING)(&error))?;
        let held = Held::new(client);
        let found = look_again(&held.link(&self.inner.shared), id).await?;
        held.settle();
        Ok(found)
    }
}
