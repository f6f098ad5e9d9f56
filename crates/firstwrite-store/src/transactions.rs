//! Transactions of handlers, as far as they are the same in each store: how one is open, what it writes at its end,
//! and how a dropped one is rolled back.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex};

use firstwrite_core::{
    Draft, DraftState, Found, Message, RecordId, Seen, StoreError, Tenant, Timestamp, Write, lock,
};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::step_error::unsupported;

pub(crate) const BEGINNING: &str = "beginning a handler's transaction";
pub(crate) const CONCLUDING: &str = "committing a handler's work";
pub(crate) const ENQUEUING: &str = "enqueuing a message";

pub(crate) const ENQUEUED_BEFORE: &str =
    "the step was enqueued before in this transaction; name each message's step apart";

/// Message of the `expect` on the open transaction.
pub(crate) const OPEN: &str = "a transaction is open until it is concluded";

/// Maximum number of messages of a transaction. A handler that needs more should combine them.
const MESSAGES_MAX: usize = 1000;

/// State of an open transaction on a connection `C`.
pub(crate) struct Open<C> {
    pub(crate) on: C,
    pub(crate) id: RecordId,
    pub(crate) now: Timestamp,
    /// The record that the handler's work will take over, as last read.
    pub(crate) stands: Option<Seen>,
    pub(crate) outgoing: Outgoing,
}

impl<C> Open<C> {
    pub(crate) fn new(on: C, id: RecordId, now: Timestamp, found: Option<&Found>) -> Self {
        let stands = found.map(|found| found.record.seen());
        Self { on, id, now, stands, outgoing: Outgoing::default() }
    }
}

impl<C> fmt::Debug for Open<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Open")
            .field("record", &self.id)
            .field("message_count", &self.outgoing.messages.len())
            .finish_non_exhaustive()
    }
}

/// Returns true if no attempt can run on the record that was found.
#[cfg(any(feature = "dynamodb", feature = "mysql"))]
pub(crate) fn is_final(found: &Found) -> bool {
    use firstwrite_core::State;

    matches!(&found.record.state, State::Completed { retained_until, .. } if found.now < *retained_until)
}

/// Messages of a handler, kept until they are written with its outcome.
#[derive(Default)]
pub(crate) struct Outgoing {
    messages: Vec<Message>,
    identities: HashSet<(Tenant, String)>,
}

impl Outgoing {
    pub(crate) fn push(&mut self, message: &Message) -> Result<(), StoreError> {
        if self.messages.len() >= MESSAGES_MAX {
            return Err(unsupported(ENQUEUING, "a transaction takes at most 1000 messages"));
        }
        let identity = (message.tenant().clone(), message.derived_key().to_owned());
        if !self.identities.insert(identity) {
            return Err(unsupported(ENQUEUING, ENQUEUED_BEFORE));
        }
        self.messages.push(message.clone());
        Ok(())
    }

    pub(crate) fn messages(&self) -> &[Message] {
        &self.messages
    }
}

/// Dropped transactions that are being rolled back, by the record whose lock they give back: a retry in the same
/// process waits for them, and does not meet the lock of an attempt that is over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Releases {
    under_way: Arc<Mutex<RollBacks>>,
}

/// By record; closed when the roll-back has ended.
type RollBacks = HashMap<RecordId, watch::Receiver<()>>;

impl Releases {
    /// Runs `undo` in a task of its own. Without a runtime it is dropped, which closes the connection.
    pub(crate) fn start(&self, id: RecordId, undo: impl Future<Output = ()> + Send + 'static) {
        let Ok(runtime) = Handle::try_current() else { return };
        let (done, ended) = watch::channel(());
        lock(&self.under_way).insert(id, ended);
        let releases = self.clone();
        runtime.spawn(async move {
            undo.await;
            lock(&releases.under_way).remove(&id);
            drop(done);
        });
    }

    /// Waits until nothing that this process has dropped holds the lock of `id`.
    pub(crate) async fn wait(&self, id: RecordId) {
        let ended = lock(&self.under_way).get(&id).cloned();
        if let Some(mut ended) = ended {
            // It ends when the sender is gone; nothing is ever sent.
            while ended.changed().await.is_ok() {}
        }
    }
}

/// A draft, and whether the handler's rows are kept with it.
type Conclusion = (Box<Draft>, bool);

/// Returns what is written at the end of a transaction on `id`, and whether the handler's rows are kept;
/// `None` if nothing is. Refuses a draft that a handler's work cannot be concluded with.
pub(crate) fn conclusion(write: Write, id: RecordId) -> Result<Option<Conclusion>, StoreError> {
    let (draft, keeps_rows) = match write {
        Write::Nothing => return Ok(None),
        Write::All(draft) => (draft, true),
        Write::RecordOnly(draft) => (draft, false),
    };
    if draft.id != id {
        return Err(unsupported(CONCLUDING, "the draft is for another record"));
    }
    match &draft.state {
        DraftState::Completed { .. } => Ok(Some((draft, keeps_rows))),
        DraftState::Reserved { .. } => {
            Err(unsupported(CONCLUDING, "a handler's work ends in an outcome"))
        }
    }
}
