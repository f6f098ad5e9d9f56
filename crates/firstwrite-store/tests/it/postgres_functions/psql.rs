//! The functions called by `psql`, as the pattern in docs/sql.md has it.

use std::process::{Command, Output, Stdio};

use super::{Schema, in_schema, skipped};

/// Runs a script; unaligned, without headings, and over at the first error.
async fn psql(schema: &Schema, script: &str) -> Output {
    let mut command = Command::new("psql");
    command.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"]);
    command.args(["--set", "ON_ERROR_STOP=1", "--dbname", &schema.url, "--command"]);
    command.arg(script.replace("firstwrite.", &format!("{}.", schema.name)));
    tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
}

async fn says(schema: &Schema, script: &str) -> String {
    let Output { status, stdout, stderr } = psql(schema, script).await;
    assert!(status.success(), "{script}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap().trim().to_owned()
}

fn has_psql() -> bool {
    let tried = Command::new("psql").arg("--version").stdout(Stdio::null()).status();
    tried.is_ok_and(|status| status.success()) || skipped("psql", "it is not installed")
}

#[tokio::test]
async fn an_order_its_message_and_its_outcome_are_one_transaction_of_psql() {
    if !has_psql() {
        return;
    }
    in_schema(async |schema| {
        let reserve = "SELECT verdict, fence FROM firstwrite.reserve('acme', 'order-1',
                           sha256('{\"item\": \"book\"}'), operation => 'POST /orders',
                           on_lost_answer => 'resend')";
        let reserved = says(schema, reserve).await;
        let (verdict, fence) = reserved.split_once('|').unwrap();
        assert_eq!(verdict, "fresh");
        let run = |fence: &str, end: &str| {
            format!(
                "BEGIN;
                 INSERT INTO firstwrite.orders (item) VALUES ('book');
                 SELECT FROM firstwrite.enqueue('acme', 'order-1', {fence}, 'pack', 'warehouse', '{{}}');
                 SELECT FROM firstwrite.complete('acme', 'order-1', {fence}, 201,
                                                 '[[\"location\", \"/orders/7\"]]', '{{\"order\": 7}}');
                 {end}"
            )
        };
        let counts = "SELECT (SELECT count(*) FROM firstwrite.orders),
                             (SELECT count(*) FROM firstwrite.messages)";
        says(schema, &run(fence, "ROLLBACK")).await;
        assert_eq!(says(schema, counts).await, "0|0");
        says(schema, &run(fence, "COMMIT")).await;
        assert_eq!(says(schema, counts).await, "1|1");
        let replayed = says(schema, &reserve.replace("verdict, fence", "verdict, status, body")).await;
        assert_eq!(replayed, r"replay|201|\x7b226f72646572223a20377d");

        let late = psql(schema, &run("1", "COMMIT")).await;
        let told = String::from_utf8(late.stderr).unwrap();
        assert!(!late.status.success() && told.contains("no longer owns"), "{told}");
        assert_eq!(says(schema, counts).await, "1|1");
        let status = "SELECT state, status FROM firstwrite.status('acme', 'order-1')";
        assert_eq!(says(schema, status).await, "completed|201");
    })
    .await;
}
