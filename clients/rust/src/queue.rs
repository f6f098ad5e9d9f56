//! The queue: intents that are sent in the order of their lanes, also after a restart.

mod running;
mod slots;
mod wakeup;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::draft::Draft;
use crate::end::{Done, Refused};
use crate::error::Error;
use crate::intent::Intent;
use crate::snapshot::Snapshot;
use crate::{BoxError, BoxFuture};
use wakeup::Wakeup;

pub(crate) use slots::Slot;

/// Changes of the application's own state as intents come and end.
///
/// A crash may repeat each, so what it changes must be idempotent: "set", not "add". An error is told to
/// [`failed`](Self::failed), the lane rests, and the hook is called again. Where one panics, so does the run, and the
/// next run calls it again. `()` does nothing.
pub trait QueueHooks: Send + Sync + 'static {
    /// The intent is written down, and not sent before this has returned: show its effect already.
    fn apply<'a>(&'a self, intent: &'a Snapshot) -> BoxFuture<'a, Result<(), BoxError>> {
        let _ = intent;
        Box::pin(std::future::ready(Ok(())))
    }

    /// It was carried out.
    fn confirm<'a>(
        &'a self,
        intent: &'a Snapshot,
        done: &'a Done,
    ) -> BoxFuture<'a, Result<(), BoxError>> {
        let _ = (intent, done);
        Box::pin(std::future::ready(Ok(())))
    }

    /// It was refused: take its effect back.
    fn rollback<'a>(
        &'a self,
        intent: &'a Snapshot,
        refused: &'a Refused,
    ) -> BoxFuture<'a, Result<(), BoxError>> {
        let _ = (intent, refused);
        Box::pin(std::future::ready(Ok(())))
    }

    /// A lane could not go on, and is tried again; or an entry cannot be read ([`Error::Damaged`]), which is told once
    /// in a run. It stops its lane; where that cannot be known, `lane` is empty.
    fn failed(&self, lane: &str, error: &Error) {
        let _ = (lane, error);
    }
}

impl QueueHooks for () {}

/// Intents in lanes. Clones share everything.
#[derive(Clone)]
pub struct Queue {
    shared: Arc<Shared>,
    settings: Settings,
}

struct Shared {
    client: Client,
    hooks: Box<dyn QueueHooks>,
    wakeup: Wakeup,
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    poll: Duration,
    lanes_max: usize,
    acknowledges: bool,
}

impl Default for Settings {
    fn default() -> Self {
        // Soon enough for what another process enqueued, seldom enough for a folder that rests.
        Self { poll: Duration::from_secs(5), lanes_max: 16, acknowledges: false }
    }
}

impl Queue {
    pub(crate) fn new(client: Client, hooks: Box<dyn QueueHooks>) -> Self {
        let shared = Arc::new(Shared { client, hooks, wakeup: Wakeup::default() });
        Self { shared, settings: Settings::default() }
    }

    /// Acknowledges intents by itself after `confirm` or `rollback` has returned. Default: the application does.
    #[must_use]
    pub fn acknowledge_settled(mut self) -> Self {
        self.settings.acknowledges = true;
        self
    }

    /// Number of lanes that work at a time. One that waits, for a time that the server named, a back-off or the budget
    /// of retries, does not count. Default: 16.
    #[must_use]
    pub fn lanes_max(mut self, count: usize) -> Self {
        self.settings.lanes_max = count.max(1);
        self
    }

    /// The time between two looks for what other processes enqueued, and the rest of a lane that failed. Default: 5 s.
    #[must_use]
    pub fn poll(mut self, time: Duration) -> Self {
        self.settings.poll = time;
        self
    }

    /// Opens an intent at the end of a lane and runs `apply`. It is sent by [`run`](Self::run).
    ///
    /// A name that stands in this lane with the same request is the same intent; one that stands outside of the queue
    /// or in another lane is an [`IntentConflict`](Error::IntentConflict). Places of one process are in the order of
    /// these calls, those of several in the order of their clocks.
    pub async fn enqueue(&self, lane: impl Into<String>, draft: Draft) -> Result<Intent, Error> {
        let core = self.shared.client.core();
        let place = core.next_place(&lane.into()).await?;
        self.begin(draft.open_at(place).await?).await
    }

    /// Opens an intent anew, as [`Draft::supersede`], at the end of its lane, and runs `apply`. A `rollback` that is due
    /// runs before; while it fails, nothing is superseded.
    pub async fn supersede(&self, draft: Draft) -> Result<Intent, Error> {
        let (_, name, request) = draft.finish()?;
        let client = &self.shared.client;
        loop {
            self.shared.roll_back(&name).await?;
            match client.core().supersede(&name, request.clone()).await {
                // It was refused meanwhile.
                Err(Error::InLane { .. }) => {}
                superseded => return self.begin(Intent::new(client.clone(), superseded?)).await,
            }
        }
    }

    async fn begin(&self, intent: Intent) -> Result<Intent, Error> {
        let entry = self.shared.client.core().read_own(intent.name(), intent.key()).await?;
        self.shared.apply(&entry).await?;
        self.shared.wakeup.wake();
        Ok(intent)
    }

    /// The intents of all lanes, each lane in its order; and errors of entries that cannot be read.
    pub async fn list(&self) -> Result<Vec<Result<Snapshot, Error>>, Error> {
        let core = self.shared.client.core();
        let (mut lanes, mut errors) = (BTreeMap::new(), Vec::new());
        for entry in core.list().await? {
            match entry {
                Ok(entry) => {
                    if let Some(place) = &entry.place {
                        let at = (place.lane.clone(), place.number, entry.name.clone());
                        lanes.insert(at, Snapshot::of(&entry, core.wait_left(&entry)));
                    }
                }
                Err(error) => errors.push(Err(error)),
            }
        }
        Ok(lanes.into_values().map(Ok).chain(errors).collect())
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("settings", &self.settings).finish_non_exhaustive()
    }
}
