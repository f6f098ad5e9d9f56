//! Two open stores of one test process on one server: lost history is noticed whichever of them is asked, and no loss
//! is reported where nothing is missing. They share nothing but the server, as two processes do.

use firstwrite_core::{Query, Store as _, StoreErrorKind};
use firstwrite_store::RedisStore;
use firstwrite_store::doctor::{self, Severity};

use crate::cluster::Cluster;
use crate::faults::{both, fall_behind, follow};
use crate::history_loss::{insert, insert_when_found};
use crate::own::Own;
use crate::subject::{created, reserved};

const IN_DOUBT: Result<&str, StoreErrorKind> = Err(StoreErrorKind::HistoryLost);

async fn two(url: &str) -> [RedisStore; 2] {
    [created(url).await, RedisStore::connect(url).await.unwrap()]
}

async fn write(store: &RedisStore, phase: &str, count: usize) {
    for number in 0..count {
        assert_eq!(insert(store, &format!("{phase}-{number}")).await, Ok("done"));
    }
}

async fn is_unsafe(url: &str) -> bool {
    let store = RedisStore::connect_read_only(url).await.unwrap();
    let found = doctor::redis(&store).await.unwrap();
    found.iter().any(|one| one.code == "history-lost" && one.severity == Severity::Unsafe)
}

/// Keys of one shard.
fn neighbours() -> impl Iterator<Item = String> {
    let shard = |key: &str| reserved(key, firstwrite_core::Fence::first(1)).id.as_bytes()[0];
    (0..).map(|number| format!("s-{number}")).filter(move |key| shard(key) == shard("s-0"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_store_is_noticed_by_one_who_wrote_nothing() {
    for has_replayed in [true, false] {
        let Some(own) = Own::safe().await else { return };
        let [one, other] = two(&own.url()).await;
        write(&one, "k", 5).await;
        for number in 0..5 {
            if has_replayed {
                assert_eq!(insert(&other, &format!("k-{number}")).await, Ok("stands"));
            }
        }
        own.tell(&["FLUSHALL"]).await;
        for number in 0..5 {
            assert_eq!(insert(&other, &format!("k-{number}")).await, IN_DOUBT, "{number}");
        }
        assert_eq!(insert(&one, "new").await, IN_DOUBT);
        assert!(is_unsafe(&own.url()).await);
        // Each says it once.
        other.clear_history_losses("operator", "it was me").await.unwrap();
        assert_eq!(insert(&one, "k-0").await, Ok("done"));
        assert_eq!(insert(&other, "k-1").await, Ok("done"));
        assert_eq!(one.history_losses().await.unwrap().len(), 1);
    }
}

/// Somebody created the store again and wrote more than there was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_store_that_was_filled_again_is_noticed() {
    let Some(own) = Own::safe().await else { return };
    let [one, other] = two(&own.url()).await;
    write(&one, "k", 5).await;
    own.tell(&["FLUSHALL"]).await;
    let new = created(&own.url()).await;
    write(&new, "more", 10).await;
    assert_eq!(insert(&other, "k-0").await, IN_DOUBT);
    assert_eq!(insert(&new, "later").await, IN_DOUBT);
}

/// A sweep asks too, so that a process without requests bears witness.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_store_is_noticed_by_a_sweep() {
    let Some(own) = Own::safe().await else { return };
    let [one, other] = two(&own.url()).await;
    write(&one, "k", 5).await;
    own.tell(&["FLUSHALL"]).await;
    other.list(&Query::lapsed(1)).await.unwrap();
    assert!(is_unsafe(&own.url()).await);
    assert_eq!(insert(&one, "k-0").await, IN_DOUBT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_cut_short_is_noticed_whichever_is_asked() {
    for asked in [0, 1] {
        let Some(mut own) = Own::safe().await else { return };
        let stores = two(&own.url()).await;
        write(&stores[0], "kept-a", 10).await;
        write(&stores[1], "kept-b", 10).await;
        let cut = own.copy_log();
        // In shards of their own; the writes of one come before those of the other.
        write(&stores[1 - asked], "lost", 10).await;
        write(&stores[asked], "last", 1).await;
        own.restart_with_log(cut.path()).await;
        assert_eq!(insert_when_found(&stores[asked], "lost-0").await, IN_DOUBT);
        for number in 1..10 {
            assert_eq!(insert(&stores[asked], &format!("lost-{number}")).await, IN_DOUBT);
        }
        assert_eq!(insert(&stores[asked], "kept-a-0").await, Ok("stands"));
        assert!(is_unsafe(&own.url()).await);
    }
}

/// What another process wrote is known from the last sweep on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_cut_short_is_noticed_by_one_who_swept() {
    let Some(mut own) = Own::safe().await else { return };
    let [one, other] = two(&own.url()).await;
    let cut = own.copy_log();
    write(&one, "lost", 10).await;
    other.list(&Query::lapsed(1)).await.unwrap();
    own.restart_with_log(cut.path()).await;
    assert_eq!(insert_when_found(&other, "lost-3").await, IN_DOUBT);
}

/// The others, too, were not told: the one who misses something says it when it looks, whoever has written since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_misses_something_says_so_after_others_wrote_on() {
    let Some(mut own) = Own::safe().await else { return };
    let [one, other] = two(&own.url()).await;
    let cut = own.copy_log();
    write(&one, "lost", 10).await;
    own.restart_with_log(cut.path()).await;
    assert_eq!(insert_when_found(&other, "new").await, Ok("done"));
    write(&other, "more", 20).await;
    while one.list(&Query::lapsed(1)).await.is_err() {}
    assert_eq!(insert(&other, "later").await, IN_DOUBT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_was_behind_is_noticed_by_one_who_wrote_nothing() {
    let (Some(mut one), Some(replica)) = (Own::safe().await, Own::safe().await) else { return };
    follow(&replica, &one).await;
    let url = both(&one, &replica, "");
    let [writer, other] = two(&url).await;
    fall_behind(&replica).await;
    write(&writer, "zz", 10).await;
    one.kill();
    replica.tell(&["REPLICAOF", "NO", "ONE"]).await;
    assert_eq!(insert_when_found(&other, "zz-0").await, IN_DOUBT);
    for number in 0..10 {
        assert_eq!(insert(&other, &format!("zz-{number}")).await, IN_DOUBT);
    }
    assert_eq!(insert_when_found(&writer, "new").await, IN_DOUBT);
    assert!(is_unsafe(&url).await);
}

/// The same process behind the same connections, which took another's history over for a moment; and others wrote
/// more than was lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_a_replica_in_between_is_noticed_although_others_wrote_on() {
    let (Some(one), Some(replica)) = (Own::safe().await, Own::safe().await) else { return };
    let [writer, other] = two(&one.url()).await;
    follow(&replica, &one).await;
    replica.tell(&["REPLICAOF", "NO", "ONE"]).await;
    write(&writer, "lost", 3).await;
    follow(&one, &replica).await;
    one.tell(&["REPLICAOF", "NO", "ONE"]).await;
    write(&other, "more", 5).await;
    other.list(&Query::lapsed(1)).await.unwrap();
    assert_eq!(insert(&writer, "lost-0").await, IN_DOUBT);
}

/// Nothing is missing after a restart, in whatever order two processes write and replay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_that_lost_nothing_is_not_doubted_by_two() {
    let (Some(mut own), Some(replica)) = (Own::safe().await, Own::safe().await) else { return };
    let [one, other] = two(&own.url()).await;
    let mut keys = neighbours();
    for (is_clean, has_replica) in [(true, false), (false, false), (true, true), (false, true)] {
        if has_replica {
            follow(&replica, &own).await;
            one.list(&Query::lapsed(1)).await.unwrap();
        }
        let [before, after, new, last] = [(); 4].map(|()| keys.next().unwrap());
        assert_eq!(insert(&one, &before).await, Ok("done"));
        if is_clean {
            own.stop().await;
        } else {
            own.kill();
        }
        own.restart().await;
        assert_eq!(insert_when_found(&other, &after).await, Ok("done"));
        assert_eq!(insert_when_found(&one, &after).await, Ok("stands"), "a replay");
        assert_eq!(insert(&one, &new).await, Ok("done"), "clean: {is_clean}");
        assert_eq!(insert(&other, &last).await, Ok("done"), "clean: {is_clean}");
        one.list(&Query::lapsed(1)).await.unwrap();
        other.list(&Query::lapsed(1)).await.unwrap();
    }
    assert!(one.history_losses().await.unwrap().is_empty());
    assert!(!is_unsafe(&own.url()).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_server_of_a_cluster_is_noticed_by_one_who_wrote_nothing() {
    let Some(cluster) = Cluster::start(3).await else { return };
    let [one, other] = two(&cluster.url()).await;
    write(&one, "k", 20).await;
    cluster.nodes[2].tell(&["FLUSHALL"]).await;
    other.list(&Query::lapsed(1)).await.unwrap();
    for number in 0..20 {
        let ended = insert(&other, &format!("k-{number}")).await;
        assert!(ended == Ok("stands") || ended == IN_DOUBT, "{number}: {ended:?}");
    }
    // Also on the servers that lost nothing.
    for number in 0..20 {
        assert_eq!(insert(&one, &format!("new-{number}")).await, IN_DOUBT, "{number}");
    }
    other.clear_history_losses("operator", "it was me").await.unwrap();
    write(&one, "later", 20).await;
    assert_eq!(one.history_losses().await.unwrap().len(), 1);
}
