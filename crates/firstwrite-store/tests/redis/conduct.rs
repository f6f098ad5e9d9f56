//! A server that is changed, or another one, under a running store: what it must be is asked again.

use firstwrite_core::{Query, Store as _, StoreErrorKind};
use firstwrite_store::doctor::{self, Severity};
use firstwrite_store::{RedisOptions, RedisStore};

use crate::faults::{both, follow};
use crate::history_loss::{insert, insert_when_found};
use crate::own::Own;
use crate::subject::created;

/// The server is not one to write to.
const UNFIT: Result<&str, StoreErrorKind> = Err(StoreErrorKind::Unsupported);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_lose_keys_are_refused_at_run_time_until_they_are_set_back() {
    let Some(own) = Own::safe().await else { return };
    let [one, other] = [created(&own.url()).await, created(&own.url()).await];
    assert_eq!(insert(&one, "known").await, Ok("done"));
    for (name, wrong, right) in
        [("maxmemory-policy", "allkeys-lru", "noeviction"), ("appendonly", "no", "yes")]
    {
        own.tell(&["CONFIG", "SET", name, wrong]).await;
        for store in [&one, &other] {
            store.list(&Query::lapsed(1)).await.unwrap();
            assert_eq!(insert(store, "unknown").await, UNFIT, "{name}");
            assert_eq!(insert(store, "known").await, Ok("stands"), "what is known is answered");
        }
        own.tell(&["CONFIG", "SET", name, right]).await;
        one.list(&Query::lapsed(1)).await.unwrap();
        assert_eq!(insert(&one, &format!("after-{name}")).await, Ok("done"));
        other.list(&Query::lapsed(1)).await.unwrap();
    }
    assert!(one.history_losses().await.unwrap().is_empty(), "nothing was lost");
    // One who accepts it goes on.
    own.tell(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
    let accepted = format!("{}?accept_key_loss=true", own.url());
    let accepting = RedisStore::connect(&accepted).await.unwrap();
    accepting.list(&Query::lapsed(1)).await.unwrap();
    assert_eq!(insert(&accepting, "accepted").await, Ok("done"));
}

/// No sweep has come yet, and the server is the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_are_asked_for_on_a_new_connection() {
    let Some(own) = Own::safe().await else { return };
    let store = created(&own.url()).await;
    assert_eq!(insert(&store, "known").await, Ok("done"));
    own.tell(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
    own.tell(&["CLIENT", "KILL", "TYPE", "normal"]).await;
    assert_eq!(insert_when_found(&store, "unknown").await, UNFIT);
    assert_eq!(insert(&store, "known").await, Ok("stands"));
}

/// The settings are right again, and keys are gone. Whose they were, the server does not say: here it is a stranger's,
/// so that the mark of the store stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_were_evicted_are_lost_history() {
    let Some(own) = Own::safe().await else { return };
    let accepted = format!("{}?accept_key_loss=true", own.url());
    let [one, other, accepting] =
        [created(&own.url()).await, created(&own.url()).await, created(&accepted).await];
    assert_eq!(insert(&one, "k").await, Ok("done"));
    own.tell(&["SET", "stranger", "x", "EX", "1000"]).await;
    own.tell(&["CONFIG", "SET", "maxmemory-policy", "volatile-random", "maxmemory", "1"]).await;
    // A server makes room when it is asked anything.
    while own.says("evicted_keys").await.as_deref() == Some("0") {}
    own.tell(&["CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "0"]).await;
    accepting.list(&Query::lapsed(1)).await.unwrap();
    assert_eq!(insert(&accepting, "unknown").await, Ok("done"), "it was accepted");
    other.list(&Query::lapsed(1)).await.unwrap();
    assert_eq!(insert(&other, "new").await, Err(StoreErrorKind::HistoryLost));
    assert_eq!(insert(&one, "new").await, Err(StoreErrorKind::HistoryLost));
    other.clear_history_losses("operator", "compared").await.unwrap();
    for store in [&accepting, &other, &one] {
        store.list(&Query::lapsed(1)).await.unwrap();
    }
    assert_eq!(insert(&one, "new").await, Ok("done"), "said once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_replica_without_a_log_is_not_written_to() {
    let careless =
        ["--appendonly", "no", "--appendfsync", "always", "--maxmemory-policy", "noeviction"];
    let (Some(mut one), Some(replica)) = (Own::safe().await, Own::start(&careless).await) else {
        return;
    };
    follow(&replica, &one).await;
    let store = created(&both(&one, &replica, "fail_over=trusted")).await;
    assert_eq!(insert(&store, "known").await, Ok("done"));
    follow(&replica, &one).await;
    one.kill();
    replica.tell(&["REPLICAOF", "NO", "ONE"]).await;
    assert_eq!(insert_when_found(&store, "known").await, Ok("stands"));
    assert_eq!(insert(&store, "unknown").await, UNFIT);
}

/// An old primary that comes back as one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_that_take_writes_are_refused_with_their_names() {
    let (Some(mut one), Some(replica)) = (Own::safe().await, Own::safe().await) else { return };
    follow(&replica, &one).await;
    let url = both(&one, &replica, "fail_over=trusted");
    let running = created(&url).await;
    one.stop().await;
    replica.tell(&["REPLICAOF", "NO", "ONE"]).await;
    assert_eq!(insert_when_found(&running, "m").await, Ok("done"));
    one.restart().await;

    for refusal in [
        RedisStore::connect(&url).await.unwrap_err().to_string(),
        RedisStore::migrate(&url, RedisOptions::default()).await.unwrap_err().to_string(),
    ] {
        for port in [one.port, replica.port] {
            assert!(refusal.contains(&format!("127.0.0.1:{port}")), "{refusal}");
        }
        assert!(!refusal.contains('\n'), "{refusal}");
    }
    running.list(&Query::lapsed(1)).await.unwrap();
    assert_eq!(insert(&running, "unknown").await, UNFIT);
    assert_eq!(insert(&running, "m").await, Ok("stands"));
    let looking = RedisStore::connect_read_only(&url).await.unwrap();
    let found = doctor::redis(&looking).await.unwrap();
    let is_said =
        |one: &doctor::Finding| one.code == "several-primaries" && one.severity == Severity::Unsafe;
    assert!(found.iter().any(is_said), "{found:?}");

    follow(&one, &replica).await;
    running.list(&Query::lapsed(1)).await.unwrap();
    assert_eq!(insert(&running, "unknown").await, Ok("done"));
    RedisStore::connect(&url).await.unwrap();
    // One server under two names is one.
    let twice = format!("redis://127.0.0.1:{0},localhost:{0}", replica.port);
    RedisStore::connect(&twice).await.unwrap();
}
