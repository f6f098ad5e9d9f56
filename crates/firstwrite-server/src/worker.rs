//! `firstwrite worker`: runs the loops that look after a store, until it is told to stop.

use std::sync::Arc;

use firstwrite::worker::{Schedule, Turn, Worker};
use firstwrite_core::Store;
use firstwrite_store::Access;
use serde::Serialize;

use crate::command::{Exit, WorkerFlags};
use crate::config::{File, StoreUrl, UsageError};
use crate::opening::{self, open};
use crate::output::{self, Format, Table};
use crate::signals::Signals;

/// What is going to be run.
#[derive(Debug)]
pub(crate) struct Settings {
    store: StoreUrl,
    turns: Turns,
    schedule: Schedule,
    format: Format,
}

/// How long the loops run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turns {
    One,
    UntilTold,
}

/// The document of `--once --format json`.
#[derive(Debug, Serialize)]
struct TurnView {
    swept: SweptView,
    reaped: usize,
}

#[derive(Debug, Serialize)]
struct SweptView {
    freed: usize,
    uncertain: usize,
    moved: usize,
}

impl Settings {
    pub(crate) fn resolve(flags: &WorkerFlags, file: &File) -> Result<Self, UsageError> {
        let usual = Schedule::default();
        let every = |span: Option<crate::config::Span>, usual| span.map_or(usual, |span| span.0);
        let schedule = Schedule {
            sweep_every: every(file.worker.sweep_every, usual.sweep_every),
            reap_every: every(file.worker.reap_every, usual.reap_every),
        };
        Ok(Self {
            store: file.store_or(flags.store.store.as_deref())?,
            turns: if flags.once { Turns::One } else { Turns::UntilTold },
            schedule,
            format: flags.format.format,
        })
    }
}

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Exit> {
    opening::runtime()?.block_on(async {
        let store = open(&settings.store, Access::Write).await?;
        match settings.turns {
            Turns::One => say(&Worker::run_once(&*store).await?, settings.format)?,
            Turns::UntilTold => until_told(store, settings).await?,
        }
        Ok(Exit::Done)
    })
}

async fn until_told(store: Arc<dyn Store>, settings: &Settings) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let Schedule { sweep_every, reap_every } = settings.schedule;
    let worker = Worker::start(store, settings.schedule);
    tracing::info!(store = %settings.store, ?sweep_every, ?reap_every, "at work");
    signals.received().await;
    tracing::info!("stopping: the turns in hand end first");
    tokio::select! {
        () = worker.stop() => {}
        // Whoever asks twice does not want to wait; what is cut off, the next worker does.
        () = signals.received() => {}
    }
    Ok(())
}

fn say(turn: &Turn, format: Format) -> anyhow::Result<()> {
    let Turn { swept, reaped } = *turn;
    match format {
        Format::Json => {
            let (freed, uncertain, moved) = (swept.freed, swept.uncertain, swept.moved);
            output::document(&TurnView { swept: SweptView { freed, uncertain, moved }, reaped })
        }
        Format::Table => {
            let mut table = Table::new(["LOOP", "WHAT", "RECORDS"]);
            for (name, what, count) in [
                ("sweep", "freed: the key may run again", swept.freed),
                ("sweep", "uncertain: waiting for proof", swept.uncertain),
                ("sweep", "moved on by themselves", swept.moved),
                ("reap", "deleted past their retention", reaped),
            ] {
                table.row([name.to_owned(), what.to_owned(), count.to_string()]);
            }
            output::data(&table.to_string())
        }
    }
}
