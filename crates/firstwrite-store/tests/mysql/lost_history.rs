//! Lost history is noticed by every process that was running, also by one that wrote none of what is missing; and
//! nothing that other processes do in good order is taken for a loss.

use std::process::{Command, Stdio};
use std::time::Duration;

use firstwrite_core::{
    AsyncTransactionalStore as _, AuditEntry, Change, Fence, Guard, Inserted, OnLostAnswer, Query,
    RecordId, Store as _, StoreError, StoreErrorKind,
};
use firstwrite_store::mysql_async::prelude::Queryable as _;
use firstwrite_store::{MysqlOptions, MysqlStore};
use firstwrite_testkit::{Subject as _, sample};

use crate::own::Own;
use crate::server::{Database, Which, client, in_database, on_database};
use crate::subject::{MysqlSubject, done, reserved};

fn id(key: &str) -> RecordId {
    reserved(key, Fence::first(1)).id
}

async fn write(store: &MysqlStore, key: &str) {
    let inserted = store.insert(&reserved(key, Fence::first(1))).await.unwrap();
    assert!(matches!(inserted, Inserted::Done(_)), "{key}: {inserted:?}");
}

fn assert_history_lost<T: std::fmt::Debug>(ended: Result<T, StoreError>) {
    assert_eq!(ended.unwrap_err().kind(), StoreErrorKind::HistoryLost);
}

async fn sweep(store: &MysqlStore) {
    store.list(&Query::lapsed(10)).await.unwrap();
}

/// Runs one of MariaDB's own programs on a test's database.
fn program(name: &str, database: &Database, input: Stdio) -> Command {
    let (server, shop) = database.url.rsplit_once('/').unwrap();
    let mut command = Command::new(name);
    command.args(["--no-defaults", "--protocol=tcp", "--host=127.0.0.1", "--user=root"]);
    command.arg(format!("--port={}", server.rsplit_once(':').unwrap().1)).arg(shop).stdin(input);
    command
}

/// The database as its dump, in a file.
fn dump(database: &Database) -> std::fs::File {
    let mut file = tempfile::tempfile().unwrap();
    let mut command = program("mariadb-dump", database, Stdio::null());
    assert!(command.stdout(file.try_clone().unwrap()).status().unwrap().success());
    std::io::Seek::rewind(&mut file).unwrap();
    file
}

fn put_back(database: &Database, dump: std::fs::File) {
    let mut command = program("mariadb", database, dump.into());
    assert!(command.status().unwrap().success());
}

/// A dump that is put back ends no connection: the processes go on with those they have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_put_back_under_running_processes_is_noticed_before_an_unknown_key_is_written() {
    let Some(own) = Own::start(|_folder| Vec::new()).await else { return };
    for how in ["writer", "other", "checked", "handler", "sweep"] {
        let database = Database { url: in_database(&own.url(), how) };
        let create = format!("CREATE DATABASE {how}");
        client(&own.url()).await.query_drop(create).await.unwrap();
        put_back_and_ask(&database, how).await;
    }
}

async fn put_back_and_ask(database: &Database, how: &str) {
    MysqlStore::migrate(&database.url, MysqlOptions::default()).await.unwrap();
    let one = MysqlStore::connect(&database.url).await.unwrap();
    let other = MysqlStore::connect(&database.url).await.unwrap();
    write(&one, "before").await;
    write(&other, "other").await;
    let dump = dump(database);
    write(&one, "after").await;
    sweep(&other).await;
    put_back(database, dump);
    match how {
        "writer" => assert_history_lost(one.insert(&reserved("after", Fence::first(2))).await),
        "other" => assert_history_lost(other.insert(&reserved("after", Fence::first(2))).await),
        "checked" => assert_history_lost(other.check_history(id("after")).await),
        "handler" => assert_history_lost(other.begin(id("after")).await.map(drop)),
        _ => sweep(&other).await,
    }
    assert_eq!(one.history_losses().await.unwrap().len(), 1, "{how}");
    for store in [&one, &other] {
        assert_history_lost(store.insert(&reserved("new", Fence::first(1))).await);
        let known = store.insert(&reserved("before", Fence::first(2))).await.unwrap();
        assert!(matches!(known, Inserted::Stands(_)), "{known:?}");
    }
    one.clear_history_losses("ops", "compared with the books").await.unwrap();
    write(&one, "new").await;
    write(&other, "newer").await;
    other.check_history(id("after")).await.unwrap();
    assert_eq!(one.history_losses().await.unwrap().len(), 1, "said once, by {how}");
}

/// The process that did not write what is missing is the first to meet the server again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_put_back_is_noticed_by_a_process_that_wrote_nothing_of_what_is_missing() {
    let Some(mut own) = Own::start(|_folder| Vec::new()).await else { return };
    MysqlStore::migrate(&own.url(), MysqlOptions::default()).await.unwrap();
    let writer = MysqlStore::connect(&own.url()).await.unwrap();
    let other = MysqlStore::connect(&own.url()).await.unwrap();
    write(&writer, "before").await;
    own.stop().await;
    own.back_up();
    own.serve().await;
    for _ in 0..2 {
        drop((writer.now().await, other.now().await));
    }
    write(&writer, "after").await;
    // On the connection it has: nothing but the sweep tells it that there is more.
    sweep(&other).await;
    own.kill();
    own.put_back();
    own.serve().await;
    drop(other.now().await);
    assert_history_lost(other.insert(&reserved("after", Fence::first(2))).await);
    assert_eq!(other.history_losses().await.unwrap().len(), 1);
}

/// What another process removes, settles by force, takes over or reaps is gone in good order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_process_ends_raises_no_alarm() {
    on_database(Which::MariaDb, |database| async move {
        let subject = MysqlSubject::new(&database, MysqlOptions::default()).await;
        let (one, other) = (subject.mysql(), subject.rival().await);
        let by = AuditEntry {
            actor: "ops".to_owned(),
            action: "settle".to_owned(),
            reason: "it is known not to have happened".to_owned(),
        };
        for (key, change) in [
            ("removed", Change::Remove),
            ("settled", done()),
            ("marked", Change::MARK_UNCERTAIN),
            ("taken", Change::TakeOver(Box::new(reserved("taken", Fence::first(9))))),
            ("ended", Change::Remove),
        ] {
            write(&one, key).await;
            if key == "ended" {
                one.swap(id(key), Guard::Owner(Fence::first(1)), done(), None).await.unwrap();
            }
            let found = other.get(id(key)).await.unwrap().unwrap();
            let guard = Guard::Seen(found.record.seen());
            let swapped = other.swap(id(key), guard, change, Some(&by)).await.unwrap();
            assert!(matches!(swapped, firstwrite_core::Swapped::Done(_)), "{key}: {swapped:?}");
        }
        let retention = sample::policy(OnLostAnswer::Uncertain).record_retention();
        for passed in [Duration::ZERO, retention.replay_for + retention.linger_for] {
            subject.advance(passed).await;
            other.reap(100).await.unwrap();
            for store in [&one, &other] {
                sweep(store).await;
            }
            subject.cut().await;
            drop((one.now().await, other.now().await));
            drop((one.now().await, other.now().await));
        }
        write(&one, "next").await;
        write(&other, "last").await;
        let losses = one.history_losses().await.unwrap();
        assert!(losses.is_empty(), "{losses:?}");
    })
    .await;
}
