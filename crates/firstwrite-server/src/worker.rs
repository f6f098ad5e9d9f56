//! `firstwrite worker`: runs the loops that look after a store and deliver its messages, until it is
//! told to stop.

mod outlook;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use firstwrite::worker::{
    Account, Deliver, DeliveredCounts, Destination, Reconcile, Schedule, Worker,
};
use firstwrite_core::Store;
use firstwrite_store::Access;

use crate::command::{Exit, WorkerFlags};
use crate::config::{File, UsageError};
use crate::opening::{self, NamedStore};
use crate::output::Format;
use crate::signals::Signals;

/// Resolved settings of `firstwrite worker`.
#[derive(Debug)]
pub(crate) struct Settings {
    store: NamedStore,
    turns: Turns,
    schedule: Schedule,
    destinations: Vec<Destination>,
    accounts: Vec<Account>,
    reconcile_every: Duration,
    format: Format,
}

/// Mode of the loops: a single pass, or until a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turns {
    One,
    UntilTold,
}

impl Settings {
    pub(crate) fn resolve(flags: &WorkerFlags, file: &File) -> Result<Self, UsageError> {
        let accounts = file.reconcile.scheduled(&file.destinations)?;
        let destinations = file.destinations.build()?;
        file.check_lives(&destinations)?;
        Ok(Self {
            store: file.named_store(flags.store.store.as_deref())?,
            turns: if flags.once { Turns::One } else { Turns::UntilTold },
            schedule: file.worker.schedule()?,
            destinations,
            reconcile_every: file.worker.reconcile_every(!accounts.is_empty())?,
            accounts,
            format: flags.format.format,
        })
    }

    /// The destinations that it delivers to.
    pub(crate) fn destinations(&self) -> &[Destination] {
        &self.destinations
    }
}

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Exit> {
    opening::service_runtime()?.block_on(async {
        let store = settings.store.open(Access::Write).await?;
        let deliver = deliver(&store, &settings.destinations)?;
        outlook::tell(&*store, &settings.destinations).await?;
        match settings.turns {
            Turns::One => {
                let looked_after = Worker::run_once(&*store).await?;
                let delivered = match &deliver {
                    Some(deliver) => deliver.run_until_idle().await?,
                    None => DeliveredCounts::default(),
                };
                turn::say(&looked_after, delivered, settings.format)?;
            }
            Turns::UntilTold => return until_told(store, deliver, settings).await,
        }
        Ok(Exit::Done)
    })
}

/// Returns the delivery loop, if there are destinations.
fn deliver(
    store: &Arc<dyn Store>,
    destinations: &[Destination],
) -> anyhow::Result<Option<Deliver>> {
    if destinations.is_empty() {
        return Ok(None);
    }
    Ok(Some(Deliver::new(Arc::clone(store), destinations.to_vec())?))
}

async fn until_told(
    store: Arc<dyn Store>,
    deliver: Option<Deliver>,
    settings: &Settings,
) -> anyhow::Result<Exit> {
    let mut signals = Signals::listen()?;
    let Schedule { sweep_every, reap_every, upkeep_every } = settings.schedule;
    let mut worker = Worker::start(Arc::clone(&store), settings.schedule);
    if let Some(deliver) = deliver {
        worker = worker.delivering(deliver);
    }
    if !settings.accounts.is_empty() {
        let reconcile = Reconcile::new(store, settings.accounts.clone())?;
        worker = worker.reconciling(reconcile.every(settings.reconcile_every));
    }
    let destinations = outlook::names(&settings.destinations);
    let store = &settings.store.url;
    tracing::info!(%store, destinations, ?sweep_every, ?reap_every, ?upkeep_every, "at work");
    signals.received().await;
    tracing::info!("stopping: the turns and deliveries in hand end first");
    tokio::select! {
        () = worker.stop() => Ok(Exit::Done),
        () = signals.hurried() => {
            tracing::warn!("the turns and deliveries in hand are cut off; the next worker does them");
            Ok(Exit::Interrupted)
        }
    }
}
