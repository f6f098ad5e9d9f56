//! A step that takes several flights in one transaction, and is taken again if another transaction made the
//! server undo it.

use std::sync::Arc;

use firstwrite_core::{StoreError, Timestamp};

use super::batch::time_in;
use super::flight::{Answer, Crash, Flight};
use super::history::Slot;
use super::pool::{Held, Pool, TRIES_MAX};

/// A connection for a step.
pub(super) struct Session {
    held: Option<Held>,
    doing: &'static str,
    tried: usize,
}

/// Why a step did not come to its end.
#[derive(Debug)]
pub(super) enum Failure {
    Crashed(Crash),
    /// What was read is wrong, or cannot be done; nothing was written.
    Own(StoreError),
}

/// Why a connection is there as long as a step is being taken.
const HELD: &str = "a session has its connection until it ends";

impl Session {
    pub(super) async fn new(pool: &Arc<Pool>, doing: &'static str) -> Result<Self, StoreError> {
        Ok(Self { held: Some(pool.get(doing).await?), doing, tried: 0 })
    }

    /// Sends a flight.
    pub(super) async fn fly(&mut self, flight: &Flight) -> Result<Vec<Answer>, Failure> {
        Ok(self.held.as_mut().expect(HELD).fly(flight).await?)
    }

    /// The connection's count of commits.
    pub(super) fn slot(&self) -> &Slot {
        self.held.as_ref().expect(HELD).slot()
    }

    /// Begins a transaction with what is in `rest`, which says the time in its first answer of interest. Stops where
    /// history is missing.
    pub(super) async fn begin(
        &mut self,
        rest: impl FnOnce(&mut Flight),
    ) -> Result<(Timestamp, Vec<Answer>), Failure> {
        let mut flight = Flight::transaction();
        self.slot().stop_unless_whole(&mut flight);
        let time = flight.add("SELECT @firstwrite_now", &[]);
        rest(&mut flight);
        let mut answers = self.fly(&flight).await?;
        let now = time_in(&answers[time])?;
        Ok((now, answers.split_off(time + 1)))
    }

    /// Ends well: nothing is open.
    pub(super) fn end(mut self) {
        if let Some(held) = self.held.take() {
            held.settle();
        }
    }

    /// Undoes a step that failed. If it may not be taken again, says why.
    pub(super) async fn again(&mut self, failure: Failure) -> Result<(), StoreError> {
        self.tried += 1;
        let held = self.held.as_mut().expect(HELD);
        match failure {
            Failure::Crashed(crash) => {
                let is_missing = crash.trouble.is_history_missing();
                if (is_missing || crash.may_repeat())
                    && self.tried < TRIES_MAX
                    && held.roll_back().await
                    && (!is_missing || held.verify().await.is_ok())
                {
                    return Ok(());
                }
                let error = crash.error(self.doing);
                if let Some(held) = self.held.take() {
                    held.fail(&crash).await;
                }
                Err(error)
            }
            Failure::Own(error) => {
                if held.roll_back().await
                    && let Some(held) = self.held.take()
                {
                    held.settle();
                }
                Err(error)
            }
        }
    }
}

/// Takes a step until it is done or cannot be: `$step` is an expression that flies in `$session`.
macro_rules! take {
    ($pool:expr, $doing:expr, |$session:ident| $step:expr) => {{
        let mut $session = $crate::mysql::session::Session::new($pool, $doing).await?;
        loop {
            match $step.await {
                Ok(done) => {
                    $session.end();
                    break Ok(done);
                }
                Err(failure) => $session.again(failure).await?,
            }
        }
    }};
}
pub(super) use take;

impl From<Crash> for Failure {
    fn from(crash: Crash) -> Self {
        Self::Crashed(crash)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Own(error)
    }
}
