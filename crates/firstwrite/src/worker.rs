//! The loops that look after the store: deliver, sweep, reap, upkeep and reconcile.
//!
//! Each loop waits, does one turn, and goes again at once if the turn was full. A turn that fails is
//! tried again, less and less often for as long as it fails. Every process of an application may run
//! them: turns of two workers do not disturb each other, because each write checks again what the
//! turn has seen.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::protocol::Swept;
use firstwrite_core::{BoxFuture, Store, StoreError};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

#[cfg(feature = "outbox")]
mod deliver;
mod reap;
#[cfg(feature = "outbox")]
mod reconcile;
mod sweep;
mod upkeep;

#[cfg(feature = "outbox")]
pub use deliver::{DELIVER_EVERY, Deliver, DeliverError, DeliveredCounts, Destination, SLOT_COUNT};
pub use reap::{REAP_EVERY, REAP_LIMIT, reap_once};
#[cfg(feature = "outbox")]
pub use reconcile::{Account, RECONCILE_EVERY, RECONCILE_LOOK_EVERY, Reconcile};
pub use sweep::{SWEEP_EVERY, SWEEP_LIMIT, sweep_once};
pub use upkeep::{UPKEEP_EVERY, UPKEEP_LIMIT, upkeep_once};

/// Runs the loops until it is stopped or dropped.
#[must_use = "the loops end when it is dropped"]
pub struct Worker {
    stop: watch::Sender<()>,
    loops: Vec<JoinHandle<()>>,
}

/// Intervals between the turns of each loop when there is little to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Interval between searches for lapsed leases.
    pub sweep_every: Duration,
    /// Interval between deletions of records past their retention.
    pub reap_every: Duration,
    /// Interval between turns that fold the outbox's counts and delete its old messages.
    pub upkeep_every: Duration,
}

/// Result of one turn of every loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Turn {
    /// Result of the sweep.
    pub swept: Swept,
    /// Number of records reaped.
    pub reaped: usize,
    /// Number of messages deleted that had been delivered long ago.
    pub deleted: usize,
}

/// Receives the result of each successful turn of a loop, for metrics.
pub trait TurnObserver: Send + Sync + 'static {
    /// A turn of the sweep.
    fn swept(&self, swept: &Swept) {
        let _ = swept;
    }

    /// A turn of the reaping, and how many records it deleted.
    fn reaped(&self, reaped: usize) {
        let _ = reaped;
    }
}

/// Observer that ignores everything.
struct Nobody;

impl TurnObserver for Nobody {}

/// Amount of work that a turn found; decides how soon the next one follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Full,
    Light,
    /// The store was of no help, this many times in a row.
    Failed(u32),
}

/// Longest pause of a loop whose store is away, unless the loop's own interval is longer: once the store is
/// repaired, the loops resume soon.
const PAUSE_MAX: Duration = Duration::from_mins(5);

impl Worker {
    /// Starts the loops on the current runtime.
    pub fn start(store: Arc<dyn Store>, schedule: Schedule) -> Self {
        Self::observed(store, schedule, Arc::new(Nobody))
    }

    /// Starts the loops like [`Self::start`], and reports each turn to `observer`.
    pub fn observed(
        store: Arc<dyn Store>,
        schedule: Schedule,
        observer: Arc<dyn TurnObserver>,
    ) -> Self {
        let (stop, stopped) = watch::channel(());
        let (sweeping, told) = (Arc::clone(&store), Arc::clone(&observer));
        let sweep = repeat(stopped.clone(), schedule.sweep_every, "sweep", move || {
            let (store, told) = (Arc::clone(&sweeping), Arc::clone(&told));
            Box::pin(async move {
                let swept = sweep_once(&*store, SWEEP_LIMIT).await?;
                sweep::say(&swept);
                told.swept(&swept);
                Ok(sweep::load(&swept))
            })
        });
        let reaping = Arc::clone(&store);
        let reap = repeat(stopped.clone(), schedule.reap_every, "reap", move || {
            let (store, told) = (Arc::clone(&reaping), Arc::clone(&observer));
            Box::pin(async move {
                let reaped = reap_once(&*store, REAP_LIMIT).await?;
                reap::say(reaped);
                told.reaped(reaped);
                Ok(reap::load(reaped))
            })
        });
        let upkeep = repeat(stopped, schedule.upkeep_every, "upkeep", move || {
            let store = Arc::clone(&store);
            Box::pin(async move {
                let deleted = upkeep_once(&*store, UPKEEP_LIMIT).await?;
                Ok(upkeep::load(deleted))
            })
        });
        Self { stop, loops: vec![tokio::spawn(sweep), tokio::spawn(reap), tokio::spawn(upkeep)] }
    }

    /// Starts delivering too.
    #[cfg(feature = "outbox")]
    pub fn delivering(mut self, deliver: Deliver) -> Self {
        self.loops.push(tokio::spawn(deliver.run(self.stop.subscribe())));
        self
    }

    /// Starts reconciling too.
    #[cfg(feature = "outbox")]
    pub fn reconciling(mut self, reconcile: Reconcile) -> Self {
        self.loops.push(tokio::spawn(reconcile.run(self.stop.subscribe())));
        self
    }

    /// Takes one turn of every loop but delivering and reconciling, which have a `run_once` of their own.
    pub async fn run_once(store: &dyn Store) -> Result<Turn, StoreError> {
        let swept = sweep_once(store, SWEEP_LIMIT).await?;
        let reaped = reap_once(store, REAP_LIMIT).await?;
        let deleted = upkeep_once(store, UPKEEP_LIMIT).await?;
        Ok(Turn { swept, reaped, deleted })
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

/// Takes turns until all stop senders are dropped.
async fn repeat(
    mut stopped: watch::Receiver<()>,
    every: Duration,
    name: &'static str,
    turn: impl Fn() -> BoxFuture<'static, Result<Load, StoreError>>,
) {
    let mut load = Load::Light;
    loop {
        let pause = load.pause(every);
        tokio::select! {
            biased;
            _ = stopped.changed() => return,
            () = sleep(pause) => {}
        }
        load = match turn().await {
            Ok(load) => load,
            Err(error) => {
                tracing::warn!(%error, name, "a turn failed; a later one tries again");
                load.failed()
            }
        };
    }
}

impl Load {
    fn failed(self) -> Self {
        match self {
            Self::Full | Self::Light => Self::Failed(1),
            Self::Failed(times) => Self::Failed(times.saturating_add(1)),
        }
    }

    /// Returns how long to wait for the next turn.
    fn pause(self, every: Duration) -> Duration {
        let pause = match self {
            Self::Full => return Duration::ZERO,
            Self::Light => every,
            Self::Failed(times) => {
                let doubled = every.saturating_mul(2u32.saturating_pow(times));
                doubled.min(every.max(PAUSE_MAX))
            }
        };
        // Between half and one and a half: workers that were started together drift apart.
        pause.mul_f64(0.5 + fastrand::f64())
    }
}

impl Default for Schedule {
    fn default() -> Self {
        Self { sweep_every: SWEEP_EVERY, reap_every: REAP_EVERY, upkeep_every: UPKEEP_EVERY }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("loop_count", &self.loops.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
