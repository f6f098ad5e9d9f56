//! Outcomes that commands write are sealed as those of the gateway are.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Output, Stdio};

use axum::http::StatusCode;
use firstwrite_core::outbox::Answers;
use firstwrite_core::{Fence, KeptHeaders, Outcome, Policy};
use firstwrite_testkit::sample;

use crate::database::on_every_store;
use crate::gateway_sinks::SEALING;
use crate::http::post;
use crate::messages::message;
use crate::open_records::{keys, leave_open_records, request, with_store};
use crate::process::{Demo, Folder, firstwrite, stderr, stdout};
use crate::worker::Worker;

on_every_store! {
    what_an_operator_settles_is_sealed,
    the_answer_that_a_worker_brings_is_sealed,
    the_answer_that_an_operator_gives_for_a_message_is_sealed,
    what_a_reconciliation_completes_is_sealed,
    what_a_worker_reconciles_is_sealed,
}

const SECRET: &str = "canary-of-the-answer";

fn write(folder: &Folder, more: &str) {
    fs::write(folder.path().join("sealed.toml"), format!("{SEALING}{more}")).unwrap();
}

fn run(folder: &Folder, arguments: &[&str]) -> Output {
    let mut command = firstwrite(folder);
    command.args(arguments).args(["--config", "sealed.toml", "--store", folder.store()]);
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{}", stderr(&ran));
    ran
}

/// The body of the record under `key` is read with the keys alone.
fn assert_sealed(folder: &Folder, key: &str) {
    let show = ["show", "acme", key, "--body", "--format", "json"];
    let plain = stdout(&keys(folder, &show));
    assert!(plain.contains("\"completed\"") && !plain.contains(SECRET), "{plain}");
    let opened = stdout(&run(folder, &[&["keys"], &show[..]].concat()));
    assert!(opened.contains(SECRET), "{opened}");
}

fn what_an_operator_settles_is_sealed(folder: &Folder) {
    leave_open_records(folder);
    write(folder, "");
    let settle =
        ["keys", "settle", "acme", "lost", "--reason", "r", "--actor", "ada", "--force", "--yes"];
    run(folder, &[&settle[..], &["--status", "201", "--body", SECRET]].concat());
    assert_sealed(folder, "lost");
}

fn outcome(status: StatusCode, body: &str) -> Outcome {
    Outcome::new(status, KeptHeaders::default(), body.to_owned().into())
}

/// Leaves a record whose interim answer a message will replace.
fn leave_awaited(folder: &Folder) {
    with_store(folder, async |store| {
        let answers = Answers {
            delivered: outcome(StatusCode::CREATED, SECRET),
            refused: outcome(StatusCode::PAYMENT_REQUIRED, "no"),
        };
        let interim = outcome(StatusCode::ACCEPTED, "wait").interim();
        let (request, policy) = (request("order-1"), Policy::default());
        let draft = sample::completed(&request, &policy, Fence::first(1), interim);
        store.insert(&draft).await.unwrap();
        let message = message("order-1", "provider").answering(answers);
        store.outbox().unwrap().enqueue(&message).await.unwrap();
    });
}

fn the_answer_that_a_worker_brings_is_sealed(folder: &Folder) {
    let provider = folder.provider(&[]);
    leave_awaited(folder);
    let destination = format!(
        "[destinations.provider]\nkind = 'http'\nurl = 'http://{}/v1/payments'\n\
         allow_networks = ['127.0.0.0/8']\n",
        provider.address
    );
    write(folder, &destination);
    run(folder, &["worker", "--once"]);
    assert_sealed(folder, "order-1");
}

fn the_answer_that_an_operator_gives_for_a_message_is_sealed(folder: &Folder) {
    leave_awaited(folder);
    write(folder, "");
    let shown = run(folder, &["outbox", "list", "--format", "json"]);
    let page: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let number = page["messages"][0]["number"].to_string();
    let settle = ["outbox", "settle", &number, "--delivered", "--provider-id", "pay_1"];
    run(folder, &[&settle[..], &["--reason", "r", "--actor", "ada"]].concat());
    assert_sealed(folder, "order-1");
}

/// Leaves an uncertain record whose payment a provider has, and settings by which it is looked for.
fn leave_paid(folder: &Folder) -> Demo {
    leave_open_records(folder);
    let record_id = request("lost").id.to_string();
    let wire_key = format!("lost:charge:{}", &record_id[..16]);
    let provider = folder.provider(&[]);
    let paid = post("/v1/payments", r#"{"amount":4990,"currency":"EUR"}"#).key(&wire_key);
    assert_eq!(provider.answer(&paid).status, 201);
    let account = format!(
        "[worker]\nreconcile_every = '50ms'\n[reconcile.provider]\ngrace = '1ms'\napply_first_run = true\n\
         records = {{ step = 'charge', operations = ['POST /payments'], body = '{SECRET}' }}\n\
         [reconcile.provider.http]\nmade = 'all'\n\
         url = 'http://{}/v1/payments?from={{from}}&until={{until}}&after={{cursor}}'\n\
         list = '/data'\nid = '/id'\nkey = '/idempotency_key'\nat = '/created_at'\nnext = '/next'\n\
         allow_networks = ['127.0.0.0/8']\n",
        provider.address
    );
    write(folder, &account);
    provider
}

fn what_a_reconciliation_completes_is_sealed(folder: &Folder) {
    let _provider = leave_paid(folder);
    let ran = run(folder, &["reconcile", "run", "--apply", "--format", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(report["sources"][0]["completed"], 1, "{report:#}");
    assert_sealed(folder, "lost");
}

fn what_a_worker_reconciles_is_sealed(folder: &Folder) {
    let _provider = leave_paid(folder);
    let mut command = firstwrite(folder);
    command.args(["worker", "--config", "sealed.toml", "--store", folder.store()]);
    let mut worker = Worker(command.stderr(Stdio::piped()).spawn().unwrap());
    let log = BufReader::new(worker.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut settled = log.filter(|line| line.contains("completed=1"));
    assert!(settled.next().is_some(), "the worker ended");
    assert_sealed(folder, "lost");
}

/// The demo seals nothing, and would write in plain what others seal.
#[test]
fn the_demo_is_refused_beside_keys() {
    let folder = Folder::new();
    write(&folder, "");
    let refused = folder.refuse(&["demo", "--listen", "127.0.0.1:0", "--config", "sealed.toml"]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("[sealing]"), "{}", stderr(&refused));
}
