//! Checks what keeps the tables small and the server reachable: old snapshots, which keep vacuum from
//! removing dead rows, vacuuming itself, connections, and the pooler in between.

use tokio_postgres::{Client, Error};

use super::{Expected, Settings, each_row, shown};
use crate::doctor::Finding;
use crate::postgres::{Pooler, PostgresStore};

/// Age in transactions from which tables have grown noticeably.
const OLD_TRANSACTIONS: i64 = 1_000_000;
/// Number of rows below which a table's ratios mean nothing.
const ROWS_MIN: i64 = 10_000;
/// Connections that the store opens besides its pool.
const OWN_CONNECTIONS: i64 = 2;

const DEAD_ROWS_STAY: &str = "deleted and replaced rows cannot be cleaned up: tables grow, and look-ups \
                              become slow";

pub(super) async fn look(
    client: &Client,
    settings: &Settings,
    store: &PostgresStore,
    expected: &Expected,
) -> Result<Vec<Finding>, Error> {
    let (schema, open_for_max) = (store.schema_name(), expected.open_for_max.as_secs_f64());
    let mut findings = sessions(client, open_for_max).await?;
    findings.extend(prepared(client, open_for_max).await?);
    findings.extend(slots(client).await?);
    findings.extend(standbys(client).await?);
    findings.extend(tables(client, schema).await?);
    findings.extend(vacuuming(client, settings, schema).await?);
    findings.extend(connections(client, settings, store).await?);
    findings.extend(between(client, store, expected).await?);
    Ok(findings)
}

/// Only those of this database: another database's sessions do not see its rows.
async fn sessions(client: &Client, open_for_max: f64) -> Result<Vec<Finding>, Error> {
    let sql = "SELECT pid, usename::text, state,
                      extract(epoch FROM clock_timestamp() - xact_start)::bigint
               FROM pg_stat_activity
               WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
                 AND datname = current_database()
                 AND backend_type <> 'walsender'
                 AND xact_start < clock_timestamp() - make_interval(secs => $1::float8)
               ORDER BY xact_start LIMIT 10";
    each_row(client, sql, &[&open_for_max], |row| {
        let (pid, age): (i32, i64) = (row.try_get(0)?, row.try_get(3)?);
        let (user, state, age) = (shown(row, 1)?, shown(row, 2)?, seconds(age));
        let what = format!("process {pid} of {user} ({state}) has a transaction open for {age}");
        Ok(Finding::warning("old-transaction", what)
            .means(DEAD_ROWS_STAY)
            .next(format!("find out what it does; if it is stuck, pg_terminate_backend({pid})")))
    })
    .await
}

async fn prepared(client: &Client, open_for_max: f64) -> Result<Vec<Finding>, Error> {
    let sql = "SELECT gid, owner::text, extract(epoch FROM clock_timestamp() - prepared)::bigint
               FROM pg_prepared_xacts
               WHERE database = current_database()
                 AND prepared < clock_timestamp() - make_interval(secs => $1::float8)
               ORDER BY prepared LIMIT 10";
    each_row(client, sql, &[&open_for_max], |row| {
        let (name, owner): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let (name, age) = (name.escape_debug(), seconds(row.try_get(2)?));
        let what = format!("prepared transaction {name} of {owner} waits for {age}");
        Ok(Finding::warning("prepared-transaction", what)
            .means(DEAD_ROWS_STAY)
            .next("COMMIT PREPARED or ROLLBACK PREPARED, as its coordinator decided"))
    })
    .await
}

async fn slots(client: &Client) -> Result<Vec<Finding>, Error> {
    let sql = "SELECT slot_name::text, active, greatest(age(xmin), age(catalog_xmin))::bigint
               FROM pg_replication_slots
               WHERE greatest(age(xmin), age(catalog_xmin)) > $1::bigint
               ORDER BY 3 DESC LIMIT 10";
    each_row(client, sql, &[&OLD_TRANSACTIONS], |row| {
        let (name, active, age): (String, bool, i64) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let active = if active { "in use" } else { "not in use" };
        let what = format!("replication slot {name} ({active}) is {age} transactions behind");
        Ok(Finding::warning("replication-slot", what)
            .means(DEAD_ROWS_STAY)
            .next(format!("repair its consumer, or pg_drop_replication_slot('{name}')")))
    })
    .await
}

async fn standbys(client: &Client) -> Result<Vec<Finding>, Error> {
    let sql = "SELECT application_name, age(backend_xmin)::bigint FROM pg_stat_replication
               WHERE backend_xmin IS NOT NULL AND age(backend_xmin) > $1::bigint
               ORDER BY 2 DESC LIMIT 10";
    each_row(client, sql, &[&OLD_TRANSACTIONS], |row| {
        let (name, age): (String, i64) = (shown(row, 0)?, row.try_get(1)?);
        let what = format!("standby {name} asks to keep {age} transactions (hot_standby_feedback)");
        Ok(Finding::warning("standby-feedback", what)
            .means(DEAD_ROWS_STAY)
            .next("end long queries on the standby, or set hot_standby_feedback = off there"))
    })
    .await
}

async fn tables(client: &Client, schema: &str) -> Result<Vec<Finding>, Error> {
    let sql = "SELECT relname::text, n_live_tup, n_dead_tup, n_tup_upd, n_tup_hot_upd
               FROM pg_stat_user_tables WHERE schemaname = $1 ORDER BY relname LIMIT 100";
    let mut findings = Vec::new();
    for row in &client.query(sql, &[&schema]).await? {
        let (table, live, dead): (String, i64, i64) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let (updates, in_place): (i64, i64) = (row.try_get(3)?, row.try_get(4)?);
        if dead > ROWS_MIN && dead > live / 2 {
            let what = format!("{schema}.{table} holds {dead} dead rows beside {live} live ones");
            findings.push(
                Finding::warning("dead-rows", what)
                    .means("the table is larger than what it holds, and look-ups become slow")
                    .next(format!(
                        "see who holds an old snapshot; then VACUUM {schema}.{table}, and let \
                         autovacuum run more often"
                    )),
            );
        }
        if updates > ROWS_MIN && in_place < updates / 2 {
            let share = in_place.saturating_mul(100) / updates.max(1);
            let what =
                format!("{share} % of the updates of {schema}.{table} stay within their page");
            findings.push(
                Finding::note("hot-updates", what)
                    .means("each of the others writes to every index of the table")
                    .next(format!(
                        "lower the fillfactor of {schema}.{table}, or vacuum it more often"
                    )),
            );
        }
    }
    Ok(findings)
}

async fn vacuuming(
    client: &Client,
    settings: &Settings,
    schema: &str,
) -> Result<Vec<Finding>, Error> {
    let meaning = "what is reaped leaves dead rows behind, for ever";
    let sql = "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = $1
                 AND lower(array_to_string(c.reloptions, ',')) ~ 'autovacuum_enabled=(off|false|no|0)'
               ORDER BY 1 LIMIT 20";
    let mut findings = each_row(client, sql, &[&schema], |row| {
        let table: String = row.try_get(0)?;
        Ok(Finding::warning("autovacuum", format!("autovacuum is off for {schema}.{table}"))
            .means(meaning)
            .next(format!("ALTER TABLE {schema}.{table} RESET (autovacuum_enabled)")))
    })
    .await?;
    if settings.get("autovacuum") == "off" {
        let finding = Finding::warning("autovacuum", "autovacuum = off")
            .means(meaning)
            .next("set autovacuum = on and reload");
        findings.insert(0, finding);
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
    let pool = i64::try_from(store.pool().status().max_size).unwrap_or(i64::MAX);
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
    let differs = match (port, expected.port) {
        (Some(port), Some(asked)) => port != i32::from(asked),
        // Through a socket in the file system there is no port to compare.
        (None, _) | (_, None) => false,
    };
    Ok(match (store.inner.shared.server.address.options.pooler, differs) {
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

/// Seconds in words: whole minutes or hours where that is exact enough.
fn seconds(count: i64) -> String {
    match count {
        ..=119 => format!("{count} s"),
        120..=7199 => format!("{} min", count / 60),
        _ => format!("{} h", count / 3600),
    }
}
