//! `firstwrite keys`: what an operator sees of a store, and what they may say about it.
//!
//! Keys are shown whole here, to the person who owns the store, and nowhere else. Reading works
//! beside a running service; settling a key of an SQLite file needs the file for itself.

mod find;
mod list;
mod migrate;
mod settle;
mod show;
mod story;
mod upstream;
mod view;

pub(crate) use story::AuditView;
pub(crate) use view::{brief, instant};

use firstwrite_store::Access;

use crate::command::{Exit, KeysCommand, LookFlags};
use crate::config::{File, ForwardKey, UsageError};
use crate::opening::{self, NamedStore};
use crate::output::Format;
use upstream::Known;

/// Resolved settings of `firstwrite keys`.
#[derive(Debug)]
pub(crate) enum Settings {
    /// A command on one store.
    Looking {
        store: NamedStore,
        format: Format,
        command: KeysCommand,
        /// The key that the gateway passes on, if its file is given.
        forward_key: Option<ForwardKey>,
    },
    /// A copy from one store into another.
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
        match &command {
            KeysCommand::Settle(flags) => settle::check(flags)?,
            KeysCommand::Show(flags) => show::check(flags)?,
            KeysCommand::List(_) | KeysCommand::Release(_) | KeysCommand::Migrate(_) => {}
        }
        let forward_key = file.forward_key();
        Ok(Self::Looking { store, format: shared.format, command, forward_key })
    }
}

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Exit> {
    let (named, format, command, told) = match settings {
        Settings::Looking { store, format, command, forward_key } => {
            (store, format, command, forward_key.map(Known::from_file))
        }
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
                let known = Known::or_of(told, &*store).await;
                show::run(&*store, flags, *format, known).await
            }
            KeysCommand::Settle(flags) => {
                let store = named.open(settle::access(&flags.finding)).await?;
                let known = Known::or_of(told, &*store).await;
                settle::settle(&*store, flags, *format, known).await
            }
            KeysCommand::Release(flags) => {
                let store = named.open(settle::access(&flags.finding)).await?;
                let known = Known::or_of(told, &*store).await;
                settle::release(&*store, flags, *format, known).await
            }
            KeysCommand::Migrate(_) => unreachable!("it names its stores itself"),
        }
    })
}
