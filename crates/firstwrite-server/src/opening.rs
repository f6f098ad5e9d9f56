//! Opening a store for a command, and the runtime it is used on.

use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use firstwrite_core::Store;
use firstwrite_store::{
    Access, DynamoOptions, DynamoStore, MysqlOptions, MysqlStore, PostgresOptions, migrate,
};
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

/// Opens a store that is already there: an operator who mistypes a path must not make a new one.
pub(crate) async fn open(url: &StoreUrl, access: Access) -> anyhow::Result<Arc<dyn Store>> {
    check_there(url)?;
    firstwrite_store::open(&url.address(), access).await.map_err(|error| unopened(&error))
}

/// Opens a store for a service, which makes its tables if they are not there and it may.
pub(crate) async fn open_or_create(url: &StoreUrl) -> anyhow::Result<Arc<dyn Store>> {
    let address = url.address();
    let open = async || firstwrite_store::open(&address, Access::Write).await;
    let opened = match (open().await, url) {
        (Err(error), StoreUrl::Postgres(address)) => {
            match migrate(address, PostgresOptions::default()).await {
                Ok(_) => open().await,
                Err(_not_allowed) => Err(error),
            }
        }
        (Err(error), StoreUrl::Mysql(address)) => {
            match MysqlStore::migrate(address, MysqlOptions::default()).await {
                Ok(_) => open().await,
                Err(_not_allowed) => Err(error),
            }
        }
        (Err(error), StoreUrl::Dynamodb(address)) => {
            match DynamoStore::migrate(address, DynamoOptions::default()).await {
                Ok(_) => open().await,
                Err(_not_allowed) => Err(error),
            }
        }
        (opened @ Ok(_), _) | (opened, StoreUrl::Sqlite(_) | StoreUrl::Redis(_)) => opened,
    };
    opened.map_err(|error| unopened(&error))
}

/// Says so if the file of an SQLite store is not there.
pub(crate) fn check_there(url: &StoreUrl) -> anyhow::Result<()> {
    let is_there = match url {
        StoreUrl::Sqlite(path) => path.exists(),
        StoreUrl::Postgres(_) | StoreUrl::Mysql(_) | StoreUrl::Redis(_) | StoreUrl::Dynamodb(_) => {
            true
        }
    };
    anyhow::ensure!(is_there, "there is no store at {url}; check the path given with --store");
    Ok(())
}

/// Why a store could not be opened. The cause's text names the place, holds its own causes and ends with
/// the next step.
pub(crate) fn unopened(error: &dyn std::error::Error) -> anyhow::Error {
    anyhow!("cannot open the store: {error}")
}
