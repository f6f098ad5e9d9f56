//! The readers: threads with their own connections, which neither block the writer nor wait for it. A
//! look-up sees every commit that was answered before it was asked.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use firstwrite_core::host_clock::StoreClock;
use firstwrite_core::{StoreError, StoreErrorKind, Timestamp};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::dictionary::{BOUNDS, Dictionary};
use super::driver_error::definite;
use super::queue::Queue;

/// Resources of a reader thread for a look-up.
#[derive(Debug)]
pub(super) struct View {
    pub(super) connection: Connection,
    pub(super) dictionary: Dictionary,
    pub(super) clock: Arc<StoreClock>,
}

/// A look-up that sends its own answer.
pub(super) type Lookup = Box<dyn FnOnce(&View) + Send>;

/// Maximum number of look-ups that share one snapshot: taking one costs as much as a look-up does, and the
/// first of so many does not wait long for the last.
const LOOKUPS_MAX: usize = 16;

impl View {
    pub(super) fn new(connection: Connection, clock: Arc<StoreClock>) -> Self {
        Self { connection, dictionary: Dictionary::new(BOUNDS), clock }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Holds one snapshot while `work` runs.
    fn in_snapshot(&self, work: impl FnOnce()) {
        // If it fails, every statement takes a snapshot of its own, which is as good for look-ups.
        let began = self.run("BEGIN");
        work();
        if began && !self.connection.is_autocommit() {
            self.run("ROLLBACK");
        }
        self.dictionary.committed();
    }

    fn run(&self, sql: &'static str) -> bool {
        let done = self.connection.prepare_cached(sql).and_then(|mut query| query.execute([]));
        if let Err(error) = &done {
            tracing::debug!(%error, sql, "a reader's snapshot");
        }
        done.is_ok()
    }
}

/// Serves the queue of the store's own look-ups until it is closed and empty.
pub(super) fn serve(view: &View, queue: &Queue<Lookup>) {
    loop {
        let lookups = queue.take(LOOKUPS_MAX);
        if lookups.is_empty() {
            return;
        }
        view.in_snapshot(|| lookups.into_iter().for_each(|lookup| lookup(view)));
    }
}

/// Serves the queue of the application's own reads, each in a snapshot of its own.
pub(super) fn serve_application(view: &View, queue: &Queue<Lookup>) {
    loop {
        let mut reads = queue.take(1);
        let Some(read) = reads.pop_front() else { return };
        view.in_snapshot(|| read(view));
    }
}

/// Makes a look-up of the store's own.
pub(super) fn lookup<T: Send + 'static>(
    work: impl FnOnce(&View) -> Result<T, StoreError> + Send + 'static,
    reply: oneshot::Sender<Result<T, StoreError>>,
) -> Lookup {
    Box::new(move |view| {
        // The caller may have stopped waiting; a look-up changed nothing.
        drop(reply.send(work(view)));
    })
}

/// A closure of the application's, which may panic.
pub(super) fn application_read<T: Send + 'static>(
    work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
) -> impl FnOnce(&View) -> Result<T, StoreError> + Send + 'static {
    const DOING: &str = "running the application's queries";
    move |view| match catch_unwind(AssertUnwindSafe(|| work(&view.connection))) {
        Ok(answer) => answer.map_err(definite(DOING)),
        Err(_panic) => Err(StoreError::definite(StoreErrorKind::Panicked, DOING)),
    }
}
