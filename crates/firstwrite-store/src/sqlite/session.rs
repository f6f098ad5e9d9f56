//! The writer's connection, and how it runs the application's closures safely.
//!
//! A closure runs in a savepoint of the batch's transaction. While it runs, an authorizer refuses every
//! statement that would begin, commit or roll back, and a commit hook turns any commit that happens all the
//! same (after `INSERT OR ROLLBACK`, say) into a rollback: nothing becomes durable while a closure runs.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use firstwrite_core::host_clock::StoreClock;
use firstwrite_core::{StoreError, StoreErrorKind, Timestamp};
use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};

use super::dictionary::{BOUNDS, Dictionary};
use super::driver_error::{Failure, definite, unsupported};
use super::file_watch::FileWatch;
use super::history_loss::Trust;
use super::writer_lock::WriterLock;

/// The writer's state, shared by the commands of a batch.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) dictionary: Dictionary,
    pub(super) clock: Arc<StoreClock>,
    watch: Arc<Watch>,
    next_number: Cell<i64>,
    /// Row number after which the next reaping step continues.
    pub(super) reap_after: Cell<i64>,
    /// Position after which the next step of deleting messages continues.
    pub(super) upkeep_after: Cell<i64>,
    /// Set if this batch, once committed, makes new messages claimable.
    has_news: Cell<bool>,
    /// Error by which a message of the running closure was written only in part, if one was.
    half_enqueued: Cell<Option<StoreErrorKind>>,
    /// The files as they were opened, and the lock that keeps other writers out.
    pub(super) files: Option<(FileWatch, WriterLock)>,
    /// State of the file: whether its history is complete, and whether writes will be found again.
    pub(super) trust: RefCell<Trust>,
    /// Number of changes the connection had made when the last batch ended.
    pub(super) change_count: Cell<u64>,
    /// Time that was last written to the file.
    pub(super) noted_at: Cell<Timestamp>,
    /// The time that the open batch writes down, if it does.
    pub(super) noting: Cell<Option<Timestamp>>,
    /// Set if something was committed since the time was written down.
    pub(super) lacks_note: Cell<bool>,
    /// Milliseconds by which the host's clock was ahead of the store's time when last checked.
    pub(super) wall_ahead: Cell<i64>,
}

/// State shared with the authorizer and the commit hook.
#[derive(Debug, Default)]
pub(super) struct Watch {
    closure_runs: AtomicBool,
    denied: AtomicBool,
    commit_count: AtomicU64,
}

const SAVEPOINT: &str = "firstwrite_closure";

impl Watch {
    /// Returns the number of committed transactions.
    pub(super) fn commit_count(&self) -> u64 {
        self.commit_count.load(Ordering::Relaxed)
    }

    fn authorize(&self, context: AuthContext<'_>) -> Authorization {
        if !self.closure_runs.load(Ordering::Relaxed) {
            return Authorization::Allow;
        }
        let is_transaction = matches!(context.action, AuthAction::Transaction { .. });
        let is_our_savepoint = matches!(context.action,
            AuthAction::Savepoint { savepoint_name, .. } if savepoint_name == SAVEPOINT);
        if is_transaction || is_our_savepoint {
            self.denied.store(true, Ordering::Relaxed);
            return Authorization::Deny;
        }
        Authorization::Allow
    }

    /// Called before each commit; `true` turns it into a rollback.
    fn forbids_commit(&self) -> bool {
        let closure_runs = self.closure_runs.load(Ordering::Relaxed);
        if !closure_runs {
            self.commit_count.fetch_add(1, Ordering::Relaxed);
        }
        closure_runs
    }
}

impl Session {
    pub(super) fn new(
        mut connection: Connection,
        clock: Arc<StoreClock>,
        watch: Arc<Watch>,
    ) -> rusqlite::Result<Self> {
        let authorizer = Arc::clone(&watch);
        connection
            .authorizer(Some(move |context: AuthContext<'_>| authorizer.authorize(context)))?;
        let committer = Arc::clone(&watch);
        connection.commit_hook(Some(move || committer.forbids_commit()))?;
        let teller = Arc::clone(&clock);
        connection.create_scalar_function(
            "firstwrite_now",
            0,
            FunctionFlags::SQLITE_UTF8,
            move |_context| Ok(teller.now().as_millis()),
        )?;
        let newest = "SELECT max(coalesce((SELECT max(record) FROM firstwrite_records), 0),
                                 coalesce((SELECT max(record) FROM firstwrite_reservations), 0))";
        let newest: i64 = connection.query_row(newest, [], |row| row.get(0))?;
        Ok(Self {
            connection,
            dictionary: Dictionary::new(BOUNDS),
            clock,
            watch,
            next_number: Cell::new(newest + 1),
            reap_after: Cell::new(0),
            upkeep_after: Cell::new(0),
            has_news: Cell::new(false),
            half_enqueued: Cell::new(None),
            files: None,
            trust: RefCell::new(Trust::Whole),
            change_count: Cell::new(0),
            noted_at: Cell::new(Timestamp::EPOCH),
            noting: Cell::new(None),
            lacks_note: Cell::new(false),
            wall_ahead: Cell::new(0),
        })
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A number no record wears. One that is rolled back is never used again.
    pub(super) fn new_number(&self) -> i64 {
        self.next_number.replace(self.next_number.get() + 1)
    }

    /// Notes that messages may be claimable once this is committed.
    pub(super) fn notify(&self) {
        self.has_news.set(true);
    }

    /// Returns true if messages became claimable since the last call.
    pub(super) fn take_news(&self) -> bool {
        self.has_news.take()
    }

    /// Marks the running closure as spoilt: a message of it may be there without the rows that belong to
    /// it, so nothing of the closure may be kept, even if it goes on.
    pub(super) fn spoil_closure(&self, kind: StoreErrorKind) {
        self.half_enqueued.set(Some(kind));
    }

    /// Returns true if the batch's transaction is still open; `SQLite` ends it by itself on some errors.
    pub(super) fn is_in_transaction(&self) -> bool {
        !self.connection.is_autocommit()
    }

    pub(super) fn begin(&self) -> rusqlite::Result<()> {
        self.execute("BEGIN IMMEDIATE -- firstwrite")
    }

    pub(super) fn commit(&self) -> rusqlite::Result<()> {
        self.execute("COMMIT -- firstwrite")?;
        self.dictionary.committed();
        if let (Some(seen), Some((_, lock))) = (self.noting.take(), &self.files) {
            lock.note_seen(seen);
        }
        Ok(())
    }

    pub(super) fn roll_back(&self) -> rusqlite::Result<()> {
        if self.noting.take().is_some() {
            self.lacks_note.set(true);
        }
        self.dictionary.rolled_back();
        if self.is_in_transaction() { self.execute("ROLLBACK -- firstwrite") } else { Ok(()) }
    }

    /// Runs `work` inside a savepoint, which is still open when this returns; keep it or roll it back then.
    ///
    /// If `work` panics or tries to end the transaction, everything it did is undone here.
    pub(super) fn run_closure<T>(
        &self,
        doing: &'static str,
        work: impl FnOnce() -> T,
    ) -> Result<T, Failure> {
        self.execute("SAVEPOINT firstwrite_closure -- firstwrite")
            .map_err(Failure::batch(doing))?;
        self.watch.denied.store(false, Ordering::Relaxed);
        self.half_enqueued.set(None);
        self.watch.closure_runs.store(true, Ordering::Relaxed);
        let done = catch_unwind(AssertUnwindSafe(work));
        self.watch.closure_runs.store(false, Ordering::Relaxed);
        if !self.is_in_transaction() {
            let why = "a statement rolled the whole transaction back";
            return Err(Failure::Batch(unsupported(doing, why)));
        }
        let error = match done {
            Ok(_) if self.watch.denied.load(Ordering::Relaxed) => {
                let why =
                    "a closure may not begin, commit or roll back; its own savepoints are fine";
                unsupported(doing, why)
            }
            Ok(answer) => match self.half_enqueued.take() {
                None => return Ok(answer),
                Some(kind) => {
                    StoreError::definite(kind, doing).caused_by("a message could not be written")
                }
            },
            Err(_panic) => StoreError::definite(StoreErrorKind::Panicked, doing),
        };
        self.undo_closure(doing)?;
        Err(Failure::Own(error))
    }

    /// Keeps the closure's writes.
    pub(super) fn keep_closure(&self, doing: &'static str) -> Result<(), Failure> {
        self.execute("RELEASE firstwrite_closure -- firstwrite").map_err(Failure::batch(doing))
    }

    /// Rolls back the closure's writes.
    ///
    /// The existence of the savepoint proves that the transaction is the one it began in.
    pub(super) fn undo_closure(&self, doing: &'static str) -> Result<(), Failure> {
        self.dictionary.rolled_back();
        self.execute("ROLLBACK TO firstwrite_closure -- firstwrite")
            .map_err(Failure::batch(doing))?;
        self.keep_closure(doing)
    }

    /// Runs an application's own statements and keeps them if they succeed.
    pub(super) fn run_statements<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Failure> {
        const DOING: &str = "running the application's statements";
        self.refuse_lost(DOING)?;
        match self.run_closure(DOING, || work(&self.connection))? {
            Ok(answer) => {
                self.keep_closure(DOING)?;
                Ok(answer)
            }
            Err(error) => {
                self.undo_closure(DOING)?;
                Err(Failure::Own(definite(DOING)(error)))
            }
        }
    }

    /// Closures share the statement cache, and a cached statement passes no authorizer: the comment
    /// in each of these texts keeps a closure's own `COMMIT` from finding ours.
    fn execute(&self, sql: &'static str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute([]).map(drop)
    }
}
