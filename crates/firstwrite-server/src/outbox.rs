//! `firstwrite outbox`: what an operator sees of messages and destinations, and what they may do.
//!
//! Keys are shown whole here, to the person who owns the store, and nowhere else. Reading works
//! beside a running service; changing something in an SQLite file needs the file for itself.

mod list;
mod pause;
mod rate;
mod redrive;
mod settle;
mod show;
mod status;
mod view;

use std::sync::Arc;

use firstwrite_core::Store;
use firstwrite_core::outbox::Outbox;
use firstwrite_store::Access;

use crate::command::{Exit, LookFlags, OutboxCommand};
use crate::config::{File, UsageError};
use crate::opening::{self, NamedStore};
use crate::output::Format;

pub(crate) use rate::Rate;
pub(crate) use show::DeliveryDocument;

/// Resolved settings of `firstwrite outbox`.
#[derive(Debug)]
pub(crate) struct Settings {
    store: NamedStore,
    format: Format,
    command: OutboxCommand,
}

/// A store with messages in it.
struct Opened(Arc<dyn Store>);

impl Settings {
    pub(crate) fn resolve(
        shared: &LookFlags,
        command: OutboxCommand,
        file: &File,
    ) -> Result<Self, UsageError> {
        let store = file.named_store(shared.store.as_deref())?;
        Ok(Self { store, format: shared.format, command })
    }
}

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Exit> {
    let Settings { store, format, command } = settings;
    let format = *format;
    opening::runtime()?.block_on(async {
        let opened = Opened::open(store, access(command)).await?;
        let outbox = opened.outbox()?;
        match command {
            OutboxCommand::Status => status::run(outbox, opened.0.now().await?, format).await,
            OutboxCommand::List(flags) => list::run(outbox, flags, format).await,
            OutboxCommand::Show(flags) => show::run(outbox, flags, format).await,
            OutboxCommand::Redrive(flags) => redrive::run(outbox, flags, format).await,
            OutboxCommand::Pause(flags) => pause::pause(outbox, flags, format).await,
            OutboxCommand::Resume(flags) => pause::resume(outbox, flags, format).await,
            OutboxCommand::Settle(flags) => settle::run(&*opened.0, outbox, flags, format).await,
        }
    })
}

/// Returns the access that a command needs. Commands that only read can run beside a service.
fn access(command: &OutboxCommand) -> Access {
    match command {
        OutboxCommand::Status | OutboxCommand::List(_) | OutboxCommand::Show(_) => Access::ReadOnly,
        OutboxCommand::Redrive(flags) if !flags.yes => Access::ReadOnly,
        OutboxCommand::Redrive(_)
        | OutboxCommand::Pause(_)
        | OutboxCommand::Resume(_)
        | OutboxCommand::Settle(_) => Access::Write,
    }
}

impl Opened {
    async fn open(store: &NamedStore, access: Access) -> anyhow::Result<Self> {
        store.open(access).await.map(Self)
    }

    fn outbox(&self) -> anyhow::Result<&dyn Outbox> {
        self.0.outbox().ok_or_else(|| {
            anyhow::anyhow!(
                "this store keeps no messages; name the one of the application's transactions, \
                 sqlite:, postgres: or mysql:"
            )
        })
    }
}
