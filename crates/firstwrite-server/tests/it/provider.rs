//! The provider that misbehaves, from outside.

use serde_json::json;

use crate::http::{get, post};
use crate::process::Folder;

const WANTED: &str = r#"{"amount":4990,"currency":"EUR","reference":"order-1"}"#;

#[test]
fn it_pays_once_for_a_key_and_keeps_a_ledger() {
    let folder = Folder::new();
    let provider = folder.provider(&[]);
    let pay = || post("/v1/payments", WANTED).key("k");
    let first = provider.answer(&pay());
    assert_eq!((first.status, provider.answer(&pay()).body), (201, first.body));
    provider.terminate();
    assert!(provider.end().success());
    assert_eq!(folder.provider_payments("provider.jsonl").len(), 1);
}

#[test]
fn its_flags_are_its_behaviour() {
    let folder = Folder::new();
    let provider = folder.provider(&[
        "--keys",
        "forget=1h",
        "--delay",
        "1ms",
        "--fail-before-effect",
        "every=4",
        "--fail-after-effect",
        "0.5",
        "--lose-answers",
        "first=2",
        "--rate-limit",
        "7",
        "--webhook-url",
        "http://127.0.0.1:9/",
        "--webhook-duplicates",
        "2",
        "--webhook-out-of-order",
        "3",
        "--seed",
        "5",
    ]);
    let behaviour = provider.answer(&get("/control")).json();
    assert_eq!(behaviour["keys"], json!({"forget_after": "1h"}));
    assert_eq!(behaviour["delay"]["before_effect"], "1ms");
    assert_eq!(behaviour["fail_before_effect"], json!({"every": 4}));
    assert_eq!(behaviour["fail_after_effect"], json!({"probability": 0.5}));
    assert_eq!(behaviour["lose_answers"], json!({"first": 2}));
    assert_eq!(behaviour["requests_per_second"], 7);
    assert_eq!(behaviour["webhooks"]["url"], "http://127.0.0.1:9/");
    assert_eq!(behaviour["webhooks"]["duplicates"], 2);
    assert_eq!(behaviour["webhooks"]["out_of_order"], 3);
    assert_eq!(behaviour["webhooks"].get("secret"), None);
}

#[test]
fn it_can_be_told_to_behave_otherwise() {
    let folder = Folder::new();
    let mut provider = folder.provider(&[]);
    let printed = provider.lines_until(|line| line.starts_with("Stop:"));
    assert!(printed.iter().any(|line| line.contains("PUT") && line.contains("/control")));
    let told = provider.answer(&post("/control", r#"{"lose_answers":"always"}"#).method("PUT"));
    assert_eq!(told.status, 200);
    assert!(post("/v1/payments", WANTED).key("k").send(provider.address).is_none());
    assert_eq!(folder.provider_payments("provider.jsonl").len(), 1);
}

#[test]
fn two_do_not_share_a_ledger() {
    let folder = Folder::new();
    let _provider = folder.provider(&[]);
    let listen = ["demo-provider", "--listen", "127.0.0.1:0", "--ledger", "provider.jsonl"];
    let refused = folder.refuse(&listen);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(crate::process::stderr(&refused).lines().count(), 1);
}
