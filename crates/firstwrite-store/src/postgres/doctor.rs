//! Checks a PostgreSQL server for unsafe settings and problems that concern keys.
//!
//! Without the rights of `pg_monitor` the server hides what other roles do; the report then says so instead
//! of finding nothing wrong.

mod upkeep;

use std::collections::HashMap;
use std::time::Duration;

use firstwrite_core::StoreError;
use tokio_postgres::{Client, Error, Row};

use super::PostgresStore;
use super::driver_error::unavailable;
use super::sql::Parameters;
use crate::doctor::Finding;

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

const ACKNOWLEDGED_IS_LOST: &str =
    "a crash of the server loses keys that were acknowledged, and their effects run twice";
const FAIL_OVER_LOSES: &str = "commits are acknowledged that a fail-over would lose";

/// The server's settings by name.
struct Settings(HashMap<String, String>);

/// Examines the server behind `store`.
pub async fn examine(
    store: &PostgresStore,
    expected: &Expected,
) -> Result<Vec<Finding>, StoreError> {
    const DOING: &str = "looking at the server";
    let client = store.pool().get().await.map_err(|error| unavailable(DOING, error))?;
    let mut findings = look(store, &client, expected).await.map_err(|e| unavailable(DOING, e))?;
    let losses = store.history_losses().await?;
    let open: Vec<_> = losses.iter().filter(|loss| loss.cleared.is_none()).collect();
    if let Some(first) = open.first() {
        let (count, first) = (open.len(), &first.detail);
        let what = format!("{count} open history losses, the first: {first}");
        findings.push(Finding::history_lost(what));
    }
    findings.sort_by_key(|finding| finding.severity);
    Ok(findings)
}

async fn look(
    store: &PostgresStore,
    client: &Client,
    expected: &Expected,
) -> Result<Vec<Finding>, Error> {
    let settings = Settings::read(client).await?;
    let mut findings = vec![
        Finding::note("server-version", format!("PostgreSQL {}", settings.get("server_version")))
            .means("what this report is about")
            .next("keep to a release that still gets fixes"),
    ];
    findings.extend(flushing(&settings));
    findings.extend(exceptions(client).await?);
    findings.extend(standby(client, &settings, expected).await?);
    if client.query_one("SELECT pg_is_in_recovery()", &[]).await?.try_get(0)? {
        findings.push(
            Finding::warning("in-recovery", "this server is a standby: it takes no writes")
                .means("no key can be reserved here")
                .next("point --store at the primary, or promote this server"),
        );
    }
    findings.extend(upkeep::look(client, &settings, store, expected).await?);
    findings.extend(history(store, client).await?);
    Ok(findings)
}

/// Makes a finding of each row that a query returns.
async fn each_row(
    client: &Client,
    sql: &str,
    parameters: &Parameters<'_>,
    finding: impl Fn(&Row) -> Result<Finding, Error>,
) -> Result<Vec<Finding>, Error> {
    client.query(sql, parameters).await?.iter().map(finding).collect()
}

impl Settings {
    async fn read(client: &Client) -> Result<Self, Error> {
        let names = vec![
            "autovacuum",
            "fsync",
            "full_page_writes",
            "max_connections",
            "reserved_connections",
            "server_version",
            "superuser_reserved_connections",
            "synchronous_commit",
            "synchronous_standby_names",
        ];
        let sql = "SELECT name, setting FROM pg_settings WHERE name = ANY ($1)";
        let rows = client.query(sql, &[&names]).await?;
        let settings: Result<_, Error> =
            rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect();
        settings.map(Self)
    }

    /// Returns a setting; empty if the server has none of this name.
    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn number(&self, name: &str) -> i64 {
        self.get(name).parse().unwrap_or(0)
    }
}

/// Finds settings under which acknowledged writes do not survive a crash.
fn flushing(settings: &Settings) -> impl Iterator<Item = Finding> {
    let findings = [
        (
            "fsync",
            Finding::unsafe_("fsync", "fsync = off")
                .means("a crash of the machine can damage the whole database")
                .next("set fsync = on and reload; take a fresh backup"),
        ),
        (
            "full_page_writes",
            Finding::unsafe_("full-page-writes", "full_page_writes = off")
                .means("a page that was half written when the machine crashed stays damaged")
                .next("set full_page_writes = on and reload, unless the disk writes pages whole"),
        ),
        (
            "synchronous_commit",
            Finding::unsafe_("synchronous-commit", "synchronous_commit = off for this role")
                .means(ACKNOWLEDGED_IS_LOST)
                .next("set synchronous_commit = on for the server, the database and the role"),
        ),
    ];
    findings.into_iter().filter(|(name, _)| settings.get(name) == "off").map(|(_, finding)| finding)
}

/// Finds roles and databases for which commits are not flushed, whatever the server's own setting.
async fn exceptions(client: &Client) -> Result<Vec<Finding>, Error> {
    let sql = "SELECT coalesce(r.rolname::text, 'every role'),
                      coalesce(d.datname::text, 'every database')
               FROM pg_db_role_setting s
               CROSS JOIN LATERAL unnest(s.setconfig) AS one(setting)
               LEFT JOIN pg_roles r ON r.oid = s.setrole
               LEFT JOIN pg_database d ON d.oid = s.setdatabase
               WHERE lower(one.setting) = 'synchronous_commit=off'
                 AND (s.setdatabase = 0 OR d.datname = current_database())
               ORDER BY 1, 2 LIMIT 20";
    each_row(client, sql, &[], |row| {
        let (role, database): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let what = format!("synchronous_commit = off for {role} in {database}");
        Ok(Finding::unsafe_("synchronous-commit-exception", what)
            .means(ACKNOWLEDGED_IS_LOST)
            .next("ALTER ROLE or ALTER DATABASE … RESET synchronous_commit, then reconnect"))
    })
    .await
}

async fn standby(
    client: &Client,
    settings: &Settings,
    expected: &Expected,
) -> Result<Option<Finding>, Error> {
    let Some(wanted) = &expected.standby else {
        let is_set_up = !settings.get("synchronous_standby_names").is_empty();
        return Ok((!is_set_up).then(|| {
            Finding::note("standby", "no synchronous standby is set up or expected")
                .means("a fail-over may lose acknowledged keys: unknown ones are refused then")
                .next("set one up and check it with --expect-standby NAME, if you fail over")
        }));
    };
    let sql = "SELECT application_name, state, sync_state FROM pg_stat_replication
               ORDER BY application_name LIMIT 100";
    let mut seen = Vec::new();
    for row in &client.query(sql, &[]).await? {
        let (name, state, kind) = (shown(row, 0)?, shown(row, 1)?, shown(row, 2)?);
        if name == *wanted && state == "streaming" && (kind == "sync" || kind == "quorum") {
            // The standby is there; commits must also wait for it.
            return Ok((settings.get("synchronous_commit") == "local").then(|| {
                let what = "synchronous_commit = local: commits do not wait for it";
                Finding::unsafe_("standby", what)
                    .means(FAIL_OVER_LOSES)
                    .next("set synchronous_commit = on or remote_apply")
            }));
        }
        seen.push(format!("{name} ({state}, {kind})"));
    }
    let seen = if seen.is_empty() { "no standby at all".to_owned() } else { seen.join(", ") };
    let hidden =
        if seen.contains("hidden") { "; to see more, GRANT pg_monitor to this role" } else { "" };
    let what = format!("{wanted} is not a synchronous standby; seen: {seen}");
    Ok(Some(Finding::unsafe_("standby", what).means(FAIL_OVER_LOSES).next(format!(
        "start the standby with application_name = {wanted}, and name it in \
         synchronous_standby_names{hidden}"
    ))))
}

/// Reports a server on which a restarted process cannot detect that history was lost.
async fn history(store: &PostgresStore, client: &Client) -> Result<Option<Finding>, Error> {
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

impl Default for Expected {
    fn default() -> Self {
        Self { standby: None, port: None, open_for_max: Duration::from_mins(5) }
    }
}

/// Reads a text column; `hidden` where the server hides it.
fn shown(row: &Row, column: usize) -> Result<String, Error> {
    Ok(row.try_get::<_, Option<String>>(column)?.unwrap_or_else(|| "hidden".to_owned()))
}
