//! `firstwrite keys`: what an operator sees of a store, and what they may say about it.
//!
//! Keys are shown whole here, to the person who owns the store, and nowhere else. Reading works
//! beside a running service; settling a key of an SQLite file needs the file for itself.

mod list;
mod migrate;
mod settle;
mod show;
mod view;

pub(crate) use show::{AuditView, hex};
pub(crate) use view::{brief, instant};

use firstwrite_store::Access;

use crate::command::{Exit, KeysCommand, LookFlags};
use crate::config::{File, UsageError};
use crate::opening::{self, NamedStore};
use crate::output::Format;

/// What is going to be looked at.
#[derive(Debug)]
pub(crate) enum Settings {
    /// In one store.
    Looking { store: NamedStore, format: Format, command: KeysCommand },
    /// From one into another.
    Moving(migrate::Move, Format),
}

impl Settings {
    pub(crate) fn resolve(
        shared: &LookFlags,
        command: KeysCommand,
        file: &File,
    ) -> Result<Self, UsageError> {
        if let KeysCommand::Migrate(flags) = &command {
            return Ok(Self::Moving(migrate::Move::resolve(flags)?, shared.format));
        }
        let store = file.named_store(shared.store.as_deref())?;
        if let KeysCommand::Settle(flags) = &command {
            settle::check(flags)?;
        }
        Ok(Self::Looking { store, format: shared.format, command })
    }
}

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Exit> {
    let (named, format, command) = match settings {
        Settings::Looking { store, format, command } => (store, format, command),
        Settings::Moving(moving, format) => return moving.run(*format),
    };
    opening::runtime()?.block_on(async {
        match command {
            KeysCommand::List(flags) => {
                let store = named.open(Access::ReadOnly).await?;
                list::run(&*store, flags, *format).await
            }
            KeysCommand::Show(flags) => {
                let store = named.open(Access::ReadOnly).await?;
                show::run(&*store, flags, *format).await
            }
            KeysCommand::Settle(flags) => {
                let store = named.open(Access::Write).await?;
                settle::settle(&*store, flags, *format).await
            }
            KeysCommand::Release(flags) => {
                let store = named.open(Access::Write).await?;
                settle::release(&*store, flags, *format).await
            }
            KeysCommand::Migrate(_) => unreachable!("it names its stores itself"),
        }
    })
}
