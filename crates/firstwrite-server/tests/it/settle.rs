//! Settling an uncertain record on an operator's word.

use std::fs;

use serde_json::Value;

use crate::database::on_every_store;
use crate::http::{get, post};
use crate::open_records::{json, keys, leave_open_records};
use crate::payments::ORDER;
use crate::process::{Folder, stderr, stdout};

on_every_store! {
    what_happened_is_the_answer_from_then_on,
    what_did_not_happen_frees_the_key,
    a_body_can_come_from_a_file,
    what_cannot_be_settled_says_why,
    ; postgres:
    settling_works_beside_a_running_service,
}

const HAPPENED: [&str; 12] = [
    "settle",
    "acme",
    "lost",
    "--reason",
    "provider has ch_7",
    "--actor",
    "ada",
    "--status",
    "201",
    "--header",
    "location: /payments/7",
    "--force",
];

fn what_happened_is_the_answer_from_then_on(folder: &Folder) {
    leave_open_records(folder);
    let settled = keys(folder, &[&HAPPENED[..], &["--body", "{\"id\":7}"]].concat());
    assert_eq!(settled.status.code(), Some(0), "{}", stderr(&settled));
    assert!(stdout(&settled).starts_with("settled"), "{}", stdout(&settled));

    let shown = json(folder, &["show", "acme", "lost", "--body"]);
    assert_eq!(shown["record"]["state"], "completed");
    assert_eq!(shown["outcome"]["status"], 201);
    assert_eq!(shown["outcome"]["body"], "{\"id\":7}");
    assert_eq!(shown["outcome"]["headers"][0]["value"], "/payments/7");
    assert_eq!(shown["audit"][0]["action"], "settle: happened");
    assert_eq!(shown["audit"][0]["actor"], "ada");
    assert_eq!(shown["audit"][0]["reason"], "provider has ch_7");

    let demo = folder.demo(&[]);
    let status = demo.answer(&get("/.firstwrite/operations/lost").acme()).json();
    assert_eq!(status["outcome"]["body"], "{\"id\":7}");
    drop(demo);
    let again = keys(folder, &HAPPENED);
    assert_eq!(again.status.code(), Some(4), "an outcome never changes");
    assert_eq!(json(folder, &HAPPENED)["result"], "completed");
}

fn what_did_not_happen_frees_the_key(folder: &Folder) {
    leave_open_records(folder);
    let settle = ["settle", "acme", "lost", "--reason", "no such charge", "--not-happened"];
    assert_eq!(keys(folder, &settle).status.code(), Some(5), "it may still be under way");
    let settle = [&settle[..], &["--force"]].concat();
    let settled = keys(folder, &settle);
    assert_eq!(settled.status.code(), Some(0), "{}", stderr(&settled));
    let shown = json(folder, &["show", "acme", "lost"]);
    assert_eq!(shown["record"], Value::Null);
    assert_eq!(shown["audit"][0]["action"], "settle: not happened");
    assert_eq!(keys(folder, &settle).status.code(), Some(3));
}

fn a_body_can_come_from_a_file(folder: &Folder) {
    leave_open_records(folder);
    fs::write(folder.path().join("answer.bin"), [0, 159, 146, 150]).unwrap();
    let settled = keys(folder, &[&HAPPENED[..], &["--body-file", "answer.bin"]].concat());
    assert_eq!(settled.status.code(), Some(0), "{}", stderr(&settled));
    let shown = json(folder, &["show", "acme", "lost", "--body"]);
    assert_eq!(shown["outcome"]["body_hex"], "009f9296");
    let absent = keys(
        folder,
        &["settle", "acme", "held", "--reason", "r", "--status", "200", "--body-file", "absent"],
    );
    assert_eq!(absent.status.code(), Some(1));
    assert!(stderr(&absent).contains("cannot open absent"), "{}", stderr(&absent));
}

fn what_cannot_be_settled_says_why(folder: &Folder) {
    leave_open_records(folder);
    // In an SQLite file nobody can hold it any more.
    if !folder.store().starts_with("sqlite:") {
        let held = ["settle", "acme", "held", "--reason", "r", "--status", "201"];
        let refused = keys(folder, &held);
        assert_eq!(refused.status.code(), Some(5));
        assert!(stderr(&refused).contains("--force"), "{}", stderr(&refused));
    }
    for (arguments, complaint) in [
        (&["--status", "500"][..], "no retry is answered with that status"),
        (&["--status", "201", "--header", "set-cookie: a=b"], "never kept"),
        (&["--status", "201", "--not-happened"], "cannot be used with"),
        (&["--not-happened", "--body", "x"], "--status"),
        (&[], "--not-happened"),
    ] {
        let settle = [&["settle", "acme", "lost", "--reason", "r"][..], arguments].concat();
        let refused = keys(folder, &settle);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&refused).contains(complaint), "{arguments:?}: {}", stderr(&refused));
    }
    let shown = json(folder, &["show", "acme", "lost"]);
    assert_eq!(
        (&shown["record"]["state"], &shown["audit"]),
        (&"uncertain".into(), &Value::Array(vec![]))
    );
}

fn settling_works_beside_a_running_service(folder: &Folder) {
    leave_open_records(folder);
    let demo = folder.demo(&[]);
    assert_eq!(keys(folder, &HAPPENED).status.code(), Some(0));
    let status = demo.answer(&get("/.firstwrite/operations/lost").acme()).json();
    assert_eq!(status["outcome"]["status"], 201);
    assert_eq!(demo.answer(&post("/payments", ORDER).acme().key("k")).status, 201);
}
