//! Promise 12: everything that grows has a limit, and a clear answer when it is reached.

use std::thread;

use crate::database::{on_every_store, on_redis};
use crate::http::{get, post, raw};
use crate::process::Folder;
use crate::scene::{Scene, pay};
use crate::upstream::{Moment, Upstream, answer};

on_every_store! {
    promise_12_a_body_over_its_cap_is_refused,
    promise_12_a_head_over_its_limits_is_refused,
    promise_12_a_tenant_has_so_much_under_way_and_no_more,
    promise_12_a_tenant_asks_so_often_and_no_more,
    promise_12_an_answer_over_its_cap_is_passed_on_and_not_kept,
}

on_redis! {
    promise_12_a_body_over_its_cap_is_refused,
    promise_12_a_tenant_has_so_much_under_way_and_no_more,
    promise_12_an_answer_over_its_cap_is_passed_on_and_not_kept,
}

const SMALL: &str = "[gateway.default]\nrequest_bytes_max = 1000\nresponse_bytes_max = 1000\n";

fn promise_12_a_body_over_its_cap_is_refused(folder: &Folder) {
    let scene = Scene::new(folder, SMALL);
    let gateway = scene.gateway();
    let declared = gateway.answer(&post("/payments", &"x".repeat(1001)).acme().key("order-1"));
    assert_eq!((declared.status, &*declared.problem()), (413, "body-too-large"));
    let head = "POST /payments HTTP/1.1\r\nhost: a\r\nconnection: close\r\nidempotency-key: order-1\r\n\
        authorization: Bearer demo-acme\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = format!("{:x}\r\n{}\r\n", 501, "x".repeat(501));
    let streamed = raw(gateway.address, &format!("{head}{chunk}{chunk}0\r\n\r\n")).unwrap();
    assert_eq!((streamed.status, &*streamed.problem()), (413, "body-too-large"));
    assert_eq!(scene.upstream.heads(), 0);
    // The key was not touched.
    let fits = gateway.answer(&post("/payments", &"x".repeat(1000)).acme().key("order-1"));
    assert_eq!(fits.status, 201);
}

fn promise_12_a_head_over_its_limits_is_refused(folder: &Folder) {
    let scene = Scene::new(folder, "");
    let gateway = scene.gateway();
    let large = pay("order-1").header("X-Large", &"x".repeat(70_000));
    let many = (0..101)
        .fold(pay("order-1"), |request, number| request.header(&format!("X-Number-{number}"), "1"));
    for (what, request) in [("size", large), ("count", many)] {
        assert_eq!(gateway.answer(&request).status, 431, "{what}");
    }
    let long = get(&format!("/payments?x={}", "x".repeat(8 * 1024))).acme();
    assert_eq!(gateway.answer(&long).status, 414);
    let long_key = gateway.answer(&pay(&"k".repeat(256)));
    assert_eq!((long_key.status, &*long_key.problem()), (400, "key-invalid"));
    assert_eq!(scene.upstream.heads(), 0);
    assert_eq!(gateway.answer(&pay("order-1")).status, 201);
}

fn promise_12_a_tenant_has_so_much_under_way_and_no_more(folder: &Folder) {
    let scene = Scene::new(folder, "[gateway.limits]\nin_flight_max = 2\n");
    let gateway = scene.gateway();
    scene.upstream.hold(Moment::Head);
    thread::scope(|scope| {
        let under_way = ["order-1", "order-2"].map(|key| {
            let gateway = &gateway;
            scope.spawn(move || gateway.answer(&pay(key)))
        });
        scene.upstream.wait_heads(2);
        let refused = gateway.answer(&pay("order-3"));
        assert_eq!((refused.status, &*refused.problem()), (429, "rate-limited"));
        assert!(refused.header("retry-after").is_some(), "{refused:?}");
        scene.upstream.hold_nobody_else();
        let stranger = post("/payments", "{}").globex().key("order-3");
        assert_eq!(gateway.answer(&stranger).status, 201, "others do not notice");
        scene.upstream.release();
        for answer in under_way {
            assert_eq!(answer.join().unwrap().status, 201);
        }
    });
    assert_eq!(gateway.answer(&pay("order-3")).status, 201);
    assert_eq!(scene.upstream.effects().len(), 4);
}

fn promise_12_a_tenant_asks_so_often_and_no_more(folder: &Folder) {
    // One, and the next in a quarter of an hour.
    let scene = Scene::new(folder, "[gateway.limits]\nnew_keys_per_second = 0.001\n");
    let gateway = scene.gateway();
    assert_eq!(gateway.answer(&pay("order-1")).status, 201);
    let refused = gateway.answer(&pay("order-2"));
    assert_eq!((refused.status, &*refused.problem()), (429, "rate-limited"));
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert!(gateway.answer(&pay("order-1")).is_replay(), "only new keys are refused");
    assert_eq!(scene.upstream.effects().len(), 1);
}

fn promise_12_an_answer_over_its_cap_is_passed_on_and_not_kept(folder: &Folder) {
    let upstream = Upstream::answering(|_| answer("201 Created", "", &[b'x'; 1001]));
    let scene = Scene::before(folder, upstream, SMALL);
    let gateway = scene.gateway();
    let whole = gateway.answer(&pay("order-1"));
    assert_eq!((whole.status, whole.body.len()), (201, 1001));
    let again = gateway.answer(&pay("order-1"));
    assert_eq!(again.problem(), "answer-not-kept");
    assert_eq!(again.json()["first_status"], 201);
    assert_eq!(scene.upstream.effects().len(), 1);
}
