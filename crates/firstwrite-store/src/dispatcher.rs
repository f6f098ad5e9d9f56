//! Dispatchers: one task takes what all callers wait for at once, so that they share a round trip and a
//! commit. What arrives while one batch is under way forms the next.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use firstwrite_core::{BoxFuture, RecordId, Store, StoreError, StoreErrorKind};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use crate::step_error::unavailable;

/// The callers' end of a dispatcher.
#[derive(Debug)]
pub(crate) struct Dispatcher<T> {
    queue: mpsc::Sender<T>,
    closing: Arc<Notify>,
    task: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

/// The dispatcher's end of the queue of commands.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    receiver: mpsc::Receiver<T>,
    closing: Arc<Notify>,
    batch_max: usize,
}

/// The channel for one caller's result.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// A write of one record.
pub(crate) trait Command: Send + 'static {
    fn id(&self) -> RecordId;

    /// Returns the approximate size in bytes, where the size of a batch matters.
    fn bytes(&self) -> usize {
        0
    }

    /// Answers with an error: the command was not executed, or it is unknown whether it was.
    fn refuse(self, error: impl FnOnce(&'static str) -> StoreError);
}

/// The server that batches are written to.
pub(crate) trait Batches: Send + 'static {
    type Command: Command;

    /// Maximum number of commands that wait alone; one more is refused as too busy.
    const ALONE_MAX: usize;

    /// Writes commands for different records, which are in the order of their ids, so that two processes
    /// cannot lock them crosswise. Answers all but those that it returns.
    fn write(
        &mut self,
        batch: Vec<Self::Command>,
    ) -> impl Future<Output = Unanswered<Self::Command>> + Send;

    /// Writes one command by itself, however long it waits for another transaction, and answers it.
    fn write_alone(&self, command: Self::Command) -> impl Future<Output = ()> + Send + 'static;
}

/// Commands that a batch did not answer.
pub(crate) struct Unanswered<C> {
    /// To be tried in the next batch.
    pub(crate) again: Vec<C>,
    /// One slow transaction of another application must not hold up its neighbours: these wait alone.
    pub(crate) alone: Vec<C>,
}

/// Size of one batch.
const BATCH_BYTES_MAX: usize = 1024 * 1024;

struct Writer<B: Batches> {
    server: B,
    waiting: Queue<B::Command>,
    /// Commands for a record that the last batch already wrote, or beyond its limit.
    carried: Vec<B::Command>,
    /// Commands that wait alone for another application's transaction, and how many for each record.
    alone: JoinSet<RecordId>,
    blocked: HashMap<RecordId, usize>,
}

impl<T: Send + 'static> Dispatcher<T> {
    /// Starts the task that `serve` makes of the queue.
    pub(crate) fn start<F: Future<Output = ()> + Send + 'static>(
        (queue_max, batch_max): (usize, usize),
        serve: impl FnOnce(Queue<T>) -> F,
    ) -> Self {
        let (queue, receiver) = mpsc::channel(queue_max.max(1));
        let closing = Arc::new(Notify::new());
        let batch_max = batch_max.max(1);
        let waiting = Queue { receiver, closing: Arc::clone(&closing), batch_max };
        let task = tokio::sync::Mutex::new(Some(tokio::spawn(serve(waiting))));
        Self { queue, closing, task }
    }

    /// Queues a command and waits for its result; if it cannot be queued, nothing is done about it.
    pub(crate) async fn ask<R>(
        &self,
        doing: &'static str,
        command: impl FnOnce(Reply<R>) -> T,
    ) -> Result<R, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.queue.try_send(command(reply)).map_err(|refused| {
            let why = match refused {
                TrySendError::Full(_) => "too busy: the queue is full",
                TrySendError::Closed(_) => "the store is closed",
            };
            unavailable(doing, why)
        })?;
        answer.await.unwrap_or_else(|ended| {
            Err(StoreError::indeterminate(StoreErrorKind::Unavailable, doing).caused_by(ended))
        })
    }

    /// Refuses new commands and finishes waiting ones.
    pub(crate) async fn close(&self) {
        self.closing.notify_one();
        if let Some(task) = self.task.lock().await.take() {
            // A task that panicked has ended too.
            drop(task.await);
        }
    }
}

impl<C: Command> Dispatcher<C> {
    /// Starts the task that writes to `server`.
    pub(crate) fn start_writer(limits: (usize, usize), server: impl Batches<Command = C>) -> Self {
        Self::start(limits, |waiting| {
            let (carried, alone, blocked) = (Vec::new(), JoinSet::new(), HashMap::new());
            Writer { server, waiting, carried, alone, blocked }.run()
        })
    }
}

impl<T> Queue<T> {
    /// Waits for items and takes up to a batch of them. Returns false if none will come any more. May be
    /// dropped and called again.
    pub(crate) async fn take(&mut self, into: &mut Vec<T>) -> bool {
        loop {
            tokio::select! {
                biased;
                count = self.receiver.recv_many(into, self.batch_max) => return count > 0,
                () = self.closing.notified() => self.receiver.close(),
            }
        }
    }
}

impl<B: Batches> Writer<B> {
    async fn run(mut self) {
        while let Some(batch) = self.next_batch().await {
            if batch.is_empty() {
                continue;
            }
            let Unanswered { again, alone } = self.server.write(batch).await;
            self.carried.extend(again);
            for command in alone {
                self.let_wait(command);
            }
        }
        while self.alone.join_next().await.is_some() {}
    }

    /// The next commands for different records, in the order of their ids, which may be none.
    async fn next_batch(&mut self) -> Option<Vec<B::Command>> {
        let mut commands = std::mem::take(&mut self.carried);
        while commands.is_empty() {
            tokio::select! {
                is_open = self.waiting.take(&mut commands) => {
                    if !is_open {
                        return None;
                    }
                }
                Some(ended) = self.alone.join_next() => self.unblock(ended.ok()),
            }
        }
        while commands.len() < self.waiting.batch_max
            && let Ok(command) = self.waiting.receiver.try_recv()
        {
            commands.push(command);
        }
        while let Some(ended) = self.alone.try_join_next() {
            self.unblock(ended.ok());
        }
        let (mut ids, mut bytes) = (HashSet::new(), 0);
        let mut batch = Vec::with_capacity(commands.len());
        for command in commands {
            let fits = batch.is_empty() || bytes + command.bytes() <= BATCH_BYTES_MAX;
            if self.blocked.contains_key(&command.id()) {
                self.let_wait(command);
            } else if fits && ids.insert(command.id()) {
                bytes += command.bytes();
                batch.push(command);
            } else {
                self.carried.push(command);
            }
        }
        batch.sort_unstable_by_key(Command::id);
        Some(batch)
    }

    /// Moves `command` out of the batch to wait alone for another application's transaction.
    fn let_wait(&mut self, command: B::Command) {
        if self.alone.len() >= B::ALONE_MAX {
            let why = "too busy: other transactions hold too many keys";
            return command.refuse(|doing| unavailable(doing, why));
        }
        let id = command.id();
        *self.blocked.entry(id).or_default() += 1;
        let written = self.server.write_alone(command);
        self.alone.spawn(async move {
            written.await;
            id
        });
    }

    fn unblock(&mut self, ended: Option<RecordId>) {
        let Some(id) = ended else { return };
        if let Some(count) = self.blocked.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                self.blocked.remove(&id);
            }
        }
    }
}

/// Boxes the futures of a store's own steps, for [`delegate_store`](firstwrite_core::delegate_store).
pub(crate) trait Boxed {
    fn boxed<'a, T>(
        &'a self,
        _step: &'static str,
        future: impl Future<Output = T> + Send + 'a,
    ) -> BoxFuture<'a, T> {
        Box::pin(future)
    }
}

impl<S: Store> Boxed for S {}
