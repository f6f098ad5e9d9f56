//! The threads of a store: started together, and stopped in the order that leaves a clean file.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use firstwrite_core::host_clock::{ClockJump, StoreClock};
use firstwrite_core::lock;
use rusqlite::Connection;
use tokio::sync::Notify;

use super::connect::{SqliteOptions, Target};
use super::file_watch::FileWatch;
use super::queue::Queue;
use super::readers::{self, Lookup, View};
use super::schema;
use super::session::{Session, Watch};
use super::store_clock;
use super::writer::{self, Commands};
use super::writer_lock::WriterLock;
use crate::OpenError;

pub(super) struct Threads {
    /// `None` if the file is only read.
    pub(super) commands: Option<Arc<Commands>>,
    pub(super) lookups: Arc<Queue<Lookup>>,
    pub(super) application_reads: Arc<Queue<Lookup>>,
    /// Notified after a commit that makes messages claimable.
    pub(super) work: Arc<Notify>,
    watch: Arc<Watch>,
    readers: Mutex<Vec<JoinHandle<()>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// Resources that the writer thread starts with.
pub(super) struct Writes {
    pub(super) connection: Connection,
    pub(super) lock: WriterLock,
    pub(super) jump: Option<ClockJump>,
}

impl Threads {
    pub(super) fn start(
        target: &Target,
        writes: Option<Writes>,
        options: &SqliteOptions,
        clock: &Arc<StoreClock>,
    ) -> Result<Self, OpenError> {
        let mut threads = Self {
            commands: None,
            lookups: Arc::new(Queue::new(options.queue_max)),
            application_reads: Arc::new(Queue::new(options.queue_max)),
            work: Arc::default(),
            watch: Arc::default(),
            readers: Mutex::default(),
            writer: Mutex::default(),
        };
        if let Some(writes) = writes {
            threads.start_writer(target, writes, (options, clock))?;
        }
        for number in 0..options.readers.max(1) {
            for (queue, serve, name) in [
                (&threads.lookups, readers::serve as fn(&View, &Queue<Lookup>), "lookup"),
                (&threads.application_reads, readers::serve_application, "read"),
            ] {
                let connection = target.connect_reader(options.busy_for)?;
                let view = View::new(connection, Arc::clone(clock));
                let queue = Arc::clone(queue);
                let reader =
                    spawn(format!("firstwrite-{name}-{number}"), move || serve(&view, &queue))?;
                lock(&threads.readers).push(reader);
            }
        }
        Ok(threads)
    }

    pub(super) fn commit_count(&self) -> u64 {
        self.watch.commit_count()
    }

    /// Finishes all waiting work and joins every thread. The readers go first: the last connection to close
    /// folds the log into the file, and a reader cannot.
    pub(super) fn stop(&self) {
        self.lookups.close();
        self.application_reads.close();
        std::mem::take(&mut *lock(&self.readers)).into_iter().for_each(join);
        if let Some(commands) = &self.commands {
            commands.close();
        }
        lock(&self.writer).take().into_iter().for_each(join);
    }

    fn start_writer(
        &mut self,
        target: &Target,
        writes: Writes,
        (options, clock): (&SqliteOptions, &Arc<StoreClock>),
    ) -> Result<(), OpenError> {
        let Writes { connection, mut lock, jump } = writes;
        let read = || {
            let seen = store_clock::seen(&connection)?;
            Ok((seen, schema::life(&connection)?, schema::new_life(&connection)?))
        };
        let (seen, life, next) =
            read().map_err(|error: rusqlite::Error| target.unreadable(error))?;
        let loss = lock.word.loss(seen.map(|seen| seen.at), life.as_deref());
        lock.announce_life(life, &next).map_err(|error| target.lock_unwritable(error))?;
        let session = Session::new(connection, Arc::clone(clock), Arc::clone(&self.watch));
        let mut session = session.map_err(|error| target.unreadable(error))?;
        let begun = session.begin_life(&next, jump, loss.as_deref());
        begun.map_err(|error| target.unreadable(error))?;
        lock.begin_life(next, session.noted_at.get());
        session.files = Some((FileWatch::new(target), lock));
        let commands = Arc::new(Queue::new(options.queue_max));
        self.commands = Some(Arc::clone(&commands));
        let batch_max = options.batch_max.max(1);
        let work = Arc::clone(&self.work);
        let writer = spawn("firstwrite-writer".to_owned(), move || {
            writer::serve(session, &commands, (batch_max, &work));
        })?;
        self.writer = Mutex::new(Some(writer));
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads").field("watch", &self.watch).finish_non_exhaustive()
    }
}

fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, OpenError> {
    thread::Builder::new()
        .name(name)
        .spawn(work)
        .map_err(|error| OpenError::new("no thread could be started; try again").caused_by(error))
}

/// A thread that a panic of ours ended has been reported by the panic itself. The last clone of a
/// store may be dropped inside a closure, on the very thread that would be waited for.
fn join(thread: JoinHandle<()>) {
    if thread.thread().id() != thread::current().id() && thread.join().is_err() {
        tracing::error!("a thread of the store panicked");
    }
}
