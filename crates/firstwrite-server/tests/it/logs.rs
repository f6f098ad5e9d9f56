//! What the demo writes about itself, and what it never writes about its callers.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use serde_json::Value;

use crate::database::on_every_store;
use crate::http::{get, post};
use crate::payments::ORDER;
use crate::process::{Demo, Folder, firstwrite};
use crate::scene::{Scene, pay};

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

/// Sends 50 requests of two kinds, which get these statuses, and returns what the gateway logged.
fn log_before(upstream: &str, (passed, protected): (u16, u16), more: &[&str]) -> String {
    let folder = Folder::new();
    let path = folder.path().join("gateway.log");
    let log = fs::File::create(&path).unwrap();
    let mut command = firstwrite(&folder);
    command.args(["gateway", "--create", "--listen", "127.0.0.1:0", "--tenants", "single"]);
    command.args(more);
    let gateway = Demo::logging_to(command.args(["--upstream", upstream]), log);
    for number in 0..50 {
        assert_eq!(gateway.answer(&get("/things")).status, passed);
        let answer = gateway.answer(&post("/pay", "{}").key(&format!("k{number}")));
        assert_eq!(answer.status, protected, "{answer:?}");
    }
    gateway.terminate();
    assert!(gateway.end().success());
    fs::read_to_string(&path).unwrap()
}

/// Returns how many lines are of these levels.
fn count(log: &str, levels: &[&str]) -> usize {
    log.lines().filter(|line| levels.iter().any(|level| line.contains(level))).count()
}

/// A stranger's requests that an API does not answer, each a line, would fill a disk.
#[test]
fn a_dead_api_is_said_seldom() {
    let log = log_before("http://127.0.0.1:9", (502, 502), &[]);
    // Every ten seconds at the most, of each kind.
    assert!((2..20).contains(&count(&log, &["WARN", "ERROR"])), "{log}");
}

#[test]
fn an_api_that_hangs_up_is_said_seldom_and_each_record_is_at_debug() {
    let api = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = format!("http://{}", api.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in api.incoming().map(Result::unwrap) {
            // Hangs up once it has something: sent, and nobody knows how it ended.
            assert!(stream.read(&mut [0; 4096]).is_ok());
        }
    });
    let log = log_before(&upstream, (502, 504), &["--log", "debug"]);
    assert!((3..30).contains(&count(&log, &["WARN", "ERROR"])), "{log}");
    for said in ["the handler failed without an answer", "nobody knows how an attempt ended"] {
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(said)).collect();
        assert_eq!(lines.len(), 50, "{said}: {log}");
        assert!(lines.iter().all(|line| line.contains("record_id")), "{lines:?}");
    }
}

#[test]
fn a_client_cannot_write_the_log() {
    const FRAMES: usize = 20_000;
    let folder = Folder::new();
    let scene = Scene::new(&folder, "tenants = { sources = [{ kind = 'authorization' }] }\n");
    let path = folder.path().join("gateway.log");
    let log = fs::File::create(&path).unwrap();
    let gateway = Demo::logging_to(&mut scene.command("127.0.0.1:0"), log);
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    stream.write_all(&[&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings].concat()).unwrap();
    // Acknowledgements of PING frames that nobody sent, and then one that wants an answer.
    let unasked = [0, 0, 8, 6, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8].repeat(FRAMES);
    let question = [0, 0, 8, 6, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1];
    stream.write_all(&[&unasked[..], &question].concat()).unwrap();
    let mut heard: Vec<u8> = Vec::new();
    while !heard.windows(8).any(|bytes| *bytes == question[9..]) {
        let mut buffer = [0; 4096];
        let count = stream.read(&mut buffer).unwrap();
        assert_ne!(count, 0, "the connection ended");
        heard.extend(&buffer[..count]);
    }
    assert_eq!(gateway.answer(&pay("order-1")).status, 201);
    let lines = fs::read_to_string(&path).unwrap();
    assert!(lines.lines().count() < 100, "{} lines", lines.lines().count());
}
