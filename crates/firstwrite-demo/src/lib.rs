//! The payments API of `firstwrite demo`, ready in one command, on any of the stores.
//!
//! It is an application like any other that links the library: its handlers write payments,
//! messages and outcomes in one commit, so its own tables and their SQL are here. The messages go to a
//! payment provider, which plays a stranger's part: it answers, sends webhooks, and misbehaves when told to.
//!
//! The process around it reads flags and files, prints and listens for signals: [`Settings`] come in as
//! values, [`Demo::banner`] is a text, and [`Demo::serve_until`] is told when to stop.

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

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use axum::Router;
use firstwrite::worker::{Deliver, Schedule, Worker};
use firstwrite_core::Mode;
use humantime::format_duration;
use tokio::net::TcpListener;

use crate::api::Setup;
use crate::ledger::Books;
use crate::provider::{Counterpart, DEDUPE_FOR};

pub use crate::faults::Faults;
pub use crate::provider::ProviderChoice;

/// The SQLite file of a demo that is told of no other: in the working directory, where a newcomer sees it
/// and may delete it. The payments are in it, too, where the records' store cannot hold them.
pub const STORE_DEFAULT: &str = "firstwrite-demo.db";

/// The settings of one run.
#[derive(Debug)]
pub struct Settings {
    /// The address to listen at; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The store of the records and, where it can hold them, of the payments.
    pub store: StoreAddress,
    /// The store's address as the banner shows it, without a password.
    pub store_shown: String,
    /// Says if requests may ask for trouble.
    pub faults: Faults,
    /// The time for which an outcome is replayed; at least as long as the provider recognises a key, 24 hours.
    pub retention: Duration,
    /// The time that requests under way get at the end.
    pub drain: Duration,
    /// The time that a caller waits for the provider's answer before it gets a 202.
    pub wait_for: Duration,
    /// The payment provider behind the API.
    pub provider: ProviderChoice,
}

/// The address of a store, as its driver takes it. `Debug` shows the kind alone: an address may hold a
/// password.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreAddress {
    /// The path of a SQLite file.
    Sqlite(PathBuf),
    /// A `postgres://` address.
    Postgres(String),
    /// A `mysql://` address.
    Mysql(String),
    /// A `redis://` address.
    Redis(String),
    /// A `dynamodb:` address.
    Dynamodb(String),
}

/// The demo with its port bound, its store open and its worker at work; it serves nothing yet.
#[derive(Debug)]
pub struct Demo {
    listener: TcpListener,
    address: SocketAddr,
    router: Router,
    books: Books,
    worker: Worker,
    provider: Counterpart,
    faults: Faults,
    store_shown: String,
    drain: Duration,
}

impl Settings {
    /// Refuses settings that contradict each other.
    pub fn check(&self) -> anyhow::Result<()> {
        api::policy(Mode::Atomic, self.retention).check()?;
        // The key on the wire is the same for ever.
        ensure!(
            self.retention >= DEDUPE_FOR,
            "retention is {}, and the provider recognises a key for {}: a second order under a key that is free \
             again would be answered with the first one's payment; make retention at least {1}",
            format_duration(self.retention),
            format_duration(DEDUPE_FOR)
        );
        Ok(())
    }
}

impl Demo {
    /// Binds the port, opens the store, makes what is missing in it, and starts the provider and the worker.
    pub async fn start(settings: &Settings) -> anyhow::Result<Self> {
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
        let (faults, drain) = (settings.faults, settings.drain);
        let store_shown = settings.store_shown.clone();
        Ok(Self { listener, address, router, books, worker, provider, faults, store_shown, drain })
    }

    /// The text for a newcomer: the address, and commands that show what the demo is about. `program` is
    /// the name that a shell finds `firstwrite` by.
    pub fn banner(&self, program: &str) -> String {
        banner::text(self.address, program, &self.store_shown, self.faults, &self.provider)
    }

    /// Serves until `told` returns, then lets requests under way end and stops everything. `told` is called
    /// again while they end: its second return cuts that short.
    pub async fn serve_until(self, told: impl AsyncFnMut()) -> anyhow::Result<()> {
        let served = shutdown::serve_until_told(self.listener, self.router, told, self.drain).await;
        self.worker.stop().await;
        self.provider.stop().await;
        self.books.close().await;
        served
    }
}

impl fmt::Debug for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sqlite(_) => "Sqlite",
            Self::Postgres(_) => "Postgres",
            Self::Mysql(_) => "Mysql",
            Self::Redis(_) => "Redis",
            Self::Dynamodb(_) => "Dynamodb",
        })
    }
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        anyhow!("cannot listen on {address}: {error}; choose another with --listen 127.0.0.1:0")
    })
}

#[cfg(test)]
mod tests;
