//! Saying what became of a message, on an operator's word.

use serde_json::Value;

use crate::database::{on_dynamodb, on_every_store};
use crate::http::post;
use crate::messages::{Fate, awaited, leave, leave_messages, outbox, outbox_json};
use crate::open_records::json;
use crate::payments::ORDER;
use crate::process::{Folder, stderr, stdout};

on_every_store! {
    what_arrived_is_not_sent_again,
    what_did_not_arrive_is_sent_again,
    what_is_dropped_is_never_sent,
    a_doubt_is_listed_and_outlives_a_drop,
    what_cannot_be_settled_says_why,
    the_client_gets_its_final_answer,
    an_awaited_id_must_be_given,
    a_client_that_waits_is_told_before_its_message_goes,
}

on_dynamodb! {
    what_arrived_is_not_sent_again,
    what_did_not_arrive_is_sent_again,
    what_is_dropped_is_never_sent,
    a_doubt_is_listed_and_outlives_a_drop,
    what_cannot_be_settled_says_why,
    the_client_gets_its_final_answer,
    an_awaited_id_must_be_given,
    a_client_that_waits_is_told_before_its_message_goes,
}

/// The number of the only message in `state`.
fn only(folder: &Folder, state: &str) -> String {
    let page = outbox_json(folder, &["list", "--state", state]);
    assert_eq!(page["messages"].as_array().unwrap().len(), 1, "{page}");
    page["messages"][0]["number"].to_string()
}

fn settle(folder: &Folder, number: &str, more: &[&str]) -> Value {
    outbox_json(folder, &[&["settle", number, "--reason", "seen", "--actor", "ada"], more].concat())
}

fn what_arrived_is_not_sent_again(folder: &Folder) {
    leave_messages(folder, &[("lost", Fate::Unknown)]);
    let number = only(folder, "unknown");
    let done = settle(folder, &number, &["--delivered", "--provider-id", "ch_7"]);
    assert_eq!(done["result"], "delivered");
    let shown = outbox_json(folder, &["show", &number]);
    assert_eq!(shown["message"]["state"], "delivered");
    assert_eq!(shown["message"]["provider_id"], "ch_7");
    let audit = shown["audit"].as_array().unwrap().last().unwrap();
    assert_eq!((&audit["actor"], &audit["reason"]), (&"ada".into(), &"seen".into()));
    let again = outbox(folder, &["settle", &number, "--drop", "--reason", "r"]);
    assert_eq!(again.status.code(), Some(4), "{}", stderr(&again));
}

fn what_did_not_arrive_is_sent_again(folder: &Folder) {
    leave_messages(folder, &[("lost", Fate::Unknown)]);
    let number = only(folder, "unknown");
    // What was sent a moment ago may still be under way.
    for absent in ["--not-delivered", "--refused"] {
        let early = outbox(folder, &["settle", &number, absent, "--reason", "r"]);
        assert_eq!(early.status.code(), Some(5), "{}", stdout(&early));
        assert!(stderr(&early).contains("look again an hour"), "{}", stderr(&early));
    }
    assert_eq!(settle(folder, &number, &["--not-delivered", "--force"])["result"], "waiting");
    let message = &outbox_json(folder, &["show", &number])["message"];
    assert_eq!((&message["state"], &message["maybe_sent_at"]), (&"waiting".into(), &Value::Null));
}

fn what_is_dropped_is_never_sent(folder: &Folder) {
    leave_messages(folder, &[("dead", Fate::Dead(404))]);
    let number = only(folder, "dead");
    assert_eq!(settle(folder, &number, &["--drop"])["result"], "dropped");
    assert_eq!(only(folder, "dropped"), number);
    assert_eq!(outbox_json(folder, &["redrive", "--all"])["matching"], 0);
}

fn a_doubt_is_listed_and_outlives_a_drop(folder: &Folder) {
    leave_messages(folder, &[("lost", Fate::Unknown)]);
    let listed = stdout(&outbox(folder, &["list", "--state", "unknown"]));
    assert!(listed.contains("MAYBE SENT") && listed.contains(" ago"), "{listed}");
    let number = only(folder, "unknown");
    assert_eq!(settle(folder, &number, &["--drop"])["result"], "dropped");
    let shown = outbox_json(folder, &["show", &number]);
    let action = shown["audit"].as_array().unwrap().last().unwrap()["action"].to_string();
    assert!(action.contains("though it may have arrived"), "{action}");
}

fn what_cannot_be_settled_says_why(folder: &Folder) {
    leave_messages(folder, &[("sending", Fate::Sending)]);
    let number = only(folder, "sending");
    let held = outbox(folder, &["settle", &number, "--drop", "--reason", "r"]);
    assert_eq!((held.status.code(), stdout(&held)), (Some(5), String::new()));
    assert!(stderr(&held).contains("a worker is delivering it"), "{}", stderr(&held));
    let absent = outbox(folder, &["settle", "999999", "--drop", "--reason", "r"]);
    assert_eq!(absent.status.code(), Some(3), "{}", stderr(&absent));
}

/// The demo writes the record and its interim answer; an operator brings the final one.
fn the_client_gets_its_final_answer(folder: &Folder) {
    // Nobody listens there.
    let away = ["--provider", "http://127.0.0.1:9", "--wait-for", "0s"];
    let demo = folder.demo(&away);
    let request = || post("/payments", ORDER).acme().key("order-1");
    let interim = demo.answer(&request());
    assert_eq!(interim.status, 202, "{interim:?}");
    demo.terminate();
    assert!(demo.end().success());
    let number = only(folder, "waiting");
    assert_eq!(outbox_json(folder, &["show", &number])["is_awaited"], true);
    assert_eq!(
        settle(folder, &number, &["--delivered", "--provider-id", "ch_7"])["result"],
        "delivered"
    );
    assert_eq!(json(folder, &["show", "acme", "order-1"])["outcome"]["status"], 201);

    let demo = folder.demo(&away);
    let made = demo.answer(&request());
    assert_eq!((made.status, made.is_replay()), (201, true));
    assert_eq!(made.json()["provider_id"], "ch_7");
    assert_eq!(made.json()["id"], interim.json()["id"]);
}

fn an_awaited_id_must_be_given(folder: &Folder) {
    leave(folder, &[(awaited("lost"), Fate::Unknown)]);
    let number = only(folder, "unknown");
    let refused = outbox(folder, &["settle", &number, "--delivered", "--reason", "r"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("--provider-id"), "{}", stderr(&refused));
    assert_eq!(only(folder, "unknown"), number);
}

fn a_client_that_waits_is_told_before_its_message_goes(folder: &Folder) {
    let away = ["--provider", "http://127.0.0.1:9", "--wait-for", "0s"];
    let demo = folder.demo(&away);
    let request = || post("/payments", ORDER).acme().key("order-1");
    assert_eq!(demo.answer(&request()).status, 202);
    demo.terminate();
    assert!(demo.end().success());
    let number = only(folder, "waiting");
    let dropped = outbox(folder, &["settle", &number, "--drop", "--reason", "r"]);
    assert_eq!(dropped.status.code(), Some(1));
    assert!(stderr(&dropped).contains("--delivered or --refused"), "{}", stderr(&dropped));
    assert_eq!(settle(folder, &number, &["--refused"])["result"], "refused");
    assert_eq!(only(folder, "refused"), number);
    assert_eq!(json(folder, &["show", "acme", "order-1"])["outcome"]["status"], 402);
    let again = outbox(folder, &["settle", &number, "--not-delivered", "--reason", "r"]);
    assert_eq!(again.status.code(), Some(4), "{}", stderr(&again));

    let demo = folder.demo(&away);
    let declined = demo.answer(&request());
    assert_eq!((declined.status, declined.is_replay()), (402, true));
}
