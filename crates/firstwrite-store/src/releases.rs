//! Dropped transactions that are being rolled back, so that a retry in the same process does not meet the
//! lock of an attempt that is over.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use firstwrite_core::{RecordId, lock};
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Roll-backs under way, by the record whose lock they give back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Releases {
    pending: Arc<Mutex<Pending>>,
}

type Pending = HashMap<RecordId, watch::Receiver<()>>;

impl Releases {
    /// Runs `undo` in a task of its own. Without a runtime it is dropped, which closes the connection.
    pub(crate) fn start(&self, id: RecordId, undo: impl Future<Output = ()> + Send + 'static) {
        let Ok(runtime) = Handle::try_current() else { return };
        let (done, pending) = watch::channel(());
        lock(&self.pending).insert(id, pending);
        let releases = self.clone();
        runtime.spawn(async move {
            undo.await;
            lock(&releases.pending).remove(&id);
            drop(done);
        });
    }

    /// Waits until nothing that this process has dropped holds the lock of `id`.
    pub(crate) async fn wait(&self, id: RecordId) {
        let pending = lock(&self.pending).get(&id).cloned();
        if let Some(mut pending) = pending {
            // It ends when the sender is gone; nothing is ever sent.
            while pending.changed().await.is_ok() {}
        }
    }
}
