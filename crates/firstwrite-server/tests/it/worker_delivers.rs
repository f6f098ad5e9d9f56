//! The worker delivering to a provider, one turn at a time.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

use crate::database::{on_dynamodb, on_every_store};
use crate::messages::{Fate, leave, leave_messages, message, outbox_json};
use crate::open_records::document;
use crate::process::{Demo, Folder, firstwrite, stderr, stdout};

on_every_store! {
    one_turn_delivers_what_is_due,
    a_lost_answer_is_asked_about,
    a_refusal_makes_a_dead_letter_which_can_be_put_back,
    a_worker_with_a_wrong_path_ends_nothing,
    a_secret_comes_from_the_environment,
    what_will_surprise_is_warned_of,
    nothing_goes_to_a_paused_destination,
}

on_dynamodb! {
    one_turn_delivers_what_is_due,
    a_lost_answer_is_asked_about,
    a_refusal_makes_a_dead_letter_which_can_be_put_back,
    a_worker_with_a_wrong_path_ends_nothing,
    nothing_goes_to_a_paused_destination,
}

/// A settings file with the provider as a destination, and `more` in its section.
fn settings(folder: &Folder, provider: &Demo, more: &str) {
    let url = format!("http://{}/v1/payments", provider.address);
    let text = format!(
        "[destinations.provider]\nkind = 'http'\nurl = '{url}'\nprovider_id = '/id'\n\
         allow_networks = ['127.0.0.0/8']\n{more}\n"
    );
    fs::write(folder.path().join("firstwrite.toml"), text).unwrap();
}

fn command(folder: &Folder) -> Command {
    let mut command = firstwrite(folder);
    command.args(["worker", "--once", "--config", "firstwrite.toml", "--store", folder.store()]);
    command
}

fn once(folder: &Folder) -> Output {
    let turn = command(folder).args(["--format", "json"]).output().unwrap();
    assert_eq!(turn.status.code(), Some(0), "{}", stderr(&turn));
    turn
}

fn counts(turn: &Output) -> [u64; 4] {
    let turn: Value = document(turn);
    ["delivered", "waiting", "unknown", "dead"]
        .map(|name| turn["delivered"][name].as_u64().unwrap())
}

fn one_turn_delivers_what_is_due(folder: &Folder) {
    let provider = folder.provider(&[]);
    leave_messages(folder, &[("order-1", Fate::Waiting), ("order-2", Fate::Waiting)]);
    settings(folder, &provider, "dedupe_for = '24h'");
    assert_eq!(counts(&once(folder)), [2, 0, 0, 0]);
    assert_eq!(counts(&once(folder)), [0, 0, 0, 0]);
    assert_eq!(folder.provider_payments("provider.jsonl").len(), 2);
    let page = outbox_json(folder, &["list", "--state", "delivered"]);
    assert_eq!(page["messages"][0]["provider_id"], "pay_00000001");
    let table = stdout(&command(folder).output().unwrap());
    assert!(table.contains("deliver  delivered                             0\n"), "{table}");
}

fn a_lost_answer_is_asked_about(folder: &Folder) {
    let provider = folder.provider(&["--lose-answers", "first=1", "--keys", "ignore"]);
    leave_messages(folder, &[("order-1", Fate::Waiting)]);
    let asking = format!("http://{}/v1/payments?idempotency_key={{key}}", provider.address);
    let probe = format!(
        "timeout = '20ms'\n\
         probe = {{ url = '{asking}', list = '/data', key = '/idempotency_key', made = 'all', at = 'none', \
         empty_is_absent = true, id = '/id' }}"
    );
    settings(folder, &provider, &probe);
    // It is due again by the store's clock, which nobody turns here; then it is asked about.
    let mut sum = [0; 4];
    for _ in 0..3000 {
        for (sum, count) in sum.iter_mut().zip(counts(&once(folder))) {
            *sum += count;
        }
        if sum[0] > 0 {
            break;
        }
    }
    let [delivered, waiting, unknown, dead] = sum;
    assert!(waiting > 0, "no answer was lost");
    assert_eq!([delivered, unknown, dead], [1, 0, 0]);
    assert_eq!(folder.provider_payments("provider.jsonl").len(), 1);
}

fn a_refusal_makes_a_dead_letter_which_can_be_put_back(folder: &Folder) {
    let provider = folder.provider(&[]);
    leave_messages(folder, &[("order-1", Fate::Waiting)]);
    // A destination that says 404 of what it will never take.
    settings(folder, &provider, "refusal_statuses = '404'");
    let text = fs::read_to_string(folder.path().join("firstwrite.toml")).unwrap();
    let moved = text.replace("/v1/payments", "/v2/payments");
    fs::write(folder.path().join("firstwrite.toml"), moved).unwrap();
    assert_eq!(counts(&once(folder)), [0, 0, 0, 1]);
    let back = ["redrive", "--problem", "404", "--yes", "--reason", "the address was wrong"];
    assert_eq!(outbox_json(folder, &back)["redriven"], 1);
    fs::write(folder.path().join("firstwrite.toml"), text).unwrap();
    assert_eq!(counts(&once(folder)), [1, 0, 0, 0]);
}

/// Like a worker of another version beside one that is right: it must not speak for the provider.
fn a_worker_with_a_wrong_path_ends_nothing(folder: &Folder) {
    let provider = folder.provider(&[]);
    leave_messages(folder, &[("order-1", Fate::Waiting), ("order-2", Fate::Waiting)]);
    // One delivery that counts would be the last one.
    settings(folder, &provider, "pause_first = '0s'\npause_max = '0s'\ndelivery_count_max = 1");
    let text = fs::read_to_string(folder.path().join("firstwrite.toml")).unwrap();
    let wrong = text.replace("/v1/payments", "/v2/payments");
    fs::write(folder.path().join("firstwrite.toml"), wrong).unwrap();
    let [delivered, waiting, unknown, dead] = counts(&once(folder));
    assert_eq!(([delivered, unknown, dead], waiting > 0), ([0; 3], true));
    let status = outbox_json(folder, &["status"]);
    let seen = &status["destinations"][0];
    assert!(
        seen["left_alone_because"].as_str().is_some_and(|cause| cause.contains("404")),
        "{status}"
    );
    let page = outbox_json(folder, &["list", "--state", "waiting"]);
    assert!(page["messages"][0]["delivery_count"].as_u64() > Some(0), "{page}");
    fs::write(folder.path().join("firstwrite.toml"), text).unwrap();
    outbox_json(folder, &["resume", "provider", "--reason", "the path was wrong"]);
    assert_eq!(counts(&once(folder))[0], 2);
}

fn a_secret_comes_from_the_environment(folder: &Folder) {
    let provider = folder.provider(&[]);
    leave_messages(folder, &[("order-1", Fate::Waiting)]);
    settings(folder, &provider, "headers = { authorization = 'env:PROVIDER_TOKEN' }");
    let missing = command(folder).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
    let complaint = stderr(&missing);
    assert!(
        complaint.starts_with("error: firstwrite.toml:1: destination provider: "),
        "{complaint}"
    );
    assert!(complaint.contains("PROVIDER_TOKEN"), "{complaint}");
    let there = command(folder).env("PROVIDER_TOKEN", "Bearer x").output().unwrap();
    assert_eq!(there.status.code(), Some(0), "{}", stderr(&there));
}

fn what_will_surprise_is_warned_of(folder: &Folder) {
    let provider = folder.provider(&[]);
    leave(folder, &[(message("order-1", "mailer"), Fate::Waiting)]);
    settings(folder, &provider, "dedupe_for = '1m'");
    let said = stderr(&once(folder));
    let warns =
        |words: &str| said.lines().any(|line| line.contains("WARN") && line.contains(words));
    assert!(warns("recognises its key for 1m only"), "{said}");
    assert!(warns("not configured here"), "{said}");
    settings(folder, &provider, "dedupe_for = '48h'\n[gateway.default]\nretention = '48h'");
    let said = stderr(&once(folder));
    assert!(!said.contains("recognises its key"), "{said}");
}

fn nothing_goes_to_a_paused_destination(folder: &Folder) {
    let provider = folder.provider(&[]);
    leave_messages(folder, &[("order-1", Fate::Waiting)]);
    settings(folder, &provider, "");
    outbox_json(folder, &["pause", "provider", "--reason", "r"]);
    assert_eq!(counts(&once(folder)), [0, 0, 0, 0]);
    outbox_json(folder, &["resume", "provider", "--reason", "r"]);
    assert_eq!(counts(&once(folder)), [1, 0, 0, 0]);
}
