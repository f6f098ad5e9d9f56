//! The end of a handler's transaction.

use std::sync::Arc;

use firstwrite_core::{Draft, StoreError, StoreErrorKind, Timestamp, Transacted};

use super::super::batch::{NewRow, time_in};
use super::super::driver_error::{code, unavailable};
use super::super::listing;
use super::super::pipeline::{Answer, Pipeline, SendError, Value};
use super::super::pool::Pool;
use super::super::swap::replace;
use super::{CONCLUDING, MARK, Open};

/// A transaction about to be committed.
pub(super) struct Concluding<'a> {
    pub(super) open: Open,
    pub(super) draft: &'a Draft,
    pub(super) keeps_rows: bool,
}

/// Rolls everything back.
pub(super) async fn nothing(open: Open) -> Result<Transacted<()>, StoreError> {
    let Open { mut held, now, .. } = open;
    // If the server is gone, so is the transaction.
    if held.roll_back().await {
        held.settle();
    }
    Ok(Transacted::Done((), now))
}

impl Concluding<'_> {
    pub(super) async fn run(mut self, pool: &Arc<Pool>) -> Result<Transacted<()>, StoreError> {
        let id = self.open.id;
        firstwrite_core::crash_point!("mysql-tx-before-pipeline");
        let ended = match self.open.stands {
            None => self.write_fresh().await,
            Some(_) => self.take_over().await,
        };
        let held = self.open.held;
        let error = match ended {
            Ok(Some(now)) => {
                firstwrite_core::crash_point!("mysql-tx-after-pipeline");
                held.settle();
                return Ok(Transacted::Done((), now));
            }
            // The record to be taken over has moved.
            Ok(None) => {
                let mut held = held;
                if held.roll_back().await {
                    held.settle();
                }
                None
            }
            Err(Ended::Wrong(error)) => return Err(error),
            Err(Ended::Crashed(error)) if error.is_unknown => {
                held.fail(&error).await;
                return Err(error.error(CONCLUDING));
            }
            Err(Ended::Crashed(error)) => {
                let is_gone = error.cause.code() == Some(code::SP_DOES_NOT_EXIST);
                let may_be_rival = error.cause.may_be_rival();
                held.fail(&error).await;
                if is_gone {
                    let why = "the transaction was ended before its end: by a deadlock, or by a \
                               statement of the handler's";
                    return Err(unavailable(CONCLUDING, why));
                }
                if !may_be_rival {
                    return Err(error.error(CONCLUDING));
                }
                Some(error)
            }
        };
        // A rival came first, or its lock was in the way.
        match (listing::get(pool, id).await?, error) {
            (Some(found), _) => Ok(Transacted::Rival(Box::new(found))),
            (None, Some(error)) => Err(error.error(CONCLUDING)),
            (None, None) => Err(StoreError::definite(StoreErrorKind::Unavailable, CONCLUDING)),
        }
    }

    /// Sends everything in one pipeline: a plain insert, whose failure keeps the server from committing.
    async fn write_fresh(&mut self) -> Result<Option<Timestamp>, Ended> {
        let mut pipeline = self.begun().await?;
        NewRow::insert(&mut pipeline, &[&NewRow::new(self.draft)]);
        let time = self.end(&mut pipeline);
        let answers = self.open.held.send(&pipeline).await?;
        self.ended(&answers[time]).map(Some)
    }

    /// Replaces the record if it is still as it was seen, and only then commits.
    async fn take_over(&mut self) -> Result<Option<Timestamp>, Ended> {
        let mut pipeline = self.begun().await?;
        let place = replace(&mut pipeline, &NewRow::new(self.draft), self.open.stands);
        let answers = self.open.held.send(&pipeline).await?;
        if answers[place].affected != 1 {
            return Ok(None);
        }
        let mut pipeline = Pipeline::new();
        let time = self.end(&mut pipeline);
        let answers = self.open.held.send(&pipeline).await?;
        self.ended(&answers[time]).map(Some)
    }

    /// The time of a commit that was acknowledged.
    fn ended(&self, counted: &Answer) -> Result<Timestamp, Ended> {
        self.open.held.slot().acknowledged(counted).map_err(Ended::wrong)?;
        time_in(counted).map_err(Ended::wrong)
    }

    /// Begins a pipeline that fails if the transaction is not the one that was begun, with the handler's
    /// messages in it; rolls back the handler's writes unless they are kept.
    async fn begun(&mut self) -> Result<Pipeline, Ended> {
        let mut pipeline = Pipeline::new();
        let keep = if self.keeps_rows { "RELEASE SAVEPOINT" } else { "ROLLBACK TO SAVEPOINT" };
        pipeline.add(&format!("{keep} {MARK}"), &[]);
        pipeline.time();
        if !self.keeps_rows {
            return Ok(pipeline);
        }
        let mut pipelines = self.open.outgoing.pipelines(pipeline);
        let last = pipelines.pop().unwrap_or_default();
        for ahead in pipelines {
            self.open.held.send(&ahead).await?;
        }
        Ok(last)
    }

    /// Gives the lock back, commits, and leaves the session as it was. Returns the place of the time.
    fn end(&self, pipeline: &mut Pipeline) -> usize {
        let id = Value::Bytes(self.open.id.as_bytes());
        pipeline.add("DELETE FROM firstwrite_locks WHERE id = ?", &[id]);
        let time = self.open.held.slot().count(pipeline);
        pipeline.commit();
        pipeline.add("SET SESSION autocommit = 1", &[]);
        time
    }
}

/// Reason why a conclusion did not finish.
pub(super) enum Ended {
    Crashed(SendError),
    /// It was committed, and the answer cannot be understood.
    Wrong(StoreError),
}

impl Ended {
    fn wrong(error: StoreError) -> Self {
        Self::Wrong(StoreError::indeterminate(error.kind(), CONCLUDING).caused_by(error))
    }
}

impl From<SendError> for Ended {
    fn from(error: SendError) -> Self {
        Self::Crashed(error)
    }
}
