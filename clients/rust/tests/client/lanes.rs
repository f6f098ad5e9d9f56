//! Lanes: which intents stand in one, how they leave it, and what stops it.

use firstwrite_client::storage::Stored;
use firstwrite_client::{EndKind, Error, Storage as _};
use serde_json::json;

use crate::queue::{enqueue, process, sent};
use crate::world::{URL, World, answer, seconds};

#[tokio::test(start_paused = true)]
async fn an_intent_has_one_lane() {
    let world = World::new([answer(201, &[])]);
    let (client, queue, notes) = process(&world);
    enqueue(&client, &queue, "one", "a").await;
    enqueue(&client, &queue, "one", "a").await;
    assert_eq!(notes.take(), ["apply a"], "the same intent in the same lane is there already");
    let draft = client.intent("a").post_json(URL, &json!({"name": "a"}));
    let error = queue.enqueue("other", draft).await.unwrap_err();
    assert!(matches!(error, Error::IntentConflict { .. }), "{error}");
    // One that stands outside of the queue may be under way in an order of its own.
    let draft = || client.intent("b").post_json(URL, &json!({"name": "b"}));
    draft().open().await.unwrap();
    let error = queue.enqueue("two", draft()).await.unwrap_err();
    assert!(matches!(error, Error::IntentConflict { .. }), "{error}");
    assert_eq!(queue.list().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_intent_in_a_lane_is_not_sent_past_the_queue() {
    let world = World::new([answer(301, &[]), answer(201, &[])]);
    let (client, queue, _) = process(&world);
    enqueue(&client, &queue, "lane", "a").await;
    let a = client.find("a").await.unwrap().unwrap();
    let error = a.send().await.unwrap_err();
    assert!(error.to_string().contains("lane"), "{error}");
    assert!(world.server.seen().is_empty());
    // Its end is told, and a resumed one goes on in its lane.
    queue.run_once().await.unwrap();
    assert_eq!(a.send().await.unwrap().kind(), EndKind::Unknown);
    assert!(a.resume().await.unwrap_err().pending().is_some());
    assert_eq!(world.server.seen().len(), 1);
    queue.run_once().await.unwrap();
    assert_eq!(a.send().await.unwrap().kind(), EndKind::Done);
}

#[tokio::test(start_paused = true)]
async fn what_supersedes_an_intent_in_a_lane_takes_the_last_place_in_it_and_is_applied() {
    let world =
        World::new([answer(402, &[]), answer(201, &[]), answer(201, &[]), answer(201, &[])]);
    let (client, queue, notes) = process(&world);
    for name in ["a", "b", "c"] {
        enqueue(&client, &queue, "lane", name).await;
    }
    let again = |name: &str| {
        client.intent(name).post_json(URL, &json!({"name": format!("{name}-again")})).supersede()
    };
    // Not begun yet; and, later, refused.
    again("b").await.unwrap();
    notes.take();
    queue.run_once().await.unwrap();
    assert_eq!(sent(&world), ["a", "c", "b-again"]);
    assert_eq!(notes.take(), ["rollback a", "confirm c", "apply b", "confirm b"]);
    again("a").await.unwrap();
    queue.run_once().await.unwrap();
    assert_eq!(sent(&world), ["a", "c", "b-again", "a-again"]);
    assert_eq!(notes.take(), ["apply a", "confirm a"]);
    let list = queue.list().await.unwrap();
    let lanes: Vec<_> =
        list.iter().map(|entry| entry.as_ref().unwrap()).map(|one| one.lane.as_deref()).collect();
    assert_eq!(lanes, [Some("lane"); 3]);
}

#[tokio::test(start_paused = true)]
async fn a_due_rollback_runs_before_another_request_is_applied() {
    let world = World::new([answer(402, &[]), answer(201, &[])]);
    let (client, queue, notes) = process(&world);
    enqueue(&client, &queue, "lane", "a").await;
    // The process dies between the refusal and its hook.
    notes.fail_at("rollback a");
    queue.run_once().await.unwrap_err();
    let (client, queue, notes) = process(&world);
    let again = || client.intent("a").post_json(URL, &json!({"name": "a-again"}));
    let key = client.find("a").await.unwrap().unwrap().key().clone();
    let stands = async || client.find("a").await.unwrap().unwrap().key().clone();
    // The queue takes the effect back; a draft by itself cannot.
    let error = again().supersede().await.unwrap_err();
    assert!(matches!(error, Error::InLane { .. }), "{error}");
    notes.fail_at("rollback a");
    let error = queue.supersede(again()).await.unwrap_err();
    assert!(matches!(error, Error::Hook { hook: "rollback", .. }), "{error}");
    assert_eq!(stands().await, key, "while the hook fails, nothing is superseded");
    notes.take();
    queue.supersede(again()).await.unwrap();
    assert_eq!(notes.take(), ["rollback a", "apply a"]);
    assert_ne!(stands().await, key);
    queue.run_once().await.unwrap();
    assert_eq!(notes.take(), ["confirm a"]);
    assert_eq!(sent(&world), ["a", "a-again"]);
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_cannot_be_read_stops_its_lane_and_no_other() {
    let world = World::new([answer(201, &[]), answer(201, &[])]);
    let (client, queue, notes) = process(&world);
    for (lane, name) in [("spoilt-lane", "a"), ("spoilt-lane", "b"), ("lane", "c")] {
        enqueue(&client, &queue, lane, name).await;
    }
    // The body of the first one is not what it was; its lane can still be read.
    let stored = world.storage.get("a").await.unwrap().unwrap();
    let mut document = stored.document.to_vec();
    *document.last_mut().unwrap() ^= 1;
    world
        .storage
        .replace(stored.revision, Stored { document: document.into(), ..stored })
        .await
        .unwrap();
    notes.take();
    assert_eq!(queue.run_once().await.unwrap(), ["spoilt-lane"]);
    assert_eq!(sent(&world), ["c"]);
    let told = notes.take();
    assert!(
        told[0].starts_with("failed spoilt-lane: the entry of \"a\" cannot be read"),
        "{told:?}"
    );
    assert_eq!(told[1..], ["confirm c"]);
    // Of one that is nothing at all the lane is not known: all others go on, and it is named.
    let spoilt = Stored { name: "spoilt".to_owned(), revision: 1, document: "x".into() };
    world.storage.insert(spoilt, 10).await.unwrap();
    enqueue(&client, &queue, "lane", "d").await;
    notes.take();
    let time = tokio::time::sleep_until(tokio::time::Instant::now() + seconds(60));
    queue.run(time).await.unwrap();
    assert_eq!(sent(&world), ["c", "d"]);
    let told = notes.take();
    let failed: Vec<_> = told.iter().filter(|line| line.starts_with("failed")).collect();
    assert_eq!(failed.len(), 2, "each is told once: {told:?}");
    assert!(
        failed.iter().any(|line| line.starts_with("failed : the entry of \"spoilt\"")),
        "{told:?}"
    );
    assert_eq!(queue.list().await.unwrap().len(), 5);
}
