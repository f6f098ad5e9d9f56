//! The loops that look after the store: sweep and reap.
//!
//! Each loop waits, does one turn, and goes again at once if the turn was full. Every process of an
//! application may run them: turns of two workers do not disturb each other.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::protocol::Swept;
use firstwrite_core::{BoxFuture, Store, StoreError};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

mod reap;
mod sweep;

pub use reap::{REAP_EVERY, REAP_LIMIT, reap_once};
pub use sweep::{SWEEP_EVERY, SWEEP_LIMIT, sweep_once};

/// Runs the loops until it is stopped or dropped.
#[must_use = "the loops end when it is dropped"]
pub struct Worker {
    stop: watch::Sender<()>,
    loops: Vec<JoinHandle<()>>,
}

/// How often each loop takes a turn when there is little to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// How often lapsed leases are looked for.
    pub sweep_every: Duration,
    /// How often records past their retention are deleted.
    pub reap_every: Duration,
}

/// What one turn of every loop did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// What the sweep did.
    pub swept: Swept,
    /// How many records were reaped.
    pub reaped: usize,
}

/// Whether there may be more to do at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Full,
    Light,
}

impl Worker {
    /// Starts the loops on the current runtime.
    pub fn start(store: Arc<dyn Store>, schedule: Schedule) -> Self {
        let (stop, stopped) = watch::channel(());
        let sweeping = Arc::clone(&store);
        let sweep = repeat(stopped.clone(), schedule.sweep_every, "sweep", move || {
            let store = Arc::clone(&sweeping);
            Box::pin(async move { Ok(sweep::load(&sweep_once(&*store, SWEEP_LIMIT).await?)) })
        });
        let reap = repeat(stopped, schedule.reap_every, "reap", move || {
            let store = Arc::clone(&store);
            Box::pin(async move { Ok(reap::load(reap_once(&*store, REAP_LIMIT).await?)) })
        });
        Self { stop, loops: vec![tokio::spawn(sweep), tokio::spawn(reap)] }
    }

    /// Takes one turn of every loop.
    pub async fn run_once(store: &dyn Store) -> Result<Turn, StoreError> {
        let swept = sweep_once(store, SWEEP_LIMIT).await?;
        let reaped = reap_once(store, REAP_LIMIT).await?;
        Ok(Turn { swept, reaped })
    }

    /// Lets every loop end its turn, and returns when all have.
    pub async fn stop(self) {
        let Self { stop, loops } = self;
        drop(stop);
        for running in loops {
            if let Err(error) = running.await {
                tracing::error!(%error, "a loop had broken down");
            }
        }
    }
}

/// Takes turns until everybody who could say stop is gone.
async fn repeat(
    mut stopped: watch::Receiver<()>,
    every: Duration,
    name: &'static str,
    turn: impl Fn() -> BoxFuture<'static, Result<Load, StoreError>>,
) {
    let mut load = Load::Light;
    loop {
        let pause = match load {
            Load::Full => Duration::ZERO,
            // Between half and one and a half: workers that were started together drift apart.
            Load::Light => every.mul_f64(0.5 + fastrand::f64()),
        };
        tokio::select! {
            biased;
            _ = stopped.changed() => return,
            () = sleep(pause) => {}
        }
        load = turn().await.unwrap_or_else(|error| {
            tracing::warn!(%error, name, "a turn failed; the next one tries again");
            Load::Light
        });
    }
}

impl Default for Schedule {
    fn default() -> Self {
        Self { sweep_every: SWEEP_EVERY, reap_every: REAP_EVERY }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("loop_count", &self.loops.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
