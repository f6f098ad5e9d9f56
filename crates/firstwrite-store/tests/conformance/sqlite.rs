//! An `SQLite` store under test: a file of its own, and a clock that a test moves.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use firstwrite_core::{BoxFuture, Store, StoreError};
use firstwrite_store::rusqlite::OptionalExtension;
use firstwrite_store::{MissingFile, SqliteOptions, SqliteStore, SqliteTx};
use firstwrite_testkit::{ManualClock, Script, ScriptReport, Subject, play};
use tempfile::TempDir;

#[derive(Debug)]
pub(crate) struct SqliteSubject {
    clock: ManualClock,
    folder: TempDir,
    open: Mutex<Open>,
}

#[derive(Clone, Debug)]
struct Open {
    store: SqliteStore,
    life: usize,
}

impl SqliteSubject {
    pub(crate) async fn new() -> Self {
        let (clock, folder) = (ManualClock::new(), tempfile::tempdir().unwrap());
        let store = open(&clock, folder.path().join("life-0.db"));
        let table = "CREATE TABLE rows (name TEXT PRIMARY KEY, value TEXT NOT NULL)";
        store.write(move |connection| connection.execute_batch(table)).await.unwrap();
        Self { clock, folder, open: Mutex::new(Open { store, life: 0 }) }
    }

    fn sqlite(&self) -> SqliteStore {
        self.open.lock().unwrap().store.clone()
    }

    fn path(&self, life: usize) -> PathBuf {
        self.folder.path().join(format!("life-{life}.db"))
    }
}

fn open(clock: &ManualClock, path: PathBuf) -> SqliteStore {
    let mut options = SqliteOptions::default();
    options.clock = Some(Arc::new(clock.reader()));
    options.missing_file = MissingFile::Create;
    SqliteStore::open_with(path, options).unwrap()
}

impl Subject for SqliteSubject {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.sqlite())
    }

    fn advance(&self, by: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.clock.advance(by) })
    }

    fn transact(&self, script: Script) -> BoxFuture<'_, Result<ScriptReport, StoreError>> {
        Box::pin(async move {
            let put = |tx: &mut SqliteTx<'_>, name: &str, value: &str| {
                let sql = "INSERT INTO rows VALUES (?1, ?2) ON CONFLICT DO UPDATE SET value = ?2";
                tx.execute(sql, [name, value]).map(drop).map_err(Into::into)
            };
            play(&self.sqlite(), script, put, |tx, message| {
                tx.enqueue(&message).map_err(Into::into)
            })
            .await
        })
    }

    fn row<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            let (store, name) = (self.sqlite(), name.to_owned());
            let sql = "SELECT value FROM rows WHERE name = ?1";
            store
                .read(move |connection| {
                    connection.query_row(sql, [name], |row| row.get(0)).optional()
                })
                .await
                .unwrap()
        })
    }

    fn message_keys(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async move {
            let sql = "SELECT derived_key FROM firstwrite_messages ORDER BY message";
            self.sqlite()
                .read(move |connection| {
                    connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
                })
                .await
                .unwrap()
        })
    }

    /// Goes on with a copy of the files as they are on the disk this moment, which is what a killed
    /// process leaves: nothing is flushed, folded or closed first.
    fn reopen(&self) -> Option<BoxFuture<'_, ()>> {
        Some(Box::pin(async move {
            let mut open_now = self.open.lock().unwrap();
            let (old, new) = (self.path(open_now.life), self.path(open_now.life + 1));
            fs::copy(&old, &new).unwrap();
            fs::copy(old.with_extension("db-wal"), new.with_extension("db-wal")).unwrap();
            *open_now = Open { store: open(&self.clock, new), life: open_now.life + 1 };
        }))
    }
}
