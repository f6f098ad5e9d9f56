//! A server that goes away, ends connections or does not answer: what is certain and what is not, and
//! that the store goes on by itself.

use firstwrite_core::{Certainty, Change, Fence, Guard, Inserted, Store, StoreErrorKind, Swapped};
use firstwrite_store::{PostgresOptions, PostgresStore};

use crate::server::{Way, client, on_database};
use crate::subject::{PostgresSubject, done, reserved};
use firstwrite_testkit::{Network, Proxy};

fn options(subject: &PostgresSubject) -> PostgresOptions {
    let mut options = PostgresOptions::default();
    options.schema = subject.schema().parse().unwrap();
    options.cache_bytes_max = 0;
    options
}

/// Calls until the server is found to be back, which the store tries again after a short while.
async fn insert_when_back(store: &PostgresStore, key: &str) -> Inserted {
    for _ in 0..100_000 {
        match store.insert(&reserved(key, Fence::first(1))).await {
            Ok(inserted) => return inserted,
            Err(error) => assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}"),
        }
        tokio::task::yield_now().await;
    }
    panic!("the store does not come back");
}

/// Ends all connections as soon as the server has committed what `there` finds.
async fn cut_once(subject: &PostgresSubject, proxy: &Proxy, there: &str) {
    while subject.admin().query(there, &[]).await.unwrap().is_empty() {}
    proxy.set(Network::Down);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_answer_is_lost_is_uncertain_and_a_look_tells() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let proxy = Proxy::new(&database.url).await.unwrap();
        let url = proxy.url(&database.url);
        let store = PostgresStore::connect_with(&url, options(&subject)).await.unwrap();
        let fence = Fence::first(3);
        let [inserted, completed] = ["inserted", "completed"].map(|key| reserved(key, fence));
        store.insert(&completed).await.unwrap();
        // Every statement was used once, so that nothing but the write is under way.
        let warm = reserved("warm", fence);
        store.insert(&warm).await.unwrap();
        store.swap(warm.id, Guard::Owner(fence), done(), None).await.unwrap();

        proxy.set(Network::AnswersLost);
        let there = format!("SELECT FROM records WHERE id = '{}'", inserted.id);
        let (error, ()) = tokio::join!(store.insert(&inserted), cut_once(&subject, &proxy, &there));
        let error = error.unwrap_err();
        assert_eq!(error.certainty(), Certainty::Indeterminate, "{error}");
        proxy.set(Network::Up);
        insert_when_back(&store, "again").await;
        assert_eq!(store.get(inserted.id).await.unwrap().unwrap().record.fence, fence);

        // A new connection, whose statements are known again.
        let warm = reserved("warm-again", fence);
        store.insert(&warm).await.unwrap();
        store.swap(warm.id, Guard::Owner(fence), done(), None).await.unwrap();
        proxy.set(Network::AnswersLost);
        let there = format!("SELECT FROM endings WHERE id = '{}'", completed.id);
        let (complete, ()) = tokio::join!(
            store.swap(completed.id, Guard::Owner(fence), done(), None),
            cut_once(&subject, &proxy, &there)
        );
        assert_eq!(complete.unwrap_err().certainty(), Certainty::Indeterminate);
        proxy.set(Network::Up);
        insert_when_back(&store, "once-more").await;
        let again = store.swap(completed.id, Guard::Owner(fence), done(), None).await.unwrap();
        assert!(matches!(again, Swapped::Moved(Some(_))), "it was completed all the same");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_away_refuses_for_certain_and_comes_back() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let proxy = Proxy::new(&database.url).await.unwrap();
        let url = proxy.url(&database.url);
        let store = PostgresStore::connect_with(&url, options(&subject)).await.unwrap();
        let fence = Fence::first(3);
        let draft = reserved("k", fence);
        store.insert(&draft).await.unwrap();

        proxy.set(Network::Down);
        // The first finds the connection gone while it is used.
        drop(store.insert(&reserved("unlucky", fence)).await);
        drop(store.get(draft.id).await);
        drop(store.now().await);
        for _ in 0..3 {
            let error = store.insert(&reserved("refused", fence)).await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
            assert_eq!(error.certainty(), Certainty::Definite, "{error}");
            let error = store.get(draft.id).await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
            let renew = Change::Renew { lease_for: std::time::Duration::from_secs(1) };
            let swapped = store.swap(draft.id, Guard::Owner(fence), renew, None).await;
            assert_eq!(swapped.unwrap_err().certainty(), Certainty::Definite);
        }
        proxy.set(Network::Up);
        assert!(matches!(insert_when_back(&store, "back").await, Inserted::Done(_)));
        assert!(subject.postgres().get(reserved("refused", fence).id).await.unwrap().is_none());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_the_server_ends_while_it_waits_wrote_nothing() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let store = subject.postgres();
        let stranger = client(&database.url).await;
        crate::batching::hold(&stranger, subject.schema(), "held").await;
        let waits = {
            let store = store.clone();
            tokio::spawn(async move { store.insert(&reserved("held", Fence::first(9))).await })
        };
        // It waits for the stranger on a connection of its own, which is then ended.
        let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock'
                     AND backend_xid IS NOT NULL
                     AND state_change < clock_timestamp() - interval '120 milliseconds'";
        let mut ended: i64 = 0;
        while ended == 0 && !waits.is_finished() {
            ended = subject.admin().query_one(end, &[]).await.unwrap().get(0);
        }
        let error = waits.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        assert_eq!(error.certainty(), Certainty::Definite, "{error}");
        stranger.batch_execute("ROLLBACK").await.unwrap();
        assert!(matches!(insert_when_back(&store, "held").await, Inserted::Done(_)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_server_cut_every_connection_the_store_goes_on() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, options_without_cache()).await;
        let store = subject.postgres();
        for round in 0..5 {
            let key = format!("k-{round}");
            assert!(matches!(insert_when_back(&store, &key).await, Inserted::Done(_)));
            subject.cut().await;
        }
        insert_when_back(&store, "last").await;
        for round in 0..5 {
            let id = reserved(&format!("k-{round}"), Fence::first(1)).id;
            let found = loop {
                match store.get(id).await {
                    Ok(found) => break found,
                    Err(error) => assert_eq!(error.kind(), StoreErrorKind::Unavailable),
                }
            };
            assert!(found.is_some());
        }
        assert!(store.history_losses().await.unwrap().is_empty(), "nothing was lost");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_store_refuses_and_what_it_was_told_before_stands() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, options_without_cache()).await;
        let store = subject.postgres();
        let clone = store.clone();
        let draft = reserved("k", Fence::first(1));
        store.insert(&draft).await.unwrap();
        store.close().await;
        for error in [
            clone.insert(&reserved("other", Fence::first(1))).await.unwrap_err(),
            clone.get(draft.id).await.unwrap_err(),
            clone.now().await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
            assert_eq!(error.certainty(), Certainty::Definite, "{error}");
        }
        assert!(subject.rival().await.get(draft.id).await.unwrap().is_some());
    })
    .await;
}

fn options_without_cache() -> PostgresOptions {
    let mut options = PostgresOptions::default();
    options.cache_bytes_max = 0;
    options
}
