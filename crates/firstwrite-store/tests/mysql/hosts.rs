//! Addresses that name several hosts: only one of them may take writes.

use firstwrite_core::{
    AsyncTransactionalStore as _, Fence, Inserted, Query, Store as _, StoreErrorKind,
};
use firstwrite_store::doctor::{self, Severity};
use firstwrite_store::mysql_async::prelude::Queryable as _;
use firstwrite_store::{MysqlOptions, MysqlStore};

use crate::own::Own;
use crate::server::client;
use crate::subject::reserved;

/// The old primary comes back and takes writes beside the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hosts_that_take_writes_are_refused_by_name() {
    let Some(old) = Own::start(|_folder| Vec::new()).await else { return };
    let Some(new) = Own::start(|_folder| Vec::new()).await else { return };
    for own in [&old, &new] {
        MysqlStore::migrate(&own.url(), MysqlOptions::default()).await.unwrap();
    }
    let mut admin = client(&old.url()).await;
    let mut set_read_only = async |is: u8| {
        admin.query_drop(format!("SET GLOBAL read_only = {is}")).await.unwrap();
    };
    let both = old.url().replace("/shop", &format!(",127.0.0.1:{}/shop", new.port()));
    set_read_only(1).await;
    let store = MysqlStore::connect(&both).await.unwrap();
    store.insert(&reserved("known", Fence::first(1))).await.unwrap();
    store.list(&Query::lapsed(10)).await.unwrap();

    set_read_only(0).await;
    let names = [old.port(), new.port()].map(|port| format!("127.0.0.1:{port}"));
    let refused = MysqlStore::connect(&both).await.unwrap_err().to_string();
    assert!(names.iter().all(|name| refused.contains(name)), "{refused}");
    // One that was running goes on until its next sweep.
    store.list(&Query::lapsed(10)).await.unwrap();
    let new_key = reserved("new", Fence::first(1));
    let error = store.insert(&new_key).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    let text = firstwrite_core_text(&error);
    assert!(names.iter().all(|name| text.contains(name)), "{text}");
    assert!(store.begin(new_key.id).await.is_err());
    let known = store.insert(&reserved("known", Fence::first(2))).await.unwrap();
    assert!(matches!(known, Inserted::Stands(_)), "{known:?}");
    let looking = MysqlStore::connect_read_only(&both).await.unwrap();
    let found = doctor::mysql(&looking, std::time::Duration::from_mins(5)).await.unwrap();
    let found = found.iter().find(|finding| finding.code == "several-primaries").unwrap();
    assert_eq!(found.severity, Severity::Unsafe);

    set_read_only(1).await;
    store.list(&Query::lapsed(10)).await.unwrap();
    assert!(matches!(store.insert(&new_key).await.unwrap(), Inserted::Done(_)));
}

fn firstwrite_core_text(error: &firstwrite_core::StoreError) -> String {
    let source = std::error::Error::source(error).map(ToString::to_string);
    format!("{error} {}", source.unwrap_or_default())
}

/// Two names of one server are one server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_named_twice_is_one() {
    let Some(own) = Own::start(|_folder| Vec::new()).await else { return };
    MysqlStore::migrate(&own.url(), MysqlOptions::default()).await.unwrap();
    let twice = own.url().replace("/shop", &format!(",localhost:{}/shop", own.port()));
    let store = MysqlStore::connect(&twice).await.unwrap();
    store.list(&Query::lapsed(10)).await.unwrap();
    let inserted = store.insert(&reserved("k", Fence::first(1))).await.unwrap();
    assert!(matches!(inserted, Inserted::Done(_)), "{inserted:?}");
}

/// A server may say for all sessions that a commit begins the next transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_global_completion_type_changes_nothing() {
    for kind in ["CHAIN", "RELEASE"] {
        let chain = format!("--completion-type={kind}");
        let Some(own) = Own::start(|_folder| vec![chain]).await else { return };
        MysqlStore::migrate(&own.url(), MysqlOptions::default()).await.unwrap();
        let store = MysqlStore::connect(&own.url()).await.unwrap();
        for key in ["one", "two", "three"] {
            let inserted = store.insert(&reserved(key, Fence::first(1))).await.unwrap();
            assert!(matches!(inserted, Inserted::Done(_)), "{kind} {key}: {inserted:?}");
        }
    }
}
