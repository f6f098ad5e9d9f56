//! What an operator sees of a store, and what they may say about it.

use serde_json::Value;

use crate::database::on_every_store;
use crate::http::post;
use crate::open_records::{json, keys, leave_open_records};
use crate::payments::ORDER;
use crate::process::{Folder, stderr, stdout};

on_every_store! {
    records_are_listed_beside_a_running_service,
    a_record_is_shown_without_its_body_unless_asked_for,
    a_key_that_was_never_used_is_absent,
    an_uncertain_key_is_released_with_an_audit_entry,
    a_completed_record_is_never_released,
    ; postgres:
    a_held_key_is_released_by_force_only,
}

fn records_are_listed_beside_a_running_service(folder: &Folder) {
    let demo = folder.demo(&[]);
    demo.answer(&post("/payments", ORDER).acme().key("order-1"));
    demo.answer(&post("/payments", ORDER).globex().key("order-2"));
    let table = stdout(&keys(folder, &["list", "--tenant", "acme"]));
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    assert_eq!(lines[0], ["TENANT", "KEY", "STATE", "OPERATION", "STATUS", "AGE", "EXPIRES"]);
    assert_eq!(lines[1][..5], ["acme", "order-1", "completed", "POST /payments", "201"]);
    assert!(lines[1][6].starts_with("in 23h"), "{table}");
    assert_eq!(lines.len(), 2);

    let all = json(folder, &["list"]);
    assert_eq!(all["records"].as_array().unwrap().len(), 2);
    assert_eq!(all["next"], Value::Null);
    let first = json(folder, &["list", "--limit", "1"]);
    let next = first["next"].as_str().unwrap();
    let second = json(folder, &["list", "--limit", "1", "--after", next]);
    assert_ne!(first["records"][0]["key"], second["records"][0]["key"]);
    assert_eq!(second["next"], Value::Null);
    assert_eq!(json(folder, &["list", "--state", "uncertain"])["records"], Value::Array(vec![]));
    // The service did not mind.
    assert_eq!(demo.answer(&post("/payments", ORDER).acme().key("order-3")).status, 201);
}

fn a_record_is_shown_without_its_body_unless_asked_for(folder: &Folder) {
    let demo = folder.demo(&[]);
    let made = demo.answer(&post("/payments", ORDER).acme().key("order-1"));
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let shown = stdout(&keys(folder, &["show", "acme", "order-1"]));
    assert!(shown.contains("state       completed\n"), "{shown}");
    assert!(shown.contains(&format!("header      location: /payments/{id}\n")), "{shown}");
    assert!(!shown.contains("cus_1"), "{shown}");
    let with_body = stdout(&keys(folder, &["show", "acme", "order-1", "--body"]));
    assert!(with_body.contains("cus_1"), "{with_body}");

    let document = json(folder, &["show", "acme", "order-1"]);
    assert_eq!(document["record"]["state"], "completed");
    assert_eq!(document["outcome"]["status"], 201);
    assert_eq!(document["outcome"]["body_bytes"], made.body.len());
    assert_eq!(document["outcome"].get("body"), None);
    let document = json(folder, &["show", "acme", "order-1", "--body"]);
    assert_eq!(document["outcome"]["body"], String::from_utf8(made.body).unwrap());
}

fn a_key_that_was_never_used_is_absent(folder: &Folder) {
    drop(folder.demo(&[]));
    let shown = keys(folder, &["show", "acme", "nothing"]);
    assert_eq!((shown.status.code(), stdout(&shown)), (Some(3), String::new()));
    assert_eq!(json(folder, &["show", "acme", "nothing"])["record"], Value::Null);
    let released = keys(folder, &["release", "acme", "nothing", "--reason", "mistake"]);
    assert_eq!(released.status.code(), Some(3));
    assert!(stderr(&released).contains("nothing stands under this key"));
}

#[test]
fn a_store_that_is_not_there_is_not_created() {
    let folder = Folder::new();
    for arguments in [&["list"][..], &["release", "acme", "k", "--reason", "r"]] {
        let failed = keys(&folder, arguments);
        assert_eq!(failed.status.code(), Some(1));
        assert_eq!(stderr(&failed).lines().count(), 1);
        assert!(stderr(&failed).contains("there is no file"), "{}", stderr(&failed));
    }
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
}

#[test]
fn releasing_is_refused_while_a_service_runs() {
    let folder = Folder::new();
    let demo = folder.demo(&[]);
    demo.answer(&post("/payments", ORDER).acme().key("order-1"));
    let refused = keys(&folder, &["release", "acme", "order-1", "--reason", "test"]);
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    assert_eq!(stderr(&refused).lines().count(), 1);
    assert!(stderr(&refused).contains("another firstwrite process"), "{}", stderr(&refused));
}

fn an_uncertain_key_is_released_with_an_audit_entry(folder: &Folder) {
    leave_open_records(folder);
    let uncertain = json(folder, &["list", "--state", "uncertain"]);
    assert_eq!(uncertain["records"][0]["key"], "lost");
    let release = ["release", "acme", "lost", "--reason", "provider says no", "--actor", "ada"];
    let refused = keys(folder, &release);
    assert_eq!(refused.status.code(), Some(5), "what was sent may still be under way");
    assert!(stderr(&refused).contains("--force"), "{}", stderr(&refused));
    assert_eq!(json(folder, &release)["result"], "too-soon");
    let released = keys(folder, &[&release[..], &["--force"]].concat());
    assert_eq!(released.status.code(), Some(0), "{}", stderr(&released));
    assert!(stdout(&released).starts_with("released"));

    let shown = json(folder, &["show", "acme", "lost"]);
    assert_eq!(shown["record"], Value::Null);
    assert_eq!(shown["audit"][0]["actor"], "ada");
    assert_eq!(shown["audit"][0]["action"], "release");
    assert_eq!(shown["audit"][0]["reason"], "provider says no");
    let table = stdout(&keys(folder, &["show", "acme", "lost"]));
    assert!(table.contains("release by ada: provider says no"), "{table}");
    assert_eq!(json(folder, &release)["result"], "absent");
}

fn a_held_key_is_released_by_force_only(folder: &Folder) {
    leave_open_records(folder);
    let release = ["release", "acme", "held", "--reason", "its host is gone"];
    let refused = keys(folder, &release);
    assert_eq!(refused.status.code(), Some(5));
    assert!(stderr(&refused).contains("--force"), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("for 59m") || stderr(&refused).contains("for 1h"));
    assert_eq!(json(folder, &release)["result"], "held");
    let forced = keys(folder, &[&release[..], &["--force"]].concat());
    assert_eq!(forced.status.code(), Some(0), "{}", stderr(&forced));
    assert_eq!(keys(folder, &release).status.code(), Some(3));
}

/// Whoever may write to the file knows that no other process does.
#[test]
fn a_key_that_was_held_in_an_sqlite_file_is_nobodys_once_it_can_be_written_to() {
    let folder = Folder::new();
    leave_open_records(&folder);
    let release = ["release", "acme", "held", "--reason", "its host is gone"];
    assert_eq!(json(&folder, &release)["result"], "too-soon", "and not held");
    let released = keys(&folder, &[&release[..], &["--force"]].concat());
    assert_eq!(released.status.code(), Some(0), "{}", stderr(&released));
    assert_eq!(keys(&folder, &release).status.code(), Some(3));
}

fn a_completed_record_is_never_released(folder: &Folder) {
    let demo = folder.demo(&[]);
    let first = demo.answer(&post("/payments", ORDER).acme().key("order-1"));
    demo.kill();
    let release = ["release", "acme", "order-1", "--reason", "try", "--force"];
    let refused = keys(folder, &release);
    assert_eq!(refused.status.code(), Some(4));
    assert!(stderr(&refused).contains("its outcome never changes"));
    let demo = folder.demo(&[]);
    let again = demo.answer(&post("/payments", ORDER).acme().key("order-1"));
    assert_eq!((again.is_replay(), &again.body), (true, &first.body));
}
