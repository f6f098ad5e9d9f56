//! What an operator sees of messages and destinations, and what they may put back or hold up.

use serde_json::Value;

use crate::database::{on_dynamodb, on_every_store};
use crate::http::post;
use crate::messages::{Fate, leave_messages, outbox, outbox_json};
use crate::payments::ORDER;
use crate::process::{Folder, stderr, stdout};

on_every_store! {
    destinations_and_messages_are_shown,
    messages_are_found_by_what_they_are,
    a_message_is_shown_without_its_payload_unless_asked_for,
    nothing_is_put_back_without_yes,
    dead_letters_are_put_back_and_nothing_else,
    many_are_put_back_at_a_rate,
    a_destination_is_paused_and_resumed,
    looking_works_beside_a_running_service,
}

on_dynamodb! {
    destinations_and_messages_are_shown,
    messages_are_found_by_what_they_are,
    a_message_is_shown_without_its_payload_unless_asked_for,
    nothing_is_put_back_without_yes,
    dead_letters_are_put_back_and_nothing_else,
    many_are_put_back_at_a_rate,
    a_destination_is_paused_and_resumed,
    looking_works_beside_a_running_service,
}

const FATES: [(&str, Fate); 5] = [
    ("dead-1", Fate::Dead(404)),
    ("dead-2", Fate::Dead(422)),
    ("lost", Fate::Unknown),
    ("sending", Fate::Sending),
    ("waiting", Fate::Waiting),
];

fn keys(page: &Value) -> Vec<&str> {
    let messages = page["messages"].as_array().unwrap();
    messages.iter().map(|message| message["derived_key"].as_str().unwrap()).collect()
}

fn destinations_and_messages_are_shown(folder: &Folder) {
    leave_messages(folder, &FATES);
    let status = &outbox_json(folder, &["status"])["destinations"][0];
    assert_eq!(status["name"], "provider");
    let counts =
        ["open", "unknown", "dead", "delivered"].map(|name| status[name].as_i64().unwrap());
    assert_eq!(counts, [2, 1, 2, 0]);
    assert_eq!((&status["state"], &status["paused"]), (&"ready".into(), &Value::Null));
    let table = stdout(&outbox(folder, &["status"]));
    assert!(
        table.starts_with("DESTINATION  OPEN  UNKNOWN  DEAD  DELIVERED  OLDEST DUE"),
        "{table}"
    );
    assert!(table.contains("provider     2     1        2     0 "), "{table}");

    let table = stdout(&outbox(folder, &["list"]));
    assert_eq!(table.lines().count(), 6, "{table}");
    assert!(table.lines().any(|line| line.contains("dead-1:charge") && line.contains("404")));
}

fn messages_are_found_by_what_they_are(folder: &Folder) {
    leave_messages(folder, &FATES);
    for (filter, found) in [
        (&["--state", "dead"][..], &["dead-1:charge", "dead-2:charge"][..]),
        (&["--state", "unknown"], &["lost:charge"]),
        (&["--state", "sending"], &["sending:charge"]),
        (&["--state", "waiting"], &["waiting:charge"]),
        (&["--state", "delivered"], &[]),
        (&["--problem", "422"], &["dead-2:charge"]),
        (&["--problem", "refused with 404"], &["dead-1:charge"]),
        (&["--key", "waiting:charge"], &["waiting:charge"]),
        (&["--destination", "elsewhere"], &[]),
        (&["--tenant", "globex"], &[]),
    ] {
        let page = outbox_json(folder, &[&["list"], filter].concat());
        assert_eq!(keys(&page), found, "{filter:?}");
    }
    let first = outbox_json(folder, &["list", "--limit", "3"]);
    assert_eq!(first["messages"].as_array().unwrap().len(), 3);
    let next = first["next"].to_string();
    let second = outbox_json(folder, &["list", "--limit", "3", "--after", &next]);
    assert_eq!((keys(&second).len(), &second["next"]), (2, &Value::Null));
}

fn a_message_is_shown_without_its_payload_unless_asked_for(folder: &Folder) {
    leave_messages(folder, &FATES);
    let number =
        outbox_json(folder, &["list", "--problem", "404"])["messages"][0]["number"].to_string();
    let shown = outbox_json(folder, &["show", &number]);
    assert_eq!(shown["message"]["state"], "dead");
    assert_eq!(shown["deliveries"][0]["ending"], "refused");
    assert_eq!(shown["deliveries"][0]["status"], 404);
    assert_eq!(shown.get("payload"), None);
    assert_eq!(shown["is_awaited"], false);
    let text = stdout(&outbox(folder, &["show", &number]));
    assert!(text.contains("state        dead\n") && !text.contains("4990"), "{text}");
    let text = stdout(&outbox(folder, &["show", &number, "--payload"]));
    assert!(text.contains("content      {\"amount\":4990"), "{text}");

    let absent = outbox(folder, &["show", "999999"]);
    assert_eq!((absent.status.code(), stdout(&absent)), (Some(3), String::new()));
    assert_eq!(outbox_json(folder, &["show", "999999"])["message"], Value::Null);
}

fn nothing_is_put_back_without_yes(folder: &Folder) {
    leave_messages(folder, &FATES);
    let preview = outbox(folder, &["redrive", "--destination", "provider"]);
    assert_eq!(preview.status.code(), Some(0));
    assert_eq!(stdout(&preview), "dead letters that match: 2\n");
    assert!(stderr(&preview).contains("--yes"), "{}", stderr(&preview));
    let preview = outbox_json(folder, &["redrive", "--problem", "404"]);
    assert_eq!((&preview["matching"], &preview["redriven"]), (&1.into(), &0.into()));
    assert_eq!(keys(&outbox_json(folder, &["list", "--state", "dead"])).len(), 2);
}

fn dead_letters_are_put_back_and_nothing_else(folder: &Folder) {
    leave_messages(folder, &FATES);
    let back = ["redrive", "--problem", "404", "--yes", "--reason", "fixed", "--actor", "ada"];
    let done = outbox_json(folder, &back);
    assert_eq!(done["matching"], 1);
    assert_eq!((&done["redriven"], &done["is_done"]), (&1.into(), &true.into()));
    let waiting = outbox_json(folder, &["list", "--state", "waiting"]);
    assert_eq!(keys(&waiting), ["dead-1:charge", "waiting:charge"]);
    let number = waiting["messages"][0]["number"].to_string();
    let audit = &outbox_json(folder, &["show", &number])["audit"][0];
    assert_eq!((&audit["actor"], &audit["reason"]), (&"ada".into(), &"fixed".into()));

    let rest = outbox(folder, &["redrive", "--all", "--yes", "--reason", "all of them"]);
    assert!(stdout(&rest).starts_with("put back: 1 of 1"), "{}", stdout(&rest));
    assert_eq!(outbox_json(folder, &["status"])["destinations"][0]["unknown"], 1);
    let again = outbox_json(folder, &["redrive", "--all", "--yes", "--reason", "r"]);
    assert_eq!((&again["matching"], &again["redriven"]), (&0.into(), &0.into()));
}

fn many_are_put_back_at_a_rate(folder: &Folder) {
    let names: Vec<String> = (0..40).map(|number| format!("dead-{number}")).collect();
    let fates: Vec<_> = names.iter().map(|name| (name.as_str(), Fate::Dead(500))).collect();
    leave_messages(folder, &fates);
    // In batches of a quarter of a second, so there are several.
    let back = ["redrive", "--all", "--yes", "--reason", "r", "--rate", "60/s"];
    let done = outbox_json(folder, &back);
    assert_eq!((&done["redriven"], &done["is_done"]), (&40.into(), &true.into()));
    let status = &outbox_json(folder, &["status"])["destinations"][0];
    assert_eq!((&status["open"], &status["dead"]), (&40.into(), &0.into()));
}

fn a_destination_is_paused_and_resumed(folder: &Folder) {
    leave_messages(folder, &FATES);
    let paused = outbox(folder, &["pause", "provider", "--reason", "too slow", "--actor", "ada"]);
    assert_eq!((paused.status.code(), stdout(&paused)), (Some(0), "paused: provider\n".to_owned()));
    let status = &outbox_json(folder, &["status"])["destinations"][0];
    assert_eq!(
        (&status["state"], &status["paused"]["reason"]),
        (&"paused".into(), &"too slow".into())
    );
    let table = stdout(&outbox(folder, &["status"]));
    assert!(table.contains("by ada: too slow"), "{table}");

    let resumed = outbox_json(folder, &["resume", "provider", "--reason", "fast again"]);
    assert_eq!((&resumed["result"], &resumed["was_known"]), (&"resumed".into(), &true.into()));
    assert_eq!(outbox_json(folder, &["status"])["destinations"][0]["state"], "ready");
    let mistyped = outbox(folder, &["pause", "provdier", "--reason", "r"]);
    assert!(stderr(&mistyped).contains("check its name"), "{}", stderr(&mistyped));
}

fn looking_works_beside_a_running_service(folder: &Folder) {
    let demo = folder.demo(&[]);
    assert_eq!(demo.answer(&post("/payments", ORDER).acme().key("order-1")).status, 201);
    let page = outbox_json(folder, &["list", "--state", "delivered"]);
    assert_eq!(keys(&page), ["order-1:charge"]);
    assert_eq!(outbox_json(folder, &["redrive", "--all"])["matching"], 0);
    assert_eq!(outbox_json(folder, &["status"])["destinations"][0]["name"], "provider");
}

#[test]
fn changing_something_is_refused_while_a_service_runs() {
    let folder = Folder::new();
    let _demo = folder.demo(&[]);
    for command in [
        &["redrive", "--all", "--yes", "--reason", "r"][..],
        &["pause", "provider", "--reason", "r"],
        &["settle", "1", "--drop", "--reason", "r"],
    ] {
        let refused = outbox(&folder, command);
        assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
        assert!(stderr(&refused).contains("another firstwrite process"), "{}", stderr(&refused));
    }
}
