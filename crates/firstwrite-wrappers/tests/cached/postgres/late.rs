//! A store whose answer to one look-up is a while on its way.

use std::sync::Mutex;

use firstwrite_core::{BoxFuture, Found, RecordId, Store, StoreError, delegate_store};
use firstwrite_store::PostgresStore;

/// Before the next look-up's answer arrives, something else happens.
pub(super) struct Late {
    inner: PostgresStore,
    meanwhile: Mutex<Option<BoxFuture<'static, ()>>>,
}

impl Late {
    pub(super) fn new(inner: PostgresStore, meanwhile: BoxFuture<'static, ()>) -> Self {
        Self { inner, meanwhile: Mutex::new(Some(meanwhile)) }
    }
}

impl std::fmt::Debug for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Late").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Store for Late {
    delegate_store!(
        inner:
            capabilities, insert, swap, list, usage, reap, audits, now,
            check_history
    );

    fn get(&self, id: RecordId) -> BoxFuture<'_, Result<Option<Found>, StoreError>> {
        let meanwhile = self.meanwhile.lock().unwrap().take();
        Box::pin(async move {
            let found = self.inner.get(id).await;
            if let Some(meanwhile) = meanwhile {
                meanwhile.await;
            }
            found
        })
    }
}
