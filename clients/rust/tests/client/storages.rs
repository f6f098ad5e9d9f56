//! The promises of a storage: the same cases on each.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use firstwrite_client::storage::{Inserted, StorageErrorKind, Stored};
use firstwrite_client::{Client, Error, FileStorage, MemoryStorage, Storage, Transport};
use futures_util::future::join_all;

use crate::world::{URL, World, order};

fn entry(name: &str, revision: u64) -> Stored {
    let document = Bytes::from(format!("document {revision} of {name}\n"));
    Stored { name: name.to_owned(), revision, document }
}

/// A storage in a folder, opened as another process would open it.
type Open = fn(&Path) -> Arc<dyn Storage>;

fn on_disk() -> Vec<(&'static str, Open)> {
    vec![
        ("file", |folder| Arc::new(FileStorage::open(folder.join("a/b")).unwrap())),
        #[cfg(feature = "sqlite")]
        ("sqlite", |folder| {
            Arc::new(firstwrite_client::SqliteStorage::open(folder.join("a.db")).unwrap())
        }),
    ]
}

/// Its name, and the folder it lies in.
type Opened = (&'static str, Arc<dyn Storage>, tempfile::TempDir);

/// Every storage.
fn all() -> Vec<Opened> {
    let mut all: Vec<_> = on_disk()
        .into_iter()
        .map(|(name, open)| {
            let folder = tempfile::tempdir().unwrap();
            (name, open(folder.path()), folder)
        })
        .collect();
    all.push(("memory", Arc::new(MemoryStorage::new()), tempfile::tempdir().unwrap()));
    all
}

#[tokio::test]
async fn an_entry_is_put_where_none_stands_and_replaced_by_its_revision() {
    for (kind, storage, _folder) in all() {
        let (first, second) = (entry("a/ü", 7), entry("a/ü", 8));
        assert_eq!(storage.get("a/ü").await.unwrap(), None, "{kind}");
        assert!(!storage.replace(7, second.clone()).await.unwrap(), "{kind}: nothing stands");
        assert_eq!(storage.insert(first.clone(), 10).await.unwrap(), Inserted::Yes, "{kind}");
        let stands = Inserted::Stands(first.clone());
        assert_eq!(storage.insert(second.clone(), 10).await.unwrap(), stands, "{kind}");
        assert!(!storage.replace(8, second.clone()).await.unwrap(), "{kind}: another revision");
        assert_eq!(storage.get("a/ü").await.unwrap(), Some(first), "{kind}");
        assert!(storage.replace(7, second.clone()).await.unwrap(), "{kind}");
        assert_eq!(storage.get("a/ü").await.unwrap(), Some(second), "{kind}");
        assert!(!storage.remove("a/ü", 7).await.unwrap(), "{kind}: another revision");
        assert!(storage.remove("a/ü", 8).await.unwrap(), "{kind}");
        assert!(!storage.remove("a/ü", 8).await.unwrap(), "{kind}: it is gone");
        assert_eq!(storage.get("a/ü").await.unwrap(), None, "{kind}");
    }
}

#[tokio::test]
async fn pages_show_every_entry_once_and_the_limit_counts_all() {
    for (kind, storage, _folder) in all() {
        let names: Vec<String> = (0..250).map(|n| format!("intent {n:03}")).collect();
        for name in &names {
            assert_eq!(storage.insert(entry(name, 1), 250).await.unwrap(), Inserted::Yes, "{kind}");
        }
        assert_eq!(
            storage.insert(entry("one more", 1), 250).await.unwrap(),
            Inserted::Full,
            "{kind}"
        );
        let (mut shown, mut after) = (Vec::new(), None);
        loop {
            let page = storage.list(after).await.unwrap();
            shown.extend(page.entries.into_iter().map(|entry| entry.unwrap().name));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        shown.sort();
        assert_eq!(shown, names, "{kind}");
    }
}

#[tokio::test]
async fn the_largest_revision_and_an_empty_document_are_kept() {
    for (kind, storage, _folder) in all() {
        let large = Stored { document: Bytes::new(), ..entry("a", (1 << 62) - 1) };
        storage.insert(large.clone(), 10).await.unwrap();
        assert_eq!(storage.get("a").await.unwrap(), Some(large), "{kind}");
        assert!(storage.replace((1 << 62) - 1, entry("a", 1 << 62)).await.unwrap(), "{kind}");
    }
}

#[tokio::test]
async fn of_many_writers_over_many_handles_one_wins_each_round() {
    const WRITERS: usize = 8;
    const ROUNDS: u64 = 10;
    for (kind, open) in on_disk() {
        let folder = tempfile::tempdir().unwrap();
        // Opened at once, as processes that start together do.
        let folder = folder.path();
        let opened: Vec<Arc<dyn Storage>> = std::thread::scope(|scope| {
            let opening: Vec<_> = (0..WRITERS).map(|_| scope.spawn(|| open(folder))).collect();
            opening.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let inserts = opened.iter().map(|storage| storage.insert(entry("a", 0), 10));
        let inserted = join_all(inserts).await;
        let count = inserted.iter().filter(|told| matches!(told, Ok(Inserted::Yes))).count();
        assert_eq!(count, 1, "{kind}: {inserted:?}");
        for round in 0..ROUNDS {
            let writes = opened.iter().map(|storage| storage.replace(round, entry("a", round + 1)));
            let written = join_all(writes).await;
            let count = written.iter().filter(|told| matches!(told, Ok(true))).count();
            assert_eq!(count, 1, "{kind}: {written:?}");
        }
    }
}

#[tokio::test]
async fn entries_are_there_after_the_process_and_what_a_crash_left_beside_them_is_cleared() {
    for (kind, open) in on_disk() {
        let folder = tempfile::tempdir().unwrap();
        let storage = open(folder.path());
        storage.insert(entry("a", 1), 10).await.unwrap();
        drop(storage);
        let files = folder.path().join("a/b");
        if kind == "file" {
            let whole = fs::read_dir(&files).unwrap().map(|file| file.unwrap().path());
            let whole =
                whole.into_iter().find(|path| path.extension().is_some_and(|end| end == "intent"));
            fs::write(format!("{}.tmp", whole.unwrap().display()), "half of an ent").unwrap();
        }
        let storage = open(folder.path());
        assert_eq!(storage.get("a").await.unwrap(), Some(entry("a", 1)), "{kind}");
        if kind == "file" {
            assert_eq!(fs::read_dir(&files).unwrap().count(), 2, "the entry and the lock");
        }
    }
}

fn client(storage: impl Storage, transport: impl Transport) -> Client {
    Client::builder(storage, transport).build()
}

#[tokio::test]
async fn a_damaged_file_is_named_left_where_it_is_and_the_others_go_on() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::new([]));
    let open = || client(FileStorage::open(folder.path()).unwrap(), Arc::clone(&world.server));
    for name in ["a", "b"] {
        open().intent(name).post_json(URL, &order()).open().await.unwrap();
    }
    let path = |name: &str| {
        let files = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
        files.into_iter().find(|path| {
            path.file_name().unwrap().to_str().unwrap().starts_with(&format!("{name}-"))
        })
    };
    let path = path("a").unwrap();
    let whole = fs::read(&path).unwrap();
    for spoilt in [
        whole[..whole.len() - 1].to_vec(),
        Vec::new(),
        vec![0; whole.len()],
        whole.iter().map(|byte| if *byte == b'4' { b'5' } else { *byte }).collect(),
    ] {
        fs::write(&path, &spoilt).unwrap();
        let open_again = open().intent("a").post_json(URL, &order()).open().await;
        for error in [open().find("a").await.unwrap_err(), open_again.unwrap_err()] {
            let told = error.to_string();
            let is_named = told.contains("\"a\"") || told.contains(path.to_str().unwrap());
            assert!(is_named && told.contains("left as it is"), "{told}");
        }
        let list = open().list().await.unwrap();
        assert_eq!(list.iter().filter(|entry| entry.is_err()).count(), 1);
        assert_eq!(list.len(), 2);
        assert!(open().find("b").await.unwrap().is_some());
        assert_eq!(fs::read(&path).unwrap(), spoilt);
    }
    fs::write(&path, &whole).unwrap();
    assert!(open().find("a").await.unwrap().is_some());
}

#[tokio::test]
async fn a_folder_that_cannot_be_used_is_one_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = FileStorage::open(file.join("below")).unwrap_err();
    assert_eq!(error.kind(), StorageErrorKind::Unavailable);
    assert!(error.to_string().contains("below"), "{error}");

    // One that goes away under a running client.
    let place = folder.path().join("intents");
    let world = World::new([]);
    let client = client(FileStorage::open(&place).unwrap(), Arc::clone(&world.server));
    fs::remove_dir_all(&place).unwrap();
    let error = client.intent("a").post_json(URL, &order()).open().await.unwrap_err();
    assert!(matches!(error, Error::Storage(_)), "{error}");
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_file_that_is_no_database_or_of_a_later_version_is_one_error() {
    use firstwrite_client::SqliteStorage;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    fs::write(&path, "x".repeat(4096)).unwrap();
    let error = SqliteStorage::open(&path).unwrap_err();
    assert_eq!(error.kind(), StorageErrorKind::Damaged, "{error}");
    assert_eq!(fs::read(&path).unwrap(), vec![b'x'; 4096], "it is left as it is");

    let path = folder.path().join("b.db");
    drop(SqliteStorage::open(&path).unwrap());
    // The version stands in bytes 60 to 63 of the head; the log is empty once the last connection has closed.
    let mut bytes = fs::read(&path).unwrap();
    bytes[63] = 9;
    fs::write(&path, bytes).unwrap();
    let error = SqliteStorage::open(&path).unwrap_err();
    assert_eq!(error.kind(), StorageErrorKind::Unsupported, "{error}");
}

#[cfg(unix)]
#[tokio::test]
async fn files_are_readable_for_their_owner_alone_whatever_the_process_allows() {
    use std::os::unix::fs::PermissionsExt as _;

    // A process that allows everything: the mode is the storage's own.
    let before = rustix::process::umask(rustix::fs::Mode::empty());
    for (kind, open) in on_disk() {
        let folder = tempfile::tempdir().unwrap();
        let storage = open(folder.path());
        storage.insert(entry("a", 1), 10).await.unwrap();
        storage.replace(1, entry("a", 2)).await.unwrap();
        let (mut folders, mut count) = (vec![folder.path().to_owned()], 0);
        while let Some(path) = folders.pop() {
            for inner in fs::read_dir(&path).unwrap().map(|inner| inner.unwrap().path()) {
                let metadata = fs::metadata(&inner).unwrap();
                let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
                let mode = metadata.permissions().mode() & 0o777;
                assert_eq!(mode, expected, "{kind}: {}", inner.display());
                count += 1;
                if metadata.is_dir() {
                    folders.push(inner);
                }
            }
        }
        assert!(count >= 3, "{kind}: {count}");
    }
    rustix::process::umask(before);
}
