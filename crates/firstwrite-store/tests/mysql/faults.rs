//! A server that goes away, ends connections or does not answer: what is certain and what is not, and that
//! the store goes on by itself.

use bytes::Bytes;
use firstwrite_core::protocol::{self, Atomic, AtomicStart};
use firstwrite_core::{
    Certainty, Change, Fence, Guard, Inserted, OnLostAnswer, Policy, Store as _, StoreErrorKind,
    Swapped,
};
use firstwrite_store::mysql_async::prelude::Queryable as _;
use firstwrite_store::{MysqlOptions, MysqlStore};
use firstwrite_testkit::{Network, Proxy, Subject as _, sample};

use crate::own::Own;
use crate::server::{client, on_each};
use crate::subject::{MysqlSubject, done, put, reserved};

/// Calls until the server is found to be back.
async fn insert_when_back(store: &MysqlStore, key: &str) -> Inserted {
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
async fn cut_once(subject: &MysqlSubject, proxy: &Proxy, there: &str) {
    while subject.tables().ask(there).await.is_empty() {}
    proxy.set(Network::Down);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_answer_is_lost_is_uncertain_and_a_look_tells() {
    on_each(async |database| {
        let subject = MysqlSubject::new(&database, MysqlOptions::default()).await;
        let proxy = Proxy::new(&database.url).await.unwrap();
        let store = MysqlStore::connect(&proxy.url(&database.url)).await.unwrap();
        let fence = Fence::first(3);
        let [inserted, completed] = ["inserted", "completed"].map(|key| reserved(key, fence));
        store.insert(&completed).await.unwrap();

        proxy.set(Network::AnswersLost);
        let there =
            format!("SELECT 'x' FROM firstwrite_records WHERE HEX(id) = '{}'", hex(inserted.id));
        let (error, ()) = tokio::join!(store.insert(&inserted), cut_once(&subject, &proxy, &there));
        let error = error.unwrap_err();
        assert_eq!(error.certainty(), Certainty::Indeterminate, "{error}");
        proxy.set(Network::Up);
        insert_when_back(&store, "again").await;
        assert_eq!(store.get(inserted.id).await.unwrap().unwrap().record.fence, fence);

        proxy.set(Network::AnswersLost);
        let there = format!(
            "SELECT 'x' FROM firstwrite_records WHERE state = 2 AND HEX(id) = '{}'",
            hex(completed.id)
        );
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
async fn a_handler_whose_commit_was_not_acknowledged_is_told_how_it_ended() {
    on_each(async |database| {
        let subject = MysqlSubject::new(&database, MysqlOptions::default()).await;
        let proxy = Proxy::new(&database.url).await.unwrap();
        let store = MysqlStore::connect(&proxy.url(&database.url)).await.unwrap();
        let request = sample::request(&sample::tenant("shop"), &sample::key("k"), 1);
        let id = request.id;
        let policy = sample::policy(OnLostAnswer::Resend);
        let begun = protocol::begin(&store, request.into(), policy.into(), 7).await.unwrap();
        let AtomicStart::Run(mut held) = begun else { panic!("the key is free") };
        put(&mut held, "paid".to_owned(), "once".to_owned()).await.unwrap();
        proxy.set(Network::AnswersLost);
        let there = format!("SELECT 'x' FROM firstwrite_records WHERE HEX(id) = '{}'", hex(id));
        let answer = http::Response::builder().status(201).body(Bytes::from_static(b"ok")).unwrap();
        let back = async {
            cut_once(&subject, &proxy, &there).await;
            proxy.set(Network::Up);
        };
        let (ended, ()) = tokio::join!(protocol::conclude(&store, held, answer), back);
        assert!(matches!(ended, Ok(Atomic::Kept { .. })), "{ended:?}");
        assert_eq!(subject.row("paid").await.as_deref(), Some("once"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_away_refuses_for_certain_and_comes_back() {
    on_each(async |database| {
        let subject = MysqlSubject::new(&database, MysqlOptions::default()).await;
        let proxy = Proxy::new(&database.url).await.unwrap();
        let store = MysqlStore::connect(&proxy.url(&database.url)).await.unwrap();
        let fence = Fence::first(3);
        let draft = reserved("k", fence);
        store.insert(&draft).await.unwrap();
        proxy.set(Network::Down);
        // The first finds the connection gone while it is used.
        drop(store.insert(&reserved("unlucky", fence)).await);
        for _ in 0..3 {
            let error = store.insert(&reserved("refused", fence)).await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
            assert_eq!(error.certainty(), Certainty::Definite, "{error}");
            let renew = Change::Renew { lease_for: Policy::LEASE_DEFAULT };
            let swapped = store.swap(draft.id, Guard::Owner(fence), renew, None).await;
            assert_eq!(swapped.unwrap_err().certainty(), Certainty::Definite);
        }
        proxy.set(Network::Up);
        assert!(matches!(insert_when_back(&store, "back").await, Inserted::Done(_)));
        assert!(subject.mysql().get(reserved("refused", fence).id).await.unwrap().is_none());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_server_cut_every_connection_the_store_goes_on() {
    on_each(async |database| {
        let subject = MysqlSubject::new(&database, MysqlOptions::default()).await;
        let store = subject.mysql();
        for round in 0..5 {
            assert!(matches!(
                insert_when_back(&store, &format!("k-{round}")).await,
                Inserted::Done(_)
            ));
            subject.cut().await;
        }
        insert_when_back(&store, "last").await;
        for round in 0..5 {
            let id = reserved(&format!("k-{round}"), Fence::first(1)).id;
            assert!(store.get(id).await.unwrap().is_some());
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_store_refuses_and_what_it_was_told_before_stands() {
    on_each(async |database| {
        let subject = MysqlSubject::new(&database, MysqlOptions::default()).await;
        let store = subject.mysql();
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

fn hex(id: firstwrite_core::RecordId) -> String {
    format!("{:032X}", u128::from_be_bytes(*id.as_bytes()))
}

/// A disk that is full for a while throws no outcome away: it is refused for certain, and taken when there is room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_that_finds_no_room_is_refused_for_certain_and_taken_later() {
    let within = |megabytes: u32| {
        let file = format!("--innodb-data-file-path=ibdata1:12M:autoextend:max:{megabytes}M");
        vec!["--innodb-file-per-table=0".to_owned(), file]
    };
    let Some(mut own) = Own::start(|_folder| within(64)).await else { return };
    MysqlStore::migrate(&own.url(), MysqlOptions::default()).await.unwrap();
    let store = MysqlStore::connect(&own.url()).await.unwrap();
    let draft = reserved("k", Fence::first(1));
    store.insert(&draft).await.unwrap();
    let mut admin = client(&own.url()).await;
    admin.query_drop("CREATE TABLE filler (bytes LONGBLOB) ENGINE = InnoDB").await.unwrap();
    let fill = "INSERT INTO filler VALUES (REPEAT('x', 1000000))";
    while admin.query_drop(fill).await.is_ok() {}
    let retention = Policy::default().record_retention();
    let outcome = sample::outcome(201, &"x".repeat(1_500_000));
    let complete = async || {
        let change = Change::Complete { outcome: outcome.clone(), retention };
        store.swap(draft.id, Guard::Owner(draft.fence), change, None).await
    };
    let error = complete().await.unwrap_err();
    assert_eq!((error.kind(), error.certainty()), (StoreErrorKind::Full, Certainty::Definite));
    own.stop().await;
    own.set_arguments(within(96));
    own.serve().await;
    drop(store.now().await);
    assert!(matches!(complete().await.unwrap(), Swapped::Done(_)));
}
