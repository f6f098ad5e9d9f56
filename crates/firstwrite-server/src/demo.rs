//! `firstwrite demo`: a payments API on the embedded store, ready in one command.
//!
//! It is an application like any other that links the library: its handlers write payments,
//! messages and outcomes in one commit.

mod api;
mod banner;
mod faults;
mod payments;
mod problem;
mod refunds;
mod shutdown;
mod tables;
mod tenants;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use firstwrite::worker::{Schedule, Worker};
use firstwrite_core::Policy;
use firstwrite_store::SqliteStore;
use tokio::net::TcpListener;

use crate::command::{DemoFlags, Exit};
use crate::config::{self, File, StoreUrl, UsageError};
use crate::output;
use faults::Faults;
use shutdown::Signals;

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
    let store = SqliteStore::open(settings.store.path())
        // Its text holds its causes and ends with the next step.
        .map_err(|error| anyhow!("cannot open the store {}: {error}", settings.store))?;
    tables::create(&store).await.context("cannot create the demo's tables")?;
    let router = api::router(&store, settings.faults, settings.retention)?;
    let worker = Worker::start(Arc::new(store.clone()), Schedule::default());
    let signals = Signals::listen()?;
    output::data(&banner::text(address, &settings.store, settings.faults))?;
    let served = shutdown::serve_until_told(listener, router, signals, settings.drain).await;
    worker.stop().await;
    store.close().await;
    served
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        anyhow!("cannot listen on {address}: {error}; choose another with --listen 127.0.0.1:0")
    })
}

#[cfg(test)]
mod tests;
