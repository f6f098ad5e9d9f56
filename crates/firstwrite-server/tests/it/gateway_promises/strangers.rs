//! Promises 3 and 4: tenants never meet, and a key stands for one request alone.

use crate::database::{on_every_store, on_redis};
use crate::http::{Request, get, post};
use crate::process::Folder;
use crate::scene::{Scene, pay, said};
use crate::upstream::Moment;

on_every_store! {
    promise_3_the_same_key_of_two_tenants_is_two_keys,
    promise_3_a_stranger_finds_nothing_under_a_key,
    promise_3_nobody_waits_for_another_tenant,
    promise_4_another_request_under_a_used_key_never_runs,
}

on_redis! {
    promise_3_the_same_key_of_two_tenants_is_two_keys,
    promise_3_a_stranger_finds_nothing_under_a_key,
    promise_3_nobody_waits_for_another_tenant,
    promise_4_another_request_under_a_used_key_never_runs,
}

fn theirs(key: &str) -> Request {
    post("/payments", r#"{"amount":1}"#).globex().key(key)
}

fn status_of(key: &str) -> Request {
    get(&format!("/.firstwrite/operations/{key}"))
}

fn promise_3_the_same_key_of_two_tenants_is_two_keys(folder: &Folder) {
    let scene = Scene::new(folder, "");
    let gateway = scene.gateway();
    let (ours, others) = (gateway.answer(&pay("order-1")), gateway.answer(&theirs("order-1")));
    assert_eq!((ours.status, ours.is_replay()), (201, false), "{ours:?}");
    assert_eq!((others.status, others.is_replay()), (201, false), "{others:?}");
    assert_ne!(ours.body, others.body);
    assert_eq!(said(&gateway.answer(&pay("order-1"))), said(&ours));
    assert_eq!(said(&gateway.answer(&theirs("order-1"))), said(&others));
    let effects = scene.upstream.effects();
    assert_eq!(effects.len(), 2);
    assert_ne!(effects[0].key, effects[1].key, "nor do they meet at the API");
}

fn promise_3_a_stranger_finds_nothing_under_a_key(folder: &Folder) {
    let scene = Scene::new(folder, "");
    let gateway = scene.gateway();
    assert_eq!(gateway.answer(&pay("order-1")).status, 201);
    let own = gateway.answer(&status_of("order-1").acme());
    assert_eq!((own.status, &own.json()["state"]), (200, &"completed".into()), "{own:?}");
    let nothing = gateway.answer(&status_of("order-nobody-has").acme());
    let strange = gateway.answer(&status_of("order-1").globex());
    assert_eq!(strange.status, 404);
    assert_eq!(said(&strange), said(&nothing), "as if it had never been used");
    assert_eq!(gateway.answer(&status_of("order-1")).status, 401, "nobody unknown is told");
}

fn promise_3_nobody_waits_for_another_tenant(folder: &Folder) {
    let scene = Scene::new(folder, "");
    let gateway = scene.gateway();
    scene.upstream.hold(Moment::Done);
    let started = pay("order-1").start(gateway.address);
    scene.upstream.wait_held();
    assert_eq!(gateway.answer(&pay("order-1")).problem(), "in-progress");
    assert_eq!(gateway.answer(&status_of("order-1").globex()).status, 404);
    scene.upstream.hold_nobody_else();
    assert_eq!(gateway.answer(&theirs("order-1")).status, 201);
    assert!(!started.is_answered());
    scene.upstream.release();
    assert_eq!(started.finish().unwrap().status, 201);
    assert_eq!(scene.upstream.effects().len(), 2);
}

const PROTECTED_PUT: &str =
    "[[gateway.operations]]\noperation = 'PUT /payments'\nkey = 'required'\n";

/// The same key, and each time one thing that differs.
fn others() -> [(&'static str, Request); 5] {
    let body = r#"{"amount":4990,"currency":"EUR"}"#;
    let under = |request: Request| request.acme().key("order-1").header("Host", "api.example");
    [
        ("body", under(post("/payments", r#"{"amount":4991,"currency":"EUR"}"#))),
        ("path", under(post("/payments/7", body))),
        ("query", under(post("/payments?dry=no", body))),
        ("method", under(post("/payments", body).method("PUT"))),
        ("host", post("/payments", body).acme().key("order-1").header("Host", "other.example")),
    ]
}

fn promise_4_another_request_under_a_used_key_never_runs(folder: &Folder) {
    let scene = Scene::new(folder, PROTECTED_PUT);
    let gateway = scene.gateway();
    scene.upstream.hold(Moment::Done);
    let started = pay("order-1").start(gateway.address);
    scene.upstream.wait_held();
    let refused = || {
        for (what, other) in others() {
            let refused = gateway.answer(&other);
            assert_eq!((refused.status, &*refused.problem()), (422, "key-reused"), "{what}");
        }
    };
    // Wrong whether or not the first has ended.
    refused();
    scene.upstream.release();
    let first = started.finish().unwrap();
    assert_eq!(first.status, 201);
    refused();
    assert_eq!(said(&gateway.answer(&pay("order-1"))), said(&first));
    assert_eq!((scene.upstream.heads(), scene.upstream.effects().len()), (1, 1));
}
