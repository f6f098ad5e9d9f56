//! What is refused before anything is written, and what is said.

use firstwrite_core::{
    Fence, Inserted, OnLostAnswer, Query, StateFilter, Store as _, StoreErrorKind,
};
use firstwrite_store::doctor::{self, Severity};
use firstwrite_store::{Access, RedisOptions, RedisStore, create, open};
use firstwrite_testkit::sample;

use crate::own::{Own, SAFE};
use crate::server::{Which, address, all};
use crate::subject::{created, reserved};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loses_keys_is_refused_unless_that_is_accepted() {
    for (arguments, named, code) in [
        (
            ["--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "allkeys-lru"],
            "allkeys-lru",
            "eviction",
        ),
        (
            ["--appendonly", "no", "--appendfsync", "always", "--maxmemory-policy", "noeviction"],
            "appendonly no",
            "appendonly",
        ),
    ] {
        let Some(own) = Own::start(&arguments).await else { return };
        let options = RedisOptions::default();
        let refusal = RedisStore::migrate(&own.url(), options).await.unwrap_err().to_string();
        assert!(refusal.contains(named) && refusal.contains("accept_key_loss=true"), "{refusal}");
        assert!(!refusal.contains('\n'), "{refusal}");
        let accepted = format!("{}?accept_key_loss=true", own.url());
        let accepting = created(&accepted).await;
        let refusal = RedisStore::connect(&own.url()).await.unwrap_err().to_string();
        assert!(refusal.contains(named), "{refusal}");
        // Looking changes nothing, so a doctor may look.
        let store = RedisStore::connect_read_only(&own.url()).await.unwrap();
        let found = doctor::redis(&store).await.unwrap();
        let finding = found.iter().find(|finding| finding.code == code).unwrap();
        assert_eq!(finding.severity, Severity::Unsafe);
        assert!(!accepting.capabilities().durable);
        assert!(matches!(
            accepting.insert(&reserved("k", Fence::first(1))).await,
            Ok(Inserted::Done(_))
        ));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_flushed_once_a_second_is_not_called_durable() {
    let arguments =
        ["--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction"];
    let Some(own) = Own::start(&arguments).await else { return };
    let store = created(&own.url()).await;
    assert!(!store.capabilities().durable);
    let found = doctor::redis(&store).await.unwrap();
    assert!(
        found
            .iter()
            .any(|finding| finding.code == "appendfsync" && finding.severity == Severity::Unsafe),
        "{found:?}"
    );
    let Some(safe) = Own::safe().await else { return };
    let store = created(&safe.url()).await;
    assert!(
        store.capabilities().durable
            && !store.capabilities().transactions
            && !store.capabilities().outbox
    );
    let found = doctor::redis(&store).await.unwrap();
    assert!(found.iter().all(|finding| finding.severity != Severity::Unsafe), "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hides_its_settings_must_be_vouched_for() {
    let mut arguments = SAFE.to_vec();
    arguments.extend(["--rename-command", "CONFIG", ""]);
    let Some(own) = Own::start(&arguments).await else { return };
    let refusal = RedisStore::connect(&own.url()).await.unwrap_err().to_string();
    assert!(refusal.contains("appendfsync=always"), "{refusal}");
    let vouched = format!("{}?appendfsync=always", own.url());
    assert!(created(&vouched).await.capabilities().durable);
    let store = RedisStore::connect_read_only(&own.url()).await.unwrap();
    let found = doctor::redis(&store).await.unwrap();
    assert!(
        found
            .iter()
            .any(|finding| finding.code == "appendfsync" && finding.severity == Severity::Warning),
        "{found:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_and_a_user_are_used() {
    let Some(own) = Own::safe().await else { return };
    own.tell(&["ACL", "SETUSER", "shop", "on", ">s3cret", "~{firstwrite:*", "+@all"]).await;
    own.tell(&["ACL", "SETUSER", "default", "off"]).await;
    let plain = own.url();
    let refusal = RedisStore::connect(&plain).await.unwrap_err().to_string();
    assert!(refusal.contains("cannot reach"), "{refusal}");
    let url = plain.replace("redis://", "redis://shop:s3cret@");
    let store = created(&url).await;
    assert!(matches!(store.insert(&reserved("k", Fence::first(1))).await, Ok(Inserted::Done(_))));
    // What the user may not touch is refused by the server, and nothing is written.
    let foreign = format!("{url}?prefix=other");
    let refusal = RedisStore::migrate(&foreign, RedisOptions::default()).await.unwrap_err();
    assert!(refusal.to_string().contains("NOPERM"), "{refusal}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_only_reads_changes_nothing_and_two_prefixes_share_nothing() {
    for url in all() {
        let draft = reserved("k", Fence::first(1));
        created(&url).await.insert(&draft).await.unwrap();
        let store = open(&url, Access::ReadOnly).await.unwrap();
        assert!(store.get(draft.id).await.unwrap().is_some());
        for error in [
            store.insert(&reserved("other", Fence::first(1))).await.unwrap_err(),
            store.reap(10).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), StoreErrorKind::Unsupported, "{error}");
        }
        let other = created(&format!("{url}x")).await;
        assert!(other.get(draft.id).await.unwrap().is_none());
        let query = Query { tenant: None, state: None, after: None, limit: 10 };
        assert!(other.list(&query).await.unwrap().records.is_empty());
    }
}

/// A mistyped prefix or database number: an empty store would run used keys again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_was_never_created_is_refused_and_nothing_is_written() {
    let Some(own) = Own::safe().await else { return };
    let url = format!("{}/3?prefix=shop", own.url());
    for access in [Access::Write, Access::ReadOnly] {
        let refusal = open(&url, access).await.unwrap_err();
        assert!(refusal.is_missing(), "{refusal}");
        let text = refusal.to_string();
        assert!(text.contains("migrate") && text.contains("/3?prefix=shop"), "{text}");
        assert!(!text.contains('\n'), "{text}");
    }
    let keyspace: String = redis::from_redis_value(own.tell(&["INFO", "keyspace"]).await).unwrap();
    assert!(!keyspace.contains("keys="), "{keyspace}");
    let made = create(&url).await.unwrap();
    assert!(made.is_new(), "{made:?}");
    assert!(!create(&url).await.unwrap().is_new(), "it was there");
    open(&url, Access::Write).await.unwrap();
    for mistyped in [format!("{}/3?prefix=shpo", own.url()), format!("{}/4?prefix=shop", own.url())]
    {
        assert!(open(&mistyped, Access::Write).await.unwrap_err().is_missing(), "{mistyped}");
    }
}

/// What says that there is a store goes with the rest: a service that starts then must not take it for a new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_was_emptied_is_refused_until_its_loss_is_noted() {
    let Some(own) = Own::safe().await else { return };
    let store = created(&own.url()).await;
    store.insert(&reserved("k", Fence::first(1))).await.unwrap();
    own.tell(&["FLUSHALL"]).await;
    assert!(RedisStore::connect(&own.url()).await.unwrap_err().is_missing());
    // Who knew it notes the loss, which an operator then finds.
    let error = store.insert(&reserved("k", Fence::first(2))).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::HistoryLost, "{error}");
    let fresh = RedisStore::connect(&own.url()).await.unwrap();
    assert_eq!(fresh.history_losses().await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_time_decides() {
    let Some(url) = address(Which::Redis) else { return };
    let store = created(&url).await;
    let Inserted::Done(at) = store.insert(&reserved("k", Fence::first(1))).await.unwrap() else {
        panic!("new")
    };
    let (seconds, _): (i64, i64) =
        redis::cmd("TIME").query_async(&mut crate::server::client(&url).await).await.unwrap();
    assert!((at.as_millis() / 1000 - seconds).abs() < 5, "{at} is not {seconds}");
    let now = store.now().await.unwrap();
    assert!(now >= at && now.since(at).as_secs() < 5);
}

/// More records than a walk fetches at a time, so that pages end within shards and between them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_walk_over_many_records_shows_each_once() {
    let Some(url) = address(Which::Redis) else { return };
    let store = created(&url).await;
    let policy = sample::policy(OnLostAnswer::Resend);
    let drafts: Vec<_> = (0..3000)
        .map(|number| {
            let tenant = sample::tenant(if number % 3 == 0 { "one" } else { "two" });
            let request = sample::request(&tenant, &sample::key(&format!("k-{number}")), 1);
            sample::reserved(&request, &policy, Fence::first(1))
        })
        .collect();
    for chunk in drafts.chunks(100) {
        let inserts = chunk.iter().map(|draft| store.insert(draft));
        for inserted in futures_of(inserts).await {
            assert!(matches!(inserted, Ok(Inserted::Done(_))), "{inserted:?}");
        }
    }
    let mut ids: Vec<_> = drafts.iter().map(|draft| draft.id).collect();
    ids.sort_unstable();
    for limit in [7, 250, 1000] {
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let query = Query { tenant: None, state: Some(StateFilter::Reserved), after, limit };
            let page = store.list(&query).await.unwrap();
            listed.extend(page.records.iter().map(|record| record.id));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert!(listed == ids, "{limit} a page: {} of {}", listed.len(), ids.len());
    }
    let query =
        Query { tenant: Some(sample::tenant("one")), state: None, after: None, limit: 1000 };
    let page = store.list(&query).await.unwrap();
    assert_eq!((page.records.len(), page.next), (1000, None));
    let (mut keys, mut after) = (0, None);
    loop {
        let page = store.usage(after, 999).await.unwrap();
        keys += page.tenants.iter().map(|(_, usage)| usage.keys).sum::<u64>();
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(keys, 3000);
}

async fn futures_of<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    futures_util::future::join_all(futures).await
}
