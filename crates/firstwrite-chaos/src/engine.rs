//! A database server under the demo: started, killed and started again on the same data.

use std::path::Path;

use crate::demo::Backend;
use crate::guard::Guard;
use crate::mariadb;
use crate::packages;
use crate::postgres;

pub(crate) trait Engine {
    /// The address of the store, as the demo takes it.
    fn address(&self) -> String;
    /// Starts it; it may not take connections yet.
    fn start(&mut self) -> anyhow::Result<()>;
    fn wait_until_ready(&mut self) -> anyhow::Result<()>;
    /// `kill -9`; returns when it is gone.
    fn kill(&mut self) -> anyhow::Result<()>;
    /// All its processes.
    fn pids(&self) -> Vec<u32>;
    /// Its data stays when this value goes, for a person to look at.
    fn keep(&mut self);
}

/// The server a store runs on, where it has one, with durable settings; not started yet.
pub(crate) fn of<'a>(
    backend: Backend,
    folder: &Path,
    guard: &'a Guard,
) -> anyhow::Result<Option<Box<dyn Engine + 'a>>> {
    Ok(match backend {
        Backend::Sqlite => None,
        Backend::Postgres => Some(Box::new(on_postgres(folder, &[], guard)?)),
        Backend::MariaDb => Some(Box::new(on_mariadb(folder, mariadb::DURABLE, guard)?)),
    })
}

pub(crate) fn on_postgres<'a>(
    folder: &Path,
    settings: &[postgres::Settings],
    guard: &'a Guard,
) -> anyhow::Result<postgres::Node<'a>> {
    packages::ensure(&[postgres::SERVER, postgres::PSQL])?;
    postgres::Node::create("postgres", folder, settings, guard)
}

pub(crate) fn on_mariadb<'a>(
    folder: &Path,
    settings: &'static [&'static str],
    guard: &'a Guard,
) -> anyhow::Result<mariadb::Node<'a>> {
    packages::ensure(&[mariadb::SERVER, mariadb::CLIENT])?;
    mariadb::Node::create("mariadb", folder, settings, guard)
}

pub(crate) fn on_cluster<'a>(
    folder: &Path,
    seed: u64,
    guard: &'a Guard,
) -> anyhow::Result<mariadb::Cluster<'a>> {
    use mariadb::{CLIENT, GALERA, RSYNC, SERVER};
    packages::ensure(&[SERVER, CLIENT, GALERA, RSYNC])?;
    mariadb::Cluster::create(folder, seed, guard)
}

impl Engine for postgres::Node<'_> {
    fn address(&self) -> String {
        self.address()
    }

    fn start(&mut self) -> anyhow::Result<()> {
        self.start()
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        self.wait_until_ready()
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        self.kill()
    }

    fn pids(&self) -> Vec<u32> {
        self.pids()
    }

    fn keep(&mut self) {
        self.keep();
    }
}
