//! Faults of what a gateway stands on: its PostgreSQL, the network to it, its descriptors.

use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use firstwrite_testkit::Network;

use crate::database::on_every_store;
use crate::http::Response;
use crate::network::Line;
use crate::process::{Demo, Folder};
use crate::scene::{Scene, pay, said};
use crate::upstream::{Moment, Upstream, answer};

on_every_store! {
    without_descriptors_nothing_is_sent_and_it_recovers,
    ; postgres:
    an_acknowledgement_that_is_lost_is_read_back,
    a_server_that_goes_away_and_comes_back_costs_no_answer,
    a_backend_that_ends_in_the_middle_of_a_statement_or_a_commit_costs_no_answer,
    behind_a_network_that_swallows_answers_nothing_is_sent,
}

#[test]
fn behind_a_network_that_swallows_answers_of_mariadb_nothing_is_sent() {
    if let Some(folder) = Folder::on_mariadb() {
        behind_a_network_that_swallows_answers_nothing_is_sent(&folder);
    }
}

/// Refused for now, or carried out.
fn until_made(gateway: &Demo, key: &str) -> Response {
    gateway.answer_when(&pay(key), |answer| {
        let is_refused = || matches!(&*answer.problem(), "store-unavailable" | "in-progress");
        assert!(answer.status == 201 || is_refused(), "{key}: {answer:?}");
        answer.status == 201
    })
}

/// The server has committed, and the connection ends before it can say so: once for a reservation, once
/// for an outcome.
fn an_acknowledgement_that_is_lost_is_read_back(folder: &Folder) {
    let line = Line::to(folder.store());
    let scene = Scene::new(folder, "").through(line.url().to_owned());
    let gateway = scene.gateway();
    assert_eq!(gateway.answer(&pay("order-before")).status, 201);

    line.set(Network::CutOnceAt("COMMIT"));
    let reserved = gateway.answer(&pay("order-1"));
    assert_eq!((reserved.status, reserved.is_replay()), (201, false), "{reserved:?}");
    assert_eq!(line.cut(), 1);

    scene.upstream.hold(Moment::Done);
    let started = pay("order-2").start(gateway.address);
    scene.upstream.wait_held();
    line.set(Network::CutOnceAt("COMMIT"));
    scene.upstream.release();
    let completed = started.finish().unwrap();
    assert_eq!((completed.status, completed.is_replay()), (201, false), "{completed:?}");
    assert_eq!(line.cut(), 2);

    for (key, first) in [("order-1", reserved), ("order-2", completed)] {
        let again = gateway.answer(&pay(key));
        assert_eq!((said(&again), again.is_replay()), (said(&first), true), "{key}");
        assert_eq!(scene.effects_of(key).len(), 1, "{key}");
    }
}

/// All of its connections end at once, as when every process of the server was killed, again and again
/// while requests come.
fn a_server_that_goes_away_and_comes_back_costs_no_answer(folder: &Folder) {
    let line = Line::to(folder.store());
    let scene = Scene::new(folder, "").through(line.url().to_owned());
    let gateway = scene.gateway();
    for round in 0..5 {
        let key = format!("order-{round}");
        thread::scope(|scope| {
            let asking = scope.spawn(|| until_made(&gateway, &key));
            line.end_all();
            let made = asking.join().unwrap();
            assert_eq!(said(&gateway.answer(&pay(&key))), said(&made));
        });
        assert_eq!(scene.effects_of(&key).len(), 1, "{key}");
    }
}

/// An operator, or a server short of memory, ends the gateway's backends: while a statement waits for a lock,
/// and while a commit is under way.
fn a_backend_that_ends_in_the_middle_of_a_statement_or_a_commit_costs_no_answer(folder: &Folder) {
    let scene = Scene::new(folder, "");
    let gateway = scene.gateway();
    let before = gateway.answer(&pay("order-before"));
    assert_eq!(before.status, 201);
    let database = folder.database();
    for key in ["statement", "commit"] {
        let hindrance = match key {
            "statement" => database.lock_records(),
            _ => database.hold_up_commits(),
        };
        let started = pay(key).start(gateway.address);
        database.end_who_waits();
        drop(hindrance);
        let first = started.finish().unwrap();
        assert!(matches!(first.status, 201 | 503), "{key}: {first:?}");
        until_made(&gateway, key);
        assert_eq!(scene.effects_of(key).len(), 1, "{key}");
    }
    assert_eq!(said(&gateway.answer(&pay("order-before"))), said(&before));
}

/// Everything that is said to the server arrives, and nothing comes back; then it cannot be reached at all. The
/// reservation stands, but nobody said so: nothing is sent, and it is withdrawn as soon as that can be done.
fn behind_a_network_that_swallows_answers_nothing_is_sent(folder: &Folder) {
    let line = Line::to(folder.store());
    let scene = Scene::new(folder, "").through(line.url().to_owned());
    let gateway = scene.gateway();
    assert_eq!(gateway.answer(&pay("order-before")).status, 201);
    line.set(Network::AnswersLost);
    let started = pay("order-1").start(gateway.address);
    while scene.records("reserved").is_empty() {
        assert!(!started.is_answered());
    }
    line.set(Network::Down);
    let refused = started.finish().unwrap();
    assert_eq!((refused.status, &*refused.problem()), (503, "store-unavailable"));
    assert_eq!(scene.upstream.heads(), 1, "something was sent");
    // While nobody can withdraw it, another gateway is right to say that the key is in progress.
    let other = Scene::before(folder, scene.upstream, "");
    let in_progress = other.gateway().answer(&pay("order-1"));
    assert_eq!((in_progress.status, &*in_progress.problem()), (409, "in-progress"));
    let scene = other.through(line.url().to_owned());
    line.set(Network::Up);
    // Long before the lease runs out.
    until_made(&gateway, "order-1");
    assert_eq!(scene.effects_of("order-1").len(), 1);
}

/// No descriptor is left for a connection to the API: nothing was sent, which frees the key.
fn without_descriptors_nothing_is_sent_and_it_recovers(folder: &Folder) {
    const DESCRIPTORS: usize = 60;
    // Each call to the API is a new connection.
    let upstream = Upstream::answering(|_| answer("201 Created", "connection: close\r\n", b"made"));
    let scene = Scene::before(folder, upstream, "");
    let gateway = scene.gateway();
    assert_eq!(gateway.answer(&pay("order-before")).status, 201);
    // It has room for all its connections when it starts; the system takes that away.
    gateway.limit_descriptors(DESCRIPTORS);
    let keys = ["order-1", "order-2", "order-3", "order-4"];
    let begun = keys.map(|key| (key, pay(key).begin(gateway.address)));
    // More than it can take in; whatever it closes, the next in the queue gets.
    let idle: Vec<TcpStream> =
        (0..2 * DESCRIPTORS).map(|_| TcpStream::connect(gateway.address).unwrap()).collect();
    wait_until_full(&gateway, DESCRIPTORS);
    let mut refused_keys = Vec::new();
    for (key, begun) in begun {
        let answer = begun.finish().unwrap();
        if answer.status == 502 {
            assert!(answer.header("retry-after").is_some(), "{answer:?}");
            assert_eq!(scene.effects_of(key).len(), 0, "{key}");
            refused_keys.push(key);
        } else {
            assert_eq!(answer.status, 201, "{key}: {answer:?}");
        }
    }
    assert!(!refused_keys.is_empty(), "there were descriptors after all");
    drop(idle);
    for key in refused_keys {
        // If not even the key could be freed, that is made up for.
        let made = until_made(&gateway, key);
        assert!(!made.is_replay(), "{key}: {made:?}");
    }
    for key in keys {
        assert_eq!(scene.effects_of(key).len(), 1, "{key}");
    }
}

/// Waits until all descriptors are taken, and stay so for longer than a gateway pauses after it has found none.
#[expect(clippy::disallowed_methods, reason = "the pause is real time")]
fn wait_until_full(gateway: &Demo, count: usize) {
    let mut full_since = Instant::now();
    while full_since.elapsed() < Duration::from_millis(300) {
        if gateway.descriptors() < count {
            full_since = Instant::now();
        }
        thread::yield_now();
    }
}
