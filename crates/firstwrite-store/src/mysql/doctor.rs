//! Checks a MySQL or MariaDB server for unsafe settings and problems that concern keys.

use std::collections::HashMap;
use std::time::Duration;

use firstwrite_core::StoreError;
use firstwrite_core::encoding::as_i64;
use mysql_async::Row;

use super::MysqlStore;
use super::connect::rivals;
use super::pipeline::{Answer, Pipeline, Value};
use crate::doctor::Finding;
use crate::rows::Columns as _;

const DOING: &str = "looking at the server";

const ACKNOWLEDGED_IS_LOST: &str =
    "a crash of the server loses keys that were acknowledged, and their effects run twice";

/// The server's settings, or its counters, by name.
type Named = HashMap<String, String>;

/// Packet size for an escaped outcome of the usual maximum size, with a few others besides.
const PACKET_BYTES_MIN: i64 = 4 * 1024 * 1024;

/// Examines the server behind `store`. Reports transactions that are open for longer than `open_for_max`.
pub async fn examine(
    store: &MysqlStore,
    open_for_max: Duration,
) -> Result<Vec<Finding>, StoreError> {
    let mut pipeline = Pipeline::new();
    let version = pipeline.add("SELECT VERSION(), @@version_comment", &[]);
    let settings = pipeline.add("SHOW GLOBAL VARIABLES", &[]);
    let counters = pipeline.add("SHOW GLOBAL STATUS LIKE 'wsrep\\_%'", &[]);
    let engines = pipeline.add(
        "SELECT table_name, engine FROM information_schema.tables WHERE table_schema = DATABASE() \
         AND table_name LIKE 'firstwrite\\_%' AND table_type = 'BASE TABLE' AND engine <> 'InnoDB'",
        &[],
    );
    let locks =
        pipeline.add("SELECT COUNT(*) FROM (SELECT 1 FROM firstwrite_locks LIMIT 1000) l", &[]);
    let answers = store.pool().send(DOING, &pipeline).await?;
    let mut findings = Vec::new();
    if let Some(row) = answers[version].rows.first() {
        let what = format!("{} ({})", row.text(0)?, row.text(1)?);
        findings.push(
            Finding::note("server-version", what)
                .means("what this report is about")
                .next("keep to a release that still gets fixes"),
        );
    }
    let (settings, counters) = (named(&answers[settings])?, named(&answers[counters])?);
    findings.extend(durability(&settings));
    for row in &answers[engines].rows {
        findings.push(engine(row)?);
    }
    findings.extend(usability(&settings));
    findings.extend(cluster(&settings, &counters));
    findings.extend(left_locks(&answers[locks])?);
    findings.extend(Finding::open_losses(&store.history_losses().await?));
    findings.extend(several_primaries(store).await);
    findings.extend(old_transactions(store, open_for_max).await?);
    findings.sort_by_key(|finding| finding.severity);
    Ok(findings)
}

/// Keeps the findings whose condition holds.
fn those<const N: usize>(findings: [(bool, Finding); N]) -> Vec<Finding> {
    findings.into_iter().filter_map(|(is_so, finding)| is_so.then_some(finding)).collect()
}

fn durability(settings: &Named) -> Vec<Finding> {
    let flush = value(settings, "innodb_flush_log_at_trx_commit");
    let sync = value(settings, "sync_binlog");
    let (has_log, is_node) = (is_on(settings, "log_bin"), is_on(settings, "wsrep_on"));
    let waits = ["rpl_semi_sync_master_enabled", "rpl_semi_sync_source_enabled"];
    let waits = waits.iter().any(|name| is_on(settings, name));
    those([
        (
            // MariaDB's 3 flushes as 1 does, and once more.
            !matches!(flush, "1" | "3"),
            Finding::unsafe_("flush-at-commit", format!("innodb_flush_log_at_trx_commit = {flush}"))
                .means(ACKNOWLEDGED_IS_LOST)
                .next("set innodb_flush_log_at_trx_commit = 1, for good and at once (SET GLOBAL)"),
        ),
        (
            has_log && sync != "1",
            Finding::unsafe_("sync-binlog", format!("the binary log is on and sync_binlog = {sync}"))
                .means(
                    "after a crash, what the log does not have is undone, though it was acknowledged; \
                     replicas may have other keys than their source",
                )
                .next("set sync_binlog = 1, for good and at once (SET GLOBAL)"),
        ),
        (
            !has_log && !is_node,
            Finding::warning("no-binlog", "there is no binary log")
                .means(
                    "commits are shown to others before they are on disk: a crash may take back what \
                     a retry was answered with, though nothing that was acknowledged to its writer",
                )
                .next("set log_bin and sync_binlog = 1, and restart the server"),
        ),
        (
            matches!(value(settings, "innodb_doublewrite"), "OFF" | "0"),
            Finding::unsafe_("doublewrite", "innodb_doublewrite = OFF")
                .means("a page that was half written when the machine crashed stays damaged")
                .next("set innodb_doublewrite = ON, unless the disk writes pages whole"),
        ),
        (
            has_log && !is_node && !waits,
            Finding::note("standby", "commits do not wait for a replica")
                .means("a fail-over may lose acknowledged keys, and unknown keys are refused after it")
                .next("use semi-synchronous replication, or a cluster, if you fail over"),
        ),
    ])
}

fn engine(row: &Row) -> Result<Finding, StoreError> {
    let what = format!("{} is kept by {}", row.text(0)?, row.text(1)?);
    Ok(Finding::unsafe_("engine", what)
        .means("nothing in it is undone, and nothing in it survives a crash for certain")
        .next("ALTER TABLE … ENGINE = InnoDB, after a backup"))
}

fn usability(settings: &Named) -> Vec<Finding> {
    let packet = value(settings, "max_allowed_packet");
    those([
        (
            is_on(settings, "read_only"),
            Finding::warning("read-only", "this server is read-only: it takes no writes")
                .means("no key can be reserved here")
                .next("point --store at the server that takes writes, or make this one take them"),
        ),
        (
            is_on(settings, "log_bin") && value(settings, "binlog_format") == "STATEMENT",
            Finding::warning("binlog-format", "binlog_format = STATEMENT")
                .means("READ COMMITTED cannot write with it, so no key can be reserved")
                .next("set binlog_format = ROW"),
        ),
        (
            packet.parse::<i64>().is_ok_and(|bytes| bytes < PACKET_BYTES_MIN),
            Finding::warning("packet", format!("max_allowed_packet = {packet}"))
                .means("large answers cannot be kept, and their requests fail")
                .next("set max_allowed_packet = 16M or more"),
        ),
    ])
}

/// Checks a Galera cluster: whether this node is part of it, and whether others write too.
///
/// Reports of 2026 show updates lost and old rows read in healthy clusters with several writers, and
/// acknowledged commits lost where a node does not flush. The promise here holds for one writer that flushes.
fn cluster(settings: &Named, counters: &Named) -> Vec<Finding> {
    if !is_on(settings, "wsrep_on") {
        return Vec::new();
    }
    let size = value(counters, "wsrep_cluster_size");
    let state = value(counters, "wsrep_local_state_comment");
    let is_primary = value(counters, "wsrep_cluster_status") == "Primary";
    let refused = number(counters, "wsrep_local_cert_failures");
    let aborted = number(counters, "wsrep_local_bf_aborts");
    let conflicts = format!(
        "{refused} commits of this node were refused and {aborted} were cut off by other nodes' writes"
    );
    those([
        (
            true,
            Finding::note("cluster", format!("a node of a Galera cluster of {size}, {state}"))
                .means("all services must write to the same node, and move to another one together")
                .next("name the nodes in one order everywhere, or one address that leads to one writer"),
        ),
        (
            !is_primary || !is_on(counters, "wsrep_ready"),
            Finding::warning("cluster-split", "this node is not part of the cluster's majority")
                .means("no key can be reserved here")
                .next("point --store at a node of the majority, or mend the network"),
        ),
        (
            size.parse::<u32>().is_ok_and(|size| size < 3),
            Finding::warning("cluster-size", format!("the cluster has {size} nodes"))
                .means("after the loss of one node the other cannot tell whether it is the majority")
                .next("have three nodes, or two and an arbitrator"),
        ),
        (
            refused + aborted > 0,
            Finding::unsafe_("several-writers", conflicts)
                .means(
                    "several nodes write the same rows: updates can be lost and old rows be read, so \
                     effects can run twice",
                )
                .next("let all services write to one node; the counters begin anew when it restarts"),
        ),
    ])
}

fn number(counters: &Named, name: &str) -> i64 {
    value(counters, name).parse().unwrap_or(0)
}

/// A row in the table of locks is only ever seen by its own transaction, unless a handler committed it.
fn left_locks(answer: &Answer) -> Result<Option<Finding>, StoreError> {
    let count = answer.rows.first().map_or(Ok(0), |row| row.integer(0))?;
    if count == 0 {
        return Ok(None);
    }
    Ok(Some(
        Finding::warning("ended-by-handler", format!("{count} locks of handlers were committed"))
            .means("a handler ended its transaction itself: its rows and its outcome were not one commit")
            .next("find the handler that commits, or makes tables; then DELETE FROM firstwrite_locks"),
    ))
}

async fn several_primaries(store: &MysqlStore) -> Option<Finding> {
    let names = rivals(&store.pool().server).await?;
    let what = format!("several of the named hosts take writes: {names}");
    let finding = Finding::unsafe_("several-primaries", what)
        .means("each may be given keys that the other has, and their effects run twice")
        .next("find out which one has all keys, and make the others read-only (SET GLOBAL read_only = 1)");
    Some(finding)
}

async fn old_transactions(
    store: &MysqlStore,
    open_for_max: Duration,
) -> Result<Vec<Finding>, StoreError> {
    let seconds = as_i64(open_for_max.as_secs());
    let mut pipeline = Pipeline::new();
    pipeline.add(
        "SELECT trx_mysql_thread_id, TIMESTAMPDIFF(SECOND, trx_started, NOW()) \
         FROM information_schema.innodb_trx \
         WHERE TIMESTAMPDIFF(SECOND, trx_started, NOW()) > ? ORDER BY trx_started LIMIT 10",
        &[Value::Int(seconds)],
    );
    let answers = match store.pool().send(DOING, &pipeline).await {
        Ok(answers) => answers,
        Err(error) if !error.is_retryable() => {
            return Ok(vec![
                Finding::note("hidden", "this user may not see other transactions")
                    .means("nothing can be said about transactions that stay open")
                    .next("GRANT PROCESS to this user, to be told"),
            ]);
        }
        Err(error) => return Err(error),
    };
    let mut findings = Vec::new();
    for row in &answers[0].rows {
        let (thread, age) = (row.integer(0)?, row.integer(1)?);
        let what = format!("connection {thread} has a transaction open for {age} s");
        findings.push(
            Finding::warning("old-transaction", what)
                .means("what it has locked stays locked, and replaced rows cannot be cleaned up")
                .next(format!("find out what it does; if it is stuck, KILL {thread}")),
        );
    }
    Ok(findings)
}

fn named(answer: &Answer) -> Result<Named, StoreError> {
    answer.rows.iter().map(|row| Ok((row.owned_text(0)?, row.owned_text(1)?))).collect()
}

fn value<'a>(named: &'a Named, name: &str) -> &'a str {
    named.get(name).map_or("", String::as_str)
}

fn is_on(named: &Named, name: &str) -> bool {
    matches!(value(named, name), "ON" | "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Named {
        let safe = [("innodb_flush_log_at_trx_commit", "1"), ("innodb_doublewrite", "ON")];
        let pairs = safe.iter().chain(pairs);
        pairs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn codes(findings: &[Finding]) -> Vec<&'static str> {
        findings.iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn what_is_not_flushed_is_unsafe() {
        let log = [("log_bin", "ON"), ("sync_binlog", "1")];
        assert_eq!(codes(&durability(&settings(&log))), ["standby"]);
        assert_eq!(codes(&durability(&settings(&[]))), ["no-binlog"]);
        assert!(durability(&settings(&[("wsrep_on", "ON")])).is_empty());
        for flush in ["0", "2"] {
            let found = durability(&settings(&[("innodb_flush_log_at_trx_commit", flush)]));
            assert_eq!(codes(&found), ["flush-at-commit", "no-binlog"]);
        }
        let with_log = [("log_bin", "ON"), ("sync_binlog", "0")];
        assert_eq!(codes(&durability(&settings(&with_log))), ["sync-binlog", "standby"]);
        assert_eq!(
            codes(&durability(&settings(&[("innodb_doublewrite", "OFF")]))),
            ["no-binlog", "doublewrite"]
        );
    }

    #[test]
    fn what_keeps_keys_from_being_written_is_trouble() {
        let given = [
            ("read_only", "ON"),
            ("log_bin", "ON"),
            ("binlog_format", "STATEMENT"),
            ("max_allowed_packet", "1048576"),
        ];
        assert_eq!(codes(&usability(&settings(&given))), ["read-only", "binlog-format", "packet"]);
        assert!(usability(&settings(&[("max_allowed_packet", "16777216")])).is_empty());
    }

    fn codes_of_cluster(pairs: &[(&str, &str)]) -> Vec<&'static str> {
        let usual = [
            ("wsrep_on", "ON"),
            ("wsrep_ready", "ON"),
            ("wsrep_cluster_status", "Primary"),
            ("wsrep_cluster_size", "3"),
        ];
        let all: Named = usual
            .iter()
            .chain(pairs)
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        cluster(&all, &all).into_iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn one_writer_is_fine_and_several_are_not() {
        assert_eq!(codes_of_cluster(&[]), ["cluster"]);
        assert_eq!(
            codes_of_cluster(&[("wsrep_local_cert_failures", "1")]),
            ["cluster", "several-writers"]
        );
        assert_eq!(
            codes_of_cluster(&[("wsrep_local_bf_aborts", "2")]),
            ["cluster", "several-writers"]
        );
    }

    #[test]
    fn a_node_outside_the_majority_and_a_pair_are_trouble() {
        assert_eq!(
            codes_of_cluster(&[("wsrep_cluster_status", "non-Primary")]),
            ["cluster", "cluster-split"]
        );
        assert_eq!(codes_of_cluster(&[("wsrep_cluster_size", "2")]), ["cluster", "cluster-size"]);
        assert!(cluster(&Named::new(), &Named::new()).is_empty());
    }
}
