//! The embedded store: one file, one writer, and one commit shared by all waiting commands.
//!
//! WAL with `synchronous=FULL`: an acknowledged write survives a power cut. One thread writes and puts all
//! waiting commands into one commit; other threads read in parallel. Only one process at a time writes to a
//! file, guarded by a lock file next to it; any number may read.

mod connect;
mod dictionary;
pub(crate) mod doctor;
mod documents;
mod driver_error;
mod file_watch;
mod history_loss;
mod inbox;
mod keys;
mod listing;
mod opening;
mod outbox;
mod queue;
mod readers;
mod reap;
mod records;
mod rows;
mod schema;
mod session;
mod store_clock;
mod threads;
mod tx;
mod writer;
mod writer_lock;

use std::fmt;
use std::future::ready;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::host_clock::{ClockJump, StoreClock};
use firstwrite_core::{
    Capabilities, Conclusion, Found, HistoryClearance, HistoryLoss, RecordId, Store, StoreError,
    StoreErrorKind, Transacted, TransactionalStore, store_methods,
};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::history_loss::mark;
use crate::{Migrated, OpenError};
use connect::Target;
pub use connect::{ForeignFile, MissingFile, SqliteOptions};
use driver_error::{Failure, unavailable, unsupported};
use queue::{Queue, Refused};
use readers::{Lookup, View};
use session::Session;
use threads::{Threads, Writes};
pub use tx::SqliteTx;
use writer::Command;
use writer_lock::WriterLock;

/// A store in one `SQLite` file. Clones share it; when the last one is dropped, waiting commands are
/// finished and the file is closed.
///
/// The application's own tables belong in the same file: [`write`](Self::write) makes and changes
/// them, a handler joins the store's transaction through
/// [`transact`](TransactionalStore::transact), and [`read`](Self::read) reads. Closures handed to
/// the store run on its threads: they must be short, and must not wait for the store itself.
#[derive(Clone)]
pub struct SqliteStore {
    threads: Arc<Threads>,
    clock: Arc<StoreClock>,
    /// Time for which a step waits for another program's lock on the file.
    busy_for: Duration,
}

impl SqliteStore {
    /// Opens the store in the file at `path` for writing. It must be there: in an empty store every key
    /// used before runs again.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(path, SqliteOptions::default())
    }

    /// Opens the file at `path` for writing, and creates it if it is not there. That it is new is logged as a
    /// warning.
    pub fn open_or_create(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let missing_file = MissingFile::Create;
        Self::open_with(path, SqliteOptions { missing_file, ..SqliteOptions::default() })
    }

    /// Creates the file at `path` if it is not there, and otherwise brings it to this build's version.
    pub fn migrate(path: impl AsRef<Path>) -> Result<Migrated, OpenError> {
        let missing_file = MissingFile::Create;
        let target = Target::for_writing(path.as_ref(), missing_file)?;
        let _lock = WriterLock::take(&target)?;
        let options = SqliteOptions { missing_file, ..SqliteOptions::default() };
        target.connect_writer(&options).map(|(_connection, migrated)| migrated)
    }

    /// Opens the file at `path` for writing, with settings.
    #[expect(clippy::needless_pass_by_value, reason = "options are made for the one call")]
    pub fn open_with(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, OpenError> {
        let target = Target::for_writing(path.as_ref(), options.missing_file)?;
        let lock = WriterLock::take(&target)?;
        let (connection, _migrated) = target.connect_writer(&options)?;
        let resumed = store_clock::resumed(&connection, &options);
        let (clock, jump) = resumed.map_err(|error| target.unreadable(error))?;
        let (clock, writes) = (Arc::new(clock), Writes { connection, lock, jump });
        let threads = Threads::start(&target, Some(writes), &options, &clock)?;
        tracing::info!(file = target.name, "opened for writing");
        Ok(Self { threads: Arc::new(threads), clock, busy_for: options.busy_for })
    }

    /// Opens the file at `path` for reading, alongside the process that writes to it. Operations that would
    /// change something return [`StoreErrorKind::Unsupported`].
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let options = SqliteOptions::default();
        let target = Target::for_reading(path.as_ref())?;
        let followed = store_clock::following(&target.connect_reader(options.busy_for)?, &options);
        let clock = Arc::new(followed.map_err(|error| target.unreadable(error))?);
        let threads = Threads::start(&target, None, &options, &clock)?;
        tracing::info!(file = target.name, "opened for reading");
        Ok(Self { threads: Arc::new(threads), clock, busy_for: options.busy_for })
    }

    /// Returns the SQL of the tables, with the meaning of their columns.
    pub fn schema() -> &'static str {
        schema::SQL
    }

    /// Runs the application's own statements on the writer, in a savepoint of the shared commit.
    ///
    /// If `work` fails or panics, its writes are rolled back, and nothing else. It may not begin, commit or
    /// roll back. In SQL, `firstwrite_now()` is the store's time in milliseconds.
    pub async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.command("running the application's statements", move |session: &Session| {
            session.run_statements(work)
        })
        .await
    }

    /// Runs the application's own queries on a reader, in one snapshot, in parallel with the writer.
    pub async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        const DOING: &str = "running the application's queries";
        ask(&self.threads.application_reads, DOING, readers::application_read(work)).await
    }

    /// Returns the number of commits this store has made: with many callers, far fewer than commands.
    pub fn commit_count(&self) -> u64 {
        self.threads.commit_count()
    }

    /// Every time that the file was found deleted or replaced under a running process, oldest first. While one
    /// is not cleared, keys that are not known are refused.
    pub async fn history_losses(&self) -> Result<Vec<HistoryLoss>, StoreError> {
        self.look("reading history losses", View::history_losses).await
    }

    /// Clears every open history loss, so that unknown keys can be written again; call it once an
    /// operator has examined the loss.
    ///
    /// Before that it marks every message that is not settled as one that may have been sent, and every
    /// uncertain record as given up now: the lost history may have sent it. If it fails halfway, the loss stays
    /// open.
    pub async fn clear_history_losses(
        &self,
        actor: &str,
        reason: &str,
    ) -> Result<HistoryClearance, StoreError> {
        const DOING: &str = "clearing history losses";
        self.command(DOING, |session| session.refuse_lost(DOING)).await?;
        let losses = self.history_losses().await?;
        if losses.iter().all(|loss| loss.cleared.is_some()) {
            return Ok(HistoryClearance::default());
        }
        let marked = mark(self, (actor, reason)).await?;
        let (by, why) = (actor.to_owned(), reason.to_owned());
        let clear = move |session: &Session| session.clear_history_losses(&by, &why);
        let losses = self.command(DOING, clear).await?;
        self.command("reading history losses", Session::believe_file).await?;
        let clearance = marked.of(losses);
        tracing::warn!(actor, ?clearance, "history losses were cleared");
        Ok(clearance)
    }

    /// Returns the jumps of the host's clock that no operator has confirmed. Outcomes from before such a
    /// jump are kept longer.
    pub async fn clock_jumps(&self) -> Result<Vec<ClockJump>, StoreError> {
        self.look("reading the clock's jumps", |view| {
            let failed = driver_error::definite("reading the clock's jumps");
            store_clock::jumps(&view.connection).map_err(failed)
        })
        .await
    }

    /// Counts every jump of the host's clock as elapsed time; call it when an operator knows that the
    /// machine was off for that long and that its clock is right. Returns the number of jumps confirmed.
    pub async fn confirm_clock(&self, actor: &str, reason: &str) -> Result<usize, StoreError> {
        const DOING: &str = "confirming the clock";
        let (by, why) = (actor.to_owned(), reason.to_owned());
        let confirm = move |session: &Session| {
            session.confirm_clock(&by, &why).map_err(Failure::batch(DOING))
        };
        let confirmed = self.command(DOING, confirm).await?;
        self.clock.confirm();
        tracing::warn!(actor, confirmed, "jumps of the host's clock were confirmed");
        Ok(confirmed)
    }

    /// Finishes waiting commands, closes the file and frees its lock. Clones return
    /// [`StoreErrorKind::Unavailable`] from now on.
    pub async fn close(self) {
        let (open, closed) = oneshot::channel::<()>();
        let threads = Arc::clone(&self.threads);
        drop(self);
        let stop = move || {
            threads.stop();
            drop((threads, open));
        };
        // Waiting for threads blocks, so it is done on one more; where none can be started, the
        // closure's end does the same.
        drop(std::thread::Builder::new().name("firstwrite-close".to_owned()).spawn(stop));
        // Nothing is ever sent: the sender is dropped when all is done.
        drop(closed.await);
    }

    /// Runs `work` on the writer and waits for the commit that holds it.
    async fn command<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Session) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, StoreError> {
        let Some(commands) = &self.threads.commands else {
            return Err(unsupported(doing, "the file was opened read-only"));
        };
        let (reply, answer) = oneshot::channel();
        commands
            .push(Box::new(Command::new(doing, work, reply)))
            .map_err(|refused| refused_error(doing, refused))?;
        answer.await.unwrap_or_else(|gone| {
            Err(StoreError::indeterminate(StoreErrorKind::Unavailable, doing).caused_by(gone))
        })
    }

    async fn check_trust(&self) -> Result<(), StoreError> {
        const DOING: &str = "checking the history";
        if self.threads.commands.is_some() {
            let check = |session: &Session| {
                session.look_at_files();
                session.refuse_if_history_lost(DOING)
            };
            return self.command(DOING, check).await;
        }
        let losses = self.history_losses().await?;
        match losses.into_iter().find(|loss| loss.cleared.is_none()) {
            Some(loss) => {
                let error = StoreError::definite(StoreErrorKind::HistoryLost, DOING);
                Err(error.caused_by(loss.detail))
            }
            None => Ok(()),
        }
    }

    async fn look<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&View) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        ask(&self.threads.lookups, doing, work).await
    }
}

async fn ask<T: Send + 'static>(
    queue: &Queue<Lookup>,
    doing: &'static str,
    work: impl FnOnce(&View) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let (reply, answer) = oneshot::channel();
    queue.push(readers::lookup(work, reply)).map_err(|refused| refused_error(doing, refused))?;
    answer.await.unwrap_or_else(|gone| Err(unavailable(doing, gone)))
}

fn refused_error(doing: &'static str, refused: Refused) -> StoreError {
    unavailable(
        doing,
        match refused {
            Refused::Full => "too busy: the queue is full",
            Refused::Closed => "the store is closed",
        },
    )
}

impl Store for SqliteStore {
    store_methods!(self;
        capabilities() => Capabilities {
            transactions: true,
            outbox: true,
            durable: true,
            server_time: true,
            answers_within: Some(self.busy_for),
        },
        insert(draft) => {
            let draft = draft.clone();
            self.command("inserting a record", move |session| session.insert(&draft))
        },
        swap(id, guard, change, audit) => {
            let audit = audit.cloned();
            self.command("swapping a record", move |session| {
                session.swap(id, guard, change, audit.as_ref())
            })
        },
        get(id) => self.look("looking a record up", move |view| view.get(id)),
        list(query) => {
            let query = query.clone();
            self.look("listing records", move |view| view.list(&query))
        },
        usage(after, limit) => self.look("counting records", move |view| view.usage(after, limit)),
        reap(limit) => self.command("reaping records", move |session| session.reap(limit)),
        audits(id) => self.look("reading audit entries", move |view| view.audits(id)),
        now() => ready(Ok(self.clock.now())),
        check_history(_id) => self.check_trust(),
        outbox() => Some(self),
        documents() => Some(self),
    );
}

impl TransactionalStore for SqliteStore {
    type Tx<'t> = SqliteTx<'t>;

    async fn transact<T, W>(&self, id: RecordId, work: W) -> Result<Transacted<T>, StoreError>
    where
        T: Send + 'static,
        W: for<'t> FnOnce(&mut SqliteTx<'t>, Option<Found>) -> Conclusion<T> + Send + 'static,
    {
        self.command("running a handler", move |session| session.transact(id, work)).await
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("writes", &self.threads.commands.is_some())
            .field("commit_count", &self.commit_count())
            .finish_non_exhaustive()
    }
}
