//! Batches, from their commands to the answers: reservations and completions of many callers in one
//! transaction and one pipeline.
//!
//! `BEGIN`, one statement for each kind, and `COMMIT` are sent together. The statements' own results tell
//! what was written: `COMMIT` in a failed transaction is no error of its own. Then the records that were in
//! the way of the other commands are looked up.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use firstwrite_core::{
    Change, Fence, Guard, Inserted, RecordId, Retention, StoreError, StoreErrorKind, Swapped,
    Timestamp,
};
use futures_util::future::{OptionFuture, join4};
use tokio_postgres::Row;

use super::Shared;
use super::columns::{Id, Values};
use super::connect::{ROLLBACK, Role};
use super::driver_error::{DriverError, unavailable};
use super::history_loss;
use super::link::{Link, OwnClient, PooledTransaction};
use super::profiles::whole_millis;
use super::rows::{LookupResult, NewRow, column, instant};
use crate::dispatcher::{self, Batches, Command as _, Dispatcher, Reply, Unanswered};

/// One caller's write, with the channel for its result.
pub(super) enum Command {
    Insert { row: NewRow, stands_for: Duration, reply: Reply<Inserted>, tries: u8 },
    Complete { completion: Completion, reply: Reply<CompletionResult> },
}

/// An owner's outcome of its attempt.
#[derive(Debug)]
pub(super) struct Completion {
    pub(super) id: RecordId,
    pub(super) fence: Fence,
    pub(super) retention: Retention,
    pub(super) outcome: Vec<u8>,
}

/// Result of a completion.
#[derive(Debug)]
pub(super) enum CompletionResult {
    Swapped(Swapped),
    /// The record is as its owner expects, and yet its ending was not written: an ending of a former life
    /// is in the way. Only a look-up under the record's lock can tell.
    Undecided,
}

/// The connection that writes batches.
struct Writer {
    shared: Arc<Shared>,
    client: OwnClient,
}

/// Result of a batch.
enum BatchResult {
    /// Every command was answered, except for inserts that may try again.
    Committed { again: Vec<Command> },
    /// Nothing was written, and no command was answered.
    RolledBack { commands: Vec<Command>, cause: DriverError },
    /// It may or may not have been committed. Every command was told so; the connection is of no use.
    Unknown,
}

/// Failure of a pipeline.
enum SendError {
    /// Nothing of it was written.
    RolledBack(DriverError),
    /// It may or may not have been committed.
    Unknown(DriverError),
}

/// The records that a pipeline wrote, with the times of writing.
type WriteTimes = HashMap<RecordId, Timestamp>;

/// The answer to one statement of a pipeline.
type Answer = Result<Vec<Row>, DriverError>;

pub(super) const INSERTING: &str = "inserting a record";
pub(super) const COMPLETING: &str = "completing a record";

/// Maximum number of attempts of an insert that meets a rival which is gone when looked up.
const TRIES_MAX: u8 = 5;
const RIVALS_CAME_AND_WENT: &str = "rivals came and went";

/// Starts the dispatcher that writes.
pub(super) fn start(shared: &Arc<Shared>) -> Dispatcher<Command> {
    let client = OwnClient::new(shared, Role::Writer, None);
    let writer = Writer { shared: Arc::clone(shared), client };
    Dispatcher::start_writer(shared.server.address.options.queue_limits(), writer)
}

impl dispatcher::Command for Command {
    fn id(&self) -> RecordId {
        match self {
            Self::Insert { row, .. } => row.id,
            Self::Complete { completion, .. } => completion.id,
        }
    }

    fn refuse(self, error: impl FnOnce(&'static str) -> StoreError) {
        match self {
            Self::Insert { reply, .. } => drop(reply.send(Err(error(INSERTING)))),
            Self::Complete { reply, .. } => drop(reply.send(Err(error(COMPLETING)))),
        }
    }
}

impl Batches for Writer {
    type Command = Command;

    /// Each takes a pooled connection for as long as it waits.
    const ALONE_MAX: usize = 16;

    async fn write(&mut self, batch: Vec<Command>) -> Unanswered<Command> {
        let mut unanswered = Unanswered { again: Vec::new(), alone: Vec::new() };
        let Err((commands, cause)) = self.try_to_write(batch, &mut unanswered).await else {
            return unanswered;
        };
        if commands.len() == 1 || !cause.is_undone() {
            refuse_or_wait(commands, &cause, &mut unanswered);
            return unanswered;
        }
        // One slow foreign transaction or one bad value must not fail its neighbours.
        for command in commands {
            if let Err((alone, cause)) = self.try_to_write(vec![command], &mut unanswered).await {
                refuse_or_wait(alone, &cause, &mut unanswered);
            }
        }
        unanswered
    }

    /// Writes on a pooled connection, which waits as long as a lock may be waited for.
    fn write_alone(&self, command: Command) -> impl Future<Output = ()> + Send + 'static {
        let shared = Arc::clone(&self.shared);
        async move {
            let held = match PooledTransaction::take(&shared, "writing a record").await {
                Ok(held) => held,
                Err(error) => return command.refuse(|_doing| error),
            };
            match run(&held.link(), &shared.server.begins().rare, vec![command]).await {
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
    }
}

impl Writer {
    /// Runs a batch. If it was rolled back, returns its commands and the cause.
    async fn try_to_write(
        &mut self,
        batch: Vec<Command>,
        unanswered: &mut Unanswered<Command>,
    ) -> Result<(), (Vec<Command>, DriverError)> {
        let client = match self.client.get().await {
            Ok(client) => client,
            Err(error) => return Err((batch, error)),
        };
        self.shared.commit_count.fetch_add(1, Ordering::Relaxed);
        let link = Link { client, shared: &self.shared };
        match run(&link, &self.shared.server.begins().batch, batch).await {
            BatchResult::Committed { again } => unanswered.again.extend(again),
            BatchResult::RolledBack { commands, cause } => return Err((commands, cause)),
            BatchResult::Unknown => self.client.drop_client(),
        }
        Ok(())
    }
}

fn refuse_or_wait(
    commands: Vec<Command>,
    error: &DriverError,
    unanswered: &mut Unanswered<Command>,
) {
    if error.is_blocked() {
        unanswered.alone.extend(commands);
    } else {
        refuse_all(commands, error);
    }
}

impl Command {
    /// Answers that the record was written.
    fn acknowledge(self, link: &Link<'_>, now: Timestamp) {
        let (fence, stands_for) = match &self {
            Self::Insert { row, stands_for, .. } => {
                (Fence::from_u64(row.fence.cast_unsigned()), *stands_for)
            }
            Self::Complete { completion, .. } => {
                (completion.fence, completion.retention.replay_for)
            }
        };
        link.shared.acknowledged(self.id(), fence, now, stands_for);
        match self {
            Self::Insert { reply, .. } => drop(reply.send(Ok(Inserted::Done(now)))),
            Self::Complete { reply, .. } => {
                drop(reply.send(Ok(CompletionResult::Swapped(Swapped::Done(now)))));
            }
        }
    }

    /// Answers with the record that was in the way; returns an insert that may try again.
    fn answer(self, link: &Link<'_>, result: Option<LookupResult>) -> Option<Self> {
        let history_lost = result.as_ref().is_some_and(|result| result.history_lost);
        let found = result.and_then(LookupResult::found).map(Box::new);
        match self {
            Self::Insert { row, stands_for, reply, tries } => {
                let answer = match found {
                    Some(found) => Ok(Inserted::Stands(found)),
                    None if history_lost => Err(history_loss::refuse(link.shared, INSERTING)),
                    None if tries < TRIES_MAX => {
                        return Some(Self::Insert { row, stands_for, reply, tries: tries + 1 });
                    }
                    None => Err(unavailable(INSERTING, RIVALS_CAME_AND_WENT)),
                };
                drop(reply.send(answer));
            }
            Self::Complete { completion, reply } => {
                let guard = Guard::Owner(completion.fence);
                let holds =
                    found.as_ref().is_some_and(|f| guard.holds(&f.record, &Change::MARK_UNCERTAIN));
                let result = if holds {
                    CompletionResult::Undecided
                } else {
                    CompletionResult::Swapped(Swapped::Moved(found))
                };
                drop(reply.send(Ok(result)));
            }
        }
        None
    }
}

/// Runs a batch, whose commands are for different records and in the order of their ids.
async fn run(link: &Link<'_>, begin: &str, commands: Vec<Command>) -> BatchResult {
    let times = match send(link, begin, &commands).await {
        Ok(times) => times,
        Err(SendError::RolledBack(cause)) => return BatchResult::RolledBack { commands, cause },
        Err(SendError::Unknown(cause)) => {
            let text = cause.to_string();
            let kind = StoreErrorKind::Unavailable;
            for command in commands {
                command.refuse(|doing| StoreError::indeterminate(kind, doing).caused_by(&*text));
            }
            return BatchResult::Unknown;
        }
    };
    let mut unwritten = Vec::new();
    for command in commands {
        match times.get(&command.id()) {
            Some(now) => command.acknowledge(link, *now),
            None => unwritten.push(command),
        }
    }
    let mut again = answer_unwritten(link, unwritten).await;
    // It may not be the server that was asked.
    if !again.is_empty()
        && let Err(error) = history_loss::verify_history_to_write(*link).await
    {
        refuse_all(again.drain(..), &error);
    }
    BatchResult::Committed { again }
}

/// Answers that nothing was written.
fn refuse_all(commands: impl IntoIterator<Item = Command>, error: &DriverError) {
    for command in commands {
        command.refuse(|doing| error.definite(doing));
    }
}

async fn send(link: &Link<'_>, begin: &str, commands: &[Command]) -> Result<WriteTimes, SendError> {
    let (mut rows, mut completions) = (Vec::new(), Vec::new());
    for command in commands {
        match command {
            Command::Insert { row, .. } => rows.push(row),
            Command::Complete { completion, .. } => completions.push(completion),
        }
    }
    let sql = link.sql();
    if !rows.is_empty() {
        link.prepare(&sql.insert).await.map_err(SendError::RolledBack)?;
    }
    if !completions.is_empty() {
        link.prepare(&sql.complete).await.map_err(SendError::RolledBack)?;
    }
    let (inserts, completes) = (insert_values(link, &rows), complete_values(&completions));
    let (inserts, completes) = (inserts.parameters(), completes.parameters());
    let insert = (!rows.is_empty()).then(|| link.query(&sql.insert, &inserts));
    let complete = (!completions.is_empty()).then(|| link.query(&sql.complete, &completes));
    let pipeline = join4(
        link.tell(begin),
        OptionFuture::from(insert),
        OptionFuture::from(complete),
        link.commit(),
    );
    firstwrite_core::crash_point!("postgres-batch-before-send");
    let (begun, inserted, completed, committed) = pipeline.await;
    firstwrite_core::crash_point!("postgres-batch-after-send");
    let written = pipeline_result(begun, [inserted, completed], committed);
    if matches!(written, Err(SendError::RolledBack(_))) && !link.client.is_closed() {
        // Where this fails too, the connection is closed, and found to be so.
        drop(link.tell(ROLLBACK).await);
    }
    written
}

/// Determines the result of a pipeline by its first failed answer.
fn pipeline_result(
    begun: Result<(), DriverError>,
    answers: [Option<Answer>; 2],
    committed: Result<(), DriverError>,
) -> Result<WriteTimes, SendError> {
    let began = begun.is_ok();
    let mut first = begun.err();
    let mut times = WriteTimes::new();
    let mut some_ran = false;
    for answer in answers.into_iter().flatten() {
        match answer {
            Ok(rows) => {
                some_ran = true;
                match write_times(&rows) {
                    Ok(written) => times.extend(written),
                    Err(error) => first = first.or(Some(error.into())),
                }
            }
            Err(error) => first = Some(first.filter(|first| !first.is_echo()).unwrap_or(error)),
        }
    }
    match (first, committed) {
        (None, Ok(())) => Ok(times),
        (None, Err(error)) if error.is_undone() => Err(SendError::RolledBack(error)),
        // The server refused a statement: what came before it is rolled back, and so is what follows.
        // Unless no transaction was begun: then each statement was its own transaction.
        (Some(error), _) if error.is_from_server() && (began || !some_ran) => {
            Err(SendError::RolledBack(error))
        }
        (Some(error), _) | (None, Err(error)) => Err(SendError::Unknown(error)),
    }
}

fn write_times(rows: &[Row]) -> Result<WriteTimes, StoreError> {
    rows.iter().map(|row| Ok((column::<Id>(row, 0)?.0, instant(row, 1)?))).collect()
}

/// Looks up the records in the way of `commands`, and answers with them; returns inserts that may try again.
async fn answer_unwritten(link: &Link<'_>, commands: Vec<Command>) -> Vec<Command> {
    if commands.is_empty() {
        return commands;
    }
    let ids: Vec<RecordId> = commands.iter().map(Command::id).collect();
    let mut again = Vec::new();
    match link.look(&ids).await {
        Ok(results) => {
            let mut results: HashMap<RecordId, LookupResult> =
                results.into_iter().map(|result| (result.id, result)).collect();
            for command in commands {
                let result = results.remove(&command.id());
                again.extend(command.answer(link, result));
            }
        }
        // One row that cannot be understood must not hide the others.
        Err(DriverError::Read(_)) if commands.len() > 1 => {
            for command in commands {
                match link.look(&[command.id()]).await {
                    Ok(mut results) => again.extend(command.answer(link, results.pop())),
                    Err(error) => refuse_all([command], &error),
                }
            }
        }
        Err(error) => refuse_all(commands, &error),
    }
    again
}

fn insert_values<'a>(link: &Link<'_>, rows: &'a [&NewRow]) -> Values<'a> {
    let check = link.shared.history.check();
    Values::default()
        .and_each(rows, |row| Id(row.id))
        .and_each(rows, |row| row.fence)
        .and_each(rows, |row| row.lease_for)
        .and_each(rows, |row| row.profile)
        .and_each(rows, |row| row.tenant.as_str())
        .and_each(rows, |row| &row.key[..])
        .and_each(rows, |row| &row.fingerprint[..])
        .and_each(rows, |row| &row.outcome[..])
        .and(check.incarnation)
        .and_each(rows, |row| row.asked_ago)
        .and(check.writer)
        .and(check.sweeps)
}

fn complete_values<'a>(completions: &'a [&Completion]) -> Values<'a> {
    Values::default()
        .and_each(completions, |one| Id(one.id))
        .and_each(completions, |one| one.fence.as_u64().cast_signed())
        .and_each(completions, |one| whole_millis(one.retention.replay_for))
        .and_each(completions, |Completion { retention, .. }| {
            whole_millis(retention.replay_for.saturating_add(retention.linger_for))
        })
        .and_each(completions, |one| &one.outcome[..])
}
