//! What the doctor finds in a server, and that it finds nothing where there is nothing.

use std::time::Duration;

use firstwrite_store::doctor::{self, Expected, Finding, Severity};
use firstwrite_store::{PostgresOptions, PostgresStore};

use crate::server::{Database, Way, client, on_database};

/// Examines a database with tables, after `statements`.
async fn examine(database: &Database, expected: &Expected, statements: &[&str]) -> Vec<Finding> {
    PostgresStore::migrate(&database.url, PostgresOptions::default()).await.unwrap();
    for statement in statements {
        client(&database.url).await.batch_execute(statement).await.unwrap();
    }
    let url = database.pooled_url.as_ref().unwrap_or(&database.url);
    let store = PostgresStore::connect(url).await.unwrap();
    let findings = doctor::postgres(&store, expected).await.unwrap();
    store.close().await;
    findings
}

/// The codes of what is worse than a note.
fn serious(findings: &[Finding]) -> Vec<&'static str> {
    let is_serious = |finding: &&Finding| finding.severity != Severity::Note;
    findings.iter().filter(is_serious).map(|finding| finding.code).collect()
}

#[tokio::test]
async fn a_server_that_is_well_has_nothing_but_notes() {
    on_database(Way::Direct, &[], async |database| {
        let findings = examine(&database, &Expected::default(), &[]).await;
        assert!(serious(&findings).is_empty(), "{findings:?}");
        let has = |code| findings.iter().any(|finding| finding.code == code);
        assert!(has("server-version") && has("standby"), "{findings:?}");
        for finding in &findings {
            assert!(!finding.meaning.is_empty() && !finding.next_step.is_empty(), "{finding:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn commits_that_are_not_flushed_are_unsafe() {
    on_database(Way::Direct, &["synchronous_commit = off"], async |database| {
        let findings = examine(&database, &Expected::default(), &[]).await;
        let unsafe_ones = ["synchronous-commit", "synchronous-commit-exception"];
        assert_eq!(serious(&findings), unsafe_ones, "{findings:?}");
        assert!(findings.iter().take(2).all(|finding| finding.severity == Severity::Unsafe));
    })
    .await;
}

#[tokio::test]
async fn an_old_snapshot_is_named_with_who_holds_it() {
    on_database(Way::Direct, &[], async |database| {
        let holder = client(&database.url).await;
        holder.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
        let row = holder.query_one("SELECT pg_backend_pid()", &[]).await.unwrap();
        let process: i32 = row.get(0);
        let at_once = Expected { open_for_max: Duration::ZERO, ..Expected::default() };
        let findings = examine(&database, &at_once, &[]).await;
        let held = format!("process {process} of ");
        let found = findings.iter().find(|finding| finding.what.starts_with(&held));
        let found = found.unwrap_or_else(|| panic!("{findings:?}"));
        assert_eq!((found.code, found.severity), ("old-transaction", Severity::Warning));
        assert!(found.what.contains("idle in transaction"), "{found:?}");
        assert!(found.next_step.contains(&format!("pg_terminate_backend({process})")), "{found:?}");
        let patient = examine(&database, &Expected::default(), &[]).await;
        assert!(serious(&patient).is_empty(), "{patient:?}");
    })
    .await;
}

#[tokio::test]
async fn a_table_that_nobody_vacuums_is_named() {
    on_database(Way::Direct, &[], async |database| {
        PostgresStore::migrate(&database.url, PostgresOptions::default()).await.unwrap();
        let off = "ALTER TABLE firstwrite.records SET (autovacuum_enabled = off)";
        let findings = examine(&database, &Expected::default(), &[off]).await;
        assert_eq!(serious(&findings), ["autovacuum"]);
        assert!(findings[0].what.contains("firstwrite.records"), "{findings:?}");
    })
    .await;
}

#[tokio::test]
async fn dead_rows_and_updates_that_leave_their_page_are_named() {
    on_database(Way::Direct, &[], async |database| {
        PostgresStore::migrate(&database.url, PostgresOptions::default()).await.unwrap();
        // Updated twice over in full pages: neither version can stay where it was.
        let findings = examine(
            &database,
            &Expected::default(),
            &[
                "ALTER TABLE firstwrite.audit SET (autovacuum_enabled = off)",
                "INSERT INTO firstwrite.audit (id, at, actor, action, reason)
                 SELECT gen_random_uuid(), now(), 'a', 'b', 'c' FROM generate_series(1, 11000)",
                // Its numbers are told before it ends, not when the server gets round to it.
                "UPDATE firstwrite.audit SET reason = 'd'; SELECT pg_stat_force_next_flush()",
            ],
        )
        .await;
        assert_eq!(serious(&findings), ["dead-rows", "autovacuum"], "{findings:?}");
        assert!(findings.iter().any(|finding| finding.code == "hot-updates"), "{findings:?}");
    })
    .await;
}

#[tokio::test]
async fn a_doubt_is_unsafe_until_it_is_cleared() {
    on_database(Way::Direct, &[], async |database| {
        PostgresStore::migrate(&database.url, PostgresOptions::default()).await.unwrap();
        let loss = "INSERT INTO firstwrite.history_losses (noticed_at, detail)
                     VALUES (firstwrite.now(), 'a test')";
        let findings = examine(&database, &Expected::default(), &[loss]).await;
        assert_eq!(serious(&findings), ["history-lost"]);
        assert_eq!(findings[0].severity, Severity::Unsafe);
        let store = PostgresStore::connect(&database.url).await.unwrap();
        assert_eq!(
            store.clear_history_losses("ada", "nothing is missing").await.unwrap().losses,
            1
        );
        store.close().await;
        let findings = examine(&database, &Expected::default(), &[]).await;
        assert!(serious(&findings).is_empty(), "{findings:?}");
    })
    .await;
}

#[tokio::test]
async fn a_standby_that_is_expected_and_not_there_is_unsafe() {
    on_database(Way::Direct, &[], async |database| {
        let expected = Expected { standby: Some("two".to_owned()), ..Expected::default() };
        let findings = examine(&database, &expected, &[]).await;
        assert_eq!(serious(&findings), ["standby"]);
        assert!(findings[0].what.contains("no standby at all"), "{findings:?}");
    })
    .await;
}

#[tokio::test]
async fn something_between_the_store_and_the_server_is_noticed() {
    on_database(Way::Direct, &[], async |database| {
        let expected = Expected { port: Some(1), ..Expected::default() };
        assert_eq!(serious(&examine(&database, &expected, &[]).await), ["pooler"]);
    })
    .await;
    on_database(Way::Pooler, &[], async |database| {
        // Declared, it is no error.
        let expected = Expected { port: Some(1), ..Expected::default() };
        let findings = examine(&database, &expected, &[]).await;
        assert!(serious(&findings).is_empty(), "{findings:?}");
        assert!(findings.iter().any(|finding| finding.code == "pooler"), "{findings:?}");
    })
    .await;
}
