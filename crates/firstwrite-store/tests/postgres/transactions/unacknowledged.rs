//! A commit whose acknowledgement is lost: the store asks how it ended while it still takes effect, or when
//! the server has ended it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::protocol::{self, Atomic, AtomicStart};
use firstwrite_core::{Certainty, Policy, StoreError};
use firstwrite_store::{PostgresOptions, PostgresStore};
use firstwrite_testkit::{Network, Proxy};
use http::Response;

use super::crashes::at_commit;
use super::{Handlers, Shop, message, request};
use crate::server::{Database, Way, on_database};
use crate::subject::PostgresSubject;

/// Far more looks than it takes a statement to get stuck.
const LOOKS_MAX: usize = 100_000;

/// Who tries a record's lock waits for the gate first, when its statement has its snapshot already. The
/// function is found instead of the server's own by the search path that the database has.
const GATE: &str = "
    CREATE SCHEMA gate;
    CREATE FUNCTION gate.pg_try_advisory_xact_lock(number bigint) RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_lock_shared(43);
        PERFORM pg_advisory_unlock_shared(43);
        RETURN pg_catalog.pg_try_advisory_xact_lock(number);
    END $$";
const SEARCH_PATH: &str = "search_path = gate, pg_catalog";

/// Handlers work as the database has set them up: under the second, all statements of a transaction share
/// one snapshot.
const LEVELS: [&[&str]; 2] =
    [&[SEARCH_PATH], &[SEARCH_PATH, "default_transaction_isolation = 'repeatable read'"]];

/// The commit says that it has begun, where the proxy cuts its connection, and waits.
const WAIT_AT_COMMIT: &str = "RAISE NOTICE 'committing'; PERFORM pg_advisory_xact_lock(42)";

/// The server process that waits for an advisory lock.
pub(super) async fn waits_for(shop: &Shop, number: u32) -> i32 {
    let sql = format!(
        "SELECT l.pid FROM pg_locks l JOIN pg_database d ON d.oid = l.database
         WHERE d.datname = current_database() AND l.locktype = 'advisory'
           AND l.objid = {number} AND NOT l.granted"
    );
    for _ in 0..LOOKS_MAX {
        if let Some(row) = shop.subject.admin().query(&sql, &[]).await.unwrap().first() {
            return row.get(0);
        }
    }
    panic!("nobody waits for {number}");
}

/// Waits until no key is locked. A server says that a COMMIT failed before it gives the locks back.
pub(super) async fn unlocked(shop: &Shop) {
    let sql = "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
               WHERE d.datname = current_database() AND l.locktype = 'advisory'";
    for _ in 0..LOOKS_MAX {
        if shop.subject.admin().query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            return;
        }
    }
    panic!("a key stays locked");
}

/// Ends a server process and waits until it is gone. Its client is told before: the process gives its locks
/// back after its last word.
pub(super) async fn terminate(shop: &Shop, pid: i32) {
    let sql = "SELECT pg_terminate_backend($1)";
    let sent: bool = shop.subject.admin().query_one(sql, &[&pid]).await.unwrap().get(0);
    assert!(sent, "{pid} is gone already");
    until_gone(shop, pid).await;
}

async fn until_gone(shop: &Shop, pid: i32) {
    let sql = "SELECT FROM pg_stat_activity WHERE pid = $1";
    for _ in 0..LOOKS_MAX {
        if shop.subject.admin().query(sql, &[&pid]).await.unwrap().is_empty() {
            return;
        }
    }
    panic!("{pid} is still there");
}

/// Writes a row and a message under `key` and answers 201, with `gates` closed when it concludes.
async fn pay<S: Handlers>(
    shop: &Shop,
    store: &S,
    key: &str,
    gates: &[u32],
) -> Result<Atomic<Infallible>, StoreError> {
    let (request, policy) = (Arc::new(request(key)), Arc::new(Policy::default()));
    let AtomicStart::Run(mut held) = protocol::begin(store, request, policy, 7).await.unwrap()
    else {
        panic!("the key is free")
    };
    S::put(&mut held, shop.schema(), key).await.unwrap();
    S::enqueue(&mut held, &message(key, "pack")).unwrap();
    for gate in gates {
        shop.run(&format!("SELECT pg_advisory_lock({gate})")).await;
    }
    let answer = Response::builder().status(201).body(Bytes::from_static(b"ok")).unwrap();
    protocol::conclude(store, held, answer).await
}

async fn is_found<S: Handlers>(database: Database) {
    let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
    let shop = Shop { subject: Arc::new(subject) };
    shop.run(GATE).await;
    shop.run(&at_commit(&shop, WAIT_AT_COMMIT)).await;
    let proxy = Proxy::new(&database.url).await.unwrap();
    let mut options = PostgresOptions::default();
    options.schema = shop.schema().parse().unwrap();
    options.cache_bytes_max = 0;
    options.lock_timeout = Duration::from_mins(1);
    options.statement_timeout = Duration::from_mins(1);
    // In plain text, so that the proxy can read what the server says.
    let url = format!("{}?sslmode=disable", proxy.url(&database.url));
    let store = S::connect(&url, options).await;
    // Every statement was used once, so that nothing but the commit is under way.
    assert!(matches!(pay(&shop, &store, "warm", &[]).await, Ok(Atomic::Kept { .. })));

    proxy.set(Network::CutOnceAt("committing"));
    let lands_late = async {
        let committing = waits_for(&shop, 42).await;
        waits_for(&shop, 43).await;
        shop.run("SELECT pg_advisory_unlock(42)").await;
        // It has committed and given the record's lock back.
        until_gone(&shop, committing).await;
        shop.run("SELECT pg_advisory_unlock(43)").await;
    };
    let (ended, ()) = tokio::join!(pay(&shop, &store, "k", &[42, 43]), lands_late);
    assert_eq!(shop.counts().await, [2, 2, 2], "it was committed");
    assert!(matches!(ended, Ok(Atomic::Kept { .. })), "{ended:?}");
    assert_eq!(proxy.cut(), 1);
}

/// The server ends a commit. The look-up that follows is held back until the server process is gone: until
/// then it has the record's lock, and nothing could be said of its commit.
async fn is_not_kept<S: Handlers>(database: Database) {
    let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
    let shop = Shop { subject: Arc::new(subject) };
    shop.run(GATE).await;
    let store = S::open(&shop.subject).await;
    assert!(matches!(pay(&shop, &store, "warm", &[]).await, Ok(Atomic::Kept { .. })));
    shop.run(&at_commit(&shop, WAIT_AT_COMMIT)).await;
    let is_ended = async {
        let committing = waits_for(&shop, 42).await;
        terminate(&shop, committing).await;
        waits_for(&shop, 43).await;
        shop.run("SELECT pg_advisory_unlock(43)").await;
    };
    let (ended, ()) = tokio::join!(pay(&shop, &store, "k", &[42, 43]), is_ended);
    assert_eq!(ended.unwrap_err().certainty(), Certainty::Definite);
    assert_eq!(shop.counts().await, [1, 1, 1], "nothing of it was kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_the_server_has_ended_is_known_not_to_be_kept() {
    on_database(Way::Direct, &[SEARCH_PATH], is_not_kept::<PostgresStore>).await;
}

#[cfg(feature = "sqlx")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_the_server_has_ended_is_known_not_to_be_kept_with_sqlx() {
    let is_not_kept = is_not_kept::<firstwrite_store::SqlxPostgresStore>;
    on_database(Way::Direct, &[SEARCH_PATH], is_not_kept).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_takes_effect_while_it_is_asked_for_is_found() {
    for settings in LEVELS {
        on_database(Way::Direct, settings, is_found::<PostgresStore>).await;
    }
}

#[cfg(feature = "sqlx")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_takes_effect_while_it_is_asked_for_is_found_with_sqlx() {
    for settings in LEVELS {
        on_database(Way::Direct, settings, is_found::<firstwrite_store::SqlxPostgresStore>).await;
    }
}
