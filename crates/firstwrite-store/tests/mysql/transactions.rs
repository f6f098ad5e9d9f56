//! What transactions that handlers hold promise beyond the suite.

use std::time::Duration;

use firstwrite_core::{
    AsyncTransactionalStore as _, BeginResult, Certainty, Draft, Fence, Found, Store as _,
    StoreErrorKind, Transacted, Write,
};
use firstwrite_store::mysql_async::prelude::Queryable as _;
use firstwrite_store::{MysqlOptions, MysqlStore, MysqlTx};
use firstwrite_testkit::Subject as _;
use tokio::time::Instant;

use crate::server::on_each;
use crate::subject::{MysqlSubject, completed, put, reserved};

async fn begin(store: &MysqlStore, draft: &Draft) -> (MysqlTx, Option<Box<Found>>) {
    match store.begin(draft.id).await.unwrap() {
        BeginResult::Open(tx, found) => (tx, found),
        other @ (BeginResult::Stands(_) | BeginResult::Busy) => {
            panic!("a transaction is open, not {other:?}")
        }
    }
}

async fn write(tx: &mut MysqlTx, name: &str) {
    put(tx, name.to_owned(), "written".to_owned()).await.unwrap();
}

fn all(draft: &Draft) -> Write {
    Write::All(Box::new(draft.clone()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rival_is_told_at_once_and_writes_nothing() {
    on_each(async |database| {
        let subject = MysqlSubject::new(&database, MysqlOptions::default()).await;
        let (store, rival) = (subject.mysql(), subject.rival().await);
        let draft = completed("k", Fence::first(1), 10);
        let (mut tx, found) = begin(&store, &draft).await;
        assert!(found.is_none());
        write(&mut tx, "first").await;
        let asked = Instant::now();
        for _ in 0..5 {
            assert!(matches!(rival.begin(draft.id).await.unwrap(), BeginResult::Busy));
        }
        // The server would have let each wait for two seconds.
        assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
        // A reservation under the same key does not wait for the handler either: the first write wins.
        let other = begin(&rival, &reserved("other", Fence::first(1))).await;
        drop(other);
        let done = store.conclude(tx, all(&draft)).await.unwrap();
        assert!(matches!(done, Transacted::Done(..)));
        assert!(matches!(rival.begin(draft.id).await.unwrap(), BeginResult::Stands(_)));
        assert_eq!(subject.row("first").await.as_deref(), Some("written"));
        assert!(subject.tables().ask("SELECT 'x' FROM firstwrite_locks").await.is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_primary_key_decides_whatever_the_lock_said() {
    on_each(async |database| {
        let subject = MysqlSubject::new(&database, MysqlOptions::default()).await;
        let store = subject.mysql();
        let draft = completed("k", Fence::first(1), 10);
        let (mut tx, _) = begin(&store, &draft).await;
        write(&mut tx, "loser").await;
        // It slips in without the lock, as a reservation does.
        let winner = completed("k", Fence::first(2), 20);
        subject.rival().await.insert(&winner).await.unwrap();
        match store.conclude(tx, all(&draft)).await.unwrap() {
            Transacted::Rival(found) => assert_eq!(found.record.fence, Fence::first(2)),
            Transacted::Done(..) => panic!("two records under one key"),
        }
        assert_eq!(subject.row("loser").await, None);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_take_over_finds_out_that_what_it_saw_has_moved() {
    on_each(async |database| {
        let subject = MysqlSubject::new(&database, MysqlOptions::default()).await;
        let store = subject.mysql();
        let lapsed = reserved("k", Fence::first(9));
        store.insert(&lapsed).await.unwrap();
        subject.advance(Duration::from_hours(1)).await;
        let draft = completed("k", Fence::first(9).next(1), 10);
        let (mut tx, found) = begin(&store, &draft).await;
        assert!(found.is_some());
        write(&mut tx, "loser").await;
        let renew = firstwrite_core::Change::Renew { lease_for: Duration::from_mins(1) };
        let guard = firstwrite_core::Guard::Owner(Fence::first(9));
        store.swap(lapsed.id, guard, renew, None).await.unwrap();
        let ended = store.conclude(tx, all(&draft)).await.unwrap();
        assert!(matches!(ended, Transacted::Rival(found) if found.record.fence == Fence::first(9)));
        assert_eq!(subject.row("loser").await, None);
    })
    .await;
}

/// After a deadlock the server has undone the transaction; a handler that overlooks it writes into the void.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_overlooks_a_deadlock_keeps_nothing() {
    on_each(async |database| {
        let subject = MysqlSubject::new(&database, MysqlOptions::default()).await;
        let store = subject.mysql();
        let draft = completed("k", Fence::first(1), 10);
        let (mut tx, _) = begin(&store, &draft).await;
        write(&mut tx, "before").await;
        deadlock(&mut tx, &subject).await;
        write(&mut tx, "after").await;
        let error = store.conclude(tx, all(&draft)).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        assert_eq!(error.certainty(), Certainty::Definite, "{error}");
        assert_eq!((subject.row("before").await, subject.row("after").await), (None, None));
        assert!(store.get(draft.id).await.unwrap().is_none());
        let (tx, _) = begin(&store, &draft).await;
        assert!(matches!(store.conclude(tx, all(&draft)).await, Ok(Transacted::Done(..))));
    })
    .await;
}

/// Has the server choose `tx` as the victim of a deadlock: it has written less than its opponent.
async fn deadlock(tx: &mut MysqlTx, subject: &MysqlSubject) {
    let tables = subject.tables();
    for name in ["left", "right"] {
        tables.tell(&format!("INSERT INTO business VALUES ('{name}', '')")).await;
    }
    tx.query_drop("UPDATE business SET value = 'a' WHERE name = 'left'").await.unwrap();
    tables.tell("START TRANSACTION").await;
    for at in 0..50 {
        tables.tell(&format!("INSERT INTO business VALUES ('weight-{at}', '')")).await;
    }
    tables.tell("UPDATE business SET value = 'b' WHERE name = 'right'").await;
    let waiting = {
        let tables = tables.clone();
        tokio::spawn(async move {
            tables.tell("UPDATE business SET value = 'b' WHERE name = 'left'").await;
            tables.tell("ROLLBACK").await;
        })
    };
    // Whoever waits second closes the circle.
    let error = tx.query_drop("UPDATE business SET value = 'a' WHERE name = 'right'").await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("1213"), "{error}");
    waiting.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_ends_its_transaction_is_found_out() {
    on_each(async |database| {
        let subject = MysqlSubject::new(&database, MysqlOptions::default()).await;
        let store = subject.mysql();
        for (key, statement) in [("commit", "COMMIT"), ("table", "CREATE TABLE made (id INT)")] {
            let draft = completed(key, Fence::first(1), 10);
            let (mut tx, _) = begin(&store, &draft).await;
            tx.query_drop(statement).await.unwrap();
            write(&mut tx, key).await;
            let error = store.conclude(tx, all(&draft)).await.unwrap_err();
            assert_eq!(error.certainty(), Certainty::Definite, "{error}");
            assert_eq!(subject.row(key).await, None, "what came after {statement} is undone");
            assert!(store.get(draft.id).await.unwrap().is_none());
        }
        let left = firstwrite_store::doctor::mysql(&store, Duration::from_mins(5)).await.unwrap();
        assert!(left.iter().any(|finding| finding.code == "ended-by-handler"), "{left:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_transaction_frees_its_key_and_a_connection_is_given_on_clean() {
    on_each(async |database| {
        let mut options = MysqlOptions::default();
        options.pool_size_max = 2;
        let subject = MysqlSubject::new(&database, options).await;
        let store = subject.mysql();
        for at in 0..6 {
            let draft = completed("k", Fence::first(at), 10);
            let (mut tx, _) = begin(&store, &draft).await;
            write(&mut tx, "dropped").await;
            drop(tx);
        }
        assert_eq!(subject.row("dropped").await, None);
        let draft = completed("k", Fence::first(7), 10);
        let (tx, _) = begin(&store, &draft).await;
        assert!(matches!(store.conclude(tx, all(&draft)).await, Ok(Transacted::Done(..))));
        assert!(store.get(draft.id).await.unwrap().is_some());
    })
    .await;
}
