//! Secrets that key fingerprints: switched on, rotated and taken away, without a false mismatch.

use std::time::Duration;

use firstwrite_core::{
    BodyForm, DraftState, Fence, Fingerprint, FingerprintRules, OnConflict, OnLostAnswer,
    PartDigests, Policy, SecretId, Secrets, Store as _, protocol,
};

use super::harness::{Answer, Door, World, advance, answer, id, post, secret};

const REPLAYED: &str = "201 run 1";
const REFUSED: &str = "422 key-reused";
const UNREADABLE: &str = "503 store-unavailable";

fn world() -> World {
    World::new(Policy::default(), |run, _| async move { Ok(answer(201, &format!("run {run}"))) })
}

fn secrets(known: &[u8]) -> Secrets {
    Secrets::new(known.iter().map(|first| secret(*first)).collect()).unwrap()
}

async fn kept(world: &World, key: &str) -> Fingerprint {
    world.store.get(id(key)).await.unwrap().expect("it stands").record.fingerprint
}

fn differing(answer: &Answer) -> Vec<String> {
    let names = answer.json()["differing"].clone();
    serde_json::from_value(names).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_rotated_secret_replays_and_refuses_as_before() {
    let world = world();
    assert_eq!(world.send(post("k", "{}")).await.summary(), REPLAYED);
    for (known, same, other) in [
        (&[1][..], REPLAYED, REFUSED),
        (&[2, 1], REPLAYED, REFUSED),
        (&[2, 3, 1], REPLAYED, REFUSED),
        // It is unknown whether it is the same: never a match, and never a mismatch.
        (&[2], UNREADABLE, UNREADABLE),
        (&[], UNREADABLE, UNREADABLE),
    ] {
        let rotated = world.second_process_with(Policy::default(), secrets(known));
        assert_eq!(rotated.send(post("k", "{}")).await.summary(), same, "{known:?}");
        assert_eq!(rotated.send(post("k", "[]")).await.summary(), other, "{known:?}");
    }
    assert_eq!(world.runs(), 1);
    // What is new is keyed by the first.
    let rotated = world.second_process_with(Policy::default(), secrets(&[2, 1]));
    rotated.send(post("new", "{}")).await;
    assert_eq!(kept(&rotated, "new").await.secret(), Some(secret(2).id()));
}

#[tokio::test(start_paused = true)]
async fn a_secret_can_be_switched_on_while_records_stand() {
    let plain = world().second_process_with(Policy::default(), Secrets::default());
    assert_eq!(plain.send(post("k", "{}")).await.summary(), REPLAYED);
    assert_eq!(kept(&plain, "k").await.secret(), None);
    let keyed = plain.second_process_with(Policy::default(), secret(1));
    assert_eq!(keyed.send(post("k", "{}")).await.summary(), REPLAYED);
    assert_eq!(keyed.send(post("k", "[]")).await.summary(), REFUSED);
    assert_eq!(keyed.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_mismatch_is_explained_by_a_secret_or_where_the_policy_lets_it() {
    let explaining = FingerprintRules { explain: true, ..FingerprintRules::default() };
    let explaining = Policy::default().fingerprint(explaining);
    for (policy, known, names) in [
        (Policy::default(), &[1][..], &["body"][..]),
        (Policy::default(), &[], &[]),
        (explaining, &[], &["body"]),
    ] {
        let world = world().second_process_with(policy, secrets(known));
        world.send(post("k", "first")).await;
        let refused = world.send(post("k", "second")).await;
        assert_eq!(refused.summary(), REFUSED);
        assert_eq!(differing(&refused), names, "{known:?}");
        assert_eq!(kept(&world, "k").await.parts().count() > 0, !names.is_empty());
    }
    // By the secret that keyed it, though another comes first.
    let world = world();
    world.send(post("k", "first")).await;
    let rotated = world.second_process_with(Policy::default(), secrets(&[2, 1]));
    assert_eq!(differing(&rotated.send(post("k", "second")).await), ["body"]);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_died_before_a_rotation_is_taken_over() {
    let policy = Policy::default().on_lost_answer(OnLostAnswer::Resend);
    let elsewhere = world();
    elsewhere.send(post("died", "{}")).await;
    let first = kept(&elsewhere, "died").await;
    let world = world();
    let died = firstwrite_core::Draft {
        id: id("died"),
        tenant: super::harness::tenant("acme"),
        key: firstwrite_core::Key::new("died").unwrap(),
        operation: "POST /payments".into(),
        on_lost_answer: OnLostAnswer::Resend,
        fingerprint: first.clone(),
        retention: policy.record_retention(),
        fence: Fence::first(7),
        state: DraftState::reserved(policy.lease),
    };
    world.store.insert(&died).await.unwrap();
    advance(policy.lease).await;
    let rotated = world.second_process_with(policy, secrets(&[2, 1]));
    assert_eq!(rotated.send(post("died", "[]")).await.summary(), REFUSED);
    assert_eq!(rotated.send(post("died", "{}")).await.summary(), "201 run 1");
    assert_eq!(rotated.send(post("died", "{}")).await.summary(), "201 run 1");
}

#[tokio::test(start_paused = true)]
async fn a_record_of_an_unknown_way_runs_nothing() {
    let world = world();
    world.send(post("k", "{}")).await;
    let known = kept(&world, "k").await;
    let way = |version, secret| {
        Fingerprint::from_stored(version, BodyForm::Raw, *known.digest(), PartDigests::default())
            .keyed_by(secret)
    };
    let stranger = Some(SecretId::from_bytes([9; 5]));
    for (key, fingerprint) in [("v3", way(3, None)), ("secret", way(2, stranger))] {
        let found = world.store.get(id("k")).await.unwrap().unwrap();
        let request = firstwrite_core::Request {
            id: id(key),
            tenant: found.record.tenant,
            key: firstwrite_core::Key::new(key).unwrap(),
            operation: found.record.operation,
            fingerprint,
        };
        let reserved = protocol::reserve(&*world.store, &request, &Policy::default(), 7).await;
        assert!(matches!(reserved, Ok(protocol::Reserved::Granted(_))));
        assert_eq!(world.send(post(key, "{}")).await.summary(), UNREADABLE, "{key}");
    }
    assert_eq!(world.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn two_processes_that_differ_in_order_wait_for_each_other() {
    let policy = Policy::default().on_conflict(OnConflict::Wait(Duration::from_secs(5)));
    let door = Door::new();
    let passing = door.clone();
    let world = World::new(policy.clone(), move |run, _| {
        let door = passing.clone();
        async move {
            door.pass().await;
            Ok(answer(201, &format!("run {run}")))
        }
    });
    let rotated = world.second_process_with(policy, secrets(&[2, 1]));
    let first = world.send_aside(post("k", "{}"));
    door.entered().await;
    let second = rotated.send_aside(post("k", "{}"));
    assert_eq!(rotated.send(post("k", "[]")).await.summary(), REFUSED);
    door.open();
    assert_eq!(first.await.unwrap().summary(), REPLAYED);
    assert_eq!(second.await.unwrap().summary(), REPLAYED);
    assert_eq!(world.runs(), 1);
}
