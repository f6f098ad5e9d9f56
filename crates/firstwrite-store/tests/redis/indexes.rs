//! The indexes of a shard are brought up to date by many writes at a time; nobody who looks sees when.

use std::collections::BTreeMap;
use std::time::Duration;

use firstwrite_core::{
    Change, Draft, Fence, Guard, Inserted, Query, RecordId, Store as _, StoreErrorKind, Swapped,
    Timestamp,
};
use firstwrite_store::RedisStore;
use firstwrite_testkit::Subject as _;

use crate::server::{all, client, prefix};
use crate::subject::{RedisSubject, completed, created, done, reserved};

const FENCE: Fence = Fence::first(1);
const OWNER: Guard = Guard::Owner(FENCE);
/// As `journal.lua` has it.
const JOURNAL_MAX: usize = 1024;

/// Keys of one shard: that of `k`.
fn neighbours() -> impl Iterator<Item = String> {
    let shard = |key: &str| reserved(key, FENCE).id.as_bytes()[0];
    (0..).map(|number| format!("k-{number}")).filter(move |key| shard(key) == shard("k"))
}

fn tag(url: &str) -> String {
    format!("{{{}:{:02x}}}", prefix(url), reserved("k", FENCE).id.as_bytes()[0])
}

async fn count(url: &str, command: &str, name: &str) -> usize {
    let mut command = redis::cmd(command);
    command.arg(format!("{}{name}", tag(url))).query_async(&mut client(url).await).await.unwrap()
}

fn renewal() -> Change {
    Change::Renew { lease_for: Duration::from_secs(30) }
}

/// Writes in the shard of `k` until its indexes are up to date.
async fn until_worked_in(url: &str, store: &RedisStore, other: &Draft) {
    for _ in 0..64 {
        if count(url, "LLEN", "journal").await == 0 {
            return;
        }
        let renewed = store.swap(other.id, OWNER, renewal(), None).await.unwrap();
        assert!(matches!(renewed, Swapped::Done(_)));
    }
    panic!("the journal is never worked in");
}

/// What is gone leaves nothing behind but the shard's mark, its journal and what operators did.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indexes_follow_the_records() {
    for url in all() {
        let subject = RedisSubject::new(&url).await;
        let store = subject.redis();
        let (draft, other) = (reserved("k", FENCE), neighbours().next().unwrap());
        let other = reserved(&other, FENCE);
        store.insert(&other).await.unwrap();
        // Of the record, beside the other one, which is reserved.
        let counts = async || {
            until_worked_in(&url, &store, &other).await;
            let ids = count(&url, "ZCARD", "ids").await - 1;
            [ids, count(&url, "ZCARD", "leases").await - 1, count(&url, "ZCARD", "kept").await]
        };
        store.insert(&draft).await.unwrap();
        assert_eq!(counts().await, [1, 1, 0], "reserved");
        store.swap(draft.id, OWNER, done(), None).await.unwrap();
        assert_eq!(counts().await, [1, 0, 1], "completed");
        subject.advance(Duration::from_hours(24 * 365)).await;
        assert_eq!(store.reap(10).await.unwrap(), 1);
        assert_eq!(counts().await, [0, 0, 0], "reaped");
        store.insert(&draft).await.unwrap();
        assert_eq!(counts().await, [1, 1, 0], "reserved again");
        store.swap(draft.id, OWNER, Change::MARK_UNCERTAIN, None).await.unwrap();
        assert_eq!(counts().await, [1, 0, 0], "uncertain");
        store.swap(draft.id, OWNER, Change::Remove, None).await.unwrap();
        assert_eq!(counts().await, [0, 0, 0], "removed");
        // All of it before the indexes hear of anything.
        store.insert(&draft).await.unwrap();
        store.swap(draft.id, OWNER, Change::Remove, None).await.unwrap();
        store.insert(&draft).await.unwrap();
        store.swap(draft.id, OWNER, done(), None).await.unwrap();
        assert_eq!(counts().await, [1, 0, 1], "removed, inserted and completed");
    }
}

/// What should be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Reserved { until: Timestamp },
    Uncertain,
    Completed { kept_until: Timestamp },
}

async fn compare(store: &RedisStore, model: &BTreeMap<RecordId, Expected>, seed: u64) {
    let ids: Vec<RecordId> = model.keys().copied().collect();
    for limit in [3, 100] {
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let query = Query { tenant: None, state: None, after, limit };
            let page = store.list(&query).await.unwrap();
            listed.extend(page.records.iter().map(|record| record.id));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(listed, ids, "seed {seed}");
    }
    let now = store.now().await.unwrap();
    let is_lapsed =
        |expected: &Expected| matches!(expected, Expected::Reserved { until } if *until <= now);
    let expected: Vec<RecordId> =
        model.iter().filter(|(_, expected)| is_lapsed(expected)).map(|(id, _)| *id).collect();
    let mut lapsed: Vec<RecordId> = store
        .list(&Query::lapsed(100))
        .await
        .unwrap()
        .records
        .iter()
        .map(|record| record.id)
        .collect();
    lapsed.sort_unstable();
    assert_eq!(lapsed, expected, "seed {seed}");
    // However few are asked for, those in the index that are no longer due hide none.
    let some = store.list(&Query::lapsed(1)).await.unwrap().records.len();
    assert_eq!(some, expected.len().min(1), "seed {seed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_looks_sees_all_writes_at_once() {
    for url in all() {
        let seed = firstwrite_testkit::seed();
        let mut random = fastrand::Rng::with_seed(seed);
        let subject = RedisSubject::new(&url).await;
        let store = subject.redis();
        let drafts: Vec<Draft> = neighbours().take(24).map(|key| reserved(&key, FENCE)).collect();
        let mut model = BTreeMap::<RecordId, Expected>::new();
        for step in 0..400 {
            let draft = random.choice(&drafts).unwrap();
            let change = match random.u8(0..10) {
                0..4 => renewal(),
                4..7 => done(),
                7 => Change::MARK_UNCERTAIN,
                _ => Change::Remove,
            };
            if let Inserted::Done(_) = store.insert(draft).await.unwrap() {
                model.insert(draft.id, Expected::Reserved { until: lease_of(&store, draft).await });
            } else if let Swapped::Done(_) =
                store.swap(draft.id, OWNER, change.clone(), None).await.unwrap()
            {
                let found = store.get(draft.id).await.unwrap().map(|found| found.record.state);
                match found {
                    None => drop(model.remove(&draft.id)),
                    Some(firstwrite_core::State::Reserved(lease)) => {
                        model.insert(draft.id, Expected::Reserved { until: lease.until });
                    }
                    Some(firstwrite_core::State::Uncertain { .. }) => {
                        model.insert(draft.id, Expected::Uncertain);
                    }
                    Some(firstwrite_core::State::Completed { kept_until, .. }) => {
                        model.insert(draft.id, Expected::Completed { kept_until });
                    }
                }
            }
            if step % 9 == 0 {
                subject.advance(Duration::from_secs(random.u64(1..20))).await;
                compare(&store, &model, seed).await;
            }
            if step % 100 == 99 {
                subject.advance(Duration::from_hours(24 * 365)).await;
                let now = store.now().await.unwrap();
                let before = model.len();
                model.retain(|_, expected| {
                    !matches!(expected, Expected::Completed { kept_until } if *kept_until <= now)
                });
                assert_eq!(store.reap(100).await.unwrap(), before - model.len(), "seed {seed}");
                compare(&store, &model, seed).await;
            }
        }
        assert!(count(&url, "ZCARD", "ids").await > 0, "some of it came to the indexes");
    }
}

async fn lease_of(store: &RedisStore, draft: &Draft) -> Timestamp {
    store.get(draft.id).await.unwrap().unwrap().record.state.lease_until().unwrap()
}

/// An index that is no index harms nobody's record, and what waits for it is bounded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_cannot_be_written_harms_no_record() {
    for url in all() {
        let store = created(&url).await;
        let mut operator = client(&url).await;
        redis::cmd("SET")
            .arg(format!("{}kept", tag(&url)))
            .arg("a stranger's")
            .query_async::<()>(&mut operator)
            .await
            .unwrap();
        let first = reserved("k", FENCE);
        store.insert(&first).await.unwrap();
        for _ in 0..JOURNAL_MAX + 70 {
            let renewed = store.swap(first.id, OWNER, renewal(), None).await.unwrap();
            assert!(matches!(renewed, Swapped::Done(_)));
        }
        assert!(count(&url, "LLEN", "journal").await < JOURNAL_MAX);
        for key in neighbours().take(70) {
            let inserted = store.insert(&completed(&key, FENCE, 10)).await.unwrap();
            assert!(matches!(inserted, Inserted::Done(_)), "nothing is missed: {key}");
        }
        let error = store.reap(10).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error}");
    }
}

/// Many moves in one script are as many by themselves: one that is refused harms no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moves_that_share_a_script_end_each_in_its_own_way() {
    for url in all() {
        let store = created(&url).await;
        let mut operator = client(&url).await;
        let keys: Vec<String> = neighbours().take(120).collect();
        let drafts: Vec<Draft> = keys.iter().map(|key| reserved(key, FENCE)).collect();
        for draft in &drafts[..40] {
            store.insert(draft).await.unwrap();
        }
        for draft in &drafts[40..60] {
            redis::cmd("SADD")
                .arg(format!("{}r:{}", tag(&url), draft.id))
                .arg("a stranger's")
                .query_async::<()>(&mut operator)
                .await
                .unwrap();
        }
        let all = drafts.iter().map(|draft| store.insert(draft));
        let ended = futures_util::future::join_all(all).await;
        for (place, ended) in ended.into_iter().enumerate() {
            let is_right = match place {
                0..40 => matches!(ended, Ok(Inserted::Stands(_))),
                40..60 => matches!(&ended, Err(error) if error.kind() == StoreErrorKind::Corrupt),
                _ => matches!(ended, Ok(Inserted::Done(_))),
            };
            assert!(is_right, "{place}: {ended:?}");
        }
        // One record several times, in the order in which they came.
        let draft = &drafts[0];
        let (renewed, completed, again, removed) = tokio::join!(
            store.swap(draft.id, OWNER, renewal(), None),
            store.swap(draft.id, OWNER, done(), None),
            store.insert(draft),
            store.swap(drafts[1].id, OWNER, Change::Remove, None),
        );
        assert!(matches!(renewed, Ok(Swapped::Done(_))), "{renewed:?}");
        assert!(matches!(completed, Ok(Swapped::Done(_))), "{completed:?}");
        let Ok(Inserted::Stands(found)) = again else { panic!("{again:?}") };
        assert!(matches!(found.record.state, firstwrite_core::State::Completed { .. }));
        assert!(matches!(removed, Ok(Swapped::Done(_))), "{removed:?}");
    }
}
