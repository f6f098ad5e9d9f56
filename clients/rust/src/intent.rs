//! An intent that stands: sent until it has an end, then acknowledged.

use std::fmt;
use std::time::Duration;

use crate::client::{Client, Written};
use crate::end::{End, EndKind};
use crate::entry::Entry;
use crate::error::{Error, Pending};
use crate::key::Key;
use crate::queue::Slot;
use crate::sending::{self, Patience};
use crate::snapshot::Snapshot;

/// An intent that is written down.
#[derive(Clone)]
pub struct Intent {
    client: Client,
    name: String,
    key: Key,
}

impl Intent {
    pub(crate) fn new(client: Client, entry: Entry) -> Self {
        Self { client, name: entry.name, key: entry.key }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its key, by which the server's operators find what became of it. Who has it and the credentials can ask for
    /// the answer.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Sends it under its key until it has an end, or [`wait_for`](crate::Builder::wait_for) runs out: then it is
    /// [`Error::Pending`], and the next `send` goes on. One that ended already is not sent again: its end is returned.
    /// One that stands in a lane of the queue is [`Error::InLane`] until it has an end.
    ///
    /// The future may be dropped at any moment, and the process may die: what is known is written down.
    pub async fn send(&self) -> Result<End, Error> {
        self.send_for(self.client.core().settings.wait_for).await
    }

    /// The same, with a time of its own to wait for the end.
    pub async fn send_for(&self, wait_for: Duration) -> Result<End, Error> {
        let patience = Patience::Caller(wait_for);
        sending::send(self.client.core(), &self.name, &self.key, patience).await
    }

    /// Sends it until it has an end, however long that takes; the queue's way. While it waits it holds no slot.
    pub(crate) async fn send_to_the_end(&self, slot: &Slot<'_>) -> Result<End, Error> {
        sending::send(self.client.core(), &self.name, &self.key, Patience::Lane(slot)).await
    }

    /// Sends an intent that ended unknown again, under the same key, as long as the key lives. One that stands in a
    /// lane is [`Error::Pending`] then: the queue sends it.
    pub async fn resume(&self) -> Result<End, Error> {
        let core = self.client.core();
        loop {
            let entry = core.read_own(&self.name, &self.key).await?;
            let end = entry.end.as_ref().map(End::kind);
            if end != Some(EndKind::Unknown) {
                return Err(Error::NotUnknown { intent: self.name.clone(), end });
            }
            let now = core.clock.now();
            match core.write(&entry, entry.resumed(now)).await? {
                Written::Yes(entry) if entry.place.is_some() => {
                    return Err(Error::Pending(Pending::of(&entry, core.wait_left(&entry))));
                }
                Written::Yes(_) => return self.send().await,
                Written::No(_) => {}
            }
        }
    }

    /// Forgets an intent that ended. Nothing else does; a superseding one takes its place.
    pub async fn acknowledge(&self) -> Result<(), Error> {
        self.client.core().acknowledge(&self.name, &self.key).await
    }

    /// The intent as it stands.
    pub async fn snapshot(&self) -> Result<Snapshot, Error> {
        let core = self.client.core();
        let entry = core.read_own(&self.name, &self.key).await?;
        Ok(Snapshot::of(&entry, core.wait_left(&entry)))
    }
}

impl fmt::Debug for Intent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intent").field("name", &self.name).finish_non_exhaustive()
    }
}
