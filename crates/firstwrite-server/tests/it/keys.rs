//! What an operator sees of a store, and what they may say about it.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::database::on_every_store;
use crate::http::post;
use crate::open_records::{json, keys, leave_open_records, on_terminal};
use crate::payments::ORDER;
use crate::process::{Folder, firstwrite, stderr, stdout};
use crate::scene::{Scene, pay};
use crate::upstream::{Upstream, answer};

on_every_store! {
    records_are_listed_beside_a_running_service,
    a_record_is_shown_without_its_body_unless_asked_for,
    a_key_that_was_never_used_is_absent,
    a_record_is_found_by_its_id_and_by_its_key_alone,
    an_uncertain_record_says_why_and_by_what_key_to_ask,
    the_gateway_s_file_says_by_what_key_to_ask,
    an_uncertain_key_is_released_with_an_audit_entry,
    a_completed_record_is_never_released,
    ; postgres:
    a_held_key_is_released_by_force_only,
}

fn records_are_listed_beside_a_running_service(folder: &Folder) {
    let demo = folder.demo(&[]);
    demo.answer(&post("/payments", ORDER).acme().key("order-1"));
    demo.answer(&post("/payments", ORDER).globex().key("order-2"));
    let table = stdout(&keys(folder, &["list", "--tenant", "acme"]));
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    assert_eq!(lines[0], ["TENANT", "KEY", "STATE", "OPERATION", "STATUS", "AGE", "EXPIRES"]);
    assert_eq!(lines[1][..5], ["acme", "order-1", "completed", "POST /payments", "201"]);
    assert!(lines[1][6].starts_with("in 23h"), "{table}");
    assert_eq!(lines.len(), 2);

    let all = json(folder, &["list"]);
    assert_eq!(all["records"].as_array().unwrap().len(), 2);
    assert_eq!(all["next"], Value::Null);
    let first = json(folder, &["list", "--limit", "1"]);
    let next = first["next"].as_str().unwrap();
    let second = json(folder, &["list", "--limit", "1", "--after", next]);
    assert_ne!(first["records"][0]["key"], second["records"][0]["key"]);
    assert_eq!(second["next"], Value::Null);
    assert_eq!(json(folder, &["list", "--state", "uncertain"])["records"], Value::Array(vec![]));
    // The service did not mind.
    assert_eq!(demo.answer(&post("/payments", ORDER).acme().key("order-3")).status, 201);
}

fn a_record_is_shown_without_its_body_unless_asked_for(folder: &Folder) {
    let demo = folder.demo(&[]);
    let made = demo.answer(&post("/payments", ORDER).acme().key("order-1"));
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let shown = stdout(&keys(folder, &["show", "acme", "order-1"]));
    assert!(shown.contains("state       completed\n"), "{shown}");
    assert!(shown.contains(&format!("header      location: /payments/{id}\n")), "{shown}");
    assert!(!shown.contains("cus_1"), "{shown}");
    let with_body = stdout(&keys(folder, &["show", "acme", "order-1", "--body"]));
    assert!(with_body.contains("cus_1"), "{with_body}");

    let document = json(folder, &["show", "acme", "order-1"]);
    assert_eq!(document["record"]["state"], "completed");
    assert_eq!(document["outcome"]["status"], 201);
    assert_eq!(document["outcome"]["body_bytes"], made.body.len());
    assert_eq!(document["outcome"].get("body"), None);
    let document = json(folder, &["show", "acme", "order-1", "--body"]);
    assert_eq!(document["outcome"]["body"], String::from_utf8(made.body).unwrap());
}

fn a_key_that_was_never_used_is_absent(folder: &Folder) {
    drop(folder.demo(&[]));
    let shown = keys(folder, &["show", "acme", "nothing"]);
    assert_eq!((shown.status.code(), stdout(&shown)), (Some(3), String::new()));
    assert_eq!(json(folder, &["show", "acme", "nothing"])["record"], Value::Null);
    let released = keys(folder, &["release", "acme", "nothing", "--reason", "mistake", "--yes"]);
    assert_eq!(released.status.code(), Some(3));
    assert!(stderr(&released).contains("nothing stands under this key"));
}

#[test]
fn a_store_that_is_not_there_is_not_created() {
    let folder = Folder::new();
    for arguments in [&["list"][..], &["release", "acme", "k", "--reason", "r", "--yes"]] {
        let failed = keys(&folder, arguments);
        assert_eq!(failed.status.code(), Some(1));
        assert_eq!(stderr(&failed).lines().count(), 1);
        assert!(stderr(&failed).contains("there is no file"), "{}", stderr(&failed));
    }
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
}

#[test]
fn releasing_is_refused_while_a_service_runs() {
    let folder = Folder::new();
    let demo = folder.demo(&[]);
    demo.answer(&post("/payments", ORDER).acme().key("order-1"));
    let refused = keys(&folder, &["release", "acme", "order-1", "--reason", "test", "--yes"]);
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    assert_eq!(stderr(&refused).lines().count(), 1);
    assert!(stderr(&refused).contains("another firstwrite process"), "{}", stderr(&refused));
}

fn an_uncertain_key_is_released_with_an_audit_entry(folder: &Folder) {
    leave_open_records(folder);
    let uncertain = json(folder, &["list", "--state", "uncertain"]);
    assert_eq!(uncertain["records"][0]["key"], "lost");
    let release =
        ["release", "acme", "lost", "--reason", "provider says no", "--actor", "ada", "--yes"];
    let refused = keys(folder, &release);
    assert_eq!(refused.status.code(), Some(5), "what was sent may still be under way");
    assert!(stderr(&refused).contains("--force"), "{}", stderr(&refused));
    assert_eq!(json(folder, &release)["result"], "too-soon");
    let released = keys(folder, &[&release[..], &["--force"]].concat());
    assert_eq!(released.status.code(), Some(0), "{}", stderr(&released));
    assert!(stdout(&released).starts_with("released"));

    let shown = json(folder, &["show", "acme", "lost"]);
    assert_eq!(shown["record"]["state"], "released", "a note for clients that poll");
    assert_eq!(shown["audit"][1]["actor"], "ada");
    assert_eq!(shown["audit"][1]["action"], "release");
    assert_eq!(shown["audit"][1]["reason"], "provider says no");
    let table = stdout(&keys(folder, &["show", "acme", "lost"]));
    assert!(table.contains("release by ada: provider says no"), "{table}");
    assert_eq!(json(folder, &release)["result"], "absent");
}

fn a_held_key_is_released_by_force_only(folder: &Folder) {
    leave_open_records(folder);
    let release = ["release", "acme", "held", "--reason", "its host is gone", "--yes"];
    let refused = keys(folder, &release);
    assert_eq!(refused.status.code(), Some(5));
    assert!(stderr(&refused).contains("--force"), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("for 59m") || stderr(&refused).contains("for 1h"));
    assert_eq!(json(folder, &release)["result"], "held");
    let forced = keys(folder, &[&release[..], &["--force"]].concat());
    assert_eq!(forced.status.code(), Some(0), "{}", stderr(&forced));
    assert_eq!(keys(folder, &release).status.code(), Some(3));
}

/// Whoever may write to the file knows that no other process does.
#[test]
fn a_key_that_was_held_in_an_sqlite_file_is_nobodys_once_it_can_be_written_to() {
    let folder = Folder::new();
    leave_open_records(&folder);
    let release = ["release", "acme", "held", "--reason", "its host is gone", "--yes"];
    assert_eq!(json(&folder, &release)["result"], "too-soon", "and not held");
    let released = keys(&folder, &[&release[..], &["--force"]].concat());
    assert_eq!(released.status.code(), Some(0), "{}", stderr(&released));
    assert_eq!(keys(&folder, &release).status.code(), Some(3));
}

fn a_completed_record_is_never_released(folder: &Folder) {
    let demo = folder.demo(&[]);
    let first = demo.answer(&post("/payments", ORDER).acme().key("order-1"));
    demo.kill();
    let release = ["release", "acme", "order-1", "--reason", "try", "--force", "--yes"];
    let refused = keys(folder, &release);
    assert_eq!(refused.status.code(), Some(4));
    assert!(stderr(&refused).contains("its outcome never changes"));
    let demo = folder.demo(&[]);
    let again = demo.answer(&post("/payments", ORDER).acme().key("order-1"));
    assert_eq!((again.is_replay(), &again.body), (true, &first.body));
}

fn a_record_is_found_by_its_id_and_by_its_key_alone(folder: &Folder) {
    let demo = folder.demo(&[]);
    demo.answer(&post("/payments", ORDER).acme().key("order-1"));
    demo.answer(&post("/payments", ORDER).globex().key("order-1"));
    demo.answer(&post("/payments", ORDER).globex().key("order-2"));
    let both = json(folder, &["show", "order-1"]);
    let mut tenants: Vec<&str> = both["found"]
        .as_array()
        .unwrap()
        .iter()
        .map(|story| story["record"]["tenant"].as_str().unwrap())
        .collect();
    tenants.sort_unstable();
    assert_eq!(tenants, ["acme", "globex"]);
    let id = both["found"][0]["record"]["record_id"].as_str().unwrap();
    let by_id = json(folder, &["show", id]);
    assert_eq!(by_id["found"].as_array().unwrap().len(), 1);
    assert_eq!(by_id["found"][0]["record"]["record_id"], id);
    let shown = stdout(&keys(folder, &["show", id]));
    assert!(shown.contains("key         order-1\n"), "{shown}");
    let absent = keys(folder, &["show", &"0".repeat(32)]);
    assert_eq!(absent.status.code(), Some(3), "{}", stderr(&absent));
}

fn an_uncertain_record_says_why_and_by_what_key_to_ask(folder: &Folder) {
    leave_open_records(folder);
    let shown = json(folder, &["show", "acme", "lost"]);
    assert_eq!(shown["uncertain_because"], "no answer");
    assert!(shown["record"]["uncertain_since"].is_string(), "{shown}");
    let id = shown["record"]["record_id"].as_str().unwrap();
    let derived = format!("lost:forward:{}", &id[..16]);
    let keys_of = serde_json::json!([
        { "forward_key": "derived", "key": derived },
        { "forward_key": "original", "key": "lost" },
        { "forward_key": "nothing", "key": null },
    ]);
    assert_eq!(shown["upstream_keys"], keys_of, "the record does not know the setting");
    assert_eq!(shown.get("upstream_key"), None, "{shown}");
    let line = format!(
        "upstream    {derived} (forward_key = \"derived\", the default), or lost (forward_key = \
         \"original\"), or no key (forward_key = \"nothing\"); --config with the gateway's file tells which\n"
    );
    let release = ["release", "acme", "lost", "--reason", "r", "--force"];
    let settle = ["settle", "acme", "lost", "--reason", "r", "--status", "201"];
    let shown = stdout(&keys(folder, &["show", "acme", "lost"]));
    assert!(shown.contains("because     no answer\n"), "{shown}");
    let previews = [&release[..], &settle].map(|command| stderr(&keys(folder, command)));
    for told in previews.iter().chain([&shown]) {
        assert!(told.contains(&line), "{told}");
    }
}

fn the_gateway_s_file_says_by_what_key_to_ask(folder: &Folder) {
    leave_open_records(folder);
    let id = json(folder, &["show", "acme", "lost"])["record"]["record_id"].clone();
    let derived = format!("lost:forward:{}", &id.as_str().unwrap()[..16]);
    let with_key = |key: &str| format!("a gateway with this file passes on the key {key}\n");
    let without_key = "a gateway with this file passes no key on; find the effect by what the request asked \
                       for\n";
    for (setting, key, words) in [
        ("", Some(&*derived), with_key(&derived)),
        ("forward_key = 'derived'", Some(&*derived), with_key(&derived)),
        ("forward_key = 'original'", Some("lost"), with_key("lost")),
        ("forward_key = 'nothing'", None, without_key.to_owned()),
    ] {
        fs::write(folder.path().join("f.toml"), format!("[gateway]\n{setting}\n")).unwrap();
        let shown = json(folder, &["show", "acme", "lost", "--config", "f.toml"]);
        let upstream_keys = shown["upstream_keys"].as_array().unwrap();
        assert_eq!(upstream_keys.len(), 1, "{shown}");
        assert_eq!(upstream_keys[0]["key"].as_str(), key, "{shown}");
        let line = format!("upstream    {words}");
        let release = ["release", "acme", "lost", "--reason", "r", "--force", "--config", "f.toml"];
        let settle =
            ["settle", "acme", "lost", "--reason", "r", "--status", "201", "--config", "f.toml"];
        let shown = stdout(&keys(folder, &["show", "lost", "--config", "f.toml"]));
        let previews = [&release[..], &settle].map(|command| stderr(&keys(folder, command)));
        for told in previews.iter().chain([&shown]) {
            assert!(told.contains(&line), "{setting}: {told}");
        }
    }
    fs::write(folder.path().join("f.toml"), "log = 'warn'\n").unwrap();
    let shown = json(folder, &["show", "acme", "lost", "--config", "f.toml"]);
    assert_eq!(
        shown["upstream_keys"].as_array().unwrap().len(),
        3,
        "not a gateway's file: {shown}"
    );
}

/// Without a file, the store says it, as long as it remembers one service.
#[test]
fn the_store_says_by_what_key_to_ask() {
    for setting in ["derived", "original", "nothing"] {
        let folder = Folder::new();
        let lost = Upstream::answering(|_| answer("502 Bad Gateway", "", b""));
        let scene = Scene::before(&folder, lost, &format!("forward_key = '{setting}'\n"));
        let gateway = scene.gateway();
        assert_ne!(gateway.answer(&pay("order-1")).status, 201);
        gateway.terminate();
        assert!(gateway.end().success());
        let shown = json(&folder, &["show", "order-1"]);
        let upstream_keys = shown["found"][0]["upstream_keys"].as_array().unwrap();
        assert_eq!(upstream_keys.len(), 1, "{shown}");
        assert_eq!(upstream_keys[0]["forward_key"], setting, "{shown}");
        let told = stdout(&keys(&folder, &["show", "order-1"]));
        assert!(
            told.contains("upstream    the gateway that this store remembers passes "),
            "{told}"
        );
    }
}

/// The API's own books are asked by the key that it was sent.
#[test]
fn the_key_to_ask_by_is_the_one_that_the_api_saw() {
    for setting in ["derived", "original", "nothing"] {
        let folder = Folder::new();
        let lost = Upstream::answering(|_| answer("502 Bad Gateway", "", b""));
        let scene = Scene::before(&folder, lost, &format!("forward_key = '{setting}'\n"));
        let gateway = scene.gateway();
        assert_ne!(gateway.answer(&pay("order-1")).status, 201);
        let shown = json(&folder, &["show", "order-1", "--config", "gateway.toml"]);
        let upstream_key = &shown["found"][0]["upstream_keys"][0];
        assert_eq!(upstream_key["forward_key"], setting, "{shown}");
        let key = upstream_key["key"].as_str().unwrap_or_default();
        let seen = &scene.upstream.effects()[0].key;
        assert_eq!(seen.trim_matches('"'), key, "{shown}");
    }
}

#[test]
fn a_record_is_shown_with_its_messages_and_their_deliveries() {
    let folder = Folder::new();
    let demo = folder.demo(&[]);
    let made = demo.answer(&post("/payments", ORDER).acme().key("order-1"));
    demo.settled(made.json()["id"].as_str().unwrap());
    let shown = json(&folder, &["show", "acme", "order-1"]);
    let message = &shown["messages"][0];
    assert_eq!(message["state"], "delivered", "{shown}");
    assert_eq!(message["delivery_count"], 1, "{shown}");
    assert_eq!(message["deliveries"][0]["ending"], "delivered", "{shown}");
    let wire_key = message["wire_key"].as_str().unwrap();
    assert!(wire_key.starts_with("order-1:"), "{wire_key}");
    let table = stdout(&keys(&folder, &["show", "acme", "order-1"]));
    assert!(table.contains(&format!("sent as {wire_key}")), "{table}");
    assert!(table.contains("  delivery  "), "{table}");
}

#[test]
fn a_list_fits_on_the_terminal_and_is_whole_elsewhere() {
    let folder = Folder::new();
    let demo = folder.demo(&[]);
    let long = "k".repeat(255);
    demo.answer(&post("/payments", ORDER).acme().key(&long));
    demo.kill();
    let shown = on_terminal(&folder, 100, &["list"], "");
    assert!(shown.lines().all(|line| line.trim_end().chars().count() <= 100), "{shown}");
    assert!(shown.contains("kkk…") && shown.contains("POST /payments"), "{shown}");
    assert!(stdout(&keys(&folder, &["list"])).contains(&long));
}

#[test]
fn an_audit_entry_names_the_system_s_user() {
    let folder = Folder::new();
    leave_open_records(&folder);
    let release = ["release", "acme", "lost", "--reason", "r", "--force", "--yes"];
    let mut command = firstwrite(&folder);
    command.args(["keys", "--store", folder.store()]).args(release);
    command.env_remove("USER").env_remove("SUDO_USER");
    assert!(command.output().unwrap().status.success());
    let user = Command::new("id").arg("--user").arg("--name").output().unwrap();
    let shown = json(&folder, &["show", "acme", "lost"]);
    assert_eq!(shown["audit"][1]["actor"], stdout(&user).trim(), "{shown}");
}
