//! The Python example, killed at every step: one order, one message, one outcome.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::time::Duration;

use super::{Schema, in_schema, skipped};

const PYTHON: &str = "/usr/bin/python3";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/python/orders.py");
const STEPS: [&str; 6] = [
    "after-reserve",
    "after-order",
    "after-enqueue",
    "after-complete",
    "before-commit",
    "after-commit",
];
const SIGKILL: i32 = 9;

/// How a run of the script ended: its exit code, or the signal; and what it printed.
struct Ran {
    ended: Result<i32, i32>,
    printed: String,
}

async fn run(schema: &Schema, key: &str, more: &[&str]) -> Ran {
    // `orders` is looked up in the test's schema.
    let join = if schema.url.contains('?') { '&' } else { '?' };
    let database = format!("{}{join}options=-csearch_path%3D{}", schema.url, schema.name);
    let output = {
        let mut command = std::process::Command::new(PYTHON);
        command.arg(SCRIPT).args(["--database", &database, "--schema", &schema.name]);
        command.args(["--key", key, "--item", "book"]).args(more).stderr(Stdio::inherit());
        tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
    };
    let ended = match output.status.code() {
        Some(code) => Ok(code),
        None => Err(output.status.signal().unwrap()),
    };
    Ran { ended, printed: String::from_utf8(output.stdout).unwrap() }
}

/// Whether the script can run here; says so if not.
fn has_psycopg() -> bool {
    let tried = std::process::Command::new(PYTHON)
        .args(["-c", "import psycopg"])
        .stderr(Stdio::null())
        .status();
    let there = tried.is_ok_and(|status| status.success());
    there || skipped("python", "python3-psycopg is not installed")
}

#[tokio::test]
async fn an_order_killed_at_any_step_and_sent_again_is_one_order() {
    if !has_psycopg() {
        return;
    }
    in_schema(async |schema| {
        let session = schema.connect().await;
        for step in STEPS {
            session.run("TRUNCATE firstwrite.orders, firstwrite.messages").await;
            let killed = run(schema, step, &["--die-at", step]).await;
            assert_eq!(killed.ended, Err(SIGKILL), "{step}");
            assert_eq!(killed.printed, "", "{step}");
            let early = run(schema, step, &[]).await;
            if step == "after-commit" {
                assert_eq!(early.ended, Ok(0), "{step}: the answer was kept");
            } else {
                assert_eq!(early.ended, Ok(3), "{step}: the lease holds");
                assert!(early.printed.contains("in progress"), "{step}: {}", early.printed);
            }
            session.pass(Duration::from_secs(30)).await;
            let answered = run(schema, step, &[]).await;
            assert_eq!(answered.ended, Ok(0), "{step}");
            let replayed = run(schema, step, &[]).await;
            let expected = answered.printed.replace("\"replayed\": false", "\"replayed\": true");
            assert_eq!(replayed.printed, expected, "{step}: the first answer, byte for byte");
            assert!(replayed.printed.contains("\"replayed\": true"), "{}", replayed.printed);
            let counts = session
                .row(&format!(
                    "SELECT (SELECT count(*) FROM firstwrite.orders),
                            (SELECT count(*) FROM firstwrite.messages WHERE derived_key = '{step}:pack'),
                            (SELECT count(*) FROM firstwrite.endings
                              WHERE id = firstwrite.record_id('acme', '{step}') AND outcome IS NOT NULL),
                            (SELECT convert_from(body, 'UTF8')::jsonb ->> 'order' = number::text
                               FROM firstwrite.status('acme', '{step}'), firstwrite.orders)"
                ))
                .await;
            let one = || Some("1".to_owned());
            assert_eq!(counts, [one(), one(), one(), Some("t".to_owned())], "{step}");
        }
    })
    .await;
}

#[tokio::test]
async fn another_order_under_the_same_key_is_refused() {
    if !has_psycopg() {
        return;
    }
    in_schema(async |schema| {
        assert_eq!(run(schema, "k", &[]).await.ended, Ok(0));
        let other = run(schema, "k", &["--item", "pen"]).await;
        assert_eq!(other.ended, Ok(3));
        assert!(other.printed.contains("mismatch"), "{}", other.printed);
    })
    .await;
}
