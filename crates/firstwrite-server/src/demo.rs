//! `firstwrite demo`: a payments API, ready in one command, on SQLite or on PostgreSQL.
//!
//! It is an application like any other that links the library: its handlers write payments,
//! messages and outcomes in one commit. The messages go to a payment provider, which plays a
//! stranger's part: it answers, sends webhooks, and misbehaves when told to.

mod api;
mod banner;
mod charge;
mod faults;
mod ledger;
mod order;
mod payments;
mod problem;
mod provider;
mod refunds;
mod shutdown;
mod tenants;
mod webhooks;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use firstwrite::worker::{Deliver, Schedule, Worker};
use firstwrite_core::{Mode, Policy};
use tokio::net::TcpListener;

use crate::command::{DemoFlags, Exit};
use crate::config::{self, DemoSection, File, StoreUrl, UsageError};
use crate::demo_provider;
use crate::opening;
use crate::output;
use crate::signals::Signals;
use api::Setup;
use faults::Faults;
use ledger::Books;
use provider::{Counterpart, Wanted};

/// The usual port for a service under development, and not reachable from other machines.
const LISTEN_DEFAULT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);

/// In the working directory, where a newcomer sees it and may delete it.
const STORE_DEFAULT: &str = "firstwrite-demo.db";

/// Longer than any handler here takes, shorter than what process supervisors wait before they kill.
const DRAIN_DEFAULT: Duration = Duration::from_secs(10);

/// Far longer than a provider in the same process takes, and no longer than a person waits gladly.
const WAIT_DEFAULT: Duration = Duration::from_secs(2);

/// What is going to be run.
#[derive(Debug)]
pub(crate) struct Settings {
    listen: SocketAddr,
    store: StoreUrl,
    faults: Faults,
    retention: Duration,
    drain: Duration,
    wait_for: Duration,
    provider: Wanted,
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
            wait_for: flags.wait_for.or(demo.wait_for.map(|span| span.0)).unwrap_or(WAIT_DEFAULT),
            provider: wanted(flags, demo)?,
        };
        api::policy(Mode::Atomic, settings.retention).check().map_err(|error| {
            UsageError::new(format!("the demo's settings contradict each other: {error}"))
        })?;
        Ok(settings)
    }
}

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Exit> {
    opening::service_runtime()?.block_on(serve(settings))?;
    Ok(Exit::Done)
}

/// Which provider is to be used.
fn wanted(flags: &DemoFlags, demo: &DemoSection) -> Result<Wanted, UsageError> {
    let Some(url) = flags.provider.clone().or_else(|| demo.provider.clone()) else {
        return Ok(Wanted::Own);
    };
    let is_address = url.starts_with("http://") || url.starts_with("https://");
    if !is_address {
        let message = "--provider: an address is needed, such as http://127.0.0.1:8090";
        return Err(UsageError::new(message));
    }
    let secret = flags.webhook_secret.as_deref().unwrap_or(demo_provider::WEBHOOK_SECRET);
    let secret =
        secret.parse().map_err(|error| UsageError::new(format!("--webhook-secret: {error}")))?;
    Ok(Wanted::Other { url, secret })
}

async fn serve(settings: &Settings) -> anyhow::Result<()> {
    // Before the store, so that a taken port leaves no new file behind.
    let listener = bind(settings.listen).await?;
    let address = listener.local_addr().context("cannot read the address that was bound")?;
    let books = Books::open(&settings.store).await?;
    let provider = Counterpart::start(&settings.provider, &settings.store, address).await?;
    let setup = Setup {
        faults: settings.faults,
        retention: settings.retention,
        wait_for: settings.wait_for,
        secret: provider.secret.clone(),
    };
    let router = api::router(&books, setup)?;
    let deliver = Deliver::new(books.messages(), vec![provider.destination()?])?;
    let worker = Worker::start(books.store(), Schedule::default()).delivering(deliver);
    let signals = Signals::listen()?;
    output::data(&banner::text(address, &settings.store, settings.faults, &provider))?;
    let served = shutdown::serve_until_told(listener, router, signals, settings.drain).await;
    worker.stop().await;
    provider.stop().await;
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
