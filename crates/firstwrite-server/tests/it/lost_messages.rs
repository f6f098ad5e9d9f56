//! An older copy of an SQLite file is put back: what was delivered since is not delivered a second time.

use std::fs;
use std::process::Output;

use serde_json::Value;

use crate::messages::{Fate, leave, message, outbox, outbox_json};
use crate::open_records::document;
use crate::process::{Demo, Folder, firstwrite, stderr};
use crate::sqlite_file::{doctor, open_with_the_clock_ahead};

const FILE: &str = "demo.db";

fn settings(folder: &Folder, provider: &Demo, more: &str) {
    let url = format!("http://{}/v1/payments", provider.address);
    let text = format!(
        "[destinations.provider]\nkind = 'http'\nurl = '{url}'\nprovider_id = '/id'\n\
         allow_networks = ['127.0.0.0/8']\n{more}\n"
    );
    fs::write(folder.path().join("firstwrite.toml"), text).unwrap();
}

fn probe(provider: &Demo) -> String {
    let asking = format!("http://{}/v1/payments?idempotency_key={{key}}", provider.address);
    format!(
        "probe = {{ url = '{asking}', list = '/data', key = '/idempotency_key', made = 'all', at = 'none', \
         empty_is_absent = true, id = '/id' }}"
    )
}

fn worker(folder: &Folder) -> Output {
    let mut command = firstwrite(folder);
    command.args(["worker", "--once", "--config", "firstwrite.toml", "--store", folder.store()]);
    command.args(["--format", "json"]).output().unwrap()
}

/// Delivered, waiting, unknown and dead messages of one turn.
fn turn(folder: &Folder) -> [u64; 4] {
    let turn = worker(folder);
    assert_eq!(turn.status.code(), Some(0), "{}", stderr(&turn));
    let turn: Value = document(&turn);
    ["delivered", "waiting", "unknown", "dead"]
        .map(|name| turn["delivered"][name].as_u64().unwrap())
}

fn payments(folder: &Folder) -> usize {
    folder.provider_payments("provider.jsonl").len()
}

/// Two payments are made after the file was copied, and a third one is not yet due; then the copy is put back.
fn pay_and_put_back(folder: &Folder) {
    let an_hour = std::time::Duration::from_hours(1);
    let messages = [
        (message("order-4", "provider"), Fate::Dead(402)),
        (message("order-1", "provider"), Fate::Waiting),
        (message("order-2", "provider"), Fate::Waiting),
        (message("order-3", "provider").delayed_by(an_hour), Fate::Waiting),
    ];
    leave(folder, &messages);
    let (live, older) = (folder.path().join(FILE), folder.path().join("older.db"));
    fs::copy(&live, &older).unwrap();
    assert_eq!(turn(folder), [2, 0, 0, 0]);
    assert_eq!(payments(folder), 2);
    fs::copy(&older, &live).unwrap();
    for suffix in ["-wal", "-shm"] {
        // They belong to the file that is gone.
        drop(fs::remove_file(folder.path().join(format!("{FILE}{suffix}"))));
    }
}

/// Clears the loss, after which nothing is sent for a while; then time passes.
fn clear(folder: &Folder) {
    let refused = worker(folder);
    assert_ne!(refused.status.code(), Some(0), "{refused:?}");
    assert!(stderr(&refused).contains("history"), "{}", stderr(&refused));
    let (code, text) = doctor(folder, &[]);
    assert!(code == Some(6) && text.contains("unsafe: history-lost"), "{text}");
    // What is missing may have sent it a moment ago.
    let page = outbox_json(folder, &["list", "--state", "waiting"]);
    let number = page["messages"][0]["number"].to_string();
    let absent = outbox(folder, &["settle", &number, "--not-delivered", "--reason", "looked"]);
    assert_eq!(absent.status.code(), Some(5), "{}", stderr(&absent));
    assert!(stderr(&absent).contains("lost history"), "{}", stderr(&absent));
    let (_, text) = doctor(folder, &["--clear-history-loss", "--reason", "compared"]);
    let lines = "history losses cleared: 1\nmessages marked as maybe sent: 4\n\
                 uncertain records given up anew: 0\n";
    assert!(text.starts_with(lines), "{text}");
    assert_eq!(turn(folder), [0; 4], "they rest");
    let page = outbox_json(folder, &["list", "--state", "waiting"]);
    for message in page["messages"].as_array().unwrap() {
        let (since, written) = (&message["maybe_sent_at"], &message["created_at"]);
        assert!(since.is_string() && since == written, "{message}");
    }
    open_with_the_clock_ahead(folder);
}

#[test]
fn a_provider_that_recognises_no_keys_is_paid_once() {
    let folder = Folder::new();
    let provider = folder.provider(&["--keys", "ignore"]);
    settings(&folder, &provider, "");
    pay_and_put_back(&folder);
    clear(&folder);
    assert_eq!(turn(&folder), [0, 0, 3, 0], "they wait for a person");
    let page = outbox_json(&folder, &["list", "--state", "unknown"]);
    let problem = page["messages"][0]["problem"].as_str().unwrap();
    assert!(problem.contains("the store lost history"), "{problem}");
    // A dead letter may have been put back, and delivered, in what is missing.
    let back = ["redrive", "--problem", "402", "--yes", "--reason", "mended"];
    assert_eq!(outbox_json(&folder, &back)["redriven"], 1);
    assert_eq!(turn(&folder), [0, 0, 1, 0]);
    assert_eq!(payments(&folder), 2);
    // What is new goes out at once.
    leave(&folder, &[(message("order-5", "provider"), Fate::Waiting)]);
    assert_eq!(turn(&folder), [1, 0, 0, 0]);
    assert_eq!(payments(&folder), 3);
}

#[test]
fn a_provider_that_can_be_asked_is_asked_and_paid_once() {
    let folder = Folder::new();
    let provider = folder.provider(&["--keys", "ignore"]);
    settings(&folder, &provider, &probe(&provider));
    pay_and_put_back(&folder);
    clear(&folder);
    assert_eq!(turn(&folder), [3, 0, 0, 0], "two were paid, and the third is paid now");
    assert_eq!(payments(&folder), 3);
}

#[test]
fn a_provider_that_recognises_keys_gets_them_again_while_it_does() {
    for (window, turns) in [("24h", [3, 0, 0, 0]), ("1h", [0, 0, 3, 0])] {
        let folder = Folder::new();
        let provider = folder.provider(&[]);
        settings(&folder, &provider, &format!("dedupe_for = '{window}'"));
        pay_and_put_back(&folder);
        clear(&folder);
        // The window counts from when they were written, two hours ago.
        assert_eq!(turn(&folder), turns, "{window}");
        assert_eq!(payments(&folder), if turns[0] > 0 { 3 } else { 2 }, "{window}");
    }
}
