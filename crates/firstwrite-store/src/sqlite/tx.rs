//! The handler's view of the transaction that also stores its outcome.

use std::collections::HashSet;
use std::fmt;
use std::ops::Deref;

use firstwrite_core::{Message, StoreError, Tenant, Timestamp};
use rusqlite::Connection;

use super::driver_error::{definite, kind_of, unsupported};
use super::session::Session;

/// A transaction of an [`SqliteStore`](crate::SqliteStore): the writer's connection, inside a
/// savepoint.
///
/// It dereferences to the connection, so the handler's own rows are written as usual. Beginning,
/// committing or rolling back is refused, and fails the handler: the store commits, for many
/// requests at once. Savepoints of the handler's own are fine.
pub struct SqliteTx<'t> {
    session: &'t Session,
    now: Timestamp,
    enqueued: HashSet<(Tenant, String)>,
}

impl<'t> SqliteTx<'t> {
    pub(super) fn new(session: &'t Session, now: Timestamp) -> Self {
        Self { session, now, enqueued: HashSet::new() }
    }

    /// Writes a message, to be delivered if and only if the transaction commits.
    ///
    /// A step is enqueued at most once in a transaction: the destination tells messages apart by
    /// their derived keys.
    pub fn enqueue(&mut self, message: &Message) -> Result<(), StoreError> {
        const DOING: &str = "enqueuing a message";
        let identity = (message.tenant().clone(), message.derived_key().to_owned());
        if !self.enqueued.insert(identity) {
            return Err(unsupported(
                DOING,
                "the step was enqueued before in this transaction; name each message's step apart",
            ));
        }
        self.session.enqueue(message, self.now).map_err(|error| {
            self.session.spoil_closure(kind_of(&error));
            definite(DOING)(error)
        })
    }

    /// The store's time at which this transaction began: the same in everything it writes.
    pub fn now(&self) -> Timestamp {
        self.now
    }
}

impl Deref for SqliteTx<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.session.connection
    }
}

impl fmt::Debug for SqliteTx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteTx")
            .field("now", &self.now)
            .field("message_count", &self.enqueued.len())
            .finish_non_exhaustive()
    }
}
