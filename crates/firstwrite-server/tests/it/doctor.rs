//! The doctor from outside: its exit codes and what it prints. What it finds in a server is tested
//! with the store.

use std::fs;

use firstwrite_core::{AsyncTransactionalStore as _, Fence, Policy, Store as _};
use firstwrite_store::MysqlStore;
use firstwrite_testkit::sample;
use serde_json::Value;

use crate::database::{Database, on_postgres};
use crate::gateway_sinks::SEALING;
use crate::messages::{Fate, leave_messages, outbox_json};
use crate::open_records::{document, leave_lapsed_records, leave_open_records};
use crate::process::{Folder, firstwrite, stderr, stdout};
use crate::scene::{Scene, pay};

on_postgres! {
    a_store_that_is_well_is_said_to_be,
    commits_that_are_not_flushed_are_unsafe,
    a_standby_that_is_expected_and_not_there_is_unsafe,
    more_connections_than_there_is_room_for_are_named,
    records_that_wait_for_proof_are_counted,
    clearing_doubts_needs_a_reason_and_says_how_many,
    messages_that_wait_for_people_are_counted,
}

/// What was found: the exit code and the findings as `severity code`.
fn examine(folder: &Folder, more: &[&str]) -> (Option<i32>, Vec<String>, Value) {
    let command = &mut firstwrite(folder);
    command.args(["doctor", "--store", folder.store(), "--format", "json"]).args(more);
    let output = command.output().unwrap();
    let report = document(&output);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let findings = report["findings"].as_array().unwrap().iter();
    let named = |finding: &Value| {
        for member in ["what", "meaning", "next_step"] {
            assert!(!text(&finding[member]).is_empty(), "{finding}");
        }
        format!("{} {}", text(&finding["severity"]), text(&finding["code"]))
    };
    (output.status.code(), findings.map(named).collect(), report)
}

/// Whether exactly these are found, notes left aside.
fn check(folder: &Folder, more: &[&str], exit: i32, expected: &[&str]) -> Value {
    let (code, findings, report) = examine(folder, more);
    let serious: Vec<_> = findings.iter().filter(|found| !found.starts_with("note ")).collect();
    assert_eq!(serious, expected, "{report:#}");
    assert_eq!(code, Some(exit), "{report:#}");
    assert_eq!(report["safe"], exit == 0);
    report
}

fn database(folder: &Folder) -> &Database {
    assert!(folder.run(&["migrate", "--store", folder.store()]).status.success());
    folder.database()
}

fn a_store_that_is_well_is_said_to_be(folder: &Folder) {
    database(folder);
    check(folder, &[], 0, &[]);
    let text = folder.run(&["doctor", "--store", folder.store()]);
    assert!(stdout(&text).contains("note: server-version: PostgreSQL "), "{}", stdout(&text));
    assert!(stdout(&text).ends_with("nothing unsafe was found\n"), "{}", stdout(&text));
}

fn commits_that_are_not_flushed_are_unsafe(folder: &Folder) {
    let database = database(folder);
    let name = database.name();
    database.run(&[&format!("ALTER DATABASE {name} SET synchronous_commit = off")]);
    let found = ["unsafe synchronous-commit", "unsafe synchronous-commit-exception"];
    let report = check(folder, &[], 6, &found);
    assert!(report["findings"][1]["what"].as_str().unwrap().contains(name), "{report:#}");
    let text = folder.run(&["doctor", "--store", folder.store()]);
    assert_eq!(text.status.code(), Some(6));
    assert!(stdout(&text).ends_with("UNSAFE: see above\n"), "{}", stdout(&text));
}

fn a_standby_that_is_expected_and_not_there_is_unsafe(folder: &Folder) {
    database(folder);
    let report = check(folder, &["--expect-standby", "two"], 6, &["unsafe standby"]);
    assert!(report["findings"][0]["what"].as_str().unwrap().contains("no standby at all"));
    fs::write(folder.path().join("f.toml"), "[doctor]\nexpect_standby = 'two'\n").unwrap();
    check(folder, &["--config", "f.toml"], 6, &["unsafe standby"]);
}

fn more_connections_than_there_is_room_for_are_named(folder: &Folder) {
    let database = database(folder);
    database.run(&[&format!("ALTER DATABASE {} CONNECTION LIMIT 5", database.name())]);
    check(folder, &[], 0, &["warning connections"]);
}

fn records_that_wait_for_proof_are_counted(folder: &Folder) {
    leave_open_records(folder);
    leave_lapsed_records(folder, 1);
    let report = check(folder, &[], 0, &["warning uncertain-records"]);
    let what = report["findings"][0]["what"].as_str().unwrap();
    assert!(what.starts_with("1 records wait for proof"), "{what}");
}

fn clearing_doubts_needs_a_reason_and_says_how_many(folder: &Folder) {
    database(folder);
    let unexplained = folder.run(&["doctor", "--store", folder.store(), "--clear-history-loss"]);
    assert_eq!(unexplained.status.code(), Some(2));
    let clear = ["--clear-history-loss", "--reason", "nothing is missing", "--actor", "ada"];
    let report = check(folder, &clear, 0, &[]);
    assert_eq!((&report["cleared"], &report["marked"]), (&0.into(), &0.into()), "{report:#}");
    let text = folder.run(&[&["doctor", "--store", folder.store()][..], &clear].concat());
    assert!(stdout(&text).starts_with("history losses cleared: 0\n"), "{}", stdout(&text));
}

fn messages_that_wait_for_people_are_counted(folder: &Folder) {
    database(folder);
    leave_messages(
        folder,
        &[("lost", Fate::Unknown), ("sent", Fate::Sending), ("no", Fate::Dead(404))],
    );
    let found = ["warning unknown-messages", "warning dead-letters"];
    let report = check(folder, &[], 0, &found);
    let what = report["findings"][0]["what"].as_str().unwrap();
    assert_eq!(what, "1 messages to provider may have arrived, or not");
    outbox_json(folder, &["pause", "provider", "--reason", "r", "--actor", "ada"]);
    let (_, findings, report) = examine(folder, &[]);
    assert!(findings.contains(&"note destination-paused".to_owned()), "{report:#}");
}

/// A store has a write acknowledged; then the database is as empty as it was, under its connection.
fn lose_history(folder: &Folder) {
    let policy = Policy::default();
    let request = |key| sample::request(&sample::tenant("acme"), &sample::key(key), 1);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = runtime.block_on(MysqlStore::connect(folder.store())).unwrap();
    let lost = sample::reserved(&request("lost"), &policy, Fence::first(1));
    runtime.block_on(store.insert(&lost)).unwrap();
    let name = folder.database().name();
    let anew = [format!("DROP DATABASE {name}"), format!("CREATE DATABASE {name}")];
    folder.database().run_outside(&[&anew[0], &anew[1]]);
    database(folder);
    assert!(runtime.block_on(store.begin(request("other").id)).is_err());
}

/// Moves the records of the folder's store to a file.
fn moved_to_a_file(folder: &Folder) -> std::process::Output {
    let to = "sqlite:new.db";
    assert!(firstwrite(folder).args(["migrate", "--store", to]).output().unwrap().status.success());
    let mut command = firstwrite(folder);
    command.args(["keys", "migrate", "--from", folder.store(), "--to", to]).output().unwrap()
}

/// On MariaDB: unknown keys are refused while a history loss is open, and run when an operator has cleared it.
#[test]
fn lost_history_on_mariadb_stops_unknown_keys_and_moves_until_it_is_cleared() {
    let Some(folder) = Folder::on_mariadb() else { return };
    database(&folder);
    lose_history(&folder);
    // The server of the tests has no binary log.
    let report = check(&folder, &[], 6, &["unsafe history-lost", "warning no-binlog"]);
    assert!(report["findings"][0]["what"].as_str().unwrap().contains("missing"), "{report:#}");
    let scene = Scene::new(&folder, "");
    let gateway = scene.gateway();
    let refused = gateway.answer(&pay("order-1"));
    assert_eq!((refused.status, &*refused.problem()), (409, "outcome-unknown"));
    assert_eq!(scene.upstream.heads(), 0, "something was sent");
    let moved = moved_to_a_file(&folder);
    assert!(!moved.status.success() && stderr(&moved).contains("lost history"), "{moved:?}");
    let clear = ["--clear-history-loss", "--reason", "nothing is missing", "--actor", "ada"];
    leave_messages(&folder, &[("order-2", Fate::Waiting)]);
    let report = check(&folder, &clear, 0, &["warning no-binlog"]);
    assert_eq!((&report["cleared"], &report["marked"]), (&1.into(), &1.into()), "{report:#}");
    assert!(moved_to_a_file(&folder).status.success());
    assert_eq!(gateway.answer(&pay("order-1")).status, 201);
}

/// The store itself is a file; what else holds records stands in the config file.
#[test]
fn servers_that_hold_records_beside_the_store_are_looked_at() {
    let folder = Folder::new();
    assert!(folder.run(&["migrate", "--store", folder.store()]).status.success());
    let settings = "[gateway]\ncache = 'redis://:canary@cache.example'\n\
                    moving_from = 'redis://u:canary@old.example'\n";
    fs::write(folder.path().join("firstwrite.toml"), settings).unwrap();
    let (_, findings, report) = examine(&folder, &["--config", "firstwrite.toml"]);
    let named = findings.iter().filter(|found| *found == "warning unverified-connection");
    assert_eq!(named.count(), 2, "{report:#}");
    assert!(!report.to_string().contains("canary"), "{report:#}");
}

/// Runs one payment through a gateway with these settings, and returns what the doctor and `check` say then.
fn told_of(settings: &str) -> (Vec<String>, String) {
    let folder = Folder::new();
    let scene = Scene::new(&folder, settings);
    let gateway = scene.gateway();
    assert_eq!(gateway.answer(&pay("order-1")).status, 201);
    gateway.terminate();
    assert!(gateway.end().success());
    let (_, without_file, _) = examine(&folder, &[]);
    let (_, with_file, _) = examine(&folder, &["--config", "gateway.toml"]);
    let content = |findings: Vec<String>| -> Vec<String> {
        let of_it =
            |found: &String| ["fingerprints", "outcomes"].iter().any(|part| found.ends_with(part));
        findings.into_iter().filter(of_it).collect()
    };
    let (without_file, with_file) = (content(without_file), content(with_file));
    assert_eq!(without_file, with_file);
    let tenants = ["check", "--config", "gateway.toml", "--tenants", "authorization"];
    (with_file, stdout(&folder.run(&tenants)))
}

#[test]
fn readable_content_is_named_unless_it_is_sealed_and_keyed() {
    let (found, checked) = told_of("");
    assert_eq!(found, ["warning plain-fingerprints", "note unsealed-outcomes"]);
    assert!(checked.contains("fingerprints  PLAIN: "), "{checked}");
    let (found, checked) = told_of("fingerprint_secrets = ['seven-of-sixteen-bytes']\n");
    assert_eq!(found, ["note unsealed-outcomes"]);
    assert!(checked.contains("fingerprints  keyed\n"), "{checked}");
    let (found, checked) = told_of(SEALING);
    assert_eq!(found, [""; 0]);
    assert!(checked.contains("fingerprints  keyed\n"), "{checked}");
}

/// A secret is missing before the first record is there to show it.
#[test]
fn a_gateway_without_a_secret_is_named_on_an_empty_store() {
    let folder = Folder::new();
    assert!(folder.run(&["migrate", "--store", folder.store()]).status.success());
    for (settings, is_named) in [
        ("[gateway]\nupstreams = ['http://127.0.0.1:9']\n", true),
        (
            "[gateway]\nupstreams = ['http://127.0.0.1:9']\nfingerprint_secrets = ['env:NOT_HERE']\n",
            false,
        ),
        ("[[gateway.operations]]\noperation = 'POST /pay'\n", false),
        ("log = 'warn'\n", false),
    ] {
        fs::write(folder.path().join("f.toml"), settings).unwrap();
        let (_, findings, report) = examine(&folder, &["--config", "f.toml"]);
        let named = findings.contains(&"warning plain-fingerprints".to_owned());
        assert_eq!(named, is_named, "{settings}: {report:#}");
    }
}

#[test]
fn an_sqlite_file_is_looked_at_beside_its_service() {
    let folder = Folder::new();
    let demo = folder.demo(&[]);
    // Temporary folders may lie in memory, which is said, and no fault of the file's.
    let (_, findings, report) = examine(&folder, &[]);
    assert!(findings.contains(&"note synchronous".to_owned()), "{report:#}");
    assert!(!findings.iter().any(|found| found.contains("journal-mode")), "{report:#}");
    assert_eq!(demo.payment_count(), 0);
    // A word about the file is written into it, and it has one writer.
    for (flags, exit) in [
        (&["--expect-standby", "a"][..], 2),
        (&["--clear-history-loss", "--reason", "r"], 1),
        (&["--confirm-clock", "--reason", "r"], 1),
    ] {
        let refused = folder.run(&[&["doctor", "--store", "sqlite:demo.db"][..], flags].concat());
        assert_eq!(refused.status.code(), Some(exit), "{flags:?}");
        assert_eq!(stderr(&refused).lines().count(), 1, "{}", stderr(&refused));
    }
}
