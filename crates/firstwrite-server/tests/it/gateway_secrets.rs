//! What a stolen store tells of requests: nothing where a secret keys their fingerprints, and with rotation
//! nothing is taken for another request.

use std::fs;
use std::net::SocketAddr;

use axum::http::{HeaderMap, HeaderValue, Method};
use firstwrite_core::{Fingerprint, FingerprintRules, Key, Parts, RecordId, Tenant};
use firstwrite_store::Access;
use serde_json::{Value, json};

use crate::gateway_sinks::SEALING;
use crate::gateway_telemetry::{ANYBODY, Api, gateway};
use crate::http::post;
use crate::process::{Demo, Folder};

/// A gateway with these settings.
fn started(folder: &Folder, api: &Api, top: &str, gateway_lines: &str) -> (Demo, SocketAddr) {
    write(folder, api, top, gateway_lines);
    gateway(folder, &["--config", "secrets.toml"])
}

fn write(folder: &Folder, api: &Api, top: &str, gateway_lines: &str) {
    let file = format!(
        "{top}[gateway]\n{ANYBODY}\noperator = '127.0.0.1:0'\nupstreams = ['http://{}']\n{gateway_lines}",
        api.address
    );
    fs::write(folder.path().join("secrets.toml"), file).unwrap();
}

/// The card that is paid with, of which a thief knows the rest from a receipt.
fn payment(cvc: &str, expiry: &str, amount: u32) -> Value {
    let card = json!({"number": "4012888888881881", "cvc": cvc, "exp": expiry});
    json!({"card": card, "amount": amount, "currency": "EUR"})
}

/// The row of the payment, as whoever has a copy of the database sees it.
fn stolen(folder: &Folder) -> (RecordId, Fingerprint) {
    let url = format!("sqlite:{}", folder.path().join("demo.db").display());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = firstwrite_store::open(&url, Access::ReadOnly).await.unwrap();
        let (tenant, key) = (Tenant::new("anonymous").unwrap(), Key::new("card-77").unwrap());
        let id = RecordId::of(&tenant, &key);
        (id, store.get(id).await.unwrap().expect("it was paid").record.fingerprint)
    })
}

/// The fingerprint that a guess has without a secret.
fn guess(id: &RecordId, body: &Value) -> Fingerprint {
    let headers = HeaderMap::from_iter([(
        axum::http::header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    )]);
    let body = body.to_string();
    let parts = Parts {
        method: &Method::POST,
        authority: "api",
        path: "/pay",
        query: None,
        headers: &headers,
        body: body.as_bytes(),
    };
    let rules = FingerprintRules { explain: true, ..FingerprintRules::default() };
    Fingerprint::of(&parts, &rules, None, id)
}

/// Searches each member by its own digest, and then what is left together; what the thief finds.
fn cracked(id: &RecordId, row: &Fingerprint) -> Option<Value> {
    let known: Vec<&[u8]> = row.parts().as_bytes().chunks(2).collect();
    // A leaf's digest is the last of a body that has only that leaf.
    let fits = |body: &Value| {
        let parts = guess(id, body);
        known.contains(&parts.parts().as_bytes().chunks(2).next_back().unwrap())
    };
    let codes: Vec<String> = (0..1000)
        .map(|code| format!("{code:03}"))
        .filter(|code| fits(&json!({"card": {"cvc": code}})))
        .collect();
    let expiries: Vec<String> = (1..=12)
        .flat_map(|month| (26..=31).map(move |year| format!("{month:02}/{year}")))
        .filter(|expiry| fits(&json!({"card": {"exp": expiry}})))
        .collect();
    let amounts: Vec<u32> = (1..2000).filter(|amount| fits(&json!({"amount": amount}))).collect();
    for code in &codes {
        for expiry in &expiries {
            for amount in &amounts {
                let whole = payment(code, expiry, *amount);
                if guess(id, &whole).digest() == row.digest() {
                    return Some(whole);
                }
            }
        }
    }
    None
}

#[test]
fn a_card_is_not_found_in_a_copy_of_the_store() {
    let secret = "fingerprint_secrets = ['0123456789abcdef-of-this-test']\n";
    let explain = "default.fingerprint.explain = true\n";
    let paid = payment("739", "11/28", 1299);
    for (top, lines, expected) in [
        // So is seen that the thief knows the trade.
        ("", explain, Some(&paid)),
        ("", "", None),
        ("", secret, None),
        (SEALING, "", None),
        (SEALING, explain, None),
    ] {
        let (folder, api) = (Folder::new(), Api::start());
        let (gateway, _operator) = started(&folder, &api, top, lines);
        let request = post("/pay", &paid.to_string()).key("card-77").header("Host", "api");
        assert_eq!(gateway.answer(&request).status, 201);
        gateway.terminate();
        assert!(gateway.end().success());
        let (id, row) = stolen(&folder);
        assert_eq!(cracked(&id, &row).as_ref(), expected, "{top}{lines}");
        let is_keyed = row.secret().is_some();
        assert_eq!(is_keyed, top == SEALING || lines == secret, "{top}{lines}");
        // Though every guess is right, none can be seen to be.
        assert_eq!(guess(&id, &paid).digest() == row.digest(), !is_keyed, "{top}{lines}");
    }
}

#[test]
fn a_secret_is_rotated_by_a_reload_without_a_false_mismatch() {
    let (folder, api) = (Folder::new(), Api::start());
    let secrets = |names: &[&str]| {
        let list: Vec<String> =
            names.iter().map(|name| format!("'{name}-of-sixteen-bytes'")).collect();
        format!("fingerprint_secrets = [{}]\n", list.join(", "))
    };
    let (gateway, _operator) = started(&folder, &api, "", &secrets(&["one"]));
    let first = post("/pay", "{\"amount\":1}").key("k");
    let other = post("/pay", "{\"amount\":2}").key("k");
    assert_eq!(gateway.answer(&first).status, 201);
    // Beside each reload another operation is left open, so that one sees when it holds.
    let reload = |names: &[&str], mark: &str| {
        let lines = format!(
            "{}[[gateway.operations]]\noperation = 'POST /{mark}'\nunprotected = 'a mark'\n",
            secrets(names)
        );
        write(&folder, &api, "", &lines);
        gateway.signal("-HUP");
        let marked = post(&format!("/{mark}"), "{}");
        gateway.answer_when(&marked, |answer| answer.status == 201);
    };
    reload(&["two", "one"], "rotated");
    assert!(gateway.answer(&first).is_replay());
    let refused = gateway.answer(&other);
    assert_eq!((refused.status, refused.problem().as_str()), (422, "key-reused"));
    let document: Value = serde_json::from_slice(&refused.body).unwrap();
    assert_eq!(document["differing"], json!(["/amount"]));
    reload(&["two"], "gone");
    for request in [&first, &other] {
        let answer = gateway.answer(request);
        assert_eq!((answer.status, answer.problem().as_str()), (503, "store-unavailable"));
    }
    reload(&["two", "one"], "back");
    assert!(gateway.answer(&first).is_replay());
}

#[test]
fn a_header_that_may_tell_and_does_not_count_is_named_once() {
    let (folder, api) = (Folder::new(), Api::start());
    let (gateway, _operator) = started(&folder, &api, "", "");
    for key in ["a", "b"] {
        let request = post("/pay", "{}").key(key).header("Stripe-Account", "acct_1");
        assert_eq!(gateway.answer(&request).status, 201);
    }
    gateway.terminate();
    assert!(gateway.end().success());
    let log = fs::read_to_string(folder.path().join("gateway.log")).unwrap();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("stripe-account")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("fingerprint.headers") && !log.contains("acct_1"), "{log}");
}
