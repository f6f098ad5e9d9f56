//! A provider with a folder and a clock of its own.

use std::net::SocketAddr;
use std::path::PathBuf;

use firstwrite_provider::{Behaviour, ManualClock, Moment, Options, Provider};
use tempfile::TempDir;

pub(crate) struct Stand {
    pub(crate) provider: Provider,
    pub(crate) clock: ManualClock,
    folder: TempDir,
}

/// Some moment at the beginning of a second.
pub(crate) fn noon() -> Moment {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

impl Stand {
    pub(crate) async fn new(behaviour: Behaviour) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(noon());
        let options = Options { behaviour, ..options(&folder, &clock) };
        Self { provider: Provider::start(options).await.unwrap(), clock, folder }
    }

    /// Stops the provider and starts another one on the same ledger.
    pub(crate) async fn restart(self) -> Self {
        let Self { provider, clock, folder } = self;
        provider.stop().await;
        let provider = Provider::start(options(&folder, &clock)).await.unwrap();
        Self { provider, clock, folder }
    }

    /// Stops the provider. The folder lives on with what is returned.
    pub(crate) async fn stop(self) -> (TempDir, Options) {
        let Self { provider, clock, folder } = self;
        provider.stop().await;
        let options = options(&folder, &clock);
        (folder, options)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.provider.address()
    }

    pub(crate) fn ledger(&self) -> PathBuf {
        self.folder.path().join("ledger.jsonl")
    }

    /// How many payments there are, in truth.
    pub(crate) fn count(&self) -> usize {
        self.provider.payments().len()
    }
}

fn options(folder: &TempDir, clock: &ManualClock) -> Options {
    let ledger = folder.path().join("ledger.jsonl");
    Options { seed: 7, clock: clock.clock(), ..Options::new(ledger) }
}
