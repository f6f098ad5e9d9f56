//! The writer: one thread, one connection, and one commit for all waiting commands.
//!
//! A batch forms while the one before it is being committed: no timer, and no added latency when idle. A
//! command is answered only after the commit that holds its work has reached the disk.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use firstwrite_core::{StoreError, StoreErrorKind};
use rusqlite::ErrorCode;
use tokio::sync::{Notify, oneshot};

use super::driver_error::{Failure, kind_of};
use super::queue::Queue;
use super::session::Session;

/// Something to be done in a batch.
pub(super) trait Job: Send {
    /// Does it in the open transaction and keeps the answer. An error ends the whole batch.
    fn run(&mut self, session: &Session) -> Result<(), BatchError>;
    /// Hands the answer over, now that the transaction has ended.
    fn answer(self: Box<Self>, end: Result<(), &BatchError>);
}

/// Reason why a batch was not committed, as reported to each of its commands.
#[derive(Clone, Debug)]
pub(super) struct BatchError {
    kind: StoreErrorKind,
    /// True if certainly nothing of the batch was written.
    is_definite: bool,
    text: String,
}

/// A command with the task that waits for its answer.
pub(super) struct Command<T, W> {
    doing: &'static str,
    work: Option<W>,
    answer: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

/// Commands that wait for the writer.
pub(super) type Commands = Queue<Box<dyn Job>>;

/// Result of a batch.
struct Ended {
    /// Result reported to its commands.
    told: Result<(), BatchError>,
    /// An error if the writer must stop; it is then reported to all later commands.
    goes_on: Result<(), BatchError>,
}

/// Time the writer waits for work before it checks the file: a loss is noticed within a second.
const IDLE_FOR: Duration = Duration::from_millis(500);

/// A batch that takes longer than this is worth a line in the log.
const SLOW: Duration = Duration::from_millis(100);

/// Serves the queue until it is closed and empty, then folds the log into the file.
pub(super) fn serve(session: Session, queue: &Commands, (batch_max, work): (usize, &Notify)) {
    let mut stopped = None;
    loop {
        let Some(mut jobs) = queue.take_within(batch_max, IDLE_FOR) else {
            if stopped.is_none() {
                session.idle();
            }
            continue;
        };
        if jobs.is_empty() {
            break;
        }
        let (count, began_at) = (jobs.len(), read_stopwatch());
        while !jobs.is_empty() {
            if let Some(failure) = &stopped {
                jobs.drain(..).for_each(|job| job.answer(Err(failure)));
                break;
            }
            stopped = run_batch(&session, &mut jobs).err();
            if stopped.is_none() {
                session.note_last_change();
            }
            if session.take_news() {
                // Wake all waiters, and the next one too: it may have looked already and be about to wait.
                work.notify_waiters();
                work.notify_one();
            }
        }
        let took = began_at.elapsed();
        if took > SLOW {
            tracing::debug!(count, took_ms = took.as_millis(), "slow batch");
        }
    }
    if stopped.is_none() {
        session.note_time_alone();
        let folded =
            session.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        if let Err(error) = folded {
            tracing::debug!(%error, "the log stays beside the file");
        }
    }
    if let Err((_connection, error)) = session.connection.close() {
        tracing::debug!(%error, "the connection did not close cleanly");
    }
    // Only now may another process write.
    drop(session.files);
}

/// Runs one transaction: every job of `jobs`, or those up to one that broke it. An error means that the
/// writer must stop; it is reported to all later commands.
fn run_batch(session: &Session, jobs: &mut VecDeque<Box<dyn Job>>) -> Result<(), BatchError> {
    session.look_at_files();
    if let Err(error) = session.begin() {
        let failure = BatchError::definite(&error);
        jobs.drain(..).for_each(|job| job.answer(Err(&failure)));
        return Ok(());
    }
    let mut ran = Vec::with_capacity(jobs.len());
    let mut broken = None;
    while let Some(mut job) = jobs.pop_front() {
        let done = job.run(session);
        ran.push(job);
        if let Err(failure) = done {
            broken = Some(failure);
            break;
        }
    }
    firstwrite_core::crash_point!("sqlite-before-commit");
    let ended = match broken {
        Some(failure) => Ended { told: Err(failure), goes_on: rolled_back(session) },
        None => match session.keep_time().and_then(|()| session.commit()) {
            Ok(()) => Ended { told: Ok(()), goes_on: Ok(()) },
            Err(error) => commit_failed(session, &error),
        },
    };
    firstwrite_core::crash_point!("sqlite-after-commit");
    for job in ran {
        job.answer(ended.told.as_ref().map(|&()| ()));
    }
    ended.goes_on
}

/// A full disk is noticed before the commit mark is written, so rolling back undoes it all. After
/// any other failure the mark may or may not be on the disk, and trying again would not tell: after
/// a failed flush the system may drop the data and report success.
fn commit_failed(session: &Session, error: &rusqlite::Error) -> Ended {
    tracing::error!(%error, "commit failed");
    let is_known = matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::ConstraintViolation)
    );
    if is_known {
        return match rolled_back(session) {
            Ok(()) => Ended { told: Err(BatchError::refused(error)), goes_on: Ok(()) },
            Err(failure) => {
                Ended { told: Err(BatchError::indefinite(error)), goes_on: Err(failure) }
            }
        };
    }
    // The error of this one does not matter any more: nothing is written through this connection.
    let stopped = rolled_back(session).err().unwrap_or_else(|| BatchError::stopped(error));
    Ended { told: Err(BatchError::indefinite(error)), goes_on: Err(stopped) }
}

fn rolled_back(session: &Session) -> Result<(), BatchError> {
    session.roll_back().map_err(|error| {
        tracing::error!(%error, "roll-back failed; the store stops");
        BatchError::stopped(&error)
    })
}

impl<T, W> Command<T, W>
where
    T: Send + 'static,
    W: FnOnce(&Session) -> Result<T, Failure> + Send + 'static,
{
    pub(super) fn new(
        doing: &'static str,
        work: W,
        reply: oneshot::Sender<Result<T, StoreError>>,
    ) -> Self {
        Self { doing, work: Some(work), answer: None, reply }
    }
}

impl<T, W> Job for Command<T, W>
where
    T: Send + 'static,
    W: FnOnce(&Session) -> Result<T, Failure> + Send + 'static,
{
    fn run(&mut self, session: &Session) -> Result<(), BatchError> {
        let work = self.work.take().expect("a job runs once");
        let (answer, broken) = match work(session) {
            Ok(answer) => (Ok(answer), None),
            Err(Failure::Own(error)) => (Err(error), None),
            Err(Failure::Batch(error)) => {
                let failure = BatchError::of_neighbour(&error);
                (Err(error), Some(failure))
            }
        };
        self.answer = Some(answer);
        // On some errors SQLite ends a transaction by itself, whichever job caused them.
        match broken {
            Some(failure) => Err(failure),
            None if session.is_in_transaction() => Ok(()),
            None => Err(BatchError::lost_transaction()),
        }
    }

    fn answer(self: Box<Self>, end: Result<(), &BatchError>) {
        let answer = match (self.answer, end) {
            (Some(answer @ Err(_)), _) | (Some(answer), Ok(())) => answer,
            (Some(Ok(_)) | None, Err(failure)) => Err(failure.to_error(self.doing)),
            (None, Ok(())) => unreachable!("a committed job has run"),
        };
        // The caller may have stopped waiting; the work is done all the same, as after a crash.
        drop(self.reply.send(answer));
    }
}

impl BatchError {
    fn definite(error: &rusqlite::Error) -> Self {
        Self { kind: kind_of(error), is_definite: true, text: error.to_string() }
    }

    /// Returns the error for every command of a batch whose commit was refused. The cause cannot be
    /// attributed to one command, so the innocent ones may try again.
    fn refused(error: &rusqlite::Error) -> Self {
        let is_full = kind_of(error) == StoreErrorKind::Full;
        let kind = if is_full { StoreErrorKind::Full } else { StoreErrorKind::Unavailable };
        Self { kind, ..Self::definite(error) }
    }

    fn indefinite(error: &rusqlite::Error) -> Self {
        Self { is_definite: false, ..Self::definite(error) }
    }

    /// Returns the error for commands that arrive after the writer has stopped.
    fn stopped(error: &rusqlite::Error) -> Self {
        Self {
            kind: StoreErrorKind::Unavailable,
            is_definite: true,
            text: format!("the store stopped after a failed write ({error}); restart the process"),
        }
    }

    /// Returns the error for the other commands of a batch that one of them broke.
    fn of_neighbour(error: &StoreError) -> Self {
        let is_full = error.kind() == StoreErrorKind::Full;
        let kind = if is_full { StoreErrorKind::Full } else { StoreErrorKind::Unavailable };
        Self { kind, is_definite: true, text: format!("the batch was rolled back ({error})") }
    }

    fn lost_transaction() -> Self {
        Self {
            kind: StoreErrorKind::Unavailable,
            is_definite: true,
            text: "the batch's transaction was rolled back".to_owned(),
        }
    }

    fn to_error(&self, doing: &'static str) -> StoreError {
        let error = if self.is_definite {
            StoreError::definite(self.kind, doing)
        } else {
            StoreError::indeterminate(self.kind, doing)
        };
        error.caused_by(self.text.as_str())
    }
}

#[expect(clippy::disallowed_methods, reason = "a stopwatch for the log; nothing is decided by it")]
fn read_stopwatch() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests;
