//! Settling an uncertain record on an operator's word.

use std::fs;

use crate::database::on_every_store;
use crate::http::{get, post};
use crate::open_records::{json, keys, leave_open_records, on_terminal};
use crate::payments::ORDER;
use crate::process::{Folder, stderr, stdout};

on_every_store! {
    what_happened_is_the_answer_from_then_on,
    what_did_not_happen_frees_the_key,
    a_body_can_come_from_a_file,
    what_cannot_be_settled_says_why,
    nothing_is_settled_before_it_was_shown_and_confirmed,
    ; postgres:
    settling_works_beside_a_running_service,
}

const HAPPENED: [&str; 13] = [
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
    "--yes",
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
    assert_eq!(shown["audit"][0]["action"], "uncertain", "what the software did stands there too");
    assert_eq!(shown["audit"][1]["action"], "settle: happened");
    assert_eq!(shown["audit"][1]["actor"], "ada");
    assert_eq!(shown["audit"][1]["reason"], "provider has ch_7");

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
    let settle = [&settle[..], &["--force", "--yes"]].concat();
    let settled = keys(folder, &settle);
    assert_eq!(settled.status.code(), Some(0), "{}", stderr(&settled));
    let shown = json(folder, &["show", "acme", "lost"]);
    assert_eq!(shown["record"]["state"], "released", "a note for clients that poll");
    assert_eq!(shown["audit"][1]["action"], "settle: not happened");
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
        (&["--status", "600"], "a status is a number from 200 to 499"),
        (&["--status", "999"], "a status is a number from 200 to 499"),
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
    assert_eq!(shown["record"]["state"], "uncertain");
    assert_eq!(shown["audit"].as_array().unwrap().len(), 1, "nobody settled anything: {shown}");
}

fn settling_works_beside_a_running_service(folder: &Folder) {
    leave_open_records(folder);
    let demo = folder.demo(&[]);
    assert_eq!(keys(folder, &HAPPENED).status.code(), Some(0));
    let status = demo.answer(&get("/.firstwrite/operations/lost").acme()).json();
    assert_eq!(status["outcome"]["status"], 201);
    assert_eq!(demo.answer(&post("/payments", ORDER).acme().key("k")).status, 201);
}

fn nothing_is_settled_before_it_was_shown_and_confirmed(folder: &Folder) {
    leave_open_records(folder);
    let without_yes = &HAPPENED[..HAPPENED.len() - 1];
    let refused = keys(folder, without_yes);
    assert_eq!((refused.status.code(), stdout(&refused)), (Some(2), String::new()));
    let told = stderr(&refused);
    for part in [
        "state       uncertain",
        "because     no answer",
        "would be    every retry is answered with 201",
        "location: /payments/7",
        "add --yes",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(json(folder, without_yes)["result"], "not-confirmed");
    let release = ["release", "acme", "lost", "--reason", "r", "--force"];
    let refused = keys(folder, &release);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("would be    the key is free"), "{}", stderr(&refused));
    assert_eq!(json(folder, &["show", "acme", "lost"])["record"]["state"], "uncertain");
}

/// On a terminal, as `script` provides one.
#[test]
fn whoever_sits_at_a_terminal_is_asked() {
    let folder = Folder::new();
    leave_open_records(&folder);
    let release = ["release", "acme", "lost", "--reason", "gone", "--force"];
    let asked = on_terminal(&folder, 80, &release, "n\n");
    assert!(asked.contains("It cannot be undone. [y/N]"), "{asked}");
    assert!(asked.contains("nothing was changed"), "{asked}");
    assert_eq!(json(&folder, &["show", "acme", "lost"])["record"]["state"], "uncertain");
    let asked = on_terminal(&folder, 80, &release, "y\n");
    assert!(asked.contains("released: the key is free"), "{asked}");
    assert_eq!(json(&folder, &["show", "acme", "lost"])["record"]["state"], "released");
}
