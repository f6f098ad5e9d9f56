//! `kill -9` of a gateway in every state that a request can be in: what the next one answers under the same
//! key, and what the API did.
//!
//! Here the API holds a request up at the right moment, and the gateway is killed meanwhile. For moments that
//! nobody outside can see, [`points`] has the gateway kill itself. [`random`] kills at any moment.

#[cfg(feature = "crash-points")]
mod points;
mod random;

use crate::database::{on_dynamodb, on_every_store, on_redis};
use crate::http::{Request, post};
use crate::process::Folder;
use crate::scene::{PROBE, SHORT_LEASE, Scene, pay, said};
use crate::upstream::{Moment, Upstream, answer};

on_every_store! {
    before_all_of_a_request_came_nothing_stands_and_a_retry_runs,
    when_the_api_got_half_of_it_nobody_knows,
    when_the_api_got_all_of_it_nobody_knows,
    when_it_was_done_nobody_knows,
    in_the_middle_of_the_answer_nobody_knows,
    what_nobody_knows_is_settled_by_asking,
    // An answer that large does not fit into a packet of MariaDB's default settings.
    ; sqlite, postgres:
    in_the_middle_of_the_reply_the_answer_stands,
}

on_redis! {
    before_all_of_a_request_came_nothing_stands_and_a_retry_runs,
    when_the_api_got_half_of_it_nobody_knows,
    when_the_api_got_all_of_it_nobody_knows,
    when_it_was_done_nobody_knows,
    in_the_middle_of_the_answer_nobody_knows,
    what_nobody_knows_is_settled_by_asking,
    in_the_middle_of_the_reply_the_answer_stands,
}

on_dynamodb! {
    when_it_was_done_nobody_knows,
    what_nobody_knows_is_settled_by_asking,
}

/// Starts a gateway where one was killed, and sends the same request until nobody holds the key any more.
/// Always a refusal, never a run.
fn is_unknown_after(scene: &Scene<'_>, request: &Request) {
    let gateway = scene.gateway();
    let unknown = gateway.answer_when(request, |answer| {
        assert_eq!(answer.status, 409, "{answer:?}");
        assert!(!answer.is_replay());
        assert!(answer.header("retry-after").is_some(), "{answer:?}");
        let problem = answer.problem();
        assert!(matches!(&*problem, "in-progress" | "outcome-unknown"), "{problem}");
        problem == "outcome-unknown"
    });
    assert_eq!(unknown.json()["safe_new_key"], false, "{unknown:?}");
}

/// Kills a gateway while the API holds a request up.
fn killed_at(scene: &Scene<'_>, moment: Moment, request: &Request) {
    let gateway = scene.gateway();
    scene.upstream.hold(moment);
    let started = request.start(gateway.address);
    scene.upstream.wait_held();
    gateway.kill();
    assert!(started.finish().is_none(), "somebody answered");
    scene.upstream.release();
    scene.upstream.wait_alone();
}

fn before_all_of_a_request_came_nothing_stands_and_a_retry_runs(folder: &Folder) {
    let scene = Scene::new(folder, "");
    let gateway = scene.gateway();
    let begun = pay("order-1").begin(gateway.address);
    gateway.kill();
    drop(begun);
    // At once, although the lease is half a minute.
    let made = scene.gateway().answer(&pay("order-1"));
    assert_eq!((made.status, made.is_replay()), (201, false), "{made:?}");
    assert_eq!((scene.upstream.heads(), scene.upstream.effects().len()), (1, 1));
}

fn when_the_api_got_half_of_it_nobody_knows(folder: &Folder) {
    // More than the sockets in between take in.
    const LARGE: usize = 32 * 1024 * 1024;
    let scene = Scene::new(folder, &format!("{SHORT_LEASE}request_bytes_max = {LARGE}\n"));
    let request = post("/payments", &"x".repeat(LARGE)).acme().key("order-1").header("Host", "a");
    killed_at(&scene, Moment::Head, &request);
    is_unknown_after(&scene, &request);
    assert_eq!((scene.upstream.heads(), scene.upstream.effects().len()), (1, 0));
}

fn when_the_api_got_all_of_it_nobody_knows(folder: &Folder) {
    let scene = Scene::new(folder, SHORT_LEASE);
    killed_at(&scene, Moment::Head, &pay("order-1"));
    is_unknown_after(&scene, &pay("order-1"));
    // Done after the death of whoever asked for it.
    assert_eq!((scene.upstream.heads(), scene.upstream.effects().len()), (1, 1));
}

fn when_it_was_done_nobody_knows(folder: &Folder) {
    let scene = Scene::new(folder, SHORT_LEASE);
    killed_at(&scene, Moment::Done, &pay("order-1"));
    is_unknown_after(&scene, &pay("order-1"));
    assert_eq!((scene.upstream.heads(), scene.upstream.effects().len()), (1, 1));
}

fn in_the_middle_of_the_answer_nobody_knows(folder: &Folder) {
    let scene = Scene::new(folder, SHORT_LEASE);
    killed_at(&scene, Moment::Answering, &pay("order-1"));
    is_unknown_after(&scene, &pay("order-1"));
    assert_eq!((scene.upstream.heads(), scene.upstream.effects().len()), (1, 1));
}

fn in_the_middle_of_the_reply_the_answer_stands(folder: &Folder) {
    const LARGE: usize = 16 * 1024 * 1024;
    let upstream = Upstream::answering(|_| answer("201 Created", "", &vec![b'x'; LARGE]));
    let settings = format!("[gateway.default]\nresponse_bytes_max = {LARGE}\n");
    let scene = Scene::before(folder, upstream, &settings);
    let gateway = scene.gateway();
    let started = pay("order-1").start(gateway.address);
    started.wait_answered();
    gateway.kill();
    assert!(started.received() < LARGE, "all of it had come already");
    // At once: it was recorded before its first byte went out.
    let again = scene.gateway().answer(&pay("order-1"));
    assert_eq!((again.status, again.is_replay(), again.body.len()), (201, true, LARGE));
    assert_eq!(scene.upstream.effects().len(), 1);
}

/// The same moments, with somebody who can be asked: what was done is answered for, and what was not is free.
fn what_nobody_knows_is_settled_by_asking(folder: &Folder) {
    let scene = Scene::new(folder, PROBE);
    let moments = [("head", Moment::Head), ("done", Moment::Done), ("answer", Moment::Answering)];
    for (key, moment) in moments {
        killed_at(&scene, moment, &pay(key));
    }
    scene.wait_uncertain(moments.len());
    let gateway = scene.gateway();
    for (key, _) in moments {
        let settled = gateway.answer_when(&pay(key), |answer| {
            assert!(matches!(answer.status, 201 | 409), "{answer:?}");
            answer.status == 201
        });
        assert!(settled.is_replay(), "{key}: {settled:?}");
        assert_eq!(scene.effects_of(key).len(), 1, "{key}");
        assert_eq!(said(&gateway.answer(&pay(key))), said(&settled));
        let body = String::from_utf8(settled.body.clone()).unwrap();
        assert_eq!(body, crate::upstream::made(&scene.effects_of(key)[0]), "{key}");
    }
    assert_eq!(scene.upstream.heads(), moments.len(), "nothing was sent again");
}
