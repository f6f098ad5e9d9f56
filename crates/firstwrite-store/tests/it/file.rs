//! The file: who may open it, what survives, and what is refused with a word on what to do.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use firstwrite_core::{Capabilities, Change, Guard, Inserted, StateKind, Store, StoreErrorKind};
use firstwrite_store::rusqlite::Connection;
use firstwrite_store::{Access, ForeignFile, SqliteOptions, SqliteStore, create, open};

use crate::group_commit::{ClaimStatus, queue_and_forget};
use crate::shop::{Shop, completed, id_of, options, reserved};

fn refusal<T: std::fmt::Debug>(opened: Result<T, firstwrite_store::OpenError>) -> String {
    let text = opened.expect_err("this must not open").to_string();
    assert!(!text.contains('\n'), "one line: {text}");
    text
}

#[tokio::test]
async fn an_address_says_scheme_and_file() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("a.db").display());
    assert!(create(&url).await.unwrap().is_new());
    let store = open(&url, Access::Write).await.unwrap();
    assert!(store.capabilities().cover(Capabilities {
        transactions: true,
        durable: true,
        server_time: true,
        ..Capabilities::default()
    }));
    open(&url.replace("sqlite:", "sqlite://"), Access::ReadOnly).await.unwrap();
    for (url, part) in [
        ("payments.db", "no scheme"),
        ("mongodb://user:secret@host", "`mongodb`"),
        ("sqlite:", "names no file"),
        ("sqlite::memory:", "MemoryStore"),
    ] {
        for text in [refusal(open(url, Access::Write).await), refusal(create(url).await)] {
            assert!(text.contains(part) && !text.contains("secret"), "{text}");
        }
    }
    let nowhere = format!("sqlite:{}", folder.path().join("no/such/folder/a.db").display());
    assert!(refusal(create(&nowhere).await).contains("folder exists"));
    assert!(refusal(open(&nowhere, Access::ReadOnly).await).contains("there is no file"));
}

#[cfg(unix)]
#[tokio::test]
async fn what_is_made_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = SqliteStore::open_or_create(&path).unwrap();
    let mode =
        |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777;
    for name in ["a.db", "a.db-wal", "a.db-shm", "a.db-lock"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    let found = async || {
        let findings = firstwrite_store::doctor::sqlite(&store, &path).await.unwrap();
        findings.into_iter().find(|finding| finding.code == "file-mode").map(|found| found.what)
    };
    assert_eq!(found().await, None);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let what = found().await.unwrap();
    assert!(what.contains("a.db (640)") && !what.contains("-wal"), "{what}");
}

/// A mistyped path: an empty store would run used keys again.
#[tokio::test]
async fn a_file_that_is_not_there_is_refused_and_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("paymnets.db");
    let url = format!("sqlite:{}", path.display());
    let by_url = [open(&url, Access::Write).await, open(&url, Access::ReadOnly).await];
    let by_path = [SqliteStore::open(&path), SqliteStore::open_read_only(&path)];
    let errors = by_url.into_iter().map(|opened| opened.map(drop).unwrap_err());
    for error in errors.chain(by_path.into_iter().map(|opened| opened.map(drop).unwrap_err())) {
        assert!(error.is_missing(), "{error}");
        assert!(refusal::<()>(Err(error)).contains("firstwrite migrate --store 'sqlite:"));
    }
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none(), "something was made");
    // A file in which nothing stands is no store either.
    fs::write(&path, "").unwrap();
    assert!(SqliteStore::open(&path).unwrap_err().is_missing());
    SqliteStore::open_or_create(&path).unwrap().close().await;
    SqliteStore::open(&path).unwrap();
}

#[tokio::test]
async fn a_second_writer_is_refused_until_the_first_has_closed() {
    let shop = Shop::open();
    let text = refusal(SqliteStore::open(shop.path()));
    assert!(text.contains("another firstwrite process is writing to"), "{text}");
    assert!(text.contains("read-only"), "{text}");
    // Another way to the same file is still the same file.
    let link = shop.folder.path().join("link.db");
    std::os::unix::fs::symlink(shop.path(), &link).unwrap();
    refusal(SqliteStore::open(&link));
    shop.store.clone().close().await;
    drop(SqliteStore::open(shop.path()).unwrap());
    SqliteStore::open(shop.path()).expect("a dropped store frees its lock");
}

#[tokio::test]
async fn a_reader_beside_the_writer_sees_its_commits_and_changes_nothing() {
    let shop = Shop::open();
    let draft = completed("k", "{}");
    shop.store.insert(&draft).await.unwrap();
    let reader = SqliteStore::open_read_only(shop.path()).unwrap();
    assert!(reader.get(draft.id).await.unwrap().is_some());
    shop.store.insert(&completed("later", "{}")).await.unwrap();
    assert!(reader.get(id_of("later")).await.unwrap().is_some());

    let guard = Guard::Owner(draft.fence);
    let errors = [
        reader.insert(&reserved("x")).await.unwrap_err(),
        reader.swap(draft.id, guard, Change::Remove, None).await.unwrap_err(),
        reader.reap(10).await.unwrap_err(),
        reader.write(|connection| connection.execute_batch("SELECT 1")).await.unwrap_err(),
        reader.read(|connection| connection.execute_batch("CREATE TABLE t (a)")).await.unwrap_err(),
        shop.store
            .read(|connection| connection.execute_batch("CREATE TABLE t (a)"))
            .await
            .unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), StoreErrorKind::Unsupported, "{error}");
    }
}

#[tokio::test]
async fn closing_finishes_what_waits_and_reopening_finds_it_all() {
    let shop = Shop::open();
    let (store, path) = (shop.store.clone(), shop.path());
    shop.make_orders_table().await;
    let mut waiting = Vec::new();
    for number in 0..200 {
        let store = store.clone();
        waiting.push(tokio::spawn(async move {
            store.insert(&completed(&format!("k-{number}"), "{}")).await
        }));
    }
    for task in waiting {
        task.await.unwrap().unwrap();
    }
    store.insert(&reserved("held")).await.unwrap();
    let kept = shop.store.clone();
    store.close().await;
    let error = kept.insert(&reserved("late")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert_eq!(kept.get(id_of("held")).await.unwrap_err().kind(), StoreErrorKind::Unavailable);
    assert!(!path.with_extension("db-wal").exists(), "a clean close leaves no log");

    let clock = Arc::new(AtomicI64::new(2_000_000));
    let again = SqliteStore::open_with(&path, options(&clock)).unwrap();
    for number in 0..200 {
        assert!(again.get(id_of(&format!("k-{number}"))).await.unwrap().is_some());
    }
    let held = again.get(id_of("held")).await.unwrap().unwrap().record;
    assert_eq!(held.state.kind(), StateKind::Uncertain, "its owner is gone");
    // Numbers go on where they stopped: a new record is not mistaken for an old one.
    assert!(matches!(again.insert(&reserved("new")).await.unwrap(), Inserted::Done(_)));
    assert!(matches!(again.insert(&reserved("k-7")).await.unwrap(), Inserted::Stands(_)));
}

#[tokio::test]
async fn a_file_that_was_not_closed_is_whole_for_readers_and_writers() {
    let shop = Shop::open();
    shop.store.insert(&completed("k", "{}")).await.unwrap();
    // A copy taken while the writer lives is what a killed process leaves behind.
    let copy = shop.folder.path().join("copy.db");
    fs::copy(shop.path(), &copy).unwrap();
    fs::copy(shop.path().with_extension("db-wal"), copy.with_extension("db-wal")).unwrap();
    let reader = SqliteStore::open_read_only(&copy).unwrap();
    assert!(reader.get(id_of("k")).await.unwrap().is_some());
    let writer = SqliteStore::open(&copy).unwrap();
    assert!(matches!(writer.insert(&reserved("k")).await.unwrap(), Inserted::Stands(_)));
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let shop = Shop::open();
    shop.store.clone().close().await;
    let connection = Connection::open(shop.path()).unwrap();
    connection.execute_batch("UPDATE firstwrite_meta SET value = 2").unwrap();
    let before = fs::read(shop.path()).unwrap();
    for text in
        [refusal(SqliteStore::open(shop.path())), refusal(SqliteStore::open_read_only(shop.path()))]
    {
        assert!(text.contains("schema version 2") && text.contains("newer build"), "{text}");
    }
    assert_eq!(fs::read(shop.path()).unwrap(), before);
    connection.execute_batch("UPDATE firstwrite_meta SET value = 'x'").unwrap();
    refusal(SqliteStore::open(shop.path()));
    connection.execute_batch("DELETE FROM firstwrite_meta").unwrap();
    assert!(refusal(SqliteStore::open(shop.path())).contains("backup"));
}

#[test]
fn somebody_elses_file_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("theirs.db");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE theirs (a)").unwrap();
    let before = fs::read(&path).unwrap();
    let text = refusal(SqliteStore::open(&path));
    assert!(text.contains("firstwrite did not make"), "{text}");
    refusal(SqliteStore::open_read_only(&path));
    assert_eq!(fs::read(&path).unwrap(), before, "not even switched to another journal");

    let mut adopting = SqliteOptions::default();
    adopting.foreign_file = ForeignFile::Adopt;
    drop(SqliteStore::open_with(&path, adopting).unwrap());
    drop(SqliteStore::open(&path).expect("once adopted, it is ours too"));

    let picture = folder.path().join("picture.png");
    fs::write(&picture, vec![0x89; 10_000]).unwrap();
    for text in
        [refusal(SqliteStore::open(&picture)), refusal(SqliteStore::open_read_only(&picture))]
    {
        // Who would take another file instead must know what that one does not.
        assert!(text.contains("restore a backup") && text.contains("runs again"), "{text}");
    }
    assert_eq!(fs::read(&picture).unwrap(), vec![0x89; 10_000]);
    refusal(SqliteStore::open(folder.path()));
}

#[tokio::test]
async fn the_last_clone_may_be_dropped_inside_a_closure() {
    let Shop { store, folder, .. } = Shop::open();
    let held = ClaimStatus::hold(&store).await;
    let inside = store.clone();
    let (dropped, told) = tokio::sync::oneshot::channel();
    queue_and_forget(&store, move || {
        drop(inside);
        dropped.send(()).unwrap();
    })
    .await;
    drop(store);
    held.let_go();
    told.await.expect("the closure ran and did not wait for its own thread");
    drop(folder);
}
