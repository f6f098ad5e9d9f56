//! The dispatcher that writes: commands that arrive while one batch is under way form the next batch.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use deadpool_postgres::Pool;
use firstwrite_core::RecordId;
use tokio::task::JoinSet;

use super::Shared;
use super::batch::{
    Command, Committed, SendError, answer_unknown, answer_unwritten, answer_written, send,
};
use super::connect::Role;
use super::dispatcher::{Dispatcher, OwnClient, Waiting, queue};
use super::driver_error::{DriverError, no_connection, unavailable};
use super::history_loss;
use super::link::{Link, PooledTransaction};

pub(super) struct Writer {
    shared: Arc<Shared>,
    pool: Pool,
    waiting: Waiting<Command>,
    client: OwnClient,
    /// For a record that the last batch held already.
    carried: Vec<Command>,
    /// Commands that wait alone for another application's transaction, and how many for each record.
    alone: JoinSet<RecordId>,
    blocked: HashMap<RecordId, usize>,
    commit_count: Arc<AtomicU64>,
}

/// Maximum number of commands that wait alone: each takes a pooled connection for as long as it waits.
/// Beyond this, a blocked command is refused as too busy.
const ALONE_MAX: usize = 16;

/// Starts the dispatcher. `commit_count` counts its transactions.
pub(super) fn start(
    shared: &Arc<Shared>,
    pool: &Pool,
    commit_count: &Arc<AtomicU64>,
) -> Dispatcher<Command> {
    let options = &shared.server.address.options;
    let (sender, waiting) = queue(options.queue_max, options.batch_max);
    let closing = waiting.closing();
    let writer = Writer {
        shared: Arc::clone(shared),
        pool: pool.clone(),
        waiting,
        client: OwnClient::new(Arc::clone(shared), Role::Writer, None),
        carried: Vec::new(),
        alone: JoinSet::new(),
        blocked: HashMap::new(),
        commit_count: Arc::clone(commit_count),
    };
    Dispatcher::start(sender, closing, writer.run())
}

impl Writer {
    async fn run(mut self) {
        while let Some(batch) = self.next_batch().await {
            self.serve(batch).await;
        }
        while self.alone.join_next().await.is_some() {}
    }

    /// The next commands for different records, in the order of their ids, which may be none.
    async fn next_batch(&mut self) -> Option<Vec<Command>> {
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
        self.waiting.take_more(&mut commands);
        while let Some(ended) = self.alone.try_join_next() {
            self.unblock(ended.ok());
        }
        let mut ids = HashSet::new();
        let mut batch = Vec::with_capacity(commands.len());
        for command in commands {
            if self.blocked.contains_key(&command.id()) {
                self.let_wait(command);
            } else if ids.insert(command.id()) {
                batch.push(command);
            } else {
                self.carried.push(command);
            }
        }
        batch.sort_unstable_by_key(Command::id);
        Some(batch)
    }

    async fn serve(&mut self, batch: Vec<Command>) {
        match self.send(&batch).await {
            Ok(written) => self.answer(batch, written).await,
            Err(SendError::Unknown { cause: error }) => {
                self.client.drop_client();
                answer_unknown(batch, &error);
            }
            // One slow foreign transaction or one bad value must not fail its neighbours.
            Err(SendError::RolledBack { cause: error }) if batch.len() > 1 && error.is_undone() => {
                for command in batch {
                    self.serve_one(command).await;
                }
            }
            Err(SendError::RolledBack { cause: error }) => self.refuse_or_wait(batch, &error),
        }
    }

    async fn serve_one(&mut self, command: Command) {
        let batch = vec![command];
        match self.send(&batch).await {
            Ok(written) => self.answer(batch, written).await,
            Err(SendError::Unknown { cause: error }) => {
                self.client.drop_client();
                answer_unknown(batch, &error);
            }
            Err(SendError::RolledBack { cause: error }) => self.refuse_or_wait(batch, &error),
        }
    }

    fn refuse_or_wait(&mut self, commands: Vec<Command>, error: &DriverError) {
        let is_blocked = error.is_blocked();
        for command in commands {
            if is_blocked {
                self.let_wait(command);
            } else {
                refuse(command, error);
            }
        }
    }

    async fn send(&mut self, batch: &[Command]) -> Result<Committed, SendError> {
        if batch.is_empty() {
            return Ok(Committed::default());
        }
        let client = match self.client.get().await {
            Ok(client) => client,
            Err(error) => return Err(SendError::RolledBack { cause: error }),
        };
        let link = Link { client, shared: &self.shared };
        let written = send(&link, &self.shared.server.begins().batch, batch).await;
        self.commit_count.fetch_add(1, Ordering::Relaxed);
        written
    }

    /// Answers a batch that was written, and looks up the records in the way of the rest.
    async fn answer(&mut self, batch: Vec<Command>, written: Committed) {
        if batch.is_empty() {
            return;
        }
        let client = match self.client.get().await {
            Ok(client) => client,
            // Lost just now: the written part is committed, and nothing else is.
            Err(error) => {
                for command in answer_written(&self.shared, batch, &written) {
                    refuse(command, &error);
                }
                return;
            }
        };
        let link = Link { client, shared: &self.shared };
        let again = conclude(&link, batch, &written).await;
        self.carried.extend(again);
    }

    /// Moves `command` out of the batch to wait alone for another application's transaction.
    fn let_wait(&mut self, command: Command) {
        if self.alone.len() >= ALONE_MAX {
            let why = "too busy: other transactions hold too many keys";
            return command.refuse(|doing| unavailable(doing, why));
        }
        let id = command.id();
        *self.blocked.entry(id).or_default() += 1;
        let (shared, pool) = (Arc::clone(&self.shared), self.pool.clone());
        self.alone.spawn(async move {
            run_alone(&shared, &pool, command).await;
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

/// Runs one command on a pooled connection, which waits as long as a lock may be waited for.
async fn run_alone(shared: &Shared, pool: &Pool, command: Command) {
    let client = match pool.get().await {
        Ok(client) => client,
        Err(error) => return command.refuse(|doing| no_connection(doing)(&error)),
    };
    let held = PooledTransaction::new(client);
    let link = held.link(shared);
    let batch = vec![command];
    match send(&link, &shared.server.begins().rare, &batch).await {
        Ok(written) => {
            for command in conclude(&link, batch, &written).await {
                command.refuse(|doing| unavailable(doing, "rivals came and went"));
            }
            held.settle();
        }
        Err(SendError::Unknown { cause: error }) => answer_unknown(batch, &error),
        Err(SendError::RolledBack { cause: error }) => {
            for command in batch {
                refuse(command, &error);
            }
        }
    }
}

/// Answers every command of a committed batch; returns inserts that may try again.
async fn conclude(link: &Link<'_>, batch: Vec<Command>, written: &Committed) -> Vec<Command> {
    let shared = link.shared;
    let left = answer_written(shared, batch, written);
    if left.is_empty() {
        return left;
    }
    let ids: Vec<RecordId> = left.iter().map(Command::id).collect();
    match link.look(&ids).await {
        Ok(looked) => return verified(link, answer_unwritten(shared, left, looked)).await,
        // One row that cannot be understood must not hide the others.
        Err(DriverError::Read(_)) if left.len() > 1 => {}
        Err(error) => {
            for command in left {
                refuse(command, &error);
            }
            return Vec::new();
        }
    }
    let mut again = Vec::new();
    for command in left {
        match link.look(&[command.id()]).await {
            Ok(looked) => again.extend(answer_unwritten(shared, vec![command], looked)),
            Err(error) => refuse(command, &error),
        }
    }
    verified(link, again).await
}

/// Verifies the server before `again` is retried, since it may not be the one that was asked; refuses them
/// if that fails.
async fn verified(link: &Link<'_>, again: Vec<Command>) -> Vec<Command> {
    if again.is_empty() {
        return again;
    }
    match history_loss::verify_history_to_write(link.shared, link.client).await {
        Ok(()) => again,
        Err(error) => {
            for command in again {
                refuse(command, &error);
            }
            Vec::new()
        }
    }
}

/// Answers that nothing was written.
fn refuse(command: Command, error: &DriverError) {
    command.refuse(|doing| error.definite(doing));
}
