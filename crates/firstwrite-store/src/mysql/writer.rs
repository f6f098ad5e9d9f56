//! Writes batches: repeats one that the server rolled back, and takes it apart where it met a record.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use firstwrite_core::StoreError;

use super::batch::{Command, Spelling, answer, answer_met, answer_without_history, send};
use super::driver_error::{code, unavailable};
use super::pool::Pool;
use crate::dispatcher::{Batches, Command as _, Dispatcher, Unanswered};

struct Writer {
    pool: Arc<Pool>,
    /// Form of the next batch's statements: if one batch met existing records, the next is likely to as
    /// well.
    spelling: Spelling,
}

/// Maximum number of attempts of a batch that the server rolled back because of another transaction, and of
/// an insert that met a record which was gone when it was looked up.
const TRIES_MAX: usize = 4;

/// Starts the dispatcher that writes.
pub(super) fn start(pool: &Arc<Pool>) -> Dispatcher<Command> {
    let options = &pool.server.address.options;
    let limits = (options.queue_max, options.batch_max);
    let writer = Writer { pool: Arc::clone(pool), spelling: Spelling::Together };
    Dispatcher::start_writer(limits, writer)
}

impl Batches for Writer {
    type Command = Command;

    /// They wait for connections too.
    const ALONE_MAX: usize = usize::MAX;

    async fn write(&mut self, batch: Vec<Command>) -> Unanswered<Command> {
        let alone = serve(&self.pool, batch, &mut self.spelling).await;
        Unanswered { again: Vec::new(), alone }
    }

    fn write_alone(&self, command: Command) -> impl Future<Output = ()> + Send + 'static {
        let pool = Arc::clone(&self.pool);
        async move {
            let blocked = serve(&pool, vec![command], &mut Spelling::OneByOne).await;
            refuse(blocked, |doing| unavailable(doing, "another transaction holds the key"));
        }
    }
}

/// Writes a batch and answers every command in it. Returns those that are to be tried by themselves:
/// another application's transaction holds a lock for longer than a batch waits, or the server refuses a
/// value.
async fn serve(pool: &Arc<Pool>, mut batch: Vec<Command>, spelling: &mut Spelling) -> Vec<Command> {
    let mut pooled = match pool.get("writing records").await {
        Ok(pooled) => pooled,
        Err(error) => return refuse(batch, |doing| unavailable(doing, error.to_string())),
    };
    for tried in 1.. {
        let sent = send(&mut pooled, &batch, *spelling).await;
        pool.commit_count.fetch_add(1, Ordering::Relaxed);
        let may_repeat = tried < TRIES_MAX;
        match sent {
            Ok(committed) => {
                batch = answer(batch, committed);
                if batch.is_empty() {
                    *spelling = Spelling::Together;
                } else {
                    batch = answer_met(&mut pooled, batch).await;
                }
                if !may_repeat && !batch.is_empty() {
                    pooled.settle();
                    return refuse(batch, |doing| unavailable(doing, "rivals came and went"));
                }
            }
            // A count went down: the verification records what is missing, and the batch meets the loss.
            Err(error) if error.cause.is_history_missing() && may_repeat => {
                if !pooled.roll_back().await || pooled.verify().await.is_err() {
                    return refuse(batch, |doing| error.error(doing));
                }
            }
            // One of the commands that share a statement met a record, or has lost its own; or history is
            // missing.
            Err(error) if error.cause.code() == Some(code::OUT_OF_RANGE) => {
                if !pooled.roll_back().await {
                    return refuse(batch, |doing| error.error(doing));
                }
                if *spelling == Spelling::OneByOne {
                    batch = answer_without_history(&mut pooled, batch).await;
                }
                *spelling = Spelling::OneByOne;
            }
            Err(error) if error.is_unknown || error.cause.is_about_server() => {
                pooled.fail(&error).await;
                return refuse(batch, |doing| error.error(doing));
            }
            Err(error) => {
                if !pooled.roll_back().await {
                    return refuse(batch, |doing| error.error(doing));
                }
                if !(error.cause.is_deadlock() && may_repeat) {
                    pooled.settle();
                    // One slow foreign transaction or one value that the server refuses must not fail its
                    // neighbours.
                    return if batch.len() > 1 {
                        batch
                    } else {
                        refuse(batch, |doing| error.error(doing))
                    };
                }
            }
        }
        if batch.is_empty() {
            pooled.settle();
            break;
        }
    }
    Vec::new()
}

fn refuse(batch: Vec<Command>, error: impl Fn(&'static str) -> StoreError) -> Vec<Command> {
    for command in batch {
        command.refuse(&error);
    }
    Vec::new()
}
