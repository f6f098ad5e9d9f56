//! A file that is deleted or replaced under a running store: nothing new runs from then on.

use std::fs;
use std::path::{Path, PathBuf};

use firstwrite_core::protocol::{self, Force, Settled, Settlement};
use firstwrite_core::{
    AuditEntry, Certainty, Change, Conclusion, Fence, Guard, Inserted, State, Store,
    StoreErrorKind, Swapped, Transacted, TransactionalStore, Write,
};

use firstwrite_store::{SqliteStore, doctor};

use crate::shop::{RETENTION, Shop, completed, id_of, options, outcome, reserved};

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// A shop with a completed and a reserved record, whose files `harm` has damaged.
async fn harmed(harm: impl FnOnce(&Path)) -> Shop {
    let shop = Shop::open();
    shop.store.insert(&completed("paid", "{}")).await.unwrap();
    shop.store.insert(&reserved("running")).await.unwrap();
    harm(&shop.path());
    shop
}

async fn refuses_unknown_keys(shop: &Shop) {
    // While records move, this is all that is asked of the store that new keys do not go into.
    let history = shop.store.check_history(id_of("unknown")).await.unwrap_err();
    assert_eq!(history.kind(), StoreErrorKind::HistoryLost);
    let refused = shop.store.insert(&reserved("unknown")).await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.certainty()),
        (StoreErrorKind::HistoryLost, Certainty::Definite)
    );
    let text = refused.to_string();
    assert!(text.contains("shop.db") && text.contains("restore"), "{text}");
    let ran = shop
        .store
        .transact(id_of("unknown"), |_tx, _found| -> Conclusion<()> {
            panic!("nothing runs that cannot be kept")
        })
        .await
        .unwrap_err();
    assert_eq!(ran.kind(), StoreErrorKind::HistoryLost, "{ran}");
}

#[tokio::test]
async fn unknown_keys_are_refused_once_a_file_of_the_store_is_gone_or_another() {
    for suffix in ["", "-wal", "-shm", "-lock"] {
        let shop = harmed(|path| fs::remove_file(beside(path, suffix)).unwrap()).await;
        refuses_unknown_keys(&shop).await;
        let shop = harmed(|path| {
            let other = beside(path, "-other");
            fs::write(&other, b"").unwrap();
            fs::rename(other, beside(path, suffix)).unwrap();
        })
        .await;
        refuses_unknown_keys(&shop).await;
    }
}

#[tokio::test]
async fn what_is_known_is_answered_and_what_runs_is_completed() {
    let shop = harmed(|path| fs::remove_file(path).unwrap()).await;
    let stands = shop.store.insert(&reserved("paid")).await.unwrap();
    assert!(matches!(stands, Inserted::Stands(_)));
    // It happened, and its caller is told so: an error would only make the caller ask again.
    let change = Change::Complete { outcome: outcome("done"), retention: RETENTION };
    let guard = Guard::Owner(Fence::first(5));
    let swapped = shop.store.swap(id_of("running"), guard, change, None).await.unwrap();
    assert!(matches!(swapped, Swapped::Done(_)));
    assert!(shop.store.get(id_of("paid")).await.unwrap().is_some());
}

#[tokio::test]
async fn nothing_is_begun_that_would_be_written_into_nowhere() {
    let shop = harmed(|path| fs::remove_file(path).unwrap()).await;
    let change = Change::TakeOver(Box::new(reserved("paid")));
    let seen = shop.store.get(id_of("paid")).await.unwrap().unwrap().record.seen();
    let taken = shop.store.swap(id_of("paid"), Guard::Seen(seen), change, None).await;
    assert_eq!(taken.unwrap_err().kind(), StoreErrorKind::HistoryLost);
    let again = |_tx: &mut firstwrite_store::SqliteTx<'_>, _found| Conclusion {
        write: Write::All(Box::new(completed("paid", "again"))),
        answer: (),
    };
    let ran = shop.store.transact(id_of("paid"), again).await;
    assert_eq!(ran.unwrap_err().kind(), StoreErrorKind::HistoryLost);
    let replayed = shop
        .store
        .transact(id_of("paid"), |_tx, found| Conclusion {
            write: Write::Nothing,
            answer: found.is_some(),
        })
        .await
        .unwrap();
    assert!(matches!(replayed, Transacted::Done(true, _)));
    let written = shop.store.write(|connection| connection.execute_batch("SELECT 1")).await;
    assert_eq!(written.unwrap_err().kind(), StoreErrorKind::HistoryLost);
}

#[tokio::test]
async fn the_loss_is_noticed_without_a_request() {
    let shop = harmed(|path| fs::remove_file(path).unwrap()).await;
    let lock = beside(&shop.path(), "-lock");
    let noticed = async {
        while !fs::read_to_string(&lock).unwrap().contains("deleted") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_mins(1), noticed).await.expect("it is noticed");
}

#[tokio::test]
async fn a_restart_on_another_file_stays_in_doubt_until_it_is_cleared() {
    let shop = harmed(|path| {
        // An older copy is put in its place.
        let older = beside(path, "-older");
        drop(SqliteStore::open_or_create(&older).unwrap());
        fs::rename(older, path).unwrap();
    })
    .await;
    shop.store.insert(&reserved("unknown")).await.unwrap_err();
    shop.store.clone().close().await;
    for suffix in ["-wal", "-shm"] {
        // They belong to the file that is gone.
        drop(fs::remove_file(beside(&shop.path(), suffix)));
    }
    let store = SqliteStore::open(shop.path()).unwrap();
    let refused = store.insert(&reserved("paid")).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::HistoryLost, "{refused}");
    let claimed = firstwrite_core::outbox::Outbox::claim(&store, &[], 1).await.unwrap_err();
    assert_eq!(claimed.kind(), StoreErrorKind::HistoryLost, "{claimed}");
    let codes =
        |found: Vec<doctor::Finding>| found.iter().map(|found| found.code).collect::<Vec<_>>();
    let found = codes(doctor::sqlite(&store, &shop.path()).await.unwrap());
    assert!(found.contains(&"history-lost") && !found.contains(&"file-lost"), "{found:?}");

    assert_eq!(
        store.clear_history_losses("ann", "compared with the bank's list").await.unwrap().losses,
        1
    );
    assert!(matches!(store.insert(&reserved("new")).await.unwrap(), Inserted::Done(_)));
    let losses = store.history_losses().await.unwrap();
    assert!(losses[0].detail.contains("replaced"), "{losses:?}");
    assert_eq!(losses[0].cleared.as_ref().map(|cleared| &*cleared.by), Some("ann"));
    store.close().await;
    let store = SqliteStore::open(shop.path()).unwrap();
    assert!(matches!(store.insert(&reserved("newer")).await.unwrap(), Inserted::Done(_)));
}

/// Copies the store's file and its log to `to`.
fn copy(from: &Path, to: &Path) {
    for suffix in ["", "-wal"] {
        fs::copy(beside(from, suffix), beside(to, suffix)).unwrap();
    }
}

#[tokio::test]
async fn an_older_file_that_is_put_back_while_the_service_is_down_is_noticed() {
    // The whole file, and a file without its log.
    for keeps_log in [true, false] {
        let shop = Shop::open();
        shop.store.insert(&completed("before", "{}")).await.unwrap();
        shop.store.clone().close().await;
        let store = SqliteStore::open_with(shop.path(), options(&shop.clock)).unwrap();
        let (backup, current) = (beside(&shop.path(), "-old"), beside(&shop.path(), "-new"));
        copy(&shop.path(), &backup);
        shop.pass(std::time::Duration::from_secs(2));
        store.insert(&completed("paid", "{}")).await.unwrap();
        copy(&shop.path(), &current);
        store.close().await;
        // As it was when the process was killed.
        let source = if keeps_log { &backup } else { &current };
        fs::copy(source, shop.path()).unwrap();
        drop(fs::remove_file(beside(&shop.path(), "-wal")));
        if keeps_log {
            fs::copy(beside(&backup, "-wal"), beside(&shop.path(), "-wal")).unwrap();
        }
        let store = SqliteStore::open(shop.path()).unwrap();
        let refused = store.insert(&reserved("paid")).await.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::HistoryLost, "{refused}");
        assert!(refused.to_string().contains("older"), "{refused}");
        assert_eq!(
            store
                .clear_history_losses("ann", "compared with the bank's list")
                .await
                .unwrap()
                .losses,
            1
        );
        store.close().await;
        let store = SqliteStore::open(shop.path()).unwrap();
        assert!(matches!(store.insert(&reserved("paid")).await.unwrap(), Inserted::Done(_)));
    }
}

/// The write came within the second in which the time was kept already, and the process was idle before the kill.
#[tokio::test]
async fn a_copy_of_the_same_run_that_lacks_the_last_write_is_noticed_once_a_second_has_passed() {
    let shop = Shop::open();
    shop.store.insert(&completed("before", "{}")).await.unwrap();
    let [copied, lock, killed] =
        ["-old", "-lock", "-killed"].map(|suffix| beside(&shop.path(), suffix));
    copy(&shop.path(), &copied);
    let before = fs::read_to_string(&lock).unwrap();
    shop.store.insert(&completed("paid", "{}")).await.unwrap();
    assert_eq!(fs::read_to_string(&lock).unwrap(), before, "not once for each write");
    shop.pass(std::time::Duration::from_secs(1));
    let kept = async {
        while fs::read_to_string(&lock).unwrap() == before {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_mins(1), kept).await.expect("the time is kept");
    // The process ends without a word: what it writes when it is closed is taken back.
    fs::copy(&lock, &killed).unwrap();
    shop.store.clone().close().await;
    fs::copy(&killed, &lock).unwrap();
    fs::copy(&copied, shop.path()).unwrap();
    fs::copy(beside(&copied, "-wal"), beside(&shop.path(), "-wal")).unwrap();
    let store = SqliteStore::open(shop.path()).unwrap();
    let refused = store.insert(&reserved("paid")).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::HistoryLost, "{refused}");
}

/// What is missing may have freed the key of an uncertain record, and used it again a moment before the loss.
#[tokio::test]
async fn an_absence_frees_no_record_before_its_loss_is_cleared_and_counts_anew_from_then() {
    let shop = Shop::open();
    shop.store.insert(&reserved("lost")).await.unwrap();
    let id = id_of("lost");
    let guard = Guard::Owner(Fence::first(5));
    let marked = shop.store.swap(id, guard, Change::MARK_UNCERTAIN, None).await.unwrap();
    assert!(matches!(marked, Swapped::Done(_)), "{marked:?}");
    shop.store.clone().close().await;
    let store = SqliteStore::open_with(shop.path(), options(&shop.clock)).unwrap();
    let backup = beside(&shop.path(), "-old");
    copy(&shop.path(), &backup);
    shop.pass(std::time::Duration::from_hours(3));
    store.insert(&completed("paid", "{}")).await.unwrap();
    store.close().await;
    fs::copy(&backup, shop.path()).unwrap();
    fs::copy(beside(&backup, "-wal"), beside(&shop.path(), "-wal")).unwrap();
    let store = SqliteStore::open_with(shop.path(), options(&shop.clock)).unwrap();
    let seen = store.get(id).await.unwrap().unwrap().record;
    let by = AuditEntry::uncertain("a test");
    let free = |record| protocol::settle(&store, record, Settlement::NotHappened, Force::No, &by);
    assert_eq!(free(&seen).await.unwrap(), Settled::HistoryLost);
    shop.pass(std::time::Duration::from_mins(1));
    let cleared = store.clear_history_losses("ann", "compared with the bank's list").await.unwrap();
    assert_eq!((cleared.losses, cleared.records), (1, 1), "{cleared:?}");
    assert_eq!(
        free(&seen).await.unwrap(),
        Settled::Moved,
        "it was looked into before the clearing"
    );
    let found = store.get(id).await.unwrap().unwrap();
    assert_eq!(found.record.state, State::Uncertain { since: found.now }, "{found:?}");
    assert_eq!(free(&found.record).await.unwrap(), Settled::Done);
}

/// A file that a process wrote to under another name says later times than the one that it replaces.
#[tokio::test]
async fn a_file_that_another_process_wrote_to_meanwhile_is_noticed() {
    for is_backup in [true, false] {
        let shop = Shop::open();
        shop.store.insert(&completed("before", "{}")).await.unwrap();
        shop.store.clone().close().await;
        let other = beside(&shop.path(), "-other");
        if is_backup {
            fs::copy(shop.path(), &other).unwrap();
        } else {
            SqliteStore::open_or_create(&other).unwrap().close().await;
        }
        let store = SqliteStore::open_with(shop.path(), options(&shop.clock)).unwrap();
        store.insert(&completed("paid", "{}")).await.unwrap();
        store.close().await;
        shop.pass(std::time::Duration::from_mins(1));
        SqliteStore::open_with(&other, options(&shop.clock)).unwrap().close().await;
        fs::rename(&other, shop.path()).unwrap();
        let open = || SqliteStore::open_with(shop.path(), options(&shop.clock)).unwrap();
        // Until an operator has looked, however often it is opened.
        open().close().await;
        let store = open();
        let refused = store.insert(&reserved("paid")).await.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::HistoryLost, "{refused}");
        assert!(refused.to_string().contains("not the file that was written last"), "{refused}");
        store.clear_history_losses("ann", "compared with the bank's list").await.unwrap();
        store.close().await;
        let store = open();
        assert!(matches!(store.insert(&reserved("paid")).await.unwrap(), Inserted::Done(_)));
    }
}

/// The open file is still there, and the next process will open another.
#[cfg(unix)]
#[tokio::test]
async fn a_link_that_leads_elsewhere_meanwhile_is_noticed() {
    for is_folder in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let [link, name] = ["link", "link/a.db"].map(|name| folder.path().join(name));
        let name = if is_folder { name } else { link.clone() };
        let targets = ["one", "two"].map(|name| folder.path().join(name));
        for target in &targets {
            let file = if is_folder { target.join("a.db") } else { target.clone() };
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            SqliteStore::open_or_create(&file).unwrap().close().await;
        }
        std::os::unix::fs::symlink(&targets[0], &link).unwrap();
        let store = SqliteStore::open(&name).unwrap();
        assert!(matches!(store.insert(&reserved("new")).await.unwrap(), Inserted::Done(_)));
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&targets[1], &link).unwrap();
        let refused = store.insert(&reserved("newer")).await.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::HistoryLost, "{refused}");
        assert!(refused.to_string().contains("link"), "{refused}");
    }
}

#[tokio::test]
async fn a_restart_of_any_kind_raises_no_doubt() {
    let shop = Shop::open();
    shop.store.insert(&completed("paid", "{}")).await.unwrap();
    // As a killed process leaves them.
    let killed = beside(&shop.path(), "-killed");
    copy(&shop.path(), &killed);
    fs::copy(beside(&shop.path(), "-lock"), beside(&killed, "-lock")).unwrap();
    shop.store.clone().close().await;
    for path in [shop.path(), killed.clone(), killed] {
        let store = SqliteStore::open(&path).unwrap();
        assert!(store.history_losses().await.unwrap().is_empty());
        store.close().await;
    }
}

#[tokio::test]
async fn no_new_file_takes_the_place_of_one_that_is_remembered() {
    let shop = Shop::open();
    shop.store.clone().close().await;
    fs::remove_file(shop.path()).unwrap();
    for opened in [
        SqliteStore::open_or_create(shop.path()),
        // Nobody is sent to `migrate`, which refuses as well.
        SqliteStore::open(shop.path()),
        SqliteStore::open_read_only(shop.path()),
    ] {
        let refused = opened.unwrap_err();
        assert!(!refused.is_missing(), "{refused}");
        assert!(refused.to_string().contains("-lock remembers it"), "{refused}");
    }
    assert!(!shop.path().exists(), "nothing was made");
    fs::remove_file(beside(&shop.path(), "-lock")).unwrap();
    SqliteStore::open_or_create(shop.path()).unwrap().close().await;
}

#[tokio::test]
async fn a_file_with_two_names_is_refused() {
    let shop = Shop::open();
    let other = beside(&shop.path(), "-other");
    fs::hard_link(shop.path(), &other).unwrap();
    let refused = SqliteStore::open(&other).unwrap_err().to_string();
    assert!(refused.contains("several names"), "{refused}");
}
