//! The end of a handler's transaction.

use std::sync::Arc;

use firstwrite_core::{Draft, StoreError, StoreErrorKind, Timestamp, Transacted};

use super::super::batch::{NewRow, time_in};
use super::super::fault::{code, unavailable};
use super::super::flight::{Answer, Crash, Flight, Value};
use super::super::listing;
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
        firstwrite_core::crash_point!("mysql-tx-before-flight");
        let ended = match self.open.stands {
            None => self.write_fresh().await,
            Some(_) => self.take_over().await,
        };
        let held = self.open.held;
        let trouble = match ended {
            Ok(Some(now)) => {
                firstwrite_core::crash_point!("mysql-tx-after-flight");
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
            Err(Ended::Crashed(crash)) if crash.is_unknown => {
                held.fail(&crash).await;
                return Err(crash.error(CONCLUDING));
            }
            Err(Ended::Crashed(crash)) => {
                let is_gone = crash.trouble.code() == Some(code::SP_DOES_NOT_EXIST);
                let may_be_rival = crash.trouble.may_be_rival();
                held.fail(&crash).await;
                if is_gone {
                    let why = "the transaction was ended before its end: by a deadlock, or by a \
                               statement of the handler's";
                    return Err(unavailable(CONCLUDING, why));
                }
                if !may_be_rival {
                    return Err(crash.error(CONCLUDING));
                }
                Some(crash)
            }
        };
        // A rival came first, or its lock was in the way.
        match (listing::get(pool, id).await?, trouble) {
            (Some(found), _) => Ok(Transacted::Rival(Box::new(found))),
            (None, Some(crash)) => Err(crash.error(CONCLUDING)),
            (None, None) => Err(StoreError::definite(StoreErrorKind::Unavailable, CONCLUDING)),
        }
    }

    /// Sends everything in one pipeline: a plain insert, whose failure keeps the server from committing.
    async fn write_fresh(&mut self) -> Result<Option<Timestamp>, Ended> {
        let mut flight = self.begun().await?;
        NewRow::insert(&mut flight, &[&NewRow::new(self.draft)]);
        let time = self.end(&mut flight);
        let answers = self.open.held.fly(&flight).await?;
        self.ended(&answers[time]).map(Some)
    }

    /// Replaces the record if it is still as it was seen, and only then commits.
    async fn take_over(&mut self) -> Result<Option<Timestamp>, Ended> {
        let mut flight = self.begun().await?;
        let place = replace(&mut flight, &NewRow::new(self.draft), self.open.stands);
        let answers = self.open.held.fly(&flight).await?;
        if answers[place].affected != 1 {
            return Ok(None);
        }
        let mut flight = Flight::new();
        let time = self.end(&mut flight);
        let answers = self.open.held.fly(&flight).await?;
        self.ended(&answers[time]).map(Some)
    }

    /// The time of a commit that was acknowledged.
    fn ended(&self, counted: &Answer) -> Result<Timestamp, Ended> {
        self.open.held.slot().acknowledged(counted).map_err(Ended::wrong)?;
        time_in(counted).map_err(Ended::wrong)
    }

    /// Begins a pipeline that fails if the transaction is not the one that was begun, with the handler's
    /// messages in it; rolls back the handler's writes unless they are kept.
    async fn begun(&mut self) -> Result<Flight, Ended> {
        let mut flight = Flight::new();
        let keep = if self.keeps_rows { "RELEASE SAVEPOINT" } else { "ROLLBACK TO SAVEPOINT" };
        flight.add(&format!("{keep} {MARK}"), &[]);
        flight.time();
        if !self.keeps_rows {
            return Ok(flight);
        }
        let mut flights = self.open.outgoing.flights(flight);
        let last = flights.pop().unwrap_or_default();
        for ahead in flights {
            self.open.held.fly(&ahead).await?;
        }
        Ok(last)
    }

    /// Gives the lock back, commits, and leaves the session as it was. Returns the place of the time.
    fn end(&self, flight: &mut Flight) -> usize {
        let id = Value::Bytes(self.open.id.as_bytes());
        flight.add("DELETE FROM firstwrite_locks WHERE id = ?", &[id]);
        let time = self.open.held.slot().count(flight);
        flight.commit();
        flight.add("SET SESSION autocommit = 1", &[]);
        time
    }
}

/// Reason why a conclusion did not finish.
pub(super) enum Ended {
    Crashed(Crash),
    /// It was committed, and the answer cannot be understood.
    Wrong(StoreError),
}

impl Ended {
    fn wrong(error: StoreError) -> Self {
        Self::Wrong(StoreError::indeterminate(error.kind(), CONCLUDING).caused_by(error))
    }
}

impl From<Crash> for Ended {
    fn from(crash: Crash) -> Self {
        Self::Crashed(crash)
    }
}
