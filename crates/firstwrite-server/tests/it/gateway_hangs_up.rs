//! Clients that hang up, at several moments: what stands under their key then, and what their retry gets.

use crate::database::{on_every_store, on_redis};
use crate::http::{get, post};
use crate::process::{Demo, Folder};
use crate::scene::{Scene, pay, said};
use crate::upstream::{Moment, Upstream, answer};

on_every_store! {
    before_the_body_is_whole_nothing_stands,
    before_the_api_was_asked_for_anything_it_goes_on,
    while_the_api_works_it_goes_on_and_the_retry_gets_the_answer,
    while_the_answer_comes_it_goes_on_and_the_retry_gets_the_answer,
    // An answer that large does not fit into a packet of MariaDB's default settings.
    ; sqlite, postgres:
    while_the_reply_is_read_the_answer_stands,
}

on_redis! {
    before_the_body_is_whole_nothing_stands,
    before_the_api_was_asked_for_anything_it_goes_on,
    while_the_api_works_it_goes_on_and_the_retry_gets_the_answer,
    while_the_answer_comes_it_goes_on_and_the_retry_gets_the_answer,
    while_the_reply_is_read_the_answer_stands,
}

/// What the client's own status resource says.
fn state(gateway: &Demo) -> (u16, String) {
    let status = gateway.answer(&get("/.firstwrite/operations/order-1").acme());
    (status.status, status.json()["state"].as_str().unwrap_or_default().to_owned())
}

fn before_the_body_is_whole_nothing_stands(folder: &Folder) {
    let scene = Scene::new(folder, "");
    let gateway = scene.gateway();
    for byte_count in [0, 1, 20] {
        pay("order-1").begin(gateway.address).hang_up_after(byte_count);
        assert_eq!(state(&gateway).0, 404);
    }
    let made = gateway.answer(&pay("order-1"));
    assert_eq!((made.status, made.is_replay()), (201, false), "{made:?}");
    assert_eq!((scene.upstream.heads(), scene.upstream.effects().len()), (1, 1));
}

/// The connection is gone as soon as the last byte was sent; whether the gateway ever saw the request is open,
/// and so the retry decides: whichever of the two came first ran, and only that one.
fn before_the_api_was_asked_for_anything_it_goes_on(folder: &Folder) {
    let scene = Scene::new(folder, "");
    let gateway = scene.gateway();
    for number in 0..20 {
        let key = format!("order-{number}");
        drop(pay(&key).start(gateway.address));
        let made = gateway.answer_when(&pay(&key), |answer| {
            assert!(answer.status == 201 || answer.problem() == "in-progress", "{answer:?}");
            answer.status == 201
        });
        assert_eq!(said(&gateway.answer(&pay(&key))), said(&made));
        assert_eq!(scene.effects_of(&key).len(), 1, "{key}");
    }
}

fn while_the_api_works_it_goes_on_and_the_retry_gets_the_answer(folder: &Folder) {
    hangs_up_at(folder, Moment::Done);
}

fn while_the_answer_comes_it_goes_on_and_the_retry_gets_the_answer(folder: &Folder) {
    hangs_up_at(folder, Moment::Answering);
}

fn hangs_up_at(folder: &Folder, moment: Moment) {
    let scene = Scene::new(folder, "");
    let gateway = scene.gateway();
    scene.upstream.hold(moment);
    let started = pay("order-1").start(gateway.address);
    scene.upstream.wait_held();
    drop(started);
    // It is the record that says so, not the connection.
    let refused = gateway.answer(&pay("order-1"));
    assert_eq!((refused.status, &*refused.problem()), (409, "in-progress"));
    assert_eq!(state(&gateway).1, "reserved");
    scene.upstream.release();
    let again = gateway.answer_when(&pay("order-1"), |answer| {
        assert!(answer.status == 201 || answer.problem() == "in-progress", "{answer:?}");
        answer.status == 201
    });
    assert!(again.is_replay(), "{again:?}");
    assert_eq!(state(&gateway).1, "completed");
    assert_eq!((scene.upstream.heads(), scene.upstream.effects().len()), (1, 1));
}

fn while_the_reply_is_read_the_answer_stands(folder: &Folder) {
    const LARGE: usize = 16 * 1024 * 1024;
    let upstream = Upstream::answering(|_| answer("201 Created", "", &vec![b'x'; LARGE]));
    let settings = format!("[gateway.default]\nresponse_bytes_max = {LARGE}\n");
    let scene = Scene::before(folder, upstream, &settings);
    let gateway = scene.gateway();
    let started = pay("order-1").start(gateway.address);
    started.wait_answered();
    drop(started);
    let again = gateway.answer(&pay("order-1"));
    assert_eq!((again.status, again.is_replay(), again.body.len()), (201, true, LARGE));
    let other = gateway.answer(&post("/payments", "{}").acme().key("order-1"));
    assert_eq!(other.status, 422);
    assert_eq!(scene.upstream.effects().len(), 1);
}
