//! Checks the available room: dead rows, vacuuming, connections, and the pooler in between.

use tokio_postgres::{Client, Error};

use super::{Expected, Settings, number};
use crate::doctor::Finding;
use crate::postgres::{Pooler, PostgresStore};

/// Number of rows below which a table's ratios mean nothing.
const ROWS_MIN: i64 = 10_000;
/// Connections that the store opens besides its pool.
const OWN_CONNECTIONS: i64 = 2;

pub(super) async fn look(
    client: &Client,
    settings: &Settings,
    store: &PostgresStore,
    expected: &Expected,
) -> Result<Vec<Finding>, Error> {
    let mut findings = tables(client, store.schema_name()).await?;
    findings.extend(vacuuming(client, settings, store.schema_name()).await?);
    findings.extend(connections(client, settings, store).await?);
    findings.extend(between(client, store, expected).await?);
    Ok(findings)
}

async fn tables(client: &Client, schema: &str) -> Result<Vec<Finding>, Error> {
    let rows = client
        .query(
            "SELECT relname::text, n_live_tup, n_dead_tup, n_tup_upd, n_tup_hot_upd
             FROM pg_stat_user_tables WHERE schemaname = $1 ORDER BY relname LIMIT 100",
            &[&schema],
        )
        .await?;
    let mut findings = Vec::new();
    for row in &rows {
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
    let mut findings = Vec::new();
    if settings.get("autovacuum").is_some_and(|value| value == "off") {
        findings.push(
            Finding::warning("autovacuum", "autovacuum = off")
                .means(meaning)
                .next("set autovacuum = on and reload"),
        );
    }
    let rows = client
        .query(
            "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
             WHERE n.nspname = $1
               AND lower(array_to_string(c.reloptions, ',')) ~ 'autovacuum_enabled=(off|false|no|0)'
             ORDER BY 1 LIMIT 20",
            &[&schema],
        )
        .await?;
    for row in &rows {
        let table: String = row.try_get(0)?;
        findings.push(
            Finding::warning("autovacuum", format!("autovacuum is off for {schema}.{table}"))
                .means(meaning)
                .next(format!("ALTER TABLE {schema}.{table} RESET (autovacuum_enabled)")),
        );
    }
    Ok(findings)
}

async fn connections(
    client: &Client,
    settings: &Settings,
    store: &PostgresStore,
) -> Result<Option<Finding>, Error> {
    let reserved = number(settings, "superuser_reserved_connections")
        + number(settings, "reserved_connections");
    let server = number(settings, "max_connections") - reserved;
    let row = client
        .query_one(
            "SELECT r.rolconnlimit, d.datconnlimit FROM pg_roles r, pg_database d
             WHERE r.rolname = current_user AND d.datname = current_database()",
            &[],
        )
        .await?;
    let limits: [i32; 2] = [row.try_get(0)?, row.try_get(1)?];
    // A negative limit is none.
    let limits = limits.into_iter().map(i64::from).filter(|limit| *limit >= 0);
    let room = limits.chain([server]).min().unwrap_or(server);
    let pool = i64::try_from(store.pool().status().max_size).unwrap_or(i64::MAX);
    let wanted = pool.saturating_add(OWN_CONNECTIONS);
    if wanted <= room {
        return Ok(None);
    }
    let what = format!("one process may open {wanted} connections; there is room for {room}");
    Ok(Some(
        Finding::warning("connections", what)
            .means("under load, requests are refused because no connection can be had")
            .next("lower the pool's size, raise max_connections, or put a pooler in between"),
    ))
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
