//! Acknowledged history that is missing is noticed, and unknown keys are refused until somebody has looked.

use firstwrite_core::{
    AsyncTransactionalStore as _, BeginResult, Certainty, Change, Fence, Guard, Inserted, RecordId,
    Store as _, StoreError, StoreErrorKind, Swapped,
};
use firstwrite_store::mysql_async::prelude::Queryable as _;
use firstwrite_store::{MysqlOptions, MysqlStore};
use firstwrite_testkit::sample;

use crate::own::Own;
use crate::server::{Which, client, on_database};
use crate::subject::{MysqlSubject, done, reserved};

fn id(key: &str) -> RecordId {
    reserved(key, Fence::first(1)).id
}

async fn write(store: &MysqlStore, key: &str) {
    let inserted = store.insert(&reserved(key, Fence::first(1))).await.unwrap();
    assert!(matches!(inserted, Inserted::Done(_)), "{key}: {inserted:?}");
}

/// Has the server end the store's connections, and the store notice it.
async fn cut(subject: &MysqlSubject) {
    subject.cut().await;
    drop(subject.mysql().now().await);
}

fn assert_history_lost<T: std::fmt::Debug>(ended: Result<T, StoreError>) {
    let error = ended.unwrap_err();
    assert_eq!(
        (error.kind(), error.certainty()),
        (StoreErrorKind::HistoryLost, Certainty::Definite)
    );
}

/// An older backup is put back under a running service: what it acknowledged since is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_backup_under_a_running_store_is_noticed_and_an_operator_clears_it() {
    let Some(mut own) = Own::start(|_folder| Vec::new()).await else { return };
    MysqlStore::migrate(&own.url(), MysqlOptions::default()).await.unwrap();
    let store = MysqlStore::connect(&own.url()).await.unwrap();
    write(&store, "before").await;
    own.stop().await;
    own.back_up();
    own.serve().await;
    drop(store.now().await);
    write(&store, "after").await;
    assert!(store.history_losses().await.unwrap().is_empty(), "a restart loses nothing");
    own.kill();
    own.put_back();
    own.serve().await;
    drop(store.now().await);

    assert_history_lost(store.insert(&reserved("new", Fence::first(1))).await);
    assert_history_lost(store.insert(&reserved("after", Fence::first(2))).await);
    assert_history_lost(store.begin(id("new")).await.map(drop));
    // What is known is answered, and ended.
    let known = store.insert(&reserved("before", Fence::first(2))).await.unwrap();
    assert!(matches!(known, Inserted::Stands(_)), "{known:?}");
    let completed = store.swap(id("before"), Guard::Owner(Fence::first(1)), done(), None).await;
    assert!(matches!(completed.unwrap(), Swapped::Done(_)));
    // Whoever is started since remembers nothing, and sees it too.
    let other = MysqlStore::connect(&own.url()).await.unwrap();
    assert_history_lost(other.insert(&reserved("new", Fence::first(1))).await);
    let losses = other.history_losses().await.unwrap();
    assert_eq!(losses.len(), 1, "{losses:?}");
    assert!(losses[0].detail.contains("acknowledged are missing"), "{losses:?}");

    assert_eq!(
        other.clear_history_losses("ops", "compared with the books").await.unwrap().losses,
        1
    );
    assert_eq!(other.clear_history_losses("ops", "again").await.unwrap().losses, 0);
    for (store, key) in [(&store, "new"), (&other, "after")] {
        write(store, key).await;
    }
    let cleared = store.history_losses().await.unwrap().remove(0).cleared.unwrap();
    assert_eq!((&*cleared.by, &*cleared.reason), ("ops", "compared with the books"));
}

/// What was removed, taken over or has run out in good order is not missed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ended_in_good_order_is_not_missed() {
    on_database(Which::MariaDb, |database| async move {
        let subject = MysqlSubject::new(&database, MysqlOptions::default()).await;
        let store = subject.mysql();
        for key in ["released", "lapsed"] {
            write(&store, key).await;
        }
        let guard = Guard::Owner(Fence::first(1));
        store.swap(id("released"), guard, Change::Remove, None).await.unwrap();
        let policy = sample::policy(firstwrite_core::OnLostAnswer::Uncertain);
        firstwrite_testkit::Subject::advance(&subject, policy.lease).await;
        subject.tables().tell("DELETE FROM firstwrite_records").await;
        cut(&subject).await;
        write(&store, "next").await;
        assert!(store.history_losses().await.unwrap().is_empty());
    })
    .await;
}

/// A replica takes over while nobody remembers: the mark names another server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_server_is_doubted_unless_its_fail_over_is_trusted() {
    on_database(Which::MariaDb, |database| async move {
        MysqlStore::migrate(&database.url, MysqlOptions::default()).await.unwrap();
        let store = MysqlStore::connect(&database.url).await.unwrap();
        write(&store, "before").await;
        store.close().await;
        let mut admin = client(&database.url).await;
        let replace = "UPDATE firstwrite_mark SET epoch = 'server 4711'";
        admin.query_drop(replace).await.unwrap();
        let trusting = format!("{}?fail_over=trusted", database.url);
        write(&MysqlStore::connect(&trusting).await.unwrap(), "trusted").await;
        admin.query_drop(replace).await.unwrap();
        let store = MysqlStore::connect(&database.url).await.unwrap();
        assert_history_lost(store.insert(&reserved("new", Fence::first(1))).await);
        assert!(matches!(store.begin(id("before")).await.unwrap(), BeginResult::Open(..)));
        store.clear_history_losses("ops", "it had everything").await.unwrap();
        write(&store, "new").await;
    })
    .await;
}

/// Keys are freed and ended while connections break and new ones ask: nothing that ended in good order is missed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_break_among_releases_raise_no_alarm() {
    on_database(Which::MariaDb, |database| async move {
        let subject = MysqlSubject::new(&database, MysqlOptions::default()).await;
        let store = subject.mysql();
        let mut callers = tokio::task::JoinSet::new();
        for caller in 0..8 {
            let store = store.clone();
            callers.spawn(async move {
                for number in 0..40 {
                    let draft = reserved(&format!("k-{caller}-{number}"), Fence::first(1));
                    if !matches!(store.insert(&draft).await, Ok(Inserted::Done(_))) {
                        continue;
                    }
                    let change = if number % 2 == 0 { Change::Remove } else { done() };
                    // It may fail, with the connection.
                    drop(store.swap(draft.id, Guard::Owner(draft.fence), change, None).await);
                }
            });
        }
        while !callers.is_empty() {
            subject.cut().await;
            while callers.try_join_next().is_some_and(|ended| ended.map(|()| true).unwrap()) {}
        }
        drop(store.now().await);
        write(&store, "last").await;
        let losses = store.history_losses().await.unwrap();
        assert!(losses.is_empty(), "{losses:?}");
    })
    .await;
}
