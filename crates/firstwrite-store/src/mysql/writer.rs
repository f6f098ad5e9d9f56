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
use super::pipeline::SendError;
use super::pool::{Pool, PooledConnection};

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
    /// For a record that the last batch held already, or too much for it.
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
                Served::Done => {}
                // One slow foreign transaction must not hold up its neighbours: each command waits by
                // itself.
                Served::Blocked(batch) => {
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

enum Served {
    Done,
    /// Another application's transaction holds a lock for longer than a batch waits.
    Blocked(Vec<Command>),
}

/// Writes a batch and answers every command in it.
async fn serve(
    pool: &Arc<Pool>,
    batch: Vec<Command>,
    commits: &AtomicU64,
    spelling: &mut Spelling,
) -> Served {
    let mut held = match pool.get("writing records").await {
        Ok(held) => held,
        Err(error) => {
            for command in batch {
                command.refuse(|doing| unavailable(doing, error.to_string()));
            }
            return Served::Done;
        }
    };
    let mut batch = batch;
    for tried in 1.. {
        let flown = send(&mut held, &batch, *spelling).await;
        commits.fetch_add(1, Ordering::Relaxed);
        match flown {
            Ok(committed) => {
                batch = answer(batch, committed);
                if batch.is_empty() {
                    *spelling = Spelling::Together;
                } else {
                    batch = answer_met(held.connection(), batch).await;
                }
                if batch.is_empty() {
                    held.settle();
                    return Served::Done;
                }
                if tried >= TRIES_MAX {
                    held.settle();
                    refuse(batch, "rivals came and went");
                    return Served::Done;
                }
            }
            // A count went down: the verification records what is missing, and the batch meets the loss.
            Err(error) if error.cause.is_history_missing() && tried < TRIES_MAX => {
                if !held.roll_back().await || held.verify().await.is_err() {
                    for command in batch {
                        command.refuse(|doing| error.error(doing));
                    }
                    return Served::Done;
                }
            }
            // One of the commands that share a statement met a record, or has lost its own; or history is
            // missing.
            Err(error) if error.cause.code() == Some(code::OUT_OF_RANGE) => {
                if !held.roll_back().await {
                    for command in batch {
                        command.refuse(|doing| error.error(doing));
                    }
                    return Served::Done;
                }
                if *spelling == Spelling::OneByOne {
                    batch = answer_without_history(held.connection(), batch).await;
                }
                *spelling = Spelling::OneByOne;
                if batch.is_empty() {
                    held.settle();
                    return Served::Done;
                }
            }
            Err(error) => match after(held, error, tried, batch.len()).await {
                After::Again(same) => held = same,
                After::Apart => return Served::Blocked(batch),
                After::Over(error) => {
                    for command in batch {
                        command.refuse(|doing| error.error(doing));
                    }
                    return Served::Done;
                }
            },
        }
    }
    Served::Done
}

/// Next step after a failed batch.
enum After {
    /// It was undone because of another transaction, and may be tried again.
    Again(PooledConnection),
    /// It was undone, and each command is to be tried by itself.
    Apart,
    Over(SendError),
}

async fn after(mut held: PooledConnection, error: SendError, tried: usize, count: usize) -> After {
    if error.is_unknown || error.cause.is_about_server() {
        held.fail(&error).await;
        return After::Over(error);
    }
    if !held.roll_back().await {
        return After::Over(error);
    }
    if error.cause.is_deadlock() && tried < TRIES_MAX {
        return After::Again(held);
    }
    held.settle();
    // One slow foreign transaction or one value that the server refuses must not fail its neighbours.
    if count > 1 { After::Apart } else { After::Over(error) }
}

async fn serve_alone(pool: &Arc<Pool>, command: Command, commits: &AtomicU64) {
    match serve(pool, vec![command], commits, &mut Spelling::OneByOne).await {
        Served::Done => {}
        Served::Blocked(batch) => refuse(batch, "another transaction holds the key"),
    }
}

fn refuse(batch: Vec<Command>, why: &'static str) {
    for command in batch {
        command.refuse(|doing| unavailable(doing, why));
    }
}
