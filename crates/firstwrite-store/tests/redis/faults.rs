//! A server that goes away, is full, turns into a replica or does not answer: what is certain and what is not, and that
//! the store goes on by itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use firstwrite_core::{
    Certainty, Change, Fence, Guard, Inserted, Policy, RecordId, State, Store as _, StoreError,
    StoreErrorKind, Swapped,
};
use firstwrite_store::{RedisOptions, RedisStore};
use firstwrite_testkit::{Network, Proxy};
use tokio::time::Instant;

use crate::own::Own;
use crate::server::{all, client, prefix};
use crate::subject::{created, done, reserved};

const BACK_WITHIN: Duration = Duration::from_mins(1);

/// Calls until the server is found to be back.
async fn insert_when_back(store: &RedisStore, key: &str) -> Inserted {
    let started = Instant::now();
    while started.elapsed() < BACK_WITHIN {
        match store.insert(&reserved(key, Fence::first(1))).await {
            Ok(inserted) => return inserted,
            Err(error) => assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}"),
        }
        tokio::task::yield_now().await;
    }
    panic!("the store does not come back");
}

/// Ends all connections as soon as the server has a value that `there` is true of.
async fn cut_once(url: &str, proxy: &Proxy, id: RecordId, there: impl Fn(&[u8]) -> bool) {
    let key = format!("{{{}:{:02x}}}r:{id}", prefix(url), id.as_bytes()[0]);
    let mut operator = client(url).await;
    loop {
        let value: Option<Vec<u8>> =
            redis::cmd("GET").arg(&key).query_async(&mut operator).await.unwrap();
        if value.is_some_and(|value| there(&value)) {
            break;
        }
    }
    proxy.set(Network::Down);
}

fn patient_for(answer_for: Duration) -> RedisOptions {
    let mut options = RedisOptions::default();
    options.answer_for = answer_for;
    options
}

fn is(error: &StoreError, kind: StoreErrorKind, certainty: Certainty) {
    assert_eq!((error.kind(), error.certainty()), (kind, certainty), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_answer_is_lost_is_uncertain_and_a_look_tells() {
    for url in all() {
        let proxy = Proxy::new(&url).await.unwrap();
        let store = created(&proxy.url(&url)).await;
        let fence = Fence::first(3);
        let [inserted, completed] = ["inserted", "completed"].map(|key| reserved(key, fence));
        // The history of the shard's server is verified before its answers are lost.
        for draft in [&inserted, &completed] {
            store.insert(draft).await.unwrap();
        }
        store.swap(inserted.id, Guard::Owner(fence), Change::Remove, None).await.unwrap();

        proxy.set(Network::AnswersLost);
        let (error, ()) =
            tokio::join!(store.insert(&inserted), cut_once(&url, &proxy, inserted.id, |_| true));
        is(&error.unwrap_err(), StoreErrorKind::Unavailable, Certainty::Indeterminate);
        proxy.set(Network::Up);
        insert_when_back(&store, "again").await;
        assert_eq!(store.get(inserted.id).await.unwrap().unwrap().record.fence, fence);

        proxy.set(Network::AnswersLost);
        let (complete, ()) = tokio::join!(
            store.swap(completed.id, Guard::Owner(fence), done(), None),
            cut_once(&url, &proxy, completed.id, |value| value[1] == b'c')
        );
        is(&complete.unwrap_err(), StoreErrorKind::Unavailable, Certainty::Indeterminate);
        proxy.set(Network::Up);
        insert_when_back(&store, "once-more").await;
        let again = store.swap(completed.id, Guard::Owner(fence), done(), None).await.unwrap();
        assert!(matches!(again, Swapped::Moved(Some(_))), "it was completed all the same");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_away_refuses_for_certain_and_comes_back() {
    for url in all() {
        let proxy = Proxy::new(&url).await.unwrap();
        let store = created(&proxy.url(&url)).await;
        let fence = Fence::first(3);
        let draft = reserved("k", fence);
        store.insert(&draft).await.unwrap();
        proxy.set(Network::Down);
        // The first finds the connection gone while it is used.
        drop(store.insert(&reserved("unlucky", fence)).await);
        for _ in 0..3 {
            let error = store.insert(&reserved("refused", fence)).await.unwrap_err();
            is(&error, StoreErrorKind::Unavailable, Certainty::Definite);
            let renew = Change::Renew { lease_for: Policy::LEASE_DEFAULT };
            let error = store.swap(draft.id, Guard::Owner(fence), renew, None).await.unwrap_err();
            is(&error, StoreErrorKind::Unavailable, Certainty::Definite);
        }
        proxy.set(Network::Up);
        assert!(matches!(insert_when_back(&store, "back").await, Inserted::Done(_)));
        assert!(store.get(reserved("refused", fence).id).await.unwrap().is_none());
        let clone = store.clone();
        store.close();
        is(
            &clone.insert(&draft).await.unwrap_err(),
            StoreErrorKind::Unavailable,
            Certainty::Definite,
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_refuses_is_certain() {
    let Some(own) = Own::safe().await else { return };
    let store = created(&own.url()).await;
    let (fence, new) = (Fence::first(1), reserved("new", Fence::first(1)));
    // One more in each shard, so that no history is verified while the server refuses.
    let known = reserved("known", fence);
    store.insert(&known).await.unwrap();
    store.insert(&new).await.unwrap();
    store.swap(new.id, Guard::Owner(fence), Change::Remove, None).await.unwrap();
    for (set, unset, kind) in [
        (
            ["CONFIG", "SET", "maxmemory", "1"],
            ["CONFIG", "SET", "maxmemory", "0"],
            StoreErrorKind::Full,
        ),
        (
            ["CONFIG", "SET", "min-replicas-to-write", "1"],
            ["CONFIG", "SET", "min-replicas-to-write", "0"],
            StoreErrorKind::Unavailable,
        ),
    ] {
        own.tell(&set).await;
        is(&store.insert(&new).await.unwrap_err(), kind, Certainty::Definite);
        is(
            &store.swap(known.id, Guard::Owner(fence), done(), None).await.unwrap_err(),
            kind,
            Certainty::Definite,
        );
        let again = store.insert(&known).await;
        assert!(matches!(again, Ok(Inserted::Stands(_))), "retries are answered: {again:?}");
        let found = store.get(known.id).await.unwrap().unwrap();
        assert!(
            matches!(found.record.state, State::Reserved(_)),
            "what stands is answered: {found:?}"
        );
        own.tell(&unset).await;
        assert!(store.get(new.id).await.unwrap().is_none());
    }
    // Room is made where there is none.
    own.tell(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let removed = store.swap(known.id, Guard::Owner(fence), Change::Remove, None).await;
    assert!(matches!(removed, Ok(Swapped::Done(_))), "{removed:?}");
    own.tell(&["CONFIG", "SET", "maxmemory", "0"]).await;
    // Somebody takes the scripts away; they are given again.
    own.tell(&["SCRIPT", "FLUSH"]).await;
    assert!(matches!(store.insert(&new).await, Ok(Inserted::Done(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_became_a_replica_is_left_for_the_one_that_takes_writes() {
    let (Some(one), Some(other)) = (Own::safe().await, Own::safe().await) else { return };
    follow(&other, &one).await;
    let store = created(&both(&one, &other, "fail_over=trusted")).await;
    let draft = reserved("k", Fence::first(1));
    store.insert(&draft).await.unwrap();
    follow(&other, &one).await;
    other.tell(&["REPLICAOF", "NO", "ONE"]).await;
    one.tell(&["REPLICAOF", "127.0.0.1", &other.port.to_string()]).await;
    let error =
        store.swap(draft.id, Guard::Owner(Fence::first(1)), done(), None).await.unwrap_err();
    is(&error, StoreErrorKind::Unavailable, Certainty::Definite);
    let completed = store.swap(draft.id, Guard::Owner(Fence::first(1)), done(), None).await;
    assert!(matches!(completed, Ok(Swapped::Done(_))), "{completed:?}");
    assert!(matches!(insert_when_back(&store, "new").await, Inserted::Done(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_takes_too_long_is_uncertain() {
    let Some(own) = Own::safe().await else { return };
    let options = patient_for(Duration::from_millis(300));
    created(&own.url()).await;
    let store = RedisStore::connect_with(&own.url(), options).await.unwrap();
    let draft = reserved("k", Fence::first(1));
    store.insert(&draft).await.unwrap();
    // Answered at the end of the pause, to nobody.
    own.tell(&["CLIENT", "PAUSE", "600", "ALL"]).await;
    let error =
        store.swap(draft.id, Guard::Owner(Fence::first(1)), done(), None).await.unwrap_err();
    is(&error, StoreErrorKind::Unavailable, Certainty::Indeterminate);
    insert_when_back(&store, "back").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_waits_for_as_many_replicas_as_it_was_told() {
    let (Some(own), Some(replica)) = (Own::safe().await, Own::safe().await) else { return };
    let options = patient_for(Duration::from_secs(1));
    let url = format!("{}?wait_replicas=1", own.url());
    created(&own.url()).await;
    let store = RedisStore::connect_with(&url, options).await.unwrap();
    let error = store.insert(&reserved("alone", Fence::first(1))).await.unwrap_err();
    is(&error, StoreErrorKind::Unavailable, Certainty::Indeterminate);
    assert!(error.to_string().contains("too few"), "{error}");
    follow(&replica, &own).await;
    let draft = reserved("k", Fence::first(1));
    let inserted = insert_when_back(&store, "k").await;
    assert!(matches!(inserted, Inserted::Done(_) | Inserted::Stands(_)), "{inserted:?}");
    let followed = RedisStore::connect_read_only(&replica.url()).await;
    assert!(followed.unwrap_err().to_string().contains("replica"), "a replica is not read");
    let key = format!("{{firstwrite:{:02x}}}r:{}", draft.id.as_bytes()[0], draft.id);
    let there: bool =
        redis::cmd("EXISTS").arg(key).query_async(&mut replica.client().await).await.unwrap();
    assert!(there, "it was acknowledged and is not at the replica");
}

/// `WAITAOF` came with Redis 7.2: before, it is an error that says so, and nothing is acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_waits_for_the_log_where_the_server_can() {
    for url in all() {
        created(&url).await;
        let store = RedisStore::connect(&format!("{url}&wait_aof=true")).await.unwrap();
        assert!(store.capabilities().durable);
        let version: String =
            redis::cmd("INFO").arg("server").query_async(&mut client(&url).await).await.unwrap();
        let inserted = store.insert(&reserved("k", Fence::first(1))).await;
        if version.contains("redis_version:7.0") {
            is(&inserted.unwrap_err(), StoreErrorKind::Unavailable, Certainty::Indeterminate);
        } else {
            assert!(matches!(inserted, Ok(Inserted::Done(_))), "{inserted:?}");
        }
    }
}

/// Makes a server the replica of another, and waits until it has everything.
pub(crate) async fn follow(replica: &Own, of: &Own) {
    replica.tell(&["REPLICAOF", "127.0.0.1", &of.port.to_string()]).await;
    let started = Instant::now();
    let mut tick = tokio::time::interval(Duration::from_millis(20));
    loop {
        let is_up = replica.says("master_link_status").await.as_deref() == Some("up");
        let (theirs, ours) =
            (of.says("master_repl_offset").await, replica.says("slave_repl_offset").await);
        if is_up && theirs == ours {
            return;
        }
        assert!(started.elapsed() < BACK_WITHIN, "the replica does not follow");
        tick.tick().await;
    }
}

/// Cuts a replica off from its primary; it keeps the history that it follows.
pub(crate) async fn fall_behind(replica: &Own) {
    // Nothing listens there.
    replica.tell(&["REPLICAOF", "127.0.0.1", "1"]).await;
}

/// The address of a server with a replica.
pub(crate) fn both(one: &Own, other: &Own, options: &str) -> String {
    format!("redis://127.0.0.1:{},127.0.0.1:{}?{options}", one.port, other.port)
}

/// What was acknowledged is there, however often the server dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_kills_under_load_lose_no_acknowledged_key() {
    const KILLS: u64 = 20;
    let Some(mut own) = Own::safe().await else { return };
    let store = created(&own.url()).await;
    let acknowledged = Arc::new(Mutex::new(Vec::<(String, Fence)>::new()));
    let (next, is_over) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (store, acknowledged) = (store.clone(), Arc::clone(&acknowledged));
            let (next, is_over) = (Arc::clone(&next), Arc::clone(&is_over));
            tokio::spawn(async move {
                while is_over.load(Ordering::Relaxed) == 0 {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let (key, fence) = (format!("k-{number}"), Fence::first(number));
                    let draft = reserved(&key, fence);
                    if matches!(store.insert(&draft).await, Ok(Inserted::Done(_)))
                        && matches!(
                            store.swap(draft.id, Guard::Owner(fence), done(), None).await,
                            Ok(Swapped::Done(_))
                        )
                    {
                        acknowledged.lock().unwrap().push((key, fence));
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let count = || acknowledged.lock().unwrap().len();
    let mut tick = tokio::time::interval(Duration::from_millis(5));
    for kill in 1..=KILLS {
        let (before, started) = (count(), Instant::now());
        while count() < before + 30 {
            assert!(started.elapsed() < BACK_WITHIN, "nothing is acknowledged before kill {kill}");
            tick.tick().await;
        }
        own.kill();
        own.restart().await;
    }
    is_over.store(1, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    let acknowledged = acknowledged.lock().unwrap().clone();
    println!("{} keys acknowledged over {KILLS} kills", acknowledged.len());
    insert_when_back(&store, "last").await;
    for (key, fence) in &acknowledged {
        let found = store.get(reserved(key, *fence).id).await.unwrap();
        let found = found.unwrap_or_else(|| panic!("{key} was acknowledged and is gone"));
        assert_eq!(found.record.fence, *fence, "{key} was run twice");
        assert!(matches!(found.record.state, State::Completed { .. }), "{key}");
    }
    assert!(acknowledged.len() > 600, "{}", acknowledged.len());
    assert!(
        store.history_losses().await.unwrap().is_empty(),
        "nothing was lost, and no loss is reported"
    );
}
