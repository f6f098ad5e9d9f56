//! The client: its settings, and how intents are opened and found.

mod builder;
mod core;
mod locks;
mod waits;

use std::fmt;
use std::sync::Arc;

use crate::draft::Draft;
use crate::entry::Entry;
use crate::error::Error;
use crate::intent::Intent;
use crate::queue::{Queue, QueueHooks};
use crate::snapshot::Snapshot;
use crate::storage::Storage;
use crate::transport::Transport;

pub(crate) use self::core::{Core, Written};
pub use builder::{Builder, StatusUse};

/// Opens and sends intents. Clones share everything.
#[derive(Clone)]
pub struct Client {
    core: Arc<Core>,
}

impl Client {
    /// A client that writes into `storage` and sends by `transport`, with default settings.
    pub fn builder(storage: impl Storage, transport: impl Transport) -> Builder {
        Builder::new(Box::new(storage), Box::new(transport))
    }

    /// The intent of this name, on its way to be opened.
    pub fn intent(&self, name: impl Into<String>) -> Draft {
        Draft::new(self.clone(), name.into())
    }

    /// The intent of this name, if it stands.
    pub async fn find(&self, name: &str) -> Result<Option<Intent>, Error> {
        let entry = self.core.read(name).await?;
        Ok(entry.map(|entry| Intent::new(self.clone(), entry)))
    }

    /// All intents that stand, as they stand; and errors of those that cannot be read.
    pub async fn list(&self) -> Result<Vec<Result<Snapshot, Error>>, Error> {
        let snapshot = |entry: Entry| Snapshot::of(&entry, self.core.wait_left(&entry));
        Ok(self.core.list().await?.into_iter().map(|entry| entry.map(snapshot)).collect())
    }

    /// The queue of this client: intents that are sent in the order of their lanes.
    pub fn queue(&self, hooks: impl QueueHooks) -> Queue {
        Queue::new(self.clone(), Box::new(hooks))
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("storage", &self.core.storage).finish_non_exhaustive()
    }
}
