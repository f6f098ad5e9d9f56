//! Sends the handler's first statement in the pipeline that begins its transaction.
//!
//! The look-up is then a statement that fails unless the key is free. The server refuses the statements
//! sent after it without running them, so sending them before the verdict is known does no harm.

use deadpool_postgres::ClientWrapper;
use firstwrite_core::{BeginResult, RecordId, StoreError};
use futures_util::future::join3;
use tokio_postgres::Error;

use super::statements::{Standing, instant};
use super::{BEGINNING, PostgresTx, look, open};
use crate::postgres::PostgresStore;
use crate::postgres::columns::Id;
use crate::postgres::connect::ROLLBACK;
use crate::postgres::driver_error::{corrupt, definite};
use crate::postgres::history_loss::Trust;

/// Result of beginning a transaction with its first statement pipelined.
#[derive(Debug)]
pub struct PipelinedBegin<T> {
    /// The transaction, as [`begin`](firstwrite_core::AsyncTransactionalStore::begin) gives it.
    pub begun: BeginResult<PostgresTx>,
    /// Result of the statement. `None` if the key was not free: then the server did not run it, and a
    /// caller that may run all the same (a take-over) sends it again.
    pub first: Option<Result<T, Error>>,
}

impl PostgresStore {
    /// Begins a transaction on `id` as [`begin`](firstwrite_core::AsyncTransactionalStore::begin) does,
    /// with the handler's `first` statement in the same pipeline: for handlers whose first statement does
    /// not depend on the existing record. It saves a round trip.
    ///
    /// `first` is given the connection and must do nothing but send statements over it. If the key is not
    /// free, the server refuses them without running them.
    pub async fn begin_ahead<T, F>(
        &self,
        id: RecordId,
        first: F,
    ) -> Result<PipelinedBegin<T>, StoreError>
    where
        F: AsyncFnOnce(&ClientWrapper) -> Result<T, Error>,
    {
        let shared = &self.inner.shared;
        if let Some(found) = shared.replays.get(id, &shared.clock) {
            return Ok(PipelinedBegin { begun: BeginResult::Stands(Box::new(found)), first: None });
        }
        let mark = shared.replays.mark();
        let held = self.hold(id).await?;
        let link = held.link(shared);
        let (tx, begin) = (&link.sql().tx, &shared.server.begins().handler);
        // Both now: nothing can be prepared in a transaction that failed.
        link.prepare(&tx.only_if_free).await.map_err(definite(BEGINNING))?;
        link.prepare(&tx.look).await.map_err(definite(BEGINNING))?;
        let (asked, looked_up) = (shared.asked(), Id(id));
        let given = asked.about(&looked_up);
        // In this order: each is sent when it is first polled.
        let (begun, free, first) =
            join3(link.tell(begin), link.query(&tx.only_if_free, &given), first(link.client)).await;
        begun.map_err(definite(BEGINNING))?;
        match free {
            Ok(rows) => {
                let row = rows.first().ok_or_else(|| corrupt("a look-up answers nothing"))?;
                let now = instant(row, 1)?;
                let trust = Trust::Whole;
                let standing = Standing { is_locked: true, stands: false, trust, now };
                let begun = open(shared, held, id, (standing, mark)).await?;
                Ok(PipelinedBegin { begun, first: Some(first) })
            }
            Err(error) if error.is_division_by_zero() => {
                // Not free: the ordinary look-up says why.
                link.tell(ROLLBACK).await.map_err(definite(BEGINNING))?;
                let standing = look(&link, id).await?;
                let begun = open(shared, held, id, (standing, mark)).await?;
                Ok(PipelinedBegin { begun, first: None })
            }
            Err(error) => Err(definite(BEGINNING)(error)),
        }
    }
}
