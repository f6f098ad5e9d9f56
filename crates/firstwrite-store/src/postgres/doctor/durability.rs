//! Checks that acknowledged writes survive: flushing, and standbys.

use tokio_postgres::{Client, Error};

use super::{Expected, Settings, shown};
use crate::doctor::Finding;

const ACKNOWLEDGED_IS_LOST: &str =
    "a crash of the server loses keys that were acknowledged, and their effects run twice";

pub(super) async fn look(
    client: &Client,
    settings: &Settings,
    expected: &Expected,
) -> Result<Vec<Finding>, Error> {
    let mut findings = flushing(settings);
    findings.extend(exceptions(client).await?);
    findings.extend(standby(client, settings, expected).await?);
    if client.query_one("SELECT pg_is_in_recovery()", &[]).await?.try_get(0)? {
        findings.push(
            Finding::warning("in-recovery", "this server is a standby: it takes no writes")
                .means("no key can be reserved here")
                .next("point --store at the primary, or promote this server"),
        );
    }
    Ok(findings)
}

fn flushing(settings: &Settings) -> Vec<Finding> {
    let value = |name: &str| settings.get(name).map_or("", String::as_str);
    let mut findings = Vec::new();
    if value("fsync") == "off" {
        findings.push(
            Finding::unsafe_("fsync", "fsync = off")
                .means("a crash of the machine can damage the whole database")
                .next("set fsync = on and reload; take a fresh backup"),
        );
    }
    if value("full_page_writes") == "off" {
        findings.push(
            Finding::unsafe_("full-page-writes", "full_page_writes = off")
                .means("a page that was half written when the machine crashed stays damaged")
                .next("set full_page_writes = on and reload, unless the disk writes pages whole"),
        );
    }
    if value("synchronous_commit") == "off" {
        findings.push(
            Finding::unsafe_("synchronous-commit", "synchronous_commit = off for this role")
                .means(ACKNOWLEDGED_IS_LOST)
                .next("set synchronous_commit = on for the server, the database and the role"),
        );
    }
    findings
}

/// Finds roles and databases for which commits are not flushed, whatever the server's own setting.
async fn exceptions(client: &Client) -> Result<Vec<Finding>, Error> {
    let rows = client
        .query(
            "SELECT coalesce(r.rolname::text, 'every role'),
                    coalesce(d.datname::text, 'every database')
             FROM pg_db_role_setting s
             CROSS JOIN LATERAL unnest(s.setconfig) AS one(setting)
             LEFT JOIN pg_roles r ON r.oid = s.setrole
             LEFT JOIN pg_database d ON d.oid = s.setdatabase
             WHERE lower(one.setting) = 'synchronous_commit=off'
               AND (s.setdatabase = 0 OR d.datname = current_database())
             ORDER BY 1, 2 LIMIT 20",
            &[],
        )
        .await?;
    let mut findings = Vec::new();
    for row in rows {
        let (role, database): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let what = format!("synchronous_commit = off for {role} in {database}");
        findings.push(
            Finding::unsafe_("synchronous-commit-exception", what)
                .means(ACKNOWLEDGED_IS_LOST)
                .next("ALTER ROLE or ALTER DATABASE … RESET synchronous_commit, then reconnect"),
        );
    }
    Ok(findings)
}

async fn standby(
    client: &Client,
    settings: &Settings,
    expected: &Expected,
) -> Result<Vec<Finding>, Error> {
    let names = settings.get("synchronous_standby_names").map_or("", String::as_str);
    let Some(wanted) = &expected.standby else {
        if !names.is_empty() {
            return Ok(Vec::new());
        }
        return Ok(vec![
            Finding::note("standby", "no synchronous standby is set up or expected")
                .means("a fail-over may lose acknowledged keys: unknown ones are refused then")
                .next("set one up and check it with --expect-standby NAME, if you fail over"),
        ]);
    };
    let rows = client
        .query(
            "SELECT application_name, state, sync_state FROM pg_stat_replication
             ORDER BY application_name LIMIT 100",
            &[],
        )
        .await?;
    let mut seen = Vec::new();
    for row in &rows {
        let (name, state, kind) = (shown(row, 0)?, shown(row, 1)?, shown(row, 2)?);
        if name == *wanted && state == "streaming" && (kind == "sync" || kind == "quorum") {
            return Ok(waits_for_it(settings));
        }
        seen.push(format!("{name} ({state}, {kind})"));
    }
    let seen = if seen.is_empty() { "no standby at all".to_owned() } else { seen.join(", ") };
    let hidden =
        if seen.contains("hidden") { "; to see more, GRANT pg_monitor to this role" } else { "" };
    Ok(vec![
        Finding::unsafe_("standby", format!("{wanted} is not a synchronous standby; seen: {seen}"))
            .means("commits are acknowledged that a fail-over would lose")
            .next(format!(
                "start the standby with application_name = {wanted}, and name it in \
                 synchronous_standby_names{hidden}"
            )),
    ])
}

/// The standby is there; commits must also wait for it.
fn waits_for_it(settings: &Settings) -> Vec<Finding> {
    if settings.get("synchronous_commit").is_none_or(|value| value != "local") {
        return Vec::new();
    }
    vec![
        Finding::unsafe_("standby", "synchronous_commit = local: commits do not wait for it")
            .means("commits are acknowledged that a fail-over would lose")
            .next("set synchronous_commit = on or remote_apply"),
    ]
}
