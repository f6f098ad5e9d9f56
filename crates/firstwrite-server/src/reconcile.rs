//! `firstwrite reconcile`: our books compared with what providers say, and what a person has to look at.

mod findings;
mod run;

use std::sync::Arc;

use firstwrite::worker::Account;
use firstwrite_core::Store;
use firstwrite_core::findings::Findings;
use firstwrite_store::Access;

use crate::command::{Exit, LookFlags, ReconcileCommand};
use crate::config::{File, UsageError};
use crate::opening::{self, NamedStore};
use crate::output::Format;

/// Resolved settings of `firstwrite reconcile`.
#[derive(Debug)]
pub(crate) struct Settings {
    store: NamedStore,
    format: Format,
    command: ReconcileCommand,
    /// Accounts that `run` compares.
    accounts: Vec<Account>,
}

impl Settings {
    pub(crate) fn resolve(
        shared: &LookFlags,
        command: ReconcileCommand,
        file: &File,
    ) -> Result<Self, UsageError> {
        let store = file.named_store(shared.store.as_deref())?;
        let accounts = match &command {
            ReconcileCommand::Run(flags) => run::accounts(flags, file)?,
            ReconcileCommand::Findings(_)
            | ReconcileCommand::Assign(_)
            | ReconcileCommand::Resolve(_) => Vec::new(),
        };
        Ok(Self { store, format: shared.format, command, accounts })
    }
}

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Exit> {
    let Settings { store, format, command, accounts } = settings;
    opening::service_runtime()?.block_on(async {
        let (access, accounts) = match command {
            ReconcileCommand::Findings(_) => (Access::ReadOnly, Vec::new()),
            ReconcileCommand::Run(flags) => {
                // Whether a run is dry stands in the store, which a dry run must not write to.
                let reader = store.open(Access::ReadOnly).await?;
                let accounts = run::decide_dry_runs(&*reader, accounts, flags).await?;
                let is_dry = accounts.iter().all(|account| account.settings.dry_run);
                (if is_dry { Access::ReadOnly } else { Access::Write }, accounts)
            }
            ReconcileCommand::Assign(_) | ReconcileCommand::Resolve(_) => {
                (Access::Write, Vec::new())
            }
        };
        let store = store.open(access).await?;
        match command {
            ReconcileCommand::Run(flags) => run::run(&*store, &accounts, flags, *format).await,
            ReconcileCommand::Findings(flags) => {
                findings::list(kept(&store)?, flags, *format).await
            }
            ReconcileCommand::Assign(flags) => {
                findings::assign(kept(&store)?, flags, *format).await
            }
            ReconcileCommand::Resolve(flags) => {
                findings::resolve(kept(&store)?, flags, *format).await
            }
        }
    })
}

fn kept(store: &Arc<dyn Store>) -> anyhow::Result<Findings<'_>> {
    Findings::of(&**store).ok_or_else(|| anyhow::anyhow!("this store keeps no findings"))
}
