//! Finds sessions with old snapshots, which keep vacuum from removing dead rows.
//!
//! Only those of this database: another database's sessions do not see its rows.

use std::time::Duration;

use tokio_postgres::{Client, Error};

use super::{seconds, shown};
use crate::doctor::Finding;

/// Age in transactions from which tables have grown noticeably.
const OLD_TRANSACTIONS: i64 = 1_000_000;

const DEAD_ROWS_STAY: &str = "deleted and replaced rows cannot be cleaned up: tables grow, and look-ups \
                              become slow";

pub(super) async fn look(client: &Client, open_for_max: Duration) -> Result<Vec<Finding>, Error> {
    let open_for_max = open_for_max.as_secs_f64();
    let mut findings = sessions(client, open_for_max).await?;
    findings.extend(prepared(client, open_for_max).await?);
    findings.extend(slots(client).await?);
    findings.extend(standbys(client).await?);
    Ok(findings)
}

async fn sessions(client: &Client, open_for_max: f64) -> Result<Vec<Finding>, Error> {
    let rows = client
        .query(
            "SELECT pid, usename::text, state,
                    extract(epoch FROM clock_timestamp() - xact_start)::bigint
             FROM pg_stat_activity
             WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
               AND datname = current_database()
               AND backend_type <> 'walsender'
               AND xact_start < clock_timestamp() - make_interval(secs => $1::float8)
             ORDER BY xact_start LIMIT 10",
            &[&open_for_max],
        )
        .await?;
    let mut findings = Vec::new();
    for row in &rows {
        let (pid, age): (i32, i64) = (row.try_get(0)?, row.try_get(3)?);
        let (user, state) = (shown(row, 1)?, shown(row, 2)?);
        let age = seconds(age);
        let what = format!("process {pid} of {user} ({state}) has a transaction open for {age}");
        findings.push(
            Finding::warning("old-transaction", what).means(DEAD_ROWS_STAY).next(format!(
                "find out what it does; if it is stuck, pg_terminate_backend({pid})"
            )),
        );
    }
    Ok(findings)
}

async fn prepared(client: &Client, open_for_max: f64) -> Result<Vec<Finding>, Error> {
    let rows = client
        .query(
            "SELECT gid, owner::text,
                    extract(epoch FROM clock_timestamp() - prepared)::bigint
             FROM pg_prepared_xacts
             WHERE database = current_database() AND prepared < clock_timestamp() - make_interval(secs => $1::float8)
             ORDER BY prepared LIMIT 10",
            &[&open_for_max],
        )
        .await?;
    let mut findings = Vec::new();
    for row in &rows {
        let (name, owner, age): (String, String, i64) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let age = seconds(age);
        let what =
            format!("prepared transaction {} of {owner} waits for {age}", name.escape_debug());
        findings.push(
            Finding::warning("prepared-transaction", what)
                .means(DEAD_ROWS_STAY)
                .next("COMMIT PREPARED or ROLLBACK PREPARED, as its coordinator decided"),
        );
    }
    Ok(findings)
}

async fn slots(client: &Client) -> Result<Vec<Finding>, Error> {
    let rows = client
        .query(
            "SELECT slot_name::text, active, greatest(age(xmin), age(catalog_xmin))::bigint
             FROM pg_replication_slots
             WHERE greatest(age(xmin), age(catalog_xmin)) > $1::bigint
             ORDER BY 3 DESC LIMIT 10",
            &[&OLD_TRANSACTIONS],
        )
        .await?;
    let mut findings = Vec::new();
    for row in &rows {
        let (name, active, age): (String, bool, i64) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let active = if active { "in use" } else { "not in use" };
        let what = format!("replication slot {name} ({active}) is {age} transactions behind");
        findings.push(
            Finding::warning("replication-slot", what)
                .means(DEAD_ROWS_STAY)
                .next(format!("repair its consumer, or pg_drop_replication_slot('{name}')")),
        );
    }
    Ok(findings)
}

async fn standbys(client: &Client) -> Result<Vec<Finding>, Error> {
    let rows = client
        .query(
            "SELECT application_name, age(backend_xmin)::bigint FROM pg_stat_replication
             WHERE backend_xmin IS NOT NULL AND age(backend_xmin) > $1::bigint
             ORDER BY 2 DESC LIMIT 10",
            &[&OLD_TRANSACTIONS],
        )
        .await?;
    let mut findings = Vec::new();
    for row in &rows {
        let (name, age): (String, i64) = (shown(row, 0)?, row.try_get(1)?);
        let what = format!("standby {name} asks to keep {age} transactions (hot_standby_feedback)");
        findings.push(
            Finding::warning("standby-feedback", what)
                .means(DEAD_ROWS_STAY)
                .next("end long queries on the standby, or set hot_standby_feedback = off there"),
        );
    }
    Ok(findings)
}
