//! A SQLite file that a disk spoiled: a clear error, and nothing that can be read is lost or replaced.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use firstwrite_client::storage::{StorageErrorKind, Stored};
use firstwrite_client::{Client, Error, SqliteStorage, Storage as _};

use crate::world::{URL, World, order};

fn client(path: &Path, world: &World) -> Client {
    Client::builder(SqliteStorage::open(path).unwrap(), Arc::clone(&world.server)).build()
}

/// A deed of a disk with a page.
type Tear = fn(&mut [u8]);

const TEARS: [(&str, Tear); 4] = [
    ("zeros", |page| page.fill(0)),
    ("ones", |page| page.fill(0xff)),
    ("the second half is missing", |page| page[2048..].fill(0)),
    ("the first half is missing", |page| page[..2048].fill(0)),
];

#[tokio::test]
async fn of_a_file_with_a_torn_page_nothing_is_lost_without_a_word() {
    const PAGE: usize = 4096;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let entry = |number: u64| Stored {
        name: format!("checkout/{number:03}"),
        revision: number,
        document: vec![u8::try_from(number).unwrap(); 900].into(),
    };
    let storage = SqliteStorage::open(&path).unwrap();
    for number in 0..120 {
        storage.insert(entry(number), 1000).await.unwrap();
    }
    drop(storage);
    let whole = fs::read(&path).unwrap();
    let pages = whole.len() / PAGE;
    assert!(pages > 10, "{pages}");
    let mut refused = 0;
    for page in 0..pages {
        for (name, tear) in TEARS {
            let mut torn = whole.clone();
            tear(&mut torn[page * PAGE..][..PAGE]);
            fs::write(&path, &torn).unwrap();
            match SqliteStorage::open(&path) {
                // A tear of bytes that were zeros takes nothing away.
                Ok(storage) => {
                    let whole: Vec<_> = (0..120).map(entry).collect();
                    assert!(
                        everything(&storage).await == whole,
                        "{page}, {name}: something is lost"
                    );
                }
                Err(error) => {
                    let kind = error.kind();
                    assert_eq!(kind, StorageErrorKind::Damaged, "{page}, {name}: {error}");
                    assert!(fs::read(&path).unwrap() == torn, "{page}, {name}: it was changed");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 2 * pages, "{refused} of {} tears were told", pages * TEARS.len());
}

/// All entries, each read by its name too.
async fn everything(storage: &SqliteStorage) -> Vec<Stored> {
    let (mut entries, mut after) = (Vec::new(), None);
    loop {
        let page = storage.list(after).await.unwrap();
        for entry in page.entries {
            let entry = entry.unwrap();
            assert_eq!(storage.get(&entry.name).await.unwrap().as_ref(), Some(&entry));
            entries.push(entry);
        }
        after = page.next;
        if after.is_none() {
            return entries;
        }
    }
}

#[tokio::test]
async fn a_damaged_file_is_one_error_of_the_client() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::new([]));
    let path = folder.path().join("a.db");
    for number in 0..60 {
        let name = format!("cart/{number}");
        client(&path, &world).intent(&name).post_json(URL, &order()).open().await.unwrap();
    }
    let mut torn = fs::read(&path).unwrap();
    let last = torn.len() - 4096;
    torn[last..].fill(0xff);
    fs::write(&path, &torn).unwrap();
    let error = match SqliteStorage::open(&path) {
        Err(error) => Error::from(error),
        Ok(_) => client(&path, &world).list().await.unwrap_err(),
    };
    assert!(error.to_string().contains("damaged"), "{error}");
    assert_eq!(world.server.seen().len(), 0);
}
