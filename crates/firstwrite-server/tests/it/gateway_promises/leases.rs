//! Promises 6 and 7: what a crash blocks, and for how long; and that whoever comes back late changes nothing.

use std::time::{Duration, Instant};

use crate::database::{on_dynamodb, on_every_store, on_redis};
use crate::process::{Folder, stdout};
use crate::scene::{SHORT_LEASE, Scene, pay, pay_at, said};
use crate::upstream::Moment;

on_every_store! {
    promise_6_a_crash_blocks_a_key_no_longer_than_its_lease,
    promise_7_who_slept_through_its_lease_still_tells_what_happened,
    ; postgres:
    promise_7_a_late_answer_does_not_overwrite_what_stands_since,
}

on_redis! {
    promise_6_a_crash_blocks_a_key_no_longer_than_its_lease,
    promise_7_who_slept_through_its_lease_still_tells_what_happened,
    promise_7_a_late_answer_does_not_overwrite_what_stands_since,
}

on_dynamodb! {
    promise_6_a_crash_blocks_a_key_no_longer_than_its_lease,
    promise_7_who_slept_through_its_lease_still_tells_what_happened,
    promise_7_a_late_answer_does_not_overwrite_what_stands_since,
}

const LEASE: Duration = Duration::from_secs(1);
/// For a process to start and to answer on a machine that does other things too.
const SLACK: Duration = Duration::from_secs(3);

/// The API recognises keys there, so that asking again is safe.
const RESENT: &str = "[[gateway.operations]]\noperation = 'POST /recognised'\nlease = '2s'\n\
    on_lost_answer = 'resend'\n";

#[expect(clippy::disallowed_methods, reason = "a lease is a promise about real time")]
fn promise_6_a_crash_blocks_a_key_no_longer_than_its_lease(folder: &Folder) {
    let scene = Scene::new(folder, RESENT);
    let request = pay_at("/recognised", "order-1");
    let first = scene.gateway();
    scene.upstream.hold(Moment::Done);
    let _started = request.start(first.address);
    scene.upstream.wait_held();
    let killed_at = Instant::now();
    first.kill();
    scene.upstream.release();
    let second = scene.gateway();
    let made = second.answer_when(&request, |answer| {
        // Where the machine stood still for most of the new lease, no call begins: nothing was run.
        let is_refused = || ["in-progress", "store-unavailable"].contains(&&*answer.problem());
        assert!(answer.status == 201 || is_refused(), "{answer:?}");
        answer.status == 201
    });
    let blocked_for = killed_at.elapsed();
    assert!(blocked_for < LEASE + SLACK, "blocked for {blocked_for:?}");
    assert!(!made.is_replay(), "it ran again, and the API recognised it");
    assert_eq!(said(&second.answer(&request)), said(&made));
    assert_eq!((scene.upstream.heads(), scene.upstream.effects().len()), (2, 1));
}

/// Nobody took the key from it meanwhile: it is the one who knows, and may say so late.
fn promise_7_who_slept_through_its_lease_still_tells_what_happened(folder: &Folder) {
    let scene = Scene::new(folder, SHORT_LEASE);
    let gateway = scene.gateway();
    scene.upstream.hold(Moment::Done);
    let started = pay("order-1").start(gateway.address);
    scene.upstream.wait_held();
    gateway.signal("-STOP");
    wait_until_lapsed(&scene, "order-1");
    scene.upstream.release();
    gateway.signal("-CONT");
    let made = started.finish().unwrap();
    assert_eq!((made.status, made.is_replay()), (201, false), "{made:?}");
    let again = gateway.answer(&pay("order-1"));
    assert_eq!((said(&again), again.is_replay()), (said(&made), true));
    assert_eq!(scene.upstream.effects().len(), 1);
}

fn promise_7_a_late_answer_does_not_overwrite_what_stands_since(folder: &Folder) {
    let scene = Scene::new(folder, SHORT_LEASE);
    let (late, next) = (scene.gateway(), scene.gateway());
    scene.upstream.hold(Moment::Done);
    let started = pay("order-1").start(late.address);
    scene.upstream.wait_held();
    late.signal("-STOP");
    next.answer_when(&pay("order-1"), |answer| {
        assert_eq!(answer.status, 409, "{answer:?}");
        answer.problem() == "outcome-unknown"
    });
    assert_eq!(scene.upstream.effects().len(), 1);
    // Somebody takes it on themselves; wrongly, but that is theirs to answer for.
    scene.settle_as_not_happened("order-1");
    scene.upstream.hold_nobody_else();
    let stands = next.answer(&pay("order-1"));
    assert_eq!((stands.status, stands.is_replay()), (201, false), "{stands:?}");

    scene.upstream.release();
    late.signal("-CONT");
    let told = started.finish().unwrap();
    assert_eq!(said(&told), said(&stands), "what stands, and not what it was told itself");
    assert!(told.is_replay(), "{told:?}");
    for gateway in [&late, &next] {
        assert_eq!(said(&gateway.answer(&pay("order-1"))), said(&stands));
    }
    assert_eq!(scene.upstream.effects().len(), 2, "one of them on somebody's word");
}

/// Waits until the lease of a key has run out, by what the store says to an operator.
fn wait_until_lapsed(scene: &Scene<'_>, key: &str) {
    let list = ["keys", "list", "--store", scene.folder.store()];
    for _ in 0..1_000 {
        let listed = stdout(&scene.folder.run(&list));
        let line = listed.lines().find(|line| line.contains(key)).unwrap();
        if line.contains("lease ran out") {
            return;
        }
    }
    panic!("the lease never runs out");
}
