//! Checks a PostgreSQL server for unsafe settings and problems that concern keys.
//!
//! Without the rights of `pg_monitor` the server hides what other roles do; the report then says so instead
//! of finding nothing wrong.

use std::collections::HashMap;
use std::time::Duration;

use firstwrite_core::{StoreError, StoreErrorKind};
use tokio_postgres::{Client, Row};

use super::PostgresStore;
use crate::doctor::Finding;

mod activity;
mod durability;
mod room;

/// The operator's expectations of the server.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The name of a synchronous standby.
    pub standby: Option<String>,
    /// The port that the store was connected to, if there is one, to detect a pooler in between.
    pub port: Option<u16>,
    /// Time after which an open transaction is reported. Default: 5 minutes, longer than any request
    /// of ours is open, short enough to notice in time.
    pub open_for_max: Duration,
}

/// The server's settings by name.
type Settings = HashMap<String, String>;

/// Examines the server behind `store`.
pub async fn examine(
    store: &PostgresStore,
    expected: &Expected,
) -> Result<Vec<Finding>, StoreError> {
    let connection = store.pool().get().await.map_err(|error| {
        StoreError::definite(StoreErrorKind::Unavailable, DOING).caused_by(error)
    })?;
    let client: &Client = &connection;
    let mut findings = Vec::new();
    let looked = async {
        let settings = settings(client).await?;
        findings.extend(version(&settings));
        findings.extend(durability::look(client, &settings, expected).await?);
        findings.extend(activity::look(client, expected.open_for_max).await?);
        findings.extend(room::look(client, &settings, store, expected).await?);
        findings.extend(history(store, client).await?);
        Ok(())
    };
    looked.await.map_err(|error: tokio_postgres::Error| {
        StoreError::definite(StoreErrorKind::Unavailable, DOING).caused_by(error)
    })?;
    findings.extend(history_losses(store).await?);
    findings.sort_by_key(|finding| finding.severity);
    Ok(findings)
}

const DOING: &str = "looking at the server";

async fn settings(client: &Client) -> Result<Settings, tokio_postgres::Error> {
    let rows = client
        .query(
            "SELECT name, setting FROM pg_settings WHERE name = ANY ($1)",
            &[&vec![
                "autovacuum",
                "fsync",
                "full_page_writes",
                "max_connections",
                "reserved_connections",
                "server_version",
                "superuser_reserved_connections",
                "synchronous_commit",
                "synchronous_standby_names",
            ]],
        )
        .await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

fn version(settings: &Settings) -> Option<Finding> {
    let version = settings.get("server_version")?;
    Some(
        Finding::note("server-version", format!("PostgreSQL {version}"))
            .means("what this report is about")
            .next("keep to a release that still gets fixes"),
    )
}

/// Reports a server on which a restarted process cannot detect that history was lost.
async fn history(
    store: &PostgresStore,
    client: &Client,
) -> Result<Option<Finding>, tokio_postgres::Error> {
    let schema = store.schema_name();
    let sql = format!("SELECT {schema}.epoch() IS NULL AND NOT pg_is_in_recovery()");
    let is_hidden: bool = client.query_one(&sql, &[]).await?.try_get(0)?;
    Ok(is_hidden.then(|| {
        Finding::note("history-hidden", "this server does not tell which history it writes")
            .means(
                "only a process that misses a write of its own notices a fail-over that lost some",
            )
            .next("fail over to a synchronous standby only, and restart services one after another")
    }))
}

async fn history_losses(store: &PostgresStore) -> Result<Option<Finding>, StoreError> {
    let losses = store.history_losses().await?;
    let open: Vec<_> = losses.iter().filter(|loss| loss.cleared.is_none()).collect();
    let count = open.len();
    Ok(open.first().map(|first| {
        Finding::history_lost(format!("{count} open history losses, the first: {}", first.detail))
    }))
}

impl Default for Expected {
    fn default() -> Self {
        Self { standby: None, port: None, open_for_max: Duration::from_mins(5) }
    }
}

/// A number that PostgreSQL gives as a setting.
fn number(settings: &Settings, name: &str) -> i64 {
    settings.get(name).and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// Seconds in words: whole minutes or hours where that is exact enough.
fn seconds(count: i64) -> String {
    match count {
        ..=119 => format!("{count} s"),
        120..=7199 => format!("{} min", count / 60),
        _ => format!("{} h", count / 3600),
    }
}

/// Reads a text column; `hidden` where the server hides it.
fn shown(row: &Row, column: usize) -> Result<String, tokio_postgres::Error> {
    Ok(row.try_get::<_, Option<String>>(column)?.unwrap_or_else(|| "hidden".to_owned()))
}
