//! Promise 5: without a durable reservation nothing reaches the API.

use crate::database::{on_dynamodb, on_every_store, on_redis};
use crate::network::Reach;
use crate::process::Folder;
use crate::scene::{Scene, pay, said};
use crate::upstream::Moment;

on_every_store! {
    promise_5_nothing_is_sent_while_the_store_is_away,
    promise_5_what_was_sent_is_recorded_when_the_store_is_back,
}

on_redis! {
    promise_5_nothing_is_sent_while_the_store_is_away,
    promise_5_what_was_sent_is_recorded_when_the_store_is_back,
}

on_dynamodb! {
    promise_5_nothing_is_sent_while_the_store_is_away,
    promise_5_what_was_sent_is_recorded_when_the_store_is_back,
}

fn promise_5_nothing_is_sent_while_the_store_is_away(folder: &Folder) {
    let mut reach = Reach::of(folder);
    let scene = Scene::new(folder, "").through(reach.url());
    let gateway = scene.gateway();
    let before = gateway.answer(&pay("order-before"));
    assert_eq!(before.status, 201);
    reach.take_away();
    for number in 0..2 {
        let refused = gateway.answer(&pay(&format!("order-{number}")));
        assert_eq!((refused.status, &*refused.problem()), (503, "store-unavailable"));
        assert!(refused.header("retry-after").is_some(), "{refused:?}");
    }
    assert_eq!((scene.upstream.heads(), scene.upstream.effects().len()), (1, 1));
    reach.give_back();
    // By itself, and soon. No reservation can have reached the store, so no key is in progress. (One that did, and
    // of which nobody heard, is in progress until it is withdrawn: see `gateway_faults`.)
    for number in 0..2 {
        let made = gateway.answer_when(&pay(&format!("order-{number}")), |answer| {
            assert!(matches!(answer.status, 201 | 503), "{answer:?}");
            answer.status == 201
        });
        assert!(!made.is_replay());
    }
    assert_eq!(said(&gateway.answer(&pay("order-before"))), said(&before));
    assert_eq!(scene.upstream.effects().len(), 3);
}

/// The other half of the same thing: the store goes away when the API has been asked already.
fn promise_5_what_was_sent_is_recorded_when_the_store_is_back(folder: &Folder) {
    let mut reach = Reach::of(folder);
    let scene = Scene::new(folder, "").through(reach.url());
    let gateway = scene.gateway();
    scene.upstream.hold(Moment::Done);
    let started = pay("order-1").start(gateway.address);
    scene.upstream.wait_held();
    reach.take_away();
    scene.upstream.release();
    // Nobody is told what could not be written down.
    let refused = gateway.answer(&pay("order-2"));
    assert_eq!(refused.problem(), "store-unavailable");
    assert!(!started.is_answered());
    reach.give_back();
    let made = started.finish().unwrap();
    assert_eq!((made.status, made.is_replay()), (201, false), "{made:?}");
    let again = gateway.answer(&pay("order-1"));
    assert_eq!((said(&again), again.is_replay()), (said(&made), true));
    assert_eq!(scene.upstream.effects().len(), 1);
}
