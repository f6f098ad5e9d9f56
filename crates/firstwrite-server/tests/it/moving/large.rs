//! Many keys, copied by the command while others use both stores. `FIRSTWRITE_TEST_MOVED` says how many.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use firstwrite_core::protocol::{self, Reserved};
use firstwrite_core::{Fence, Inserted, OnLostAnswer, Outcome, Request, Store, Verdict};
use firstwrite_store::Access;
use firstwrite_testkit::sample;
use firstwrite_wrappers::MovingStore;
use tokio::task::JoinSet;

use super::migrate;
use crate::process::Folder;

const MOVED_DEFAULT: usize = 2_000;
/// So many are written, and asked for, at the same time.
const AT_ONCE: usize = 256;
const CALLERS: usize = 8;

fn request(key: &str) -> Request {
    sample::request(&sample::tenant("acme"), &sample::key(key), 1)
}

fn outcome(key: &str) -> Outcome {
    sample::outcome(201, key)
}

/// Completed records, as they stand before the move.
async fn fill(store: &Arc<dyn Store>, count: usize) {
    let mut under_way = JoinSet::new();
    for number in 0..count {
        if under_way.len() >= AT_ONCE {
            under_way.join_next().await.unwrap().unwrap();
        }
        let store = Arc::clone(store);
        under_way.spawn(async move {
            let (key, policy) = (format!("old-{number}"), sample::policy(OnLostAnswer::Uncertain));
            let fence = Fence::first(fastrand::u64(..));
            let draft = sample::completed(&request(&key), &policy, fence, outcome(&key));
            assert!(matches!(store.insert(&draft).await.unwrap(), Inserted::Done(_)));
        });
    }
    while let Some(ended) = under_way.join_next().await {
        ended.unwrap();
    }
}

/// Asks for old keys, which must be answered from memory, and for new ones, which run. Returns how many.
async fn call(
    store: Arc<dyn Store>,
    caller: usize,
    count: usize,
    is_moved: Arc<AtomicBool>,
) -> usize {
    let policy = sample::policy(OnLostAnswer::Uncertain);
    let mut asked = 0;
    while !is_moved.load(Ordering::SeqCst) || asked == 0 {
        let old = format!("old-{}", fastrand::usize(..count));
        expect_replay(&*store, &old).await;
        let new = format!("new-{caller}-{asked}");
        let nonce = fastrand::u64(..);
        let reserved = protocol::reserve(&*store, &request(&new), &policy, nonce).await.unwrap();
        let Reserved::Granted(reservation) = reserved else { panic!("{new}: {reserved:?}") };
        protocol::complete(&*store, reservation, outcome(&new)).await.unwrap();
        asked += 1;
    }
    asked
}

async fn expect_replay(store: &dyn Store, key: &str) {
    let policy = sample::policy(OnLostAnswer::Uncertain);
    let reserved = protocol::reserve(store, &request(key), &policy, fastrand::u64(..)).await;
    match reserved.unwrap() {
        Reserved::Refused(Verdict::Replay { outcome: kept, .. }, ..) => {
            assert_eq!(kept, outcome(key), "{key}");
        }
        other @ (Reserved::Granted(_) | Reserved::Refused(..)) => {
            panic!("{key} would run again: {other:?}")
        }
    }
}

#[test]
fn many_keys_are_moved_under_traffic_and_none_runs_again() {
    let (Some(old), Some(new)) = (Folder::on_redis(), Folder::on_postgres()) else { return };
    let count =
        env::var("FIRSTWRITE_TEST_MOVED").map_or(MOVED_DEFAULT, |text| text.parse().unwrap());
    super::create(&old, old.store());
    super::create(&old, new.store());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let open = |url: &str| runtime.block_on(firstwrite_store::open(url, Access::Write)).unwrap();
    let (from, to) = (open(old.store()), open(new.store()));
    let began = tokio::time::Instant::now();
    runtime.block_on(fill(&from, count));
    println!("{count} keys written in {:?}", began.elapsed());
    let is_moved = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let moving = MovingStore::new(Arc::clone(&to), Arc::clone(&from));
            runtime.spawn(call(Arc::new(moving), caller, count, Arc::clone(&is_moved)))
        })
        .collect();
    let began = tokio::time::Instant::now();
    let summary = migrate(&old, old.store(), new.store(), &[]);
    let took = began.elapsed();
    is_moved.store(true, Ordering::SeqCst);
    let asked: usize = callers.into_iter().map(|caller| runtime.block_on(caller).unwrap()).sum();
    println!(
        "{count} keys moved in {took:?}, {asked} old and {asked} new keys asked for meanwhile"
    );
    assert_eq!(summary["copied"], count, "{summary}");
    // The new store alone answers for each of them.
    let next = Arc::new(AtomicUsize::new(0));
    let asking: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let (store, next) = (Arc::clone(&to), Arc::clone(&next));
            runtime.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= count {
                        break;
                    }
                    expect_replay(&*store, &format!("old-{number}")).await;
                }
            })
        })
        .collect();
    for asking in asking {
        runtime.block_on(asking).unwrap();
    }
}
