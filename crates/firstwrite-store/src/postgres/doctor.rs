//! Checks a PostgreSQL server for unsafe settings and problems that concern keys: what loses commits, what
//! keeps the tables small and the server reachable (old snapshots, which keep vacuum from removing dead rows,
//! vacuuming itself, connections), and the pooler in between.
//!
//! Without the rights of `pg_monitor` the server hides what other roles do; the report then says so instead
//! of finding nothing wrong.

use std::collections::HashMap;
use std::time::Duration;

use firstwrite_core::StoreError;
use firstwrite_core::encoding::as_i64;
use tokio_postgres::{Client, Error, Row};

use super::driver_error::unavailable;
use super::{Pooler, PostgresStore};
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

/// Age in transactions from which tables have grown noticeably.
const OLD_TRANSACTIONS: i64 = 1_000_000;
/// Number of rows below which a table's ratios mean nothing.
const ROWS_MIN: i64 = 10_000;
/// Connections that the store opens besides its pool.
const OWN_CONNECTIONS: i64 = 2;

const ACKNOWLEDGED_IS_LOST: &str =
    "a crash of the server loses keys that were acknowledged, and their effects run twice";
const FAIL_OVER_LOSES: &str = "commits are acknowledged that a fail-over would lose";
const DEAD_ROWS_STAY: &str =
    "deleted and replaced rows cannot be cleaned up: tables grow, and look-ups become slow";
const REAPED_STAYS: &str = "what is reaped leaves dead rows behind, for ever";

/// The server's settings by name.
struct Settings(HashMap<String, String>);

/// A query of which each row is a finding.
type RowCheck = (String, fn(&Row) -> Result<Finding, Error>);

/// Examines the server behind `store`.
pub async fn examine(
    store: &PostgresStore,
    expected: &Expected,
) -> Result<Vec<Finding>, StoreError> {
    const DOING: &str = "looking at the server";
    let client = store.pool().get().await.map_err(|error| unavailable(DOING, error))?;
    let mut findings = look(store, &client, expected).await.map_err(|e| unavailable(DOING, e))?;
    findings.extend(Finding::open_losses(&store.history_losses().await?));
    findings.sort_by_key(|finding| finding.severity);
    Ok(findings)
}

async fn look(
    store: &PostgresStore,
    client: &Client,
    expected: &Expected,
) -> Result<Vec<Finding>, Error> {
    let (settings, schema) = (Settings::read(client).await?, store.schema_name());
    let mut findings = vec![
        Finding::note("server-version", format!("PostgreSQL {}", settings.get("server_version")))
            .means("what this report is about")
            .next("keep to a release that still gets fixes"),
    ];
    findings.extend(switched_off(&settings));
    findings.extend(standby(client, &settings, expected).await?);
    if client.query_one("SELECT pg_is_in_recovery()", &[]).await?.try_get(0)? {
        findings.push(
            Finding::warning("in-recovery", "this server is a standby: it takes no writes")
                .means("no key can be reserved here")
                .next("point --store at the primary, or promote this server"),
        );
    }
    findings.extend(tables(client, schema).await?);
    for (sql, finding) in row_checks(schema, expected.open_for_max) {
        for row in &client.query(&sql, &[]).await? {
            findings.push(finding(row)?);
        }
    }
    findings.extend(connections(client, &settings, store).await?);
    findings.extend(between(client, store, expected).await?);
    findings.extend(history(client, schema).await?);
    Ok(findings)
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

/// Finds settings that must not be off: acknowledged writes would not survive a crash, or the tables grow.
fn switched_off(settings: &Settings) -> impl Iterator<Item = Finding> {
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
        (
            "autovacuum",
            Finding::warning("autovacuum", "autovacuum = off")
                .means(REAPED_STAYS)
                .next("set autovacuum = on and reload"),
        ),
    ];
    findings.into_iter().filter(|(name, _)| settings.get(name) == "off").map(|(_, finding)| finding)
}

#[expect(clippy::too_many_lines, reason = "a table: each check with its query and its words")]
fn row_checks(schema: &str, open_for_max: Duration) -> [RowCheck; 6] {
    let open_for_max = open_for_max.as_secs_f64();
    [
        // Roles and databases for which commits are not flushed, whatever the server's own setting.
        (
            "SELECT coalesce(r.rolname::text, 'every role'), coalesce(d.datname::text, 'every database')
             FROM pg_db_role_setting s
             CROSS JOIN LATERAL unnest(s.setconfig) AS one(setting)
             LEFT JOIN pg_roles r ON r.oid = s.setrole
             LEFT JOIN pg_database d ON d.oid = s.setdatabase
             WHERE lower(one.setting) = 'synchronous_commit=off'
               AND (s.setdatabase = 0 OR d.datname = current_database())
             ORDER BY 1, 2 LIMIT 20"
                .to_owned(),
            |row| {
                let (role, database) = (shown(row, 0)?, shown(row, 1)?);
                let what = format!("synchronous_commit = off for {role} in {database}");
                Ok(Finding::unsafe_("synchronous-commit-exception", what)
                    .means(ACKNOWLEDGED_IS_LOST)
                    .next("ALTER ROLE or ALTER DATABASE … RESET synchronous_commit, then reconnect"))
            },
        ),
        // Only those of this database: another database's sessions do not see its rows.
        (
            format!(
                "SELECT pid, usename::text, state,
                        extract(epoch FROM clock_timestamp() - xact_start)::bigint
                 FROM pg_stat_activity
                 WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
                   AND datname = current_database() AND backend_type <> 'walsender'
                   AND xact_start < clock_timestamp() - make_interval(secs => {open_for_max})
                 ORDER BY xact_start LIMIT 10"
            ),
            |row| {
                let (pid, user, state): (i32, _, _) =
                    (row.try_get(0)?, shown(row, 1)?, shown(row, 2)?);
                let age = seconds(row.try_get(3)?);
                let what =
                    format!("process {pid} of {user} ({state}) has a transaction open for {age}");
                Ok(Finding::warning("old-transaction", what).means(DEAD_ROWS_STAY).next(format!(
                    "find out what it does; if it is stuck, pg_terminate_backend({pid})"
                )))
            },
        ),
        (
            format!(
                "SELECT gid, owner::text, extract(epoch FROM clock_timestamp() - prepared)::bigint
                 FROM pg_prepared_xacts
                 WHERE database = current_database()
                   AND prepared < clock_timestamp() - make_interval(secs => {open_for_max})
                 ORDER BY prepared LIMIT 10"
            ),
            |row| {
                let (name, owner) = (shown(row, 0)?, shown(row, 1)?);
                let (name, age) = (name.escape_debug(), seconds(row.try_get(2)?));
                let what = format!("prepared transaction {name} of {owner} waits for {age}");
                Ok(Finding::warning("prepared-transaction", what)
                    .means(DEAD_ROWS_STAY)
                    .next("COMMIT PREPARED or ROLLBACK PREPARED, as its coordinator decided"))
            },
        ),
        (
            format!(
                "SELECT slot_name::text, CASE WHEN active THEN 'in use' ELSE 'not in use' END,
                        greatest(age(xmin), age(catalog_xmin))::bigint
                 FROM pg_replication_slots
                 WHERE greatest(age(xmin), age(catalog_xmin)) > {OLD_TRANSACTIONS}
                 ORDER BY 3 DESC LIMIT 10"
            ),
            |row| {
                let (name, used, age): (_, _, i64) =
                    (shown(row, 0)?, shown(row, 1)?, row.try_get(2)?);
                let what = format!("replication slot {name} ({used}) is {age} transactions behind");
                Ok(Finding::warning("replication-slot", what)
                    .means(DEAD_ROWS_STAY)
                    .next(format!("repair its consumer, or pg_drop_replication_slot('{name}')")))
            },
        ),
        (
            format!(
                "SELECT application_name, age(backend_xmin)::bigint FROM pg_stat_replication
                 WHERE backend_xmin IS NOT NULL AND age(backend_xmin) > {OLD_TRANSACTIONS}
                 ORDER BY 2 DESC LIMIT 10"
            ),
            |row| {
                let (name, age): (_, i64) = (shown(row, 0)?, row.try_get(1)?);
                let what =
                    format!("standby {name} asks to keep {age} transactions (hot_standby_feedback)");
                Ok(Finding::warning("standby-feedback", what)
                    .means(DEAD_ROWS_STAY)
                    .next("end long queries on the standby, or set hot_standby_feedback = off there"))
            },
        ),
        (
            format!(
                "SELECT n.nspname || '.' || c.relname FROM pg_class c
                 JOIN pg_namespace n ON n.oid = c.relnamespace
                 WHERE n.nspname = '{schema}' AND lower(array_to_string(c.reloptions, ','))
                       ~ 'autovacuum_enabled=(off|false|no|0)'
                 ORDER BY 1 LIMIT 20"
            ),
            |row| {
                let table = shown(row, 0)?;
                Ok(Finding::warning("autovacuum", format!("autovacuum is off for {table}"))
                    .means(REAPED_STAYS)
                    .next(format!("ALTER TABLE {table} RESET (autovacuum_enabled)")))
            },
        ),
    ]
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

async fn tables(client: &Client, schema: &str) -> Result<Vec<Finding>, Error> {
    let sql =
        "SELECT schemaname || '.' || relname, n_live_tup, n_dead_tup, n_tup_upd, n_tup_hot_upd
               FROM pg_stat_user_tables WHERE schemaname = $1 ORDER BY relname LIMIT 100";
    let mut findings = Vec::new();
    for row in &client.query(sql, &[&schema]).await? {
        let (table, live, dead): (_, i64, i64) = (shown(row, 0)?, row.try_get(1)?, row.try_get(2)?);
        let (updates, in_place): (i64, i64) = (row.try_get(3)?, row.try_get(4)?);
        if dead > ROWS_MIN && dead > live / 2 {
            let what = format!("{table} holds {dead} dead rows beside {live} live ones");
            let step = format!(
                "see who holds an old snapshot; then VACUUM {table}, and let autovacuum run more often"
            );
            let meaning = "the table is larger than what it holds, and look-ups become slow";
            findings.push(Finding::warning("dead-rows", what).means(meaning).next(step));
        }
        if updates > ROWS_MIN && in_place < updates / 2 {
            let share = in_place.saturating_mul(100) / updates.max(1);
            let what = format!("{share} % of the updates of {table} stay within their page");
            let step = format!("lower the fillfactor of {table}, or vacuum it more often");
            let meaning = "each of the others writes to every index of the table";
            findings.push(Finding::note("hot-updates", what).means(meaning).next(step));
        }
    }
    Ok(findings)
}

async fn connections(
    client: &Client,
    settings: &Settings,
    store: &PostgresStore,
) -> Result<Option<Finding>, Error> {
    let reserved =
        settings.number("superuser_reserved_connections") + settings.number("reserved_connections");
    let server = settings.number("max_connections") - reserved;
    let sql = "SELECT r.rolconnlimit, d.datconnlimit FROM pg_roles r, pg_database d
               WHERE r.rolname = current_user AND d.datname = current_database()";
    let row = client.query_one(sql, &[]).await?;
    let limits: [i32; 2] = [row.try_get(0)?, row.try_get(1)?];
    // A negative limit is none.
    let limits = limits.into_iter().map(i64::from).filter(|limit| *limit >= 0);
    let room = limits.chain([server]).min().unwrap_or(server);
    let pool = as_i64(store.pool().status().max_size);
    let wanted = pool.saturating_add(OWN_CONNECTIONS);
    Ok((wanted > room).then(|| {
        let what = format!("one process may open {wanted} connections; there is room for {room}");
        Finding::warning("connections", what)
            .means("under load, requests are refused because no connection can be had")
            .next("lower the pool's size, raise max_connections, or put a pooler in between")
    }))
}

async fn between(
    client: &Client,
    store: &PostgresStore,
    expected: &Expected,
) -> Result<Option<Finding>, Error> {
    let port: Option<i32> = client.query_one("SELECT inet_server_port()", &[]).await?.try_get(0)?;
    // Through a socket in the file system there is no port to compare.
    let differs = port.zip(expected.port).is_some_and(|(port, asked)| port != i32::from(asked));
    Ok(match (store.shared().server.address.options.pooler, differs) {
        (Pooler::Transaction, _) => Some(
            Finding::note("pooler", "a pooler in transaction mode is declared")
                .means("nothing is prepared by name, and no setting outlives a transaction")
                .next("nothing; its own limits on connections are not seen from here"),
        ),
        (Pooler::None, true) => Some(
            Finding::warning("pooler", "the server answers from another port than was asked")
                .means(
                    "something stands between; a pooler in transaction mode breaks prepared \
                        statements unless it is declared",
                )
                .next(
                    "if it is PgBouncer with pool_mode=transaction, add pooler=transaction to the \
                       store's address",
                ),
        ),
        (Pooler::None, false) => None,
    })
}

/// Reports a server on which a restarted process cannot detect that history was lost.
async fn history(client: &Client, schema: &str) -> Result<Option<Finding>, Error> {
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

/// Seconds in words: whole minutes or hours where that is exact enough.
fn seconds(count: i64) -> String {
    match count {
        ..=119 => format!("{count} s"),
        120..=7199 => format!("{} min", count / 60),
        _ => format!("{} h", count / 3600),
    }
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
