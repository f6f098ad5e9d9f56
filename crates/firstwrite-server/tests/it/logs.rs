//! What the demo writes about itself, and what it never writes about its callers.

use std::fs;

use serde_json::Value;

use crate::database::on_every_store;
use crate::http::{get, post};
use crate::payments::ORDER;
use crate::process::Folder;

on_every_store! {
    no_key_body_or_credential_is_logged_at_any_level,
    every_line_is_a_document_when_asked_for,
}

/// Makes every kind of trouble and returns what was logged about it.
fn log(folder: &Folder, more: &[&str]) -> String {
    let demo = folder.logging_demo(more);
    let request = || post("/payments", ORDER).acme().key("a-key-that-nobody-else-may-see");
    for fault in ["status=500", "panic"] {
        demo.answer(&request().fault(fault));
    }
    demo.answer(&request());
    demo.answer(&request());
    demo.answer(&post("/payments", &ORDER.replace("4990", "1")).acme().key("a-key-that-nobody"));
    demo.answer(&get("/.firstwrite/operations/a-key-that-nobody-else-may-see").acme());
    demo.terminate();
    assert!(demo.end().success());
    fs::read_to_string(folder.path().join("demo.log")).unwrap()
}

fn no_key_body_or_credential_is_logged_at_any_level(folder: &Folder) {
    let log = log(folder, &["--faults", "--log", "trace"]);
    assert!(log.contains("panicked"), "the panic was not logged: {log}");
    for secret in ["nobody-else", "cus_1", "4990", "demo-acme"] {
        assert!(!log.contains(secret), "{secret} is in the log: {log}");
    }
}

fn every_line_is_a_document_when_asked_for(folder: &Folder) {
    let log = log(folder, &["--faults", "--log-format", "json"]);
    assert!(log.lines().count() > 1, "{log}");
    for line in log.lines() {
        let entry: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        assert!(entry["level"].is_string() && entry["fields"]["message"].is_string(), "{line}");
    }
}
