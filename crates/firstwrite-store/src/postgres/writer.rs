//! The dispatcher that writes: commands that arrive while one batch is under way form the next batch.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use firstwrite_core::RecordId;
use tokio::task::JoinSet;

use super::Shared;
use super::batch::{self, BatchResult, Command, RIVALS_CAME_AND_WENT, refuse_all};
use super::connect::Role;
use super::dispatcher::{Dispatcher, OwnClient, Queue};
use super::driver_error::{DriverError, unavailable};
use super::link::{Link, PooledTransaction};

struct Writer {
    shared: Arc<Shared>,
    waiting: Queue<Command>,
    client: OwnClient,
    /// For a record that the last batch held already.
    carried: Vec<Command>,
    /// Commands that wait alone for another application's transaction, and how many for each record.
    alone: JoinSet<RecordId>,
    blocked: HashMap<RecordId, usize>,
}

/// Maximum number of commands that wait alone: each takes a pooled connection for as long as it waits.
/// Beyond this, a blocked command is refused as too busy.
const ALONE_MAX: usize = 16;

/// Starts the dispatcher.
pub(super) fn start(shared: &Arc<Shared>) -> Dispatcher<Command> {
    let options = &shared.server.address.options;
    Dispatcher::start(options, |waiting| {
        let writer = Writer {
            shared: Arc::clone(shared),
            waiting,
            client: OwnClient::new(Arc::clone(shared), Role::Writer, None),
            carried: Vec::new(),
            alone: JoinSet::new(),
            blocked: HashMap::new(),
        };
        writer.run()
    })
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
        match self.run_batch(batch).await {
            Ok(()) => {}
            // One slow foreign transaction or one bad value must not fail its neighbours.
            Err((commands, cause)) if commands.len() > 1 && cause.is_undone() => {
                for command in commands {
                    if let Err((alone, cause)) = self.run_batch(vec![command]).await {
                        self.refuse_or_wait(alone, &cause);
                    }
                }
            }
            Err((commands, cause)) => self.refuse_or_wait(commands, &cause),
        }
    }

    /// Runs a batch. If it was rolled back, returns its commands and the cause.
    async fn run_batch(&mut self, batch: Vec<Command>) -> Result<(), (Vec<Command>, DriverError)> {
        if batch.is_empty() {
            return Ok(());
        }
        let client = match self.client.get().await {
            Ok(client) => client,
            Err(error) => return Err((batch, error)),
        };
        self.shared.commit_count.fetch_add(1, Ordering::Relaxed);
        let link = Link { client, shared: &self.shared };
        match batch::run(&link, &self.shared.server.begins().batch, batch).await {
            BatchResult::Committed { again } => self.carried.extend(again),
            BatchResult::RolledBack { commands, cause } => return Err((commands, cause)),
            BatchResult::Unknown => self.client.drop_client(),
        }
        Ok(())
    }

    fn refuse_or_wait(&mut self, commands: Vec<Command>, error: &DriverError) {
        if !error.is_blocked() {
            return refuse_all(commands, error);
        }
        for command in commands {
            self.let_wait(command);
        }
    }

    /// Moves `command` out of the batch to wait alone for another application's transaction.
    fn let_wait(&mut self, command: Command) {
        if self.alone.len() >= ALONE_MAX {
            let why = "too busy: other transactions hold too many keys";
            return command.refuse(|doing| unavailable(doing, why));
        }
        let id = command.id();
        *self.blocked.entry(id).or_default() += 1;
        let shared = Arc::clone(&self.shared);
        self.alone.spawn(async move {
            run_alone(&shared, command).await;
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
async fn run_alone(shared: &Arc<Shared>, command: Command) {
    let held = match PooledTransaction::take(shared, command.doing()).await {
        Ok(held) => held,
        Err(error) => return command.refuse(|_doing| error),
    };
    match batch::run(&held.link(), &shared.server.begins().rare, vec![command]).await {
        BatchResult::Committed { again } => {
            for command in again {
                command.refuse(|doing| unavailable(doing, RIVALS_CAME_AND_WENT));
            }
            held.settle();
        }
        BatchResult::RolledBack { commands, cause } => refuse_all(commands, &cause),
        BatchResult::Unknown => {}
    }
}
