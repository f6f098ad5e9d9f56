//! Acknowledged history that is missing: unknown keys are refused until an operator has looked.

use firstwrite_core::{Fence, Inserted, Store as _, StoreErrorKind};
use firstwrite_store::RedisStore;
use firstwrite_store::doctor::{self, Severity};

use crate::faults::{both, fall_behind, follow};
use crate::own::Own;
use crate::subject::{created, reserved};

/// How an insert of a key ends.
pub(crate) async fn insert(store: &RedisStore, key: &str) -> Result<&'static str, StoreErrorKind> {
    match store.insert(&reserved(key, Fence::first(1))).await {
        Ok(Inserted::Done(_)) => Ok("done"),
        Ok(Inserted::Stands(_)) => Ok("stands"),
        Err(error) => Err(error.kind()),
    }
}

/// Until the store has noticed that its server is gone.
pub(crate) async fn insert_when_found(
    store: &RedisStore,
    key: &str,
) -> Result<&'static str, StoreErrorKind> {
    for _ in 0..100 {
        match insert(store, key).await {
            Err(StoreErrorKind::Unavailable) => tokio::task::yield_now().await,
            ended => return ended,
        }
    }
    panic!("the other server is not found");
}

/// A key in each shard but few, so that whatever was lost shows.
async fn write_many(store: &RedisStore, phase: &str) {
    for number in 0..600 {
        assert_eq!(insert(store, &format!("{phase}-{number}")).await, Ok("done"));
    }
}

/// Keys in the shard of the key that will be asked for, so that their number is known there.
async fn write_beside(store: &RedisStore, phase: &str, count: usize) {
    let shard = |key: &str| reserved(key, Fence::first(1)).id.as_bytes()[0];
    let keys = (0..).map(|number| format!("{phase}-{number}"));
    for key in keys.filter(|key| shard(key) == shard("unknown")).take(count) {
        assert_eq!(insert(store, &key).await, Ok("done"));
    }
}

/// Two servers, of which the second followed the first for a while and was then promoted, while the first went on and
/// died. The address of both.
async fn failed_over(url_options: &str) -> Option<(RedisStore, Own, String)> {
    let (mut one, other) = (Own::safe().await?, Own::safe().await?);
    let store = created(&one.url()).await;
    write_many(&store, "kept").await;
    follow(&other, &one).await;
    let url = both(&one, &other, url_options);
    let store = RedisStore::connect(&url).await.unwrap();
    // A server renames its history when its first replica comes. The replica must have what the connection noted of
    // that before it is cut off: without it, nothing there tells whose history it continues.
    follow(&other, &one).await;
    fall_behind(&other).await;
    write_many(&store, "lost").await;
    one.kill();
    other.tell(&["REPLICAOF", "NO", "ONE"]).await;
    Some((store, other, url))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_was_behind_is_noticed_and_an_operator_clears_it() {
    let Some((store, _other, url)) = failed_over("").await else { return };
    assert_eq!(insert_when_found(&store, "unknown").await, Err(StoreErrorKind::HistoryLost));
    assert_eq!(
        insert(&store, "lost-7").await,
        Err(StoreErrorKind::HistoryLost),
        "it was used, and that was lost"
    );
    assert_eq!(insert(&store, "kept-7").await, Ok("stands"), "what is known is answered");
    let fresh = RedisStore::connect(&url).await.unwrap();
    assert_eq!(insert(&fresh, "unknown").await, Err(StoreErrorKind::HistoryLost), "everywhere");
    let found = doctor::redis(&fresh).await.unwrap();
    assert!(
        found.iter().any(|one| one.code == "history-lost" && one.severity == Severity::Unsafe),
        "{found:?}"
    );

    let losses = fresh.history_losses().await.unwrap();
    assert!(losses.len() == 1 && losses[0].cleared.is_none(), "{losses:?}");
    assert_eq!(
        fresh.clear_history_losses("operator", "compared with the bank").await.unwrap().losses,
        1
    );
    let cleared = fresh.history_losses().await.unwrap()[0].cleared.clone().unwrap();
    assert_eq!((&*cleared.by, &*cleared.reason), ("operator", "compared with the bank"));
    // Said once, also by those who remember what was lost, in every shard.
    for number in 0..600 {
        assert_eq!(insert(&store, &format!("lost-{number}")).await, Ok("done"), "{number}");
    }
    assert_eq!(insert(&fresh, "new").await, Ok("done"));
    assert_eq!(fresh.history_losses().await.unwrap().len(), 1);
    let found = doctor::redis(&fresh).await.unwrap();
    assert!(found.iter().all(|one| one.code != "history-lost"), "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_remembers_nothing_sees_that_a_replica_took_over() {
    let Some((_store, _other, url)) = failed_over("").await else { return };
    let fresh = RedisStore::connect(&url).await.unwrap();
    assert_eq!(insert(&fresh, "unknown").await, Err(StoreErrorKind::HistoryLost));
    // One who trusts fail-overs trusts this one, but not what it knows to be missing.
    let Some((store, _other, url)) = failed_over("fail_over=trusted").await else { return };
    let fresh = RedisStore::connect(&url).await.unwrap();
    assert_eq!(insert(&fresh, "unknown").await, Ok("done"));
    let mut is_noticed = false;
    for number in 0..50 {
        is_noticed |= insert_when_found(&store, &format!("later-{number}")).await
            == Err(StoreErrorKind::HistoryLost);
    }
    assert!(is_noticed, "writes of its own are missing");
}

/// The same process behind the same connection, which took another's history over for a moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_a_replica_in_between_is_noticed() {
    let (Some(one), Some(other)) = (Own::safe().await, Own::safe().await) else { return };
    let store = created(&one.url()).await;
    write_many(&store, "kept").await;
    follow(&other, &one).await;
    other.tell(&["REPLICAOF", "NO", "ONE"]).await;
    write_many(&store, "lost").await;
    follow(&one, &other).await;
    one.tell(&["REPLICAOF", "NO", "ONE"]).await;
    assert_eq!(insert(&store, "lost-7").await, Err(StoreErrorKind::HistoryLost));
    assert_eq!(insert(&store, "kept-7").await, Ok("stands"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_was_emptied_is_noticed_by_those_who_knew_it() {
    let Some(own) = Own::safe().await else { return };
    let store = created(&own.url()).await;
    write_many(&store, "k").await;
    let id = reserved("k-1", Fence::first(1)).id;
    store.check_history(id).await.unwrap();
    own.tell(&["FLUSHALL"]).await;
    // The look-up of a key that is not written notices it, too.
    assert_eq!(store.check_history(id).await.unwrap_err().kind(), StoreErrorKind::HistoryLost);
    assert_eq!(insert(&store, "k-1").await, Err(StoreErrorKind::HistoryLost));
    assert_eq!(store.clear_history_losses("operator", "it was me").await.unwrap().losses, 1);
    store.check_history(id).await.unwrap();
    assert_eq!(insert(&store, "k-1").await, Ok("done"));
}

/// A log that was put back, or lost its end: the server is the same, its history is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_with_less_than_was_acknowledged_is_noticed_even_after_others_wrote_on() {
    let Some(mut own) = Own::safe().await else { return };
    let store = created(&own.url()).await;
    write_beside(&store, "kept", 5).await;
    let backup = own.copy_log();
    write_beside(&store, "lost", 5).await;
    own.restart_with_log(backup.path()).await;
    // Somebody who remembers nothing comes first, and writes more than was lost.
    let fresh = RedisStore::connect(&own.url()).await.unwrap();
    write_beside(&fresh, "new", 20).await;
    assert_eq!(insert_when_found(&store, "unknown").await, Err(StoreErrorKind::HistoryLost));
    // Everywhere, and in shards of which nobody misses anything.
    for number in 0..20 {
        let ended = insert(&fresh, &format!("elsewhere-{number}")).await;
        assert_eq!(ended, Err(StoreErrorKind::HistoryLost), "{number}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_that_lost_nothing_is_not_doubted() {
    let Some(mut own) = Own::safe().await else { return };
    let store = created(&own.url()).await;
    write_many(&store, "k").await;
    for round in 0..3 {
        own.kill();
        own.restart().await;
        let fresh = RedisStore::connect(&own.url()).await.unwrap();
        assert_eq!(insert(&fresh, &format!("fresh-{round}")).await, Ok("done"));
        assert_eq!(insert_when_found(&store, &format!("old-{round}")).await, Ok("done"));
        assert_eq!(insert(&store, "k-7").await, Ok("stands"));
    }
    assert!(store.history_losses().await.unwrap().is_empty());
}
