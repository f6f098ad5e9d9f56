//! Moments that nobody outside can see: the gateway kills itself at a named crash point. Not on MariaDB, whose
//! store names none.

use std::os::unix::process::ExitStatusExt as _;

use super::is_unknown_after;
use crate::database::on_every_store;
use crate::http::Request;
use crate::process::{Demo, Folder};
use crate::scene::{PROBE, SHORT_LEASE, Scene, pay, pay_at, said};

on_every_store! {
    ; sqlite, postgres:
    before_the_reservation_nothing_stands_and_a_retry_runs,
    after_the_reservation_nobody_knows_though_nothing_was_sent,
    after_the_answer_nobody_knows,
    after_the_record_the_answer_stands,
    where_the_api_recognises_keys_it_is_asked_again,
    what_was_never_sent_is_found_out_and_runs,
}

/// Where a process dies, and at which passing.
type Point = (&'static str, u32);

/// Before the store was asked, and when it had done everything but commit.
fn before_the_reservation(folder: &Folder) -> [Point; 2] {
    let in_the_store = on(folder, "sqlite-before-commit", "postgres-batch-before-send");
    [("reserve-before", 1), (in_the_store, 1)]
}

/// When the store had committed, and when it had said so.
fn after_the_reservation(folder: &Folder) -> [Point; 2] {
    let in_the_store = on(folder, "sqlite-after-commit", "postgres-batch-after-send");
    [(in_the_store, 1), ("reserve-after", 1)]
}

/// When all of the answer was there, when it was about to be written, and just before that was committed.
fn after_the_answer(folder: &Folder) -> [Point; 3] {
    let in_the_store = on(folder, "sqlite-before-commit", "postgres-batch-before-send");
    [("handler-ended", 1), ("complete-before", 1), (in_the_store, 2)]
}

/// When that was committed, when it was known to be, and when the reply was about to leave.
fn after_the_record(folder: &Folder) -> [Point; 3] {
    let in_the_store = on(folder, "sqlite-after-commit", "postgres-batch-after-send");
    [(in_the_store, 2), ("complete-after", 1), ("answer-leaves", 1)]
}

fn on(folder: &Folder, sqlite: &'static str, postgres: &'static str) -> &'static str {
    if folder.store().starts_with("postgres") { postgres } else { sqlite }
}

/// A gateway that gets a request and dies at this point.
fn dies_at(scene: &Scene<'_>, (name, nth): Point, request: &Request) {
    // Its first start writes the gateway's settings down, which is a commit too.
    scene.gateway().kill();
    let mut command = scene.command("127.0.0.1:0");
    let gateway = Demo::start(command.env("FIRSTWRITE_CRASH_AT", format!("{name}:{nth}")));
    assert!(request.attempt(gateway.address).is_none(), "{name}:{nth}: somebody answered");
    assert_eq!(gateway.end().signal(), Some(9), "{name}:{nth}");
    scene.upstream.wait_alone();
}

fn before_the_reservation_nothing_stands_and_a_retry_runs(folder: &Folder) {
    let scene = Scene::new(folder, "");
    for point in before_the_reservation(folder) {
        let key = point.0;
        dies_at(&scene, point, &pay(key));
        assert_eq!(scene.effects_of(key).len(), 0, "{key}");
        let made = scene.gateway().answer(&pay(key));
        assert_eq!((made.status, made.is_replay()), (201, false), "{key}: {made:?}");
        assert_eq!(scene.effects_of(key).len(), 1, "{key}");
    }
}

fn after_the_reservation_nobody_knows_though_nothing_was_sent(folder: &Folder) {
    let scene = Scene::new(folder, SHORT_LEASE);
    for point in after_the_reservation(folder) {
        dies_at(&scene, point, &pay(point.0));
        is_unknown_after(&scene, &pay(point.0));
    }
    assert_eq!((scene.upstream.heads(), scene.upstream.effects().len()), (0, 0));
}

fn after_the_answer_nobody_knows(folder: &Folder) {
    let scene = Scene::new(folder, SHORT_LEASE);
    for point in after_the_answer(folder) {
        dies_at(&scene, point, &pay(point.0));
        is_unknown_after(&scene, &pay(point.0));
        assert_eq!(scene.effects_of(point.0).len(), 1, "{}", point.0);
    }
    assert_eq!(scene.upstream.heads(), 3);
}

fn after_the_record_the_answer_stands(folder: &Folder) {
    let scene = Scene::new(folder, "");
    for point in after_the_record(folder) {
        let key = point.0;
        dies_at(&scene, point, &pay(key));
        // At once, although the lease is half a minute.
        let again = scene.gateway().answer(&pay(key));
        assert_eq!((again.status, again.is_replay()), (201, true), "{key}: {again:?}");
        let effects = scene.effects_of(key);
        assert_eq!(effects.len(), 1, "{key}");
        assert_eq!(again.body, crate::upstream::made(&effects[0]).into_bytes());
    }
}

/// As [`after_the_reservation_nobody_knows_though_nothing_was_sent`] and what follows it, where the file says
/// that asking again is safe.
fn where_the_api_recognises_keys_it_is_asked_again(folder: &Folder) {
    let resent = "[[gateway.operations]]\noperation = 'POST /recognised'\nlease = '2s'\n\
        on_lost_answer = 'resend'\n";
    let scene = Scene::new(folder, resent);
    let points = [&after_the_reservation(folder)[..], &after_the_answer(folder)].concat();
    for point in &points {
        dies_at(&scene, *point, &pay_at("/recognised", point.0));
    }
    let gateway = scene.gateway();
    for (key, _) in points {
        let request = pay_at("/recognised", key);
        let made = gateway.answer_when(&request, |answer| {
            // On a busy machine, half of so short a lease can be over before the store answers.
            let is_retryable = |code: &str| ["in-progress", "store-unavailable"].contains(&code);
            assert!(answer.status == 201 || is_retryable(&answer.problem()), "{answer:?}");
            answer.status == 201
        });
        assert!(!made.is_replay(), "{key}: it ran");
        assert_eq!(scene.effects_of(key).len(), 1, "{key}");
        assert_eq!(said(&gateway.answer(&request)), said(&made), "{key}");
    }
}

/// Somebody who can be asked says no, and is believed.
fn what_was_never_sent_is_found_out_and_runs(folder: &Folder) {
    let scene = Scene::new(folder, PROBE);
    let points = after_the_reservation(folder);
    for point in points {
        dies_at(&scene, point, &pay(point.0));
    }
    scene.wait_uncertain(points.len());
    let gateway = scene.gateway();
    for (key, _) in points {
        let made = gateway.answer_when(&pay(key), |answer| {
            assert!(matches!(answer.status, 201 | 409), "{answer:?}");
            answer.status == 201
        });
        assert!(!made.is_replay(), "{key}: it ran");
        assert_eq!(scene.effects_of(key).len(), 1, "{key}");
    }
    assert_eq!(scene.upstream.heads(), points.len());
}
