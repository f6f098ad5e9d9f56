//! One batch: reservations and completions of many callers in one transaction and one pipeline.
//!
//! `BEGIN`, one statement for each kind, and `COMMIT` are sent together. The statements' own results tell
//! what was written: `COMMIT` in a failed transaction is no error of its own.

use std::collections::HashMap;
use std::time::Duration;

use firstwrite_core::{
    Fence, Found, Inserted, RecordId, Retention, StoreError, Swapped, Timestamp,
};
use futures_util::future::{OptionFuture, join4};
use tokio::sync::oneshot;
use tokio_postgres::Row;

use super::Shared;
use super::columns::{At, Id};
use super::connect::ROLLBACK;
use super::driver_error::{DriverError, corrupt};
use super::history::Asked;
use super::history_loss::{self, Acknowledged};
use super::link::Link;
use super::profiles::whole_millis;
use super::rows::{Looked, NewRow, column};

/// One caller's write, with the channel for its result.
pub(super) enum Command {
    Insert { row: NewRow, stands_for: Duration, reply: Reply<Inserted>, tries: u8 },
    Complete { completion: Completion, reply: Reply<Completed> },
}

pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

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
pub(super) enum Completed {
    Swapped(Swapped),
    /// The record is as its owner expects, and yet its ending was not written: an ending of a former life
    /// is in the way. Only a look-up under the record's lock can tell.
    Undecided,
}

/// Records that a pipeline wrote, with the times of writing.
#[derive(Debug, Default)]
pub(super) struct Committed {
    inserted: HashMap<RecordId, Timestamp>,
    completed: HashMap<RecordId, Timestamp>,
}

/// Failure of a pipeline.
#[derive(Debug)]
pub(super) enum SendError {
    /// Nothing of it was written.
    RolledBack { cause: DriverError },
    /// It may or may not have been committed.
    Unknown { cause: DriverError },
}

pub(super) const INSERTING: &str = "inserting a record";
pub(super) const COMPLETING: &str = "completing a record";

impl Command {
    pub(super) fn id(&self) -> RecordId {
        match self {
            Self::Insert { row, .. } => row.id,
            Self::Complete { completion, .. } => completion.id,
        }
    }

    /// Answers that nothing was written.
    pub(super) fn refuse(self, error: impl Fn(&'static str) -> StoreError) {
        match self {
            Self::Insert { reply, .. } => drop(reply.send(Err(error(INSERTING)))),
            Self::Complete { reply, .. } => drop(reply.send(Err(error(COMPLETING)))),
        }
    }
}

/// Sends a batch, whose commands are for different records and in the order of their ids.
pub(super) async fn send(
    link: &Link<'_>,
    begin: &str,
    commands: &[Command],
) -> Result<Committed, SendError> {
    let (inserts, completes) = (Inserts::new(commands), Completes::new(commands));
    let sql = link.sql();
    let unsent = |cause| SendError::RolledBack { cause };
    if !inserts.ids.is_empty() {
        link.prepare(&sql.insert).await.map_err(unsent)?;
    }
    if !completes.ids.is_empty() {
        link.prepare(&sql.complete).await.map_err(unsent)?;
    }
    let asked = link.shared.asked();
    let (inserts, completes) = (inserts.parameters(&asked), completes.parameters());
    let pipeline = join4(
        link.tell(begin),
        OptionFuture::from(inserts.as_ref().map(|given| link.query(&sql.insert, given))),
        OptionFuture::from(completes.as_ref().map(|given| link.query(&sql.complete, given))),
        link.commit(),
    );
    firstwrite_core::crash_point!("postgres-batch-before-send");
    let (begun, inserted, completed, committed) = pipeline.await;
    firstwrite_core::crash_point!("postgres-batch-after-send");
    let statements = [inserted, completed];
    let written = judge(begun, statements, committed);
    if matches!(written, Err(SendError::RolledBack { .. })) && !link.client.is_closed() {
        // Where this fails too, the connection is closed, and found to be so.
        drop(link.tell(ROLLBACK).await);
    }
    written
}

type Answer = Option<Result<Vec<Row>, DriverError>>;

/// Determines the result of a pipeline by its first failed answer.
fn judge(
    begun: Result<(), DriverError>,
    [inserted, completed]: [Answer; 2],
    committed: Result<(), DriverError>,
) -> Result<Committed, SendError> {
    let began = begun.is_ok();
    let mut first = begun.err();
    let mut written = Committed::default();
    let mut some_ran = false;
    for (answer, place) in [(inserted, &mut written.inserted), (completed, &mut written.completed)]
    {
        match answer {
            None => {}
            Some(Ok(rows)) => {
                some_ran = true;
                match stamps(&rows) {
                    Ok(stamps) => *place = stamps,
                    Err(error) => first = first.or(Some(error.into())),
                }
            }
            Some(Err(error)) => {
                first = Some(first.filter(|first| !first.is_echo()).unwrap_or(error));
            }
        }
    }
    match (first, committed) {
        (None, Ok(())) => Ok(written),
        (None, Err(error)) if error.is_undone() => Err(SendError::RolledBack { cause: error }),
        // The server refused a statement: what came before it is rolled back, and so is what follows.
        // Unless no transaction was begun: then each statement was its own transaction.
        (Some(error), _) if error.is_from_server() && (began || !some_ran) => {
            Err(SendError::RolledBack { cause: error })
        }
        (Some(error), _) | (None, Err(error)) => Err(SendError::Unknown { cause: error }),
    }
}

fn stamps(rows: &[Row]) -> Result<HashMap<RecordId, Timestamp>, StoreError> {
    let stamp = |row: &Row| {
        let Id(id) = column(row, 0)?;
        let at = column::<At>(row, 1)?.instant().ok_or_else(|| corrupt("the clock has stopped"))?;
        Ok((id, at))
    };
    rows.iter().map(stamp).collect()
}

/// Answers every command whose write was committed, and returns the other commands.
pub(super) fn answer_written(
    shared: &Shared,
    commands: Vec<Command>,
    written: &Committed,
) -> Vec<Command> {
    let mut left = Vec::new();
    for command in commands {
        match command {
            Command::Insert { row, stands_for, reply, tries } => {
                match written.inserted.get(&row.id) {
                    Some(now) => {
                        let fence = Fence::from_u64(row.fence.cast_unsigned());
                        let until = now.plus(stands_for);
                        acknowledge(shared, Acknowledged { id: row.id, fence, until }, *now);
                        drop(reply.send(Ok(Inserted::Done(*now))));
                    }
                    None => left.push(Command::Insert { row, stands_for, reply, tries }),
                }
            }
            Command::Complete { completion, reply } => {
                match written.completed.get(&completion.id) {
                    Some(now) => {
                        let Completion { id, fence, retention, .. } = completion;
                        let until = now.plus(retention.replay_for);
                        acknowledge(shared, Acknowledged { id, fence, until }, *now);
                        drop(reply.send(Ok(Completed::Swapped(Swapped::Done(*now)))));
                    }
                    None => left.push(Command::Complete { completion, reply }),
                }
            }
        }
    }
    left
}

fn acknowledge(shared: &Shared, write: Acknowledged, now: Timestamp) {
    shared.clock.heard(now);
    shared.acknowledged_writes.acknowledged(write);
}

/// Maximum number of attempts of an insert that meets a rival which is gone when looked up.
const TRIES_MAX: u8 = 5;

/// Answers the commands whose write failed with the existing record; returns inserts that may try again.
pub(super) fn answer_unwritten(
    shared: &Shared,
    commands: Vec<Command>,
    looked: Vec<Looked>,
) -> Vec<Command> {
    let mut looked: HashMap<RecordId, Looked> =
        looked.into_iter().map(|looked| (looked.id, looked)).collect();
    let mut again = Vec::new();
    for command in commands {
        let found = looked.remove(&command.id());
        let history_lost = found.as_ref().is_some_and(|looked| looked.history_lost);
        let found = found.and_then(Looked::found).map(Box::new);
        match command {
            Command::Insert { row, stands_for, reply, tries } => match found {
                Some(found) => drop(reply.send(Ok(Inserted::Stands(found)))),
                None if history_lost => {
                    drop(reply.send(Err(history_loss::refuse(shared, INSERTING))))
                }
                None if tries < TRIES_MAX => {
                    again.push(Command::Insert { row, stands_for, reply, tries: tries + 1 });
                }
                None => {
                    let why = "rivals came and went";
                    drop(reply.send(Err(super::driver_error::unavailable(INSERTING, why))));
                }
            },
            Command::Complete { completion, reply } => {
                drop(reply.send(Ok(moved(&completion, found))));
            }
        }
    }
    again
}

fn moved(completion: &Completion, found: Option<Box<Found>>) -> Completed {
    let guard = firstwrite_core::Guard::Owner(completion.fence);
    let still_holds = found
        .as_ref()
        .is_some_and(|found| guard.holds(&found.record, &firstwrite_core::Change::MARK_UNCERTAIN));
    if still_holds { Completed::Undecided } else { Completed::Swapped(Swapped::Moved(found)) }
}

/// Answers every command of a pipeline that may or may not have been committed.
pub(super) fn answer_unknown(commands: Vec<Command>, error: &DriverError) {
    let text = error.to_string();
    for command in commands {
        command.refuse(|doing| {
            let kind = firstwrite_core::StoreErrorKind::Unavailable;
            StoreError::indeterminate(kind, doing).caused_by(text.clone())
        });
    }
}

struct Inserts<'a> {
    ids: Vec<Id>,
    fences: Vec<i64>,
    lease_fors: Vec<i64>,
    asked_agos: Vec<i64>,
    profiles: Vec<i16>,
    tenants: Vec<&'a str>,
    keys: Vec<&'a [u8]>,
    fingerprints: Vec<&'a [u8]>,
    outcomes: Vec<&'a [u8]>,
}

impl<'a> Inserts<'a> {
    fn new(commands: &'a [Command]) -> Self {
        let rows: Vec<&NewRow> = commands
            .iter()
            .filter_map(|command| match command {
                Command::Insert { row, .. } => Some(row),
                Command::Complete { .. } => None,
            })
            .collect();
        Self {
            ids: rows.iter().map(|row| Id(row.id)).collect(),
            fences: rows.iter().map(|row| row.fence).collect(),
            asked_agos: rows.iter().map(|row| row.asked_ago).collect(),
            lease_fors: rows.iter().map(|row| row.lease_for).collect(),
            profiles: rows.iter().map(|row| row.profile).collect(),
            tenants: rows.iter().map(|row| row.tenant.as_str()).collect(),
            keys: rows.iter().map(|row| &row.key[..]).collect(),
            fingerprints: rows.iter().map(|row| &row.fingerprint[..]).collect(),
            outcomes: rows.iter().map(|row| &row.outcome[..]).collect(),
        }
    }

    fn parameters<'p>(
        &'p self,
        asked: &'p Asked,
    ) -> Option<[&'p (dyn tokio_postgres::types::ToSql + Sync); 12]> {
        (!self.ids.is_empty()).then_some([
            &self.ids,
            &self.fences,
            &self.lease_fors,
            &self.profiles,
            &self.tenants,
            &self.keys,
            &self.fingerprints,
            &self.outcomes,
            &asked.incarnation,
            &self.asked_agos,
            &asked.writer,
            &asked.sweeps,
        ])
    }
}

struct Completes<'a> {
    ids: Vec<Id>,
    fences: Vec<i64>,
    replay_fors: Vec<i64>,
    keep_fors: Vec<i64>,
    outcomes: Vec<&'a [u8]>,
}

impl<'a> Completes<'a> {
    fn new(commands: &'a [Command]) -> Self {
        let all: Vec<&Completion> = commands
            .iter()
            .filter_map(|command| match command {
                Command::Insert { .. } => None,
                Command::Complete { completion, .. } => Some(completion),
            })
            .collect();
        let keep_for = |retention: Retention| {
            whole_millis(retention.replay_for.saturating_add(retention.linger_for))
        };
        Self {
            ids: all.iter().map(|one| Id(one.id)).collect(),
            fences: all.iter().map(|one| one.fence.as_u64().cast_signed()).collect(),
            replay_fors: all.iter().map(|one| whole_millis(one.retention.replay_for)).collect(),
            keep_fors: all.iter().map(|one| keep_for(one.retention)).collect(),
            outcomes: all.iter().map(|one| &one.outcome[..]).collect(),
        }
    }

    fn parameters(&self) -> Option<[&(dyn tokio_postgres::types::ToSql + Sync); 5]> {
        (!self.ids.is_empty()).then_some([
            &self.ids,
            &self.fences,
            &self.replay_fors,
            &self.keep_fors,
            &self.outcomes,
        ])
    }
}
