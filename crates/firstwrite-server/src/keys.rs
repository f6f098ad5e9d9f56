//! `firstwrite keys`: what an operator sees of a store, and the one thing they may change.
//!
//! Keys are shown whole here, to the person who owns the store, and nowhere else. Reading works
//! beside a running service; releasing needs the store for itself.

mod list;
mod release;
mod show;
mod view;

use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use firstwrite_core::Store;
use firstwrite_store::Access;

use crate::command::{Exit, KeysCommand, SharedKeysFlags};
use crate::config::{self, File, StoreUrl, UsageError};
use crate::output::Format;

/// What is going to be looked at.
#[derive(Debug)]
pub(crate) struct Settings {
    store: StoreUrl,
    format: Format,
    command: KeysCommand,
}

impl Settings {
    pub(crate) fn resolve(
        shared: &SharedKeysFlags,
        command: KeysCommand,
        file: &File,
    ) -> Result<Self, UsageError> {
        let store = config::given("--store", shared.store.as_deref(), file.store.clone())?;
        let store = store.ok_or_else(|| {
            UsageError::new(
                "no store is named; add --store sqlite:PATH, or set FIRSTWRITE_STORE, or `store` \
                 in the config file",
            )
        })?;
        Ok(Self { store, format: shared.format, command })
    }
}

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Exit> {
    let Settings { store: url, format, command } = settings;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        match command {
            KeysCommand::List(flags) => {
                let store = open(url, Access::ReadOnly)?;
                list::run(&*store, flags, *format).await
            }
            KeysCommand::Show(flags) => {
                let store = open(url, Access::ReadOnly)?;
                show::run(&*store, flags, *format).await
            }
            KeysCommand::Release(flags) => {
                let store = open(url, Access::Write)?;
                release::run(&*store, flags, *format).await
            }
        }
    })
}

/// Opens a store that is already there: an operator who mistypes a path must not make a new one.
fn open(url: &StoreUrl, access: Access) -> anyhow::Result<Arc<dyn Store>> {
    anyhow::ensure!(
        url.path().exists(),
        "there is no store at {url}; check the path given with --store"
    );
    firstwrite_store::open(&url.to_string(), access)
        // Its text holds its causes and ends with the next step.
        .map_err(|error| anyhow!("cannot open the store {url}: {error}"))
}
