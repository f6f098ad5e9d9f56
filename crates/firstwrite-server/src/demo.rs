//! `firstwrite demo`: a payments API, ready in one command, on SQLite or on PostgreSQL.
//!
//! It is an application like any other that links the library: its handlers write payments,
//! messages and outcomes in one commit.

mod api;
mod banner;
mod faults;
mod ledger;
mod payments;
mod problem;
mod refunds;
mod shutdown;
mod tenants;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use firstwrite::worker::{Schedule, Worker};
use firstwrite_core::Policy;
use tokio::net::TcpListener;

use crate::command::{DemoFlags, Exit};
use crate::config::{self, File, StoreUrl, UsageError};
use crate::output;
use crate::signals::Signals;
use faults::Faults;
use ledger::Books;

/// The usual port for a service under development, and not reachable from other machines.
const LISTEN_DEFAULT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);

/// In the working directory, where a newcomer sees it and may delete it.
const STORE_DEFAULT: &str = "firstwrite-demo.db";

/// Longer than any handler here takes, shorter than what process supervisors wait before they kill.
const DRAIN_DEFAULT: Duration = Duration::from_secs(10);

/// What is going to be run.
#[derive(Debug)]
pub(crate) struct Settings {
    listen: SocketAddr,
    store: StoreUrl,
    faults: Faults,
    retention: Duration,
    drain: Duration,
}

impl Settings {
    pub(crate) fn resolve(flags: &DemoFlags, file: &File) -> Result<Self, UsageError> {
        let demo = &file.demo;
        let listen = config::given("--listen", flags.listen.as_deref(), demo.listen)?;
        let store = config::given("--store", flags.store.as_deref(), file.store.clone())?;
        let faults = flags.faults.or(demo.faults).unwrap_or(false);
        let settings = Self {
            listen: listen.map_or(LISTEN_DEFAULT, |listen| listen.0),
            store: store.unwrap_or_else(|| StoreUrl::sqlite(STORE_DEFAULT)),
            faults: if faults { Faults::Honoured } else { Faults::Ignored },
            retention: demo.retention.map_or(Policy::RETENTION_DEFAULT, |span| span.0),
            drain: demo.drain.map_or(DRAIN_DEFAULT, |span| span.0),
        };
        api::policy(settings.retention).check().map_err(|error| {
            UsageError::new(format!("the demo's settings contradict each other: {error}"))
        })?;
        Ok(settings)
    }
}

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(serve(settings))?;
    Ok(Exit::Done)
}

async fn serve(settings: &Settings) -> anyhow::Result<()> {
    // Before the store, so that a taken port leaves no new file behind.
    let listener = bind(settings.listen).await?;
    let address = listener.local_addr().context("cannot read the address that was bound")?;
    let books = Books::open(&settings.store).await?;
    let router = api::router(&books, settings.faults, settings.retention)?;
    let worker = Worker::start(books.store(), Schedule::default());
    let signals = Signals::listen()?;
    output::data(&banner::text(address, &settings.store, settings.faults))?;
    let served = shutdown::serve_until_told(listener, router, signals, settings.drain).await;
    worker.stop().await;
    books.close().await;
    served
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        anyhow!("cannot listen on {address}: {error}; choose another with --listen 127.0.0.1:0")
    })
}

#[cfg(test)]
mod tests;
