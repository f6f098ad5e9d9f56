//! What a tenant may have in the store, with a gateway that is a process and a store that is a real one.

use std::net::SocketAddr;

use crate::database::{on_dynamodb, on_every_store, on_redis};
use crate::gateway_telemetry::{ANYBODY, Api, gateway};
use crate::http::{Request, Response, get, post};
use crate::process::{Demo, Folder, stderr};

on_every_store! {
    a_tenant_at_its_cap_gets_no_new_key_and_all_its_answers,
    what_stands_is_counted_by_whoever_starts_next,
    bytes_are_a_limit_too,
}

// Not those that are at a cap at once: a first count takes some round trips there, and until it is over too little is
// known.
on_redis! {
    what_stands_is_counted_by_whoever_starts_next,
}

on_dynamodb! {
    what_stands_is_counted_by_whoever_starts_next,
}

fn pay(who: &str, key: &str) -> Request {
    let credentials = format!("Bearer {who}");
    post("/pay", "{}").key(key).header("Authorization", &credentials).header("Host", "api.example")
}

/// A gateway with these limits, and where its operator listens.
fn limited(folder: &Folder, api: &Api, limits: &str) -> (Demo, SocketAddr) {
    let file = format!(
        "[gateway]\n{ANYBODY}\noperator = '127.0.0.1:0'\nupstreams = ['http://{}']\n[gateway.limits]\n{limits}",
        api.address
    );
    std::fs::write(folder.path().join("limits.toml"), file).unwrap();
    gateway(folder, &["--config", "limits.toml"])
}

fn statuses(gateway: &Demo, who: &str, keys: &[&str]) -> Vec<u16> {
    keys.iter().map(|key| gateway.answer(&pay(who, key)).status).collect()
}

/// Enough for half a minute, on a machine that answers within a millisecond.
const ASKED_MAX: usize = 30_000;

/// Waits until so many keys were counted.
fn counted(operator: SocketAddr, wanted: u64) {
    let mut text = String::new();
    for _ in 0..ASKED_MAX {
        let answer: Response = get("/metrics").send(operator).unwrap();
        text = String::from_utf8(answer.body).unwrap();
        let lines = text.lines().filter(|line| line.starts_with("firstwrite_active_keys{"));
        let counts = lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
        if counts.sum::<u64>() == wanted {
            return;
        }
    }
    panic!("{wanted} keys were never counted:\n{text}");
}

fn a_tenant_at_its_cap_gets_no_new_key_and_all_its_answers(folder: &Folder) {
    let api = Api::start();
    let (gateway, _operator) = limited(folder, &api, "active_keys_max = 2\n");
    assert_eq!(statuses(&gateway, "a", &["1", "2", "3", "1", "2"]), [201, 201, 429, 201, 201]);
    let refused = gateway.answer(&pay("a", "3"));
    assert_eq!(refused.problem(), "rate-limited");
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1, "{refused:?}");
    assert!(gateway.answer(&pay("a", "1")).is_replay());
    let other = post("/pay", "[]").key("1").header("Authorization", "Bearer a");
    assert_eq!(gateway.answer(&other).status, 422);
    assert_eq!(statuses(&gateway, "b", &["1", "2", "3"]), [201, 201, 429]);
    assert_eq!(api.asked(), 4);
}

fn what_stands_is_counted_by_whoever_starts_next(folder: &Folder) {
    let api = Api::start();
    let (former, _operator) = limited(folder, &api, "active_keys_max = 10\n");
    assert_eq!(statuses(&former, "a", &["1", "2", "3"]), [201, 201, 201]);
    assert_eq!(statuses(&former, "b", &["1"]), [201]);
    former.terminate();
    assert!(former.end().success());
    let (gateway, operator) = limited(folder, &api, "active_keys_max = 3\ncount_every = '1s'\n");
    counted(operator, 4);
    assert_eq!(statuses(&gateway, "a", &["4", "1", "2", "3"]), [429, 201, 201, 201]);
    assert_eq!(statuses(&gateway, "b", &["2", "3", "4"]), [201, 201, 429]);
}

fn bytes_are_a_limit_too(folder: &Folder) {
    let api = Api::start();
    let limits = "stored_bytes_max = 100\ncount_every = '1s'\n\
                  [gateway.limits.tenants.anonymous]\nstored_bytes_max = 1000000\n";
    let (gateway, operator) = limited(folder, &api, limits);
    // An answer repeats what was sent, which is more.
    assert_eq!(statuses(&gateway, "a", &["1", "2", "1"]), [201, 429, 201]);
    let refused = gateway.answer(&pay("a", "2"));
    assert!(String::from_utf8_lossy(&refused.body).contains("bytes"), "{refused:?}");
    counted(operator, 1);
    assert_eq!(statuses(&gateway, "a", &["2", "1"]), [429, 201], "the store says the same");
    for key in ["1", "2", "3", "4"] {
        let anonymous = post("/pay", "{}").key(key);
        assert_eq!(gateway.answer(&anonymous).status, 201, "who is named has a limit of its own");
    }
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    let folder = Folder::new();
    for (limits, word) in [
        ("active_keys_max = -1\n", "limits.toml:4"),
        ("[gateway.limits.tenants.acme]\ncount_every = '1m'\n", "not for acme alone"),
    ] {
        let file =
            format!("[gateway]\nupstreams = ['http://127.0.0.1:9']\n[gateway.limits]\n{limits}");
        std::fs::write(folder.path().join("limits.toml"), file).unwrap();
        let refused = folder.refuse(&["gateway", "--tenants", "single", "--config", "limits.toml"]);
        assert!(stderr(&refused).contains(word), "{limits}: {}", stderr(&refused));
    }
}
