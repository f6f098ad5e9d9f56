//! Opening a store for a command, and the runtime it is used on.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use firstwrite_core::Store;
use firstwrite_store::{Access, open_within};
use firstwrite_wrappers::{KeyRing, SealedStore};
use tokio::runtime::Runtime;

use crate::config::StoreUrl;

/// A runtime for a command that does one thing after the other.
pub(crate) fn runtime() -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

/// A runtime for a command that does many things at a time.
pub(crate) fn service_runtime() -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

/// A store by its address, and the keys that its outcomes are sealed with. Every command that may write an
/// outcome opens its store by this.
#[derive(Clone, Debug)]
pub(crate) struct NamedStore {
    pub(crate) url: StoreUrl,
    pub(crate) ring: Option<KeyRing>,
}

impl NamedStore {
    /// Opens the store, which must be there.
    pub(crate) async fn open(&self, access: Access) -> anyhow::Result<Arc<dyn Store>> {
        let plain = open(&self.url, access).await?;
        Ok(match &self.ring {
            Some(ring) => Arc::new(SealedStore::new(plain, ring.clone())),
            None => plain,
        })
    }
}

/// A store that a service opened.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    /// True if this opening created it, so that it knows no key used before.
    pub(crate) is_new: bool,
}

/// Behaviour of a service if the store does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// In an empty store every key used before runs again, and a mistyped address leads to one.
    Refuse,
    /// The same of the usual file, where none is named: an address that was lost, such as an environment that is
    /// not passed on, leads to an empty store as well.
    RefuseUsual,
    /// The operator asked for a new store.
    Create,
}

/// Opens a store that is already there, to see outcomes as they are stored: sealed ones stay sealed.
pub(crate) async fn open(url: &StoreUrl, access: Access) -> anyhow::Result<Arc<dyn Store>> {
    firstwrite_store::open(&url.address(), access).await.map_err(|error| unopened(&error))
}

/// Opens a store for a service whose shortest lease is `lease_min`: the store's own time limit is no longer.
pub(crate) async fn open_for_service(
    url: &StoreUrl,
    missing: Missing,
    lease_min: Duration,
) -> anyhow::Result<Opened> {
    let address = url.address();
    match (open_within(&address, lease_min).await, missing) {
        (Ok(store), _) => Ok(Opened { store, is_new: false }),
        (Err(error), Missing::Refuse) if error.is_missing() => Err(anyhow!(
            "there is no store at {url}; check the address, or create a new and empty one with --create or \
             `firstwrite migrate --store '{url}'`"
        )),
        (Err(error), Missing::RefuseUsual) if error.is_missing() => Err(anyhow!(
            "no store is named, and there is no {} in the working directory; the first time, add --create or \
             run `firstwrite migrate --store '{url}'`; otherwise, name the store that you used with --store or \
             FIRSTWRITE_STORE",
            address.strip_prefix("sqlite:").unwrap_or(&address)
        )),
        (Err(error), Missing::Refuse | Missing::RefuseUsual) => Err(unopened(&error)),
        (Err(_), Missing::Create) => {
            let created = firstwrite_store::create(&address).await;
            let is_new = created.map_err(|error| unopened(&error))?.is_new();
            let store = open_within(&address, lease_min).await.map_err(|error| unopened(&error))?;
            Ok(Opened { store, is_new })
        }
    }
}

/// Wraps the error of a store that could not be opened. The error's text names the place, includes its causes
/// and ends with the next step.
pub(crate) fn unopened(error: &dyn std::error::Error) -> anyhow::Error {
    anyhow!("cannot open the store: {error}")
}
