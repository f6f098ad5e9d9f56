//! Promise 1: at most one attempt under a key has its effect.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::thread;

use crate::database::{on_dynamodb, on_every_store, on_redis};
use crate::http::Response;
use crate::process::Folder;
use crate::scene::{Scene, pay, said};

on_every_store! {
    promise_1_of_a_hundred_at_once_one_runs,
    ; postgres:
    promise_1_two_gateways_race_for_every_key,
}

on_redis! {
    promise_1_of_a_hundred_at_once_one_runs,
    promise_1_two_gateways_race_for_every_key,
}

on_dynamodb! {
    promise_1_of_a_hundred_at_once_one_runs,
    promise_1_two_gateways_race_for_every_key,
}

const AT_ONCE: usize = 100;
const LANES: usize = 4;
const KEYS_PER_LANE: usize = 75;

fn promise_1_of_a_hundred_at_once_one_runs(folder: &Folder) {
    let scene = Scene::new(folder, "");
    let gateway = scene.gateway();
    let (request, start) = (pay("order-1"), Barrier::new(AT_ONCE));
    let answers: Vec<Response> = thread::scope(|scope| {
        let send = || {
            start.wait();
            gateway.answer(&request)
        };
        let sent: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(send)).collect();
        sent.into_iter().map(|sent| sent.join().unwrap()).collect()
    });
    let first = gateway.answer(&request);
    assert_eq!((first.status, first.is_replay()), (201, true), "{first:?}");
    check(&answers, &first);
    let ran = answers.iter().filter(|answer| answer.status == 201 && !answer.is_replay());
    assert_eq!(ran.count(), 1);
    assert_eq!(scene.upstream.effects().len(), 1);
}

fn promise_1_two_gateways_race_for_every_key(folder: &Folder) {
    let scene = Scene::new(folder, "");
    let gateways = [scene.gateway(), scene.gateway()];
    let mut answers: BTreeMap<String, Vec<Response>> = BTreeMap::new();
    thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| Barrier::new(gateways.len())).collect();
        let mut racing = Vec::new();
        for (lane, together) in lanes.into_iter().enumerate() {
            let together = std::sync::Arc::new(together);
            for gateway in &gateways {
                let together = std::sync::Arc::clone(&together);
                racing.push(scope.spawn(move || {
                    let keys = (0..KEYS_PER_LANE).map(|number| format!("order-{lane}-{number}"));
                    let race = |key: String| {
                        together.wait();
                        let answer = gateway.answer(&pay(&key));
                        (key, answer)
                    };
                    keys.map(race).collect::<Vec<_>>()
                }));
            }
        }
        for (key, answer) in racing.into_iter().flat_map(|racing| racing.join().unwrap()) {
            answers.entry(key).or_default().push(answer);
        }
    });
    assert_eq!(answers.len(), LANES * KEYS_PER_LANE);
    let mut met = 0;
    for (key, answers) in &answers {
        let first = gateways[0].answer(&pay(key));
        assert_eq!(said(&gateways[1].answer(&pay(key))), said(&first), "{key}");
        assert_eq!((first.status, first.is_replay()), (201, true), "{key}: {first:?}");
        check(answers, &first);
        assert_eq!(scene.effects_of(key).len(), 1, "{key}");
        met += usize::from(answers.iter().any(|answer| answer.status == 409));
    }
    assert!(met > 0, "nobody met anybody: this was no race");
}

/// Each is the first answer, or says that it is under way.
fn check(answers: &[Response], first: &Response) {
    for answer in answers {
        match answer.status {
            409 => assert_eq!(answer.problem(), "in-progress"),
            _ => assert_eq!(said(answer), said(first)),
        }
    }
}
