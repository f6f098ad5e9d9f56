//! Redis that is away, slow, flushed or wrong costs speed, never truth.

use std::time::{Duration, Instant};

use firstwrite_core::{Certainty, Change, Guard, Policy, Store, Swapped};
use firstwrite_testkit::{MemorySubject, Subject, sample};
use firstwrite_wrappers::{CacheError, CacheOptions, CacheScope, CachedStore};

use crate::scene::{Scene, address, quick};
use firstwrite_testkit::{Network, Proxy};

#[tokio::test]
async fn redis_is_killed_and_comes_back() {
    let Some(url) = address() else { return };
    let proxy = Proxy::new(&url).await.unwrap();
    let scene = Scene::with(&url, &proxy.url(&url), quick()).await;
    let record = scene.complete("k").await;
    for _ in 0..2 {
        scene.told(record.id).await;
    }
    assert_eq!(scene.hits(), 1);
    proxy.set(Network::Down);
    for _ in 0..10 {
        assert_eq!(scene.told(record.id).await.as_ref(), Some(&record));
    }
    let fresh = scene.complete("fresh").await;
    assert_eq!(scene.told(fresh.id).await.as_ref(), Some(&fresh));
    assert_eq!(scene.hits(), 1);
    assert!(scene.store.is_left_alone());
    proxy.set(Network::Up);
    for _ in 0..2 {
        assert_eq!(scene.told(record.id).await.as_ref(), Some(&record));
    }
    assert_eq!(scene.hits(), 3, "what it had is used again");
    assert!(!scene.store.is_left_alone());
}

#[tokio::test]
async fn what_may_be_cached_is_not_changed_while_redis_is_away() {
    let Some(url) = address() else { return };
    let proxy = Proxy::new(&url).await.unwrap();
    let scene = Scene::with(&url, &proxy.url(&url), quick()).await;
    let record = scene.complete("k").await;
    scene.told(record.id).await;
    proxy.set(Network::Down);
    let guard = Guard::Seen(record.seen());
    let error = scene.store.swap(record.id, guard, Change::Remove, None).await.unwrap_err();
    assert_eq!(error.certainty(), Certainty::Definite);
    assert!(scene.behind(record.id).await.is_some());
    // What the protocol does, after the retention, needs no Redis.
    scene.advance(Policy::RETENTION_DEFAULT).await;
    let next = sample::reserved(&scene.request("k"), &Policy::default(), record.fence.next(2));
    let change = Change::TakeOver(Box::new(next));
    let swapped = scene.store.swap(record.id, guard, change, None).await.unwrap();
    assert!(matches!(swapped, Swapped::Done(_)));
}

#[tokio::test]
async fn a_dead_redis_is_left_alone() {
    let Some(url) = address() else { return };
    let proxy = Proxy::new(&url).await.unwrap();
    proxy.set(Network::Down);
    let mut options = quick();
    options.open_for = Duration::from_hours(1);
    let scene = Scene::with(&url, &proxy.url(&url), options).await;
    let record = scene.complete("k").await;
    for _ in 0..50 {
        assert_eq!(scene.told(record.id).await.as_ref(), Some(&record));
    }
    assert_eq!(proxy.connected(), 3, "after three failures nobody asks it");
    assert!(scene.store.counts().failures >= 50);
}

#[tokio::test]
async fn a_redis_that_hangs_costs_a_little_time_and_then_none() {
    let Some(url) = address() else { return };
    let proxy = Proxy::new(&url).await.unwrap();
    let mut options = quick();
    options.timeout = Duration::from_millis(50);
    options.connect_timeout = Duration::from_millis(250);
    options.open_for = Duration::from_hours(1);
    let scene = Scene::with(&url, &proxy.url(&url), options).await;
    let record = scene.complete("k").await;
    scene.told(record.id).await;
    proxy.set(Network::AnswersLost);
    #[expect(clippy::disallowed_methods, reason = "a limit on real time")]
    let started = Instant::now();
    for _ in 0..200 {
        assert_eq!(scene.told(record.id).await.as_ref(), Some(&record));
    }
    assert!(scene.store.is_left_alone());
    // Three questions or connections, and not two hundred of 50 ms.
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_flushed_redis_is_filled_again() {
    let Some(scene) = Scene::new().await else { return };
    let record = scene.complete("k").await;
    scene.told(record.id).await;
    let key = scene.key(record.id).await;
    assert_eq!(scene.redis::<u64>(&[b"DEL", key.as_bytes()]).await, 1);
    assert_eq!(scene.told(record.id).await.as_ref(), Some(&record));
    assert_eq!(scene.hits(), 0);
    scene.told(record.id).await;
    assert_eq!(scene.hits(), 1);
}

#[tokio::test]
async fn a_value_that_is_damaged_or_foreign_is_ignored_and_replaced() {
    let Some(scene) = Scene::new().await else { return };
    let (record, other) = (scene.complete("k").await, scene.complete("other").await);
    for id in [record.id, other.id] {
        scene.told(id).await;
    }
    let (key, other_key) = (scene.key(record.id).await, scene.key(other.id).await);
    let good: Vec<u8> = scene.redis(&[b"GET", key.as_bytes()]).await;
    let foreign: Vec<u8> = scene.redis(&[b"GET", other_key.as_bytes()]).await;
    let (mut flipped, mut newer) = (good.clone(), good.clone());
    *flipped.last_mut().unwrap() ^= 1;
    newer[0] += 1;
    let cut = good[..good.len() - 1].to_vec();
    let values = [foreign, flipped, newer, cut, b"hello".to_vec(), vec![0; 300 * 1024]];
    for (round, value) in (1_u64..).zip(&values) {
        scene.redis::<()>(&[b"SET", key.as_bytes(), value]).await;
        assert_eq!(scene.told(record.id).await.as_ref(), Some(&record), "round {round}");
        assert_eq!(scene.store.counts().ignored, round);
        assert_eq!(scene.hits(), 0);
        let replaced: Vec<u8> = scene.redis(&[b"GET", key.as_bytes()]).await;
        assert!(replaced == good, "round {round}");
    }
    // Not even a value of the right kind.
    scene.redis::<()>(&[b"DEL", key.as_bytes()]).await;
    scene.redis::<()>(&[b"LPUSH", key.as_bytes(), b"x"]).await;
    assert_eq!(scene.told(record.id).await.as_ref(), Some(&record));
    scene.told(record.id).await;
    assert_eq!(scene.hits(), 1);
}

#[test]
fn addresses_are_checked_and_never_told() {
    let new = |url: &str| {
        let store = MemorySubject::new().store();
        CachedStore::new(store, CacheScope::named("x"), url, CacheOptions::default())
    };
    for url in ["redis://:secret@cache.internal:6379/2", "rediss://cache.internal:6380"] {
        let store = new(url).unwrap();
        assert!(!format!("{store:?}").contains("secret"));
    }
    let error: CacheError = new("http://:secret@x").unwrap_err();
    assert!(!error.to_string().contains("secret"));
}
