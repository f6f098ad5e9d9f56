//! Two open stores of one test process on one database: lost history is noticed whichever of them is asked, and no loss
//! is reported where nothing is missing. They share nothing but the server, as two processes do.

use std::process::{Command, Stdio};
use std::time::Duration;

use firstwrite_core::outbox::ClaimRequest;
use firstwrite_core::{
    AsyncTransactionalStore as _, Fence, Inserted, Query, Store as _, StoreError, StoreErrorKind,
};
use firstwrite_store::{PostgresOptions, PostgresStore};
use firstwrite_testkit::Subject as _;

use crate::own::Own;
use crate::server::{Database, Way, on_database};
use crate::subject::{PostgresSubject, completed, reserved};

/// The ways in which a process can meet the tables that were put back.
const FIRST: [&str; 7] = ["writer", "other", "check", "handler", "ahead", "claim", "sweep"];

async fn write(store: &PostgresStore, key: &str) {
    let inserted = store.insert(&reserved(key, Fence::first(1))).await.unwrap();
    assert!(matches!(inserted, Inserted::Done(_)), "{key}: {inserted:?}");
}

async fn sweep(store: &PostgresStore) {
    store.list(&Query::lapsed(10)).await.unwrap();
}

fn assert_history_lost<T>(ended: Result<T, StoreError>, how: &str) {
    let kind = ended.map(drop).map_err(|error| error.kind());
    assert_eq!(kind, Err(StoreErrorKind::HistoryLost), "{how}");
}

/// The database as its dump, in a file.
pub(crate) fn dump(database: &Database) -> std::fs::File {
    let mut file = tempfile::tempfile().unwrap();
    let mut command = Command::new("pg_dump");
    command.args(["--clean", "--if-exists", &database.url]).stdout(file.try_clone().unwrap());
    assert!(command.status().unwrap().success());
    std::io::Seek::rewind(&mut file).unwrap();
    file
}

pub(crate) fn put_back(database: &Database, dump: std::fs::File) {
    let mut command = Command::new("psql");
    command.args(["--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", &database.url]);
    assert!(command.stdin(dump).stdout(Stdio::null()).status().unwrap().success());
}

/// A dump that is put back ends no connection: the processes go on with those they have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_put_back_under_open_stores_is_noticed_before_an_unknown_key_is_written() {
    for way in [Way::Direct, Way::Pooler] {
        for how in FIRST {
            on_database(way, &[], move |database| async move {
                put_back_and_ask(&database, how).await;
            })
            .await;
        }
    }
}

async fn put_back_and_ask(database: &Database, how: &str) {
    let subject = PostgresSubject::new(database, PostgresOptions::default()).await;
    let (one, other) = (subject.postgres(), subject.rival().await);
    write(&one, "before").await;
    write(&other, "other").await;
    let dump = dump(database);
    write(&one, "after").await;
    // With a profile that the dump does not have.
    one.insert(&completed("profile", Fence::first(1), 10)).await.unwrap();
    sweep(&other).await;
    sweep(&one).await;
    put_back(database, dump);
    let again = reserved("after", Fence::first(2));
    match how {
        "writer" => assert_history_lost(one.insert(&again).await, how),
        "other" => assert_history_lost(other.insert(&again).await, how),
        "check" => assert_history_lost(other.check_history(again.id).await, how),
        "handler" => assert_history_lost(other.begin(again.id).await, how),
        "ahead" => {
            let ahead = other.begin_ahead(again.id, async |client| client.simple_query("").await);
            assert_history_lost(ahead.await, how);
        }
        "claim" => {
            let request = ClaimRequest {
                destination: "sink".to_owned(),
                count_max: 1,
                lease_for: Duration::from_secs(30),
            };
            assert_history_lost(other.outbox().unwrap().claim(&[request], 7).await, how);
        }
        _ => sweep(&other).await,
    }
    assert_eq!(one.history_losses().await.unwrap().len(), 1, "{how}");
    for store in [&one, &other] {
        assert_history_lost(store.insert(&reserved("new", Fence::first(1))).await, how);
        let known = store.insert(&reserved("before", Fence::first(2))).await.unwrap();
        assert!(matches!(known, Inserted::Stands(_)), "{how}: {known:?}");
    }
    one.clear_history_losses("ops", "compared with the books").await.unwrap();
    write(&one, "new").await;
    write(&other, "newer").await;
    let written = completed("profile", Fence::first(2), 10);
    assert!(matches!(one.insert(&written).await.unwrap(), Inserted::Done(_)), "{how}");
    assert!(subject.rival().await.get(written.id).await.unwrap().is_some(), "{how}");
    for store in [&one, &other] {
        sweep(store).await;
    }
    one.check_history(again.id).await.unwrap();
    assert_eq!(one.history_losses().await.unwrap().len(), 1, "said once, by {how}");
}

/// The process that did not write what is missing is the first to meet the server again, whose line of history is the
/// one it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_put_back_is_noticed_by_a_store_that_wrote_nothing_of_what_is_missing() {
    let Some(mut own) = Own::start().await else { return };
    PostgresStore::migrate(&own.url(), PostgresOptions::default()).await.unwrap();
    let writer = PostgresStore::connect(&own.url()).await.unwrap();
    let other = PostgresStore::connect(&own.url()).await.unwrap();
    write(&writer, "before").await;
    own.stop();
    own.back_up();
    own.serve().await;
    assert!(matches!(until_back(&writer, "after").await, Ok(Inserted::Done(_))));
    assert!(matches!(until_back(&other, "before").await, Ok(Inserted::Stands(_))));
    sweep(&other).await;
    own.stop();
    own.put_back();
    own.serve().await;
    assert_eq!(until_back(&other, "after").await, Err(StoreErrorKind::HistoryLost));
    assert_eq!(other.history_losses().await.unwrap().len(), 1);
}

/// Inserts once the connections that were cut are replaced.
async fn until_back(store: &PostgresStore, key: &str) -> Result<Inserted, StoreErrorKind> {
    let mut tick = tokio::time::interval(Duration::from_millis(50));
    for _ in 0..1000 {
        match store.insert(&reserved(key, Fence::first(1))).await {
            Err(error) if error.kind() == StoreErrorKind::Unavailable => {}
            ended => return ended.map_err(|error| error.kind()),
        }
        tick.tick().await;
    }
    panic!("the store does not come back");
}

/// Rows of processes that are gone are deleted; a process that comes back after that has lost nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_did_not_sweep_for_days_raises_no_alarm() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let (one, other) = (subject.postgres(), subject.rival().await);
        write(&other, "before").await;
        let rows = async || {
            let count = "SELECT count(*) FROM history";
            subject.admin().query_one(count, &[]).await.unwrap().get::<_, i64>(0)
        };
        assert_eq!(rows().await, 2);
        subject.advance(Duration::from_hours(8 * 24)).await;
        sweep(&one).await;
        assert_eq!(rows().await, 1, "the other has not swept for eight days");
        write(&other, "after").await;
        sweep(&other).await;
        assert_eq!(rows().await, 2);
        assert!(one.history_losses().await.unwrap().is_empty());
    })
    .await;
}
