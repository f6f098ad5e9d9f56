//! A step that takes several pipelines in one transaction, and is retried if the server rolled it back
//! because of another transaction.

use std::sync::Arc;

use firstwrite_core::{StoreError, Timestamp};

use super::batch::time_in;
use super::history_loss::Slot;
use super::pipeline::{Answer, Pipeline, SendError};
use super::pool::{Pool, PooledConnection};

/// A connection for a step.
pub(super) struct Session {
    pooled: Option<PooledConnection>,
    doing: &'static str,
    tried: usize,
}

/// Reason why a step did not finish.
#[derive(Debug)]
pub(super) enum Failure {
    Send(SendError),
    /// The data read is invalid, or the step cannot be done; nothing was written.
    Own(StoreError),
}

/// Maximum number of attempts of a step that the server rolled back because of another transaction.
const TRIES_MAX: usize = 4;

/// Message of the `expect` on the connection.
const CONNECTED: &str = "a session has its connection until it ends";

impl Session {
    pub(super) async fn new(pool: &Arc<Pool>, doing: &'static str) -> Result<Self, StoreError> {
        Ok(Self { pooled: Some(pool.get(doing).await?), doing, tried: 0 })
    }

    /// Sends a pipeline.
    pub(super) async fn send(&mut self, pipeline: &Pipeline) -> Result<Vec<Answer>, Failure> {
        Ok(self.pooled.as_mut().expect(CONNECTED).send(pipeline).await?)
    }

    /// The connection's count of commits.
    pub(super) fn slot(&self) -> &Slot {
        self.pooled.as_ref().expect(CONNECTED).slot()
    }

    /// Begins a transaction with the statements of `rest`, whose first answer of interest holds the time.
    /// Stops if history is missing.
    pub(super) async fn begin(
        &mut self,
        rest: impl FnOnce(&mut Pipeline),
    ) -> Result<(Timestamp, Vec<Answer>), Failure> {
        let mut pipeline = Pipeline::transaction();
        self.slot().stop_unless_whole(&mut pipeline);
        let time = pipeline.add("SELECT @firstwrite_now", &[]);
        rest(&mut pipeline);
        let mut answers = self.send(&pipeline).await?;
        let now = time_in(&answers[time])?;
        Ok((now, answers.split_off(time + 1)))
    }

    /// Ends well: nothing is open.
    pub(super) fn end(mut self) {
        if let Some(pooled) = self.pooled.take() {
            pooled.settle();
        }
    }

    /// Rolls back a step that failed. Returns the reason if it may not be retried.
    pub(super) async fn again(&mut self, failure: Failure) -> Result<(), StoreError> {
        self.tried += 1;
        let pooled = self.pooled.as_mut().expect(CONNECTED);
        match failure {
            Failure::Send(send_error) => {
                let is_missing = send_error.cause.is_history_missing();
                if (is_missing || send_error.may_repeat())
                    && self.tried < TRIES_MAX
                    && pooled.roll_back().await
                    && (!is_missing || pooled.verify().await.is_ok())
                {
                    return Ok(());
                }
                let error = send_error.error(self.doing);
                if let Some(pooled) = self.pooled.take() {
                    pooled.fail(&send_error).await;
                }
                Err(error)
            }
            Failure::Own(error) => {
                if let Some(pooled) = self.pooled.take() {
                    pooled.undo().await;
                }
                Err(error)
            }
        }
    }
}

/// Retries a step until it is done or cannot be: `$step` is an expression that sends pipelines in `$session`.
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

impl From<SendError> for Failure {
    fn from(error: SendError) -> Self {
        Self::Send(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Own(error)
    }
}
