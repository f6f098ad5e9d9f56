//! Lost history is noticed by every open store, also by one that wrote none of what is missing; and nothing that other
//! stores do in good order is taken for a loss. The stores are opened in one test process, and share nothing but the
//! server, as two processes do.

use std::process::{Command, Stdio};
use std::time::Duration;

use firstwrite_core::outbox::{
    ClaimRequest, ClaimStatus, ClaimedMessage, Delivery, Ending, Next, Outbox as _,
    REST_AFTER_LOSS, Receipt, Settlement, protocol,
};
use firstwrite_core::{
    AsyncTransactionalStore as _, AuditEntry, BeginResult, Change, Fence, Guard, Inserted, Message,
    OnLostAnswer, Query, RecordId, Store as _, StoreError, StoreErrorKind, Transacted, Write,
};
use firstwrite_store::mysql_async::prelude::Queryable as _;
use firstwrite_store::{MysqlOptions, MysqlStore};
use firstwrite_testkit::{Subject as _, sample};

use crate::own::Own;
use crate::server::{Database, Which, client, in_database, on_database};
use crate::subject::{MysqlSubject, completed, done, reserved};

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
async fn a_dump_put_back_under_open_stores_is_noticed_before_an_unknown_key_is_written() {
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

/// Every connection has a count of its own: one that wrote nothing since the dump compares the others', too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_is_noticed_on_a_connection_that_wrote_nothing_of_what_is_missing() {
    let Some(own) = Own::start(|_folder| Vec::new()).await else { return };
    for how in ["writer", "handler", "claim", "checked"] {
        let database = Database { url: in_database(&own.url(), how) };
        let create = format!("CREATE DATABASE {how}");
        client(&own.url()).await.query_drop(create).await.unwrap();
        MysqlStore::migrate(&database.url, MysqlOptions::default()).await.unwrap();
        let store = MysqlStore::connect(&database.url).await.unwrap();
        // A handler holds one connection, so the next write is on another.
        let BeginResult::Open(tx, _) = store.begin(id("first")).await.unwrap() else { panic!() };
        write(&store, "second").await;
        let first = Write::All(Box::new(completed("first", Fence::first(1), 10)));
        assert!(matches!(store.conclude(tx, first).await.unwrap(), Transacted::Done(..)));
        let dump = dump(&database);
        write(&store, "after").await;
        // A handler that is dropped leaves its connection to be used last.
        drop(store.begin(id("dropped")).await.unwrap());
        put_back(&database, dump);
        match how {
            "writer" => {
                assert_history_lost(store.insert(&reserved("after", Fence::first(2))).await);
            }
            "handler" => assert_history_lost(store.begin(id("after")).await.map(drop)),
            "claim" => assert_history_lost(store.claim(&[request(9)], 1).await),
            _ => assert_history_lost(store.check_history(id("after")).await),
        }
        assert_eq!(store.history_losses().await.unwrap().len(), 1, "{how}");
    }
}

/// What is lost while messages are marked is not cleared with the loss that they are marked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_lost_while_messages_are_marked_stays_open() {
    for (happens, open) in [
        ("INSERT INTO firstwrite_history_losses (noticed_at, detail) VALUES (1, 'again')", 2),
        ("UPDATE firstwrite_history SET commits = 0", 1),
    ] {
        on_database(Which::MariaDb, |database| async move {
            let subject = MysqlSubject::new(&database, MysqlOptions::default()).await;
            subject.mysql().enqueue(&message("first")).await.unwrap();
            let operator = subject.rival().await;
            let mut admin = client(&database.url).await;
            let lost =
                "INSERT INTO firstwrite_history_losses (noticed_at, detail) VALUES (1, 'lost')";
            admin.query_drop(lost).await.unwrap();
            let harm = format!(
                "CREATE TRIGGER harm AFTER INSERT ON firstwrite_audit FOR EACH ROW {happens}"
            );
            admin.query_drop(harm).await.unwrap();
            let refused = operator.clear_history_losses("ops", "compared").await.unwrap_err();
            assert_eq!(refused.kind(), StoreErrorKind::HistoryLost, "{refused}");
            assert!(refused.to_string().contains("run it again"), "{refused}");
            let losses = operator.history_losses().await.unwrap();
            assert!(losses.iter().all(|loss| loss.cleared.is_none()), "{losses:?}");
            admin.query_drop("DROP TRIGGER harm").await.unwrap();
            let cleared = operator.clear_history_losses("ops", "compared").await.unwrap();
            assert_eq!((cleared.losses, cleared.messages), (open, 1), "{cleared:?}");
        })
        .await;
    }
}

/// What was delivered since a dump was made stands in it as never sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dump_calls_never_sent_is_in_doubt_once_the_loss_is_cleared() {
    on_database(Which::MariaDb, |database| async move {
        let subject = MysqlSubject::new(&database, MysqlOptions::default()).await;
        let (worker, other) = (subject.mysql(), subject.rival().await);
        for key in ["sending", "waiting", "first", "second"] {
            let message = message(key);
            let is_ordered = key == "first" || key == "second";
            let message = if is_ordered { message.ordered_by("card") } else { message };
            worker.enqueue(&message).await.unwrap();
        }
        let held = claim(&worker, 1).await;
        assert_eq!(keys(&held), ["sending"]);
        let dump = dump(&database);
        deliver(&worker, &held).await;
        for _ in 0..2 {
            deliver(&other, &claim(&other, 9).await).await;
        }
        for store in [&worker, &other] {
            sweep(store).await;
        }
        put_back(&database, dump);

        // What is noticed later than this is not noticed a second time.
        subject.advance(Duration::from_secs(1)).await;
        assert_history_lost(other.claim(&[request(9)], 1).await);
        let cleared = other.clear_history_losses("ops", "compared with the books").await.unwrap();
        assert_eq!((cleared.losses, cleared.messages), (1, 4), "{cleared:?}");
        let late = protocol::settle(&worker, &[], &[arrived(&held[0])]).await.unwrap();
        assert_eq!(late, [ClaimStatus::Lost]);
        worker.enqueue(&message("new")).await.unwrap();
        let new = claim(&worker, 9).await;
        assert_eq!((keys(&new), new[0].maybe_sent_at), (vec!["new"], None));
        deliver(&worker, &new).await;

        subject.advance(REST_AFTER_LOSS).await;
        let claimed = claim(&worker, 9).await;
        assert_eq!(keys(&claimed), ["sending", "waiting", "first"]);
        assert!(claimed[0].receipt.is_some(), "{:?}", claimed[0]);
        for message in &claimed {
            assert_eq!(message.maybe_sent_at, Some(message.created_at), "{message:?}");
        }
        deliver(&worker, &claimed).await;
        let second = claim(&other, 9).await;
        assert_eq!(keys(&second), ["second"]);
        assert_eq!(second[0].maybe_sent_at, Some(second[0].created_at));
    })
    .await;
}

fn message(key: &str) -> Message {
    let payload = bytes::Bytes::from_static(b"{}");
    Message::new(&sample::tenant("shop"), &sample::key(key), "s", "mailer", payload).unwrap()
}

fn request(count_max: usize) -> ClaimRequest {
    let lease_for = Duration::from_secs(45);
    ClaimRequest { destination: "mailer".to_owned(), count_max, lease_for }
}

async fn claim(store: &MysqlStore, count_max: usize) -> Vec<ClaimedMessage> {
    let claimed = store.claim(&[request(count_max)], fastrand::u64(..)).await.unwrap();
    let mut messages = claimed.messages;
    messages.sort_by_key(|message| message.number);
    messages
}

fn keys(messages: &[ClaimedMessage]) -> Vec<&str> {
    messages.iter().map(|message| message.derived_key.trim_end_matches(":s")).collect()
}

fn arrived(message: &ClaimedMessage) -> Settlement {
    let receipt = Receipt { provider_id: Some(format!("id-{}", message.number)) };
    let delivery = Delivery::new(Ending::Delivered(receipt.clone()), "in a test").with_status(201);
    let next = Next::Delivered(receipt);
    Settlement { claim: message.claim(), delivery: Some(delivery), next, answer: None }
}

async fn deliver(store: &MysqlStore, messages: &[ClaimedMessage]) {
    let settlements: Vec<Settlement> = messages.iter().map(arrived).collect();
    let statuses = protocol::settle(store, &[], &settlements).await.unwrap();
    assert!(statuses.iter().all(|status| *status == ClaimStatus::Current), "{statuses:?}");
}

/// The process that did not write what is missing is the first to meet the server again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_put_back_is_noticed_by_a_store_that_wrote_nothing_of_what_is_missing() {
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
