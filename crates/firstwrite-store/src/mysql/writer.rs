//! The dispatcher that writes: commands that arrive while one batch is under way form the next batch.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use firstwrite_core::StoreError;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinHandle, JoinSet};

use super::batch::{Command, Spelling, answer, answer_met, answer_without_history, send};
use super::driver_error::{code, unavailable};
use super::pool::Pool;

/// The callers' end of the dispatcher.
pub(super) struct Writes {
    queue: mpsc::Sender<Command>,
    closing: Arc<Notify>,
    task: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

struct Writer {
    pool: Arc<Pool>,
    queue: mpsc::Receiver<Command>,
    closing: Arc<Notify>,
    batch_max: usize,
    /// For a record that the last batch pooled already, or too much for it.
    carried: Vec<Command>,
    /// Commands that wait alone for another application's transaction.
    alone: JoinSet<()>,
    commit_count: Arc<AtomicU64>,
    /// Form of the next batch's statements: if one batch met existing records, the next is likely to as
    /// well.
    spelling: Spelling,
}

/// Outcomes of one batch together, before they are spelt out: a batch is one packet.
const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// Maximum number of attempts of a batch that the server rolled back because of another transaction, and of
/// an insert that met a record which was gone when it was looked up.
const TRIES_MAX: usize = 4;

/// Starts the dispatcher. `commit_count` counts its transactions.
pub(super) fn start(pool: &Arc<Pool>, commit_count: &Arc<AtomicU64>) -> Writes {
    let options = &pool.server.address.options;
    let (sender, queue) = mpsc::channel(options.queue_max.max(1));
    let closing = Arc::new(Notify::new());
    let writer = Writer {
        pool: Arc::clone(pool),
        queue,
        closing: Arc::clone(&closing),
        batch_max: options.batch_max.max(1),
        carried: Vec::new(),
        alone: JoinSet::new(),
        commit_count: Arc::clone(commit_count),
        spelling: Spelling::Together,
    };
    let task = tokio::sync::Mutex::new(Some(tokio::spawn(writer.run())));
    Writes { queue: sender, closing, task }
}

impl Writes {
    /// Queues a command; if it cannot be, nothing will be done about it.
    pub(super) fn push(&self, doing: &'static str, command: Command) -> Result<(), StoreError> {
        self.queue.try_send(command).map_err(|refused| {
            let why = match refused {
                TrySendError::Full(_) => "too busy: the queue is full",
                TrySendError::Closed(_) => "the store is closed",
            };
            unavailable(doing, why)
        })
    }

    /// Refuses new commands and finishes waiting ones.
    pub(super) async fn close(&self) {
        self.closing.notify_one();
        if let Some(task) = self.task.lock().await.take() {
            // A task that panicked has ended too.
            drop(task.await);
        }
    }
}

impl Writer {
    async fn run(mut self) {
        while let Some(batch) = self.next_batch().await {
            let commits = &self.commit_count;
            match serve(&self.pool, batch, commits, &mut self.spelling).await {
                BatchResult::Done => {}
                // One slow foreign transaction must not hold up its neighbours: each command waits by
                // itself.
                BatchResult::Apart(batch) => {
                    for command in batch {
                        let (pool, commits) = (Arc::clone(&self.pool), Arc::clone(commits));
                        self.alone
                            .spawn(async move { serve_alone(&pool, command, &commits).await });
                    }
                }
            }
            while self.alone.try_join_next().is_some() {}
        }
        while self.alone.join_next().await.is_some() {}
    }

    /// The next commands for different records, in the order of their ids, so that two processes cannot
    /// lock them crosswise.
    async fn next_batch(&mut self) -> Option<Vec<Command>> {
        let mut commands = std::mem::take(&mut self.carried);
        while commands.is_empty() {
            tokio::select! {
                biased;
                count = self.queue.recv_many(&mut commands, self.batch_max) => {
                    if count == 0 {
                        return None;
                    }
                }
                () = self.closing.notified() => self.queue.close(),
            }
        }
        while commands.len() < self.batch_max {
            let Ok(command) = self.queue.try_recv() else { break };
            commands.push(command);
        }
        let (mut ids, mut bytes) = (HashSet::new(), 0);
        let mut batch = Vec::with_capacity(commands.len());
        for command in commands {
            let fits = batch.is_empty() || bytes + command.bytes() <= BATCH_BYTES_MAX;
            if fits && ids.insert(command.id()) {
                bytes += command.bytes();
                batch.push(command);
            } else {
                self.carried.push(command);
            }
        }
        batch.sort_unstable_by_key(Command::id);
        Some(batch)
    }
}

/// Result of writing a batch.
enum BatchResult {
    /// Every command is answered.
    Done,
    /// Another application's transaction holds a lock for longer than a batch waits, or the server refuses a
    /// value: each command is to be tried by itself.
    Apart(Vec<Command>),
}

/// Writes a batch and answers every command in it.
async fn serve(
    pool: &Arc<Pool>,
    mut batch: Vec<Command>,
    commits: &AtomicU64,
    spelling: &mut Spelling,
) -> BatchResult {
    let mut pooled = match pool.get("writing records").await {
        Ok(pooled) => pooled,
        Err(error) => return refuse(batch, |doing| unavailable(doing, error.to_string())),
    };
    for tried in 1.. {
        let sent = send(&mut pooled, &batch, *spelling).await;
        commits.fetch_add(1, Ordering::Relaxed);
        let may_repeat = tried < TRIES_MAX;
        match sent {
            Ok(committed) => {
                batch = answer(batch, committed);
                if batch.is_empty() {
                    *spelling = Spelling::Together;
                } else {
                    batch = answer_met(pooled.connection(), batch).await;
                }
                if !may_repeat && !batch.is_empty() {
                    pooled.settle();
                    return refuse(batch, |doing| unavailable(doing, "rivals came and went"));
                }
            }
            // A count went down: the verification records what is missing, and the batch meets the loss.
            Err(error) if error.cause.is_history_missing() && may_repeat => {
                if !pooled.roll_back().await || pooled.verify().await.is_err() {
                    return refuse(batch, |doing| error.error(doing));
                }
            }
            // One of the commands that share a statement met a record, or has lost its own; or history is
            // missing.
            Err(error) if error.cause.code() == Some(code::OUT_OF_RANGE) => {
                if !pooled.roll_back().await {
                    return refuse(batch, |doing| error.error(doing));
                }
                if *spelling == Spelling::OneByOne {
                    batch = answer_without_history(pooled.connection(), batch).await;
                }
                *spelling = Spelling::OneByOne;
            }
            Err(error) if error.is_unknown || error.cause.is_about_server() => {
                pooled.fail(&error).await;
                return refuse(batch, |doing| error.error(doing));
            }
            Err(error) => {
                if !pooled.roll_back().await {
                    return refuse(batch, |doing| error.error(doing));
                }
                if !(error.cause.is_deadlock() && may_repeat) {
                    pooled.settle();
                    // One slow foreign transaction or one value that the server refuses must not fail its
                    // neighbours.
                    return if batch.len() > 1 {
                        BatchResult::Apart(batch)
                    } else {
                        refuse(batch, |doing| error.error(doing))
                    };
                }
            }
        }
        if batch.is_empty() {
            pooled.settle();
            break;
        }
    }
    BatchResult::Done
}

async fn serve_alone(pool: &Arc<Pool>, command: Command, commits: &AtomicU64) {
    match serve(pool, vec![command], commits, &mut Spelling::OneByOne).await {
        BatchResult::Done => {}
        BatchResult::Apart(batch) => {
            refuse(batch, |doing| unavailable(doing, "another transaction holds the key"));
        }
    }
}

fn refuse(batch: Vec<Command>, error: impl Fn(&'static str) -> StoreError) -> BatchResult {
    for command in batch {
        command.refuse(&error);
    }
    BatchResult::Done
}
