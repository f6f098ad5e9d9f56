//! What comes out of the cache is what stands.

use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::outbox::{Answers, ClaimRequest, Next, Receipt, Settlement, protocol};
use firstwrite_core::{
    Change, Fence, Guard, Inserted, Message, OnLostAnswer, Policy, State, Store, Swapped,
};
use firstwrite_testkit::{Ending, Script, Subject, sample};
use firstwrite_wrappers::{CacheScope, CachedStore};

use crate::scene::{Scene, quick};

#[tokio::test]
async fn a_replay_comes_out_of_redis_for_everybody() {
    let Some(scene) = Scene::new().await else { return };
    let record = scene.complete("k").await;
    assert_eq!(scene.told(record.id).await.as_ref(), Some(&record));
    assert_eq!(scene.hits(), 0, "the first look puts it there");
    assert_eq!(scene.told(record.id).await.as_ref(), Some(&record));
    assert_eq!(scene.hits(), 1);
    // Another process reserves, and the store behind it is not asked: it would not know.
    let rival = scene.rival().await;
    let guard = Guard::Seen(record.seen());
    let removed = scene.subject.store().swap(record.id, guard, Change::Remove, None).await.unwrap();
    assert!(matches!(removed, Swapped::Done(_)));
    let request = sample::request(&record.tenant, &record.key, 1);
    let draft = sample::reserved(&request, &Policy::default(), Fence::first(2));
    let Inserted::Stands(found) = rival.insert(&draft).await.unwrap() else {
        panic!("it is cached")
    };
    assert_eq!(found.record, record);
    assert_eq!(rival.counts().hits, 1);
}

#[tokio::test]
async fn a_reservation_that_meets_a_record_puts_it_there() {
    let Some(scene) = Scene::new().await else { return };
    let record = scene.complete("k").await;
    let request = sample::request(&record.tenant, &record.key, 1);
    let draft = sample::reserved(&request, &Policy::default(), Fence::first(2));
    for hits in 0..2 {
        let inserted = scene.store.insert(&draft).await.unwrap();
        assert!(matches!(inserted, Inserted::Stands(found) if found.record == record));
        assert_eq!(scene.hits(), hits);
    }
}

#[tokio::test]
async fn what_may_still_change_is_never_cached() {
    let Some(scene) = Scene::new().await else { return };
    let policy = sample::policy(OnLostAnswer::Uncertain);
    let open = sample::reserved(&scene.request("open"), &policy, Fence::first(1));
    let lost = sample::reserved(&scene.request("lost"), &policy, Fence::first(2));
    for draft in [&open, &lost] {
        scene.store.insert(draft).await.unwrap();
    }
    let guard = Guard::Owner(lost.fence);
    scene.store.swap(lost.id, guard, Change::MARK_UNCERTAIN, None).await.unwrap();
    for id in [open.id, lost.id] {
        for _ in 0..2 {
            assert!(scene.told(id).await.is_some());
        }
        assert!(scene.keys(id).await.is_empty());
    }

    let interim = scene.request("interim");
    let answers =
        Answers { delivered: sample::outcome(201, "paid"), refused: sample::outcome(402, "no") };
    let message = Message::new(&interim.tenant, &interim.key, "pay", "bank", Bytes::new()).unwrap();
    let mut script = Script::new(interim.clone(), Ending::Interim(202));
    script.messages.push(message.answering(answers.clone()));
    scene.subject.transact(script).await.unwrap();
    for _ in 0..2 {
        assert!(scene.told(interim.id).await.is_some());
    }
    assert!(scene.keys(interim.id).await.is_empty());
    let outbox = scene.store.outbox().unwrap();
    let lease_for = Duration::from_secs(9);
    let request = ClaimRequest { destination: "bank".to_owned(), count_max: 1, lease_for };
    let claimed_message = outbox.claim(&[request], 1).await.unwrap().messages.remove(0);
    let settlement = Settlement {
        claim: claimed_message.claim(),
        delivery: None,
        next: Next::Delivered(Receipt::default()),
        answer: Some(answers.delivered.clone()),
    };
    protocol::settle(outbox, &[], &[settlement]).await.unwrap();
    for hits in 0..2 {
        let State::Completed { outcome, .. } = scene.told(interim.id).await.unwrap().state else {
            panic!("it is completed")
        };
        assert_eq!(outcome, answers.delivered, "the final answer at once");
        assert_eq!(scene.hits(), hits);
    }
}

#[tokio::test]
async fn redis_forgets_before_the_retention_ends() {
    let Some(scene) = Scene::new().await else { return };
    let record = scene.complete("k").await;
    scene.advance(Duration::from_hours(1)).await;
    scene.told(record.id).await;
    let key = scene.key(record.id).await;
    let left: u64 = scene.redis(&[b"PTTL", key.as_bytes()]).await;
    let until = Policy::RETENTION_DEFAULT.saturating_sub(Duration::from_hours(1));
    assert!(Duration::from_millis(left) < until, "{left} ms");
    assert!(Duration::from_millis(left) > until / 2, "{left} ms");
}

#[tokio::test]
async fn an_entry_that_outlives_its_retention_is_not_used() {
    let Some(scene) = Scene::new().await else { return };
    let record = scene.complete("k").await;
    scene.told(record.id).await;
    // Redis fails to forget: its clock stands still, or somebody meddled.
    let key = scene.key(record.id).await;
    assert_eq!(scene.redis::<u64>(&[b"PERSIST", key.as_bytes()]).await, 1);
    let nearly = Policy::RETENTION_DEFAULT.saturating_sub(Duration::from_secs(30));
    scene.advance(nearly).await;
    assert!(scene.told(record.id).await.is_some());
    assert_eq!(scene.hits(), 0, "so near to the end the store is asked");
    scene.advance(Duration::from_secs(30)).await;
    // The key is used anew, behind this process's back.
    let request = sample::request(&record.tenant, &record.key, 1);
    let next = sample::reserved(&request, &Policy::default(), record.fence.next(2));
    let change = Change::TakeOver(Box::new(next.clone()));
    let guard = Guard::Seen(record.seen());
    scene.subject.store().swap(record.id, guard, change, None).await.unwrap();
    assert_eq!(scene.told(record.id).await.unwrap().fence, next.fence);
    let inserted = scene.store.insert(&next).await.unwrap();
    assert!(matches!(inserted, Inserted::Stands(found) if found.record.fence == next.fence));
}

#[tokio::test]
async fn what_is_removed_through_any_cache_is_gone() {
    let Some(scene) = Scene::new().await else { return };
    let record = scene.complete("k").await;
    scene.told(record.id).await;
    let guard = Guard::Seen(record.seen());
    let rival = scene.rival().await;
    rival.swap(record.id, guard, Change::Remove, None).await.unwrap();
    assert_eq!(scene.told(record.id).await, None);
    // What was read before the change is not put there after it.
    let again = scene.complete("k").await;
    for _ in 0..2 {
        assert_eq!(scene.told(again.id).await.as_ref(), Some(&again));
    }
    assert_eq!(scene.hits(), 0, "for a while the store is asked");
}

#[tokio::test]
async fn two_databases_share_one_redis_and_never_mix() {
    let Some(scene) = Scene::new().await else { return };
    let record = scene.complete("k").await;
    scene.told(record.id).await;
    // The same key of the same tenant, in a database that knows nothing of it.
    let other = firstwrite_testkit::MemorySubject::new().store();
    let scope = CacheScope::named("another");
    let other = CachedStore::new(other, scope, &scene.url, quick()).unwrap();
    other.now().await.unwrap();
    assert!(other.get(record.id).await.unwrap().is_none());
    assert_eq!(other.counts().misses, 1);
}

#[tokio::test]
async fn a_large_record_is_not_cached() {
    let Some(scene) = Scene::new().await else { return };
    let body = "x".repeat(256 * 1024);
    let record = scene.complete_with("k", sample::outcome(201, &body)).await;
    for _ in 0..2 {
        assert_eq!(scene.told(record.id).await.as_ref(), Some(&record));
    }
    assert_eq!(scene.hits(), 0);
    assert!(scene.keys(record.id).await.is_empty());
}

#[cfg(feature = "sealed")]
#[tokio::test]
async fn behind_a_sealed_store_redis_holds_what_is_sealed() {
    use std::sync::Arc;

    use firstwrite_wrappers::{BreakerOptions, BreakerStore, KeyRing, SealedStore, SealingKey};

    let Some(scene) = Scene::new().await else { return };
    let key = SealingKey::from_hex("k", &"0123456789abcdef".repeat(4)).unwrap();
    // All three, in the order in which they belong.
    let breaker = BreakerStore::new(scene.subject.store(), BreakerOptions::default());
    let cached = CachedStore::new(Arc::new(breaker), scene.scope.clone(), &scene.url, quick());
    let cached = Arc::new(cached.unwrap());
    let store =
        SealedStore::new(Arc::<CachedStore>::clone(&cached), KeyRing::new(vec![key]).unwrap());
    let (request, policy) = (scene.request("k"), Policy::default());
    let outcome = sample::outcome(201, "card 4242");
    let draft = sample::completed(&request, &policy, Fence::first(1), outcome.clone());
    store.insert(&draft).await.unwrap();
    for _ in 0..2 {
        let found = store.get(draft.id).await.unwrap().unwrap();
        assert!(
            matches!(found.record.state, State::Completed { outcome: read, .. } if read == outcome)
        );
    }
    assert_eq!(cached.counts().hits, 1);
    let key = scene.key(draft.id).await;
    let entry: Vec<u8> = scene.redis(&[b"GET", key.as_bytes()]).await;
    assert!(!entry.windows(4).any(|part| part == b"4242"));
}
