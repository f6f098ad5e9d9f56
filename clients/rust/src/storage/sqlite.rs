//! Entries in a SQLite file.

use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, TransactionBehavior, params};

use super::private::{private, sync_folder};
use super::thread::StorageThread;
use super::{Inserted, Page, Storage, StorageError, StorageErrorKind, Stored};
use crate::BoxFuture;

/// Entries in a SQLite file, which several processes may use. Every commit is durable (`synchronous=FULL`).
#[derive(Debug)]
pub struct SqliteStorage {
    thread: StorageThread<Connection>,
}

/// A commit takes a few milliseconds; whoever holds the file for so long does not go on.
const BUSY_MAX: Duration = Duration::from_secs(10);
/// Checking a file of this size takes some tenths of a second; one with so many entries, or so large ones, is rare.
const CHECKED_BYTES_MAX: i64 = 64 * 1024 * 1024;
const VERSION: i64 = 1;
const PAGE: i32 = 100;

const SCHEMA: &str = "\
    CREATE TABLE firstwrite_intents (
        name TEXT NOT NULL UNIQUE,
        revision INTEGER NOT NULL,
        document BLOB NOT NULL
    )";

impl SqliteStorage {
    /// Opens a file, and makes it with its table where it is missing. The folder must be there. A file up to 64 MiB is
    /// read through, so that a page that a disk spoiled is an error here and hides no entry later.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StorageError> {
        let path = path.as_ref();
        let doing = || format!("opening {}", path.display());
        make_private(path).map_err(|error| {
            StorageError::new(StorageErrorKind::Unavailable, doing(), Some(error.into()))
        })?;
        let mut connection = connect(path);
        // Processes that start together are all the first: whoever finds the file half set up is told at once, whatever
        // its patience, that it is busy.
        let mut waited = Duration::ZERO;
        while connection.as_ref().is_err_and(is_busy) && waited < BUSY_MAX {
            super::pause();
            waited += super::PAUSE;
            connection = connect(path);
        }
        let connection = connection.map_err(|error| failed(doing(), error))?;
        let version: i64 = connection
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .map_err(|error| failed(doing(), error))?;
        if version != VERSION {
            return Err(StorageError::new(StorageErrorKind::Unsupported, doing(), None));
        }
        check(&connection).map_err(|error| failed(doing(), error))?;
        Ok(Self { thread: StorageThread::start(connection)? })
    }
}

impl Storage for SqliteStorage {
    fn get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Stored>, StorageError>> {
        let name = name.to_owned();
        self.thread.call(move |file| {
            get(file, &name).map_err(|error| failed(format!("reading the intent {name:?}"), error))
        })
    }

    fn insert(
        &self,
        entry: Stored,
        entries_max: usize,
    ) -> BoxFuture<'_, Result<Inserted, StorageError>> {
        self.thread.call(move |file| {
            insert(file, &entry, entries_max).map_err(|error| failed(writing(&entry.name), error))
        })
    }

    fn replace(&self, revision: u64, entry: Stored) -> BoxFuture<'_, Result<bool, StorageError>> {
        const REPLACE: &str = "\
            UPDATE firstwrite_intents SET revision = ?3, document = ?4 WHERE name = ?1 AND revision = ?2";
        self.thread.call(move |file| {
            let row =
                params![entry.name, number(revision), number(entry.revision), &entry.document[..]];
            let changed = file.prepare_cached(REPLACE).and_then(|mut run| run.execute(row));
            changed.map(|count| count > 0).map_err(|error| failed(writing(&entry.name), error))
        })
    }

    fn remove<'a>(
        &'a self,
        name: &'a str,
        revision: u64,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        const REMOVE: &str = "DELETE FROM firstwrite_intents WHERE name = ?1 AND revision = ?2";
        let name = name.to_owned();
        self.thread.call(move |file| {
            let row = params![name, number(revision)];
            let changed = file.prepare_cached(REMOVE).and_then(|mut run| run.execute(row));
            changed
                .map(|count| count > 0)
                .map_err(|error| failed(format!("deleting the intent {name:?}"), error))
        })
    }

    fn list(&self, after: Option<String>) -> BoxFuture<'_, Result<Page, StorageError>> {
        self.thread.call(move |file| {
            list(file, after.as_deref())
                .map_err(|error| failed("listing the intents".into(), error))
        })
    }
}

/// Makes a missing file for its owner alone, durable in its folder. SQLite gives the files beside it the same mode.
fn make_private(path: &Path) -> io::Result<()> {
    let is_no_file =
        path.to_str().is_some_and(|text| text == ":memory:" || text.starts_with("file:"));
    if is_no_file {
        return Ok(());
    }
    match private().write(true).create_new(true).open(path) {
        Ok(_) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            sync_folder(folder.unwrap_or(Path::new(".")))
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_MAX)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    let making = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: i64 = making.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version == 0 {
        making.execute(SCHEMA, [])?;
        making.pragma_update(None, "user_version", VERSION)?;
    }
    making.commit()?;
    Ok(connection)
}

/// Looks for damage. An index with a torn page may say of an entry that it is not there, and a caller would open it
/// with another key.
fn check(file: &Connection) -> rusqlite::Result<()> {
    let value = |name| file.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    if value("page_count")?.saturating_mul(value("page_size")?) > CHECKED_BYTES_MAX {
        return Ok(());
    }
    let told: String = file.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    if told == "ok" {
        return Ok(());
    }
    let corrupt = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    Err(rusqlite::Error::SqliteFailure(corrupt, Some(told)))
}

fn get(file: &Connection, name: &str) -> rusqlite::Result<Option<Stored>> {
    const GET: &str = "SELECT name, revision, document FROM firstwrite_intents WHERE name = ?1";
    file.prepare_cached(GET)?.query_row([name], stored).optional()
}

fn insert(file: &mut Connection, entry: &Stored, entries_max: usize) -> rusqlite::Result<Inserted> {
    const COUNT: &str = "SELECT count(*) FROM firstwrite_intents";
    const INSERT: &str = "\
        INSERT INTO firstwrite_intents (name, revision, document) VALUES (?1, ?2, ?3)";
    // Immediate: nobody writes between the look and the write.
    let step = file.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if let Some(stands) = get(&step, &entry.name)? {
        return Ok(Inserted::Stands(stands));
    }
    let count: i64 = step.prepare_cached(COUNT)?.query_row([], |row| row.get(0))?;
    if usize::try_from(count).unwrap_or(usize::MAX) >= entries_max {
        return Ok(Inserted::Full);
    }
    step.prepare_cached(INSERT)?.execute(params![
        entry.name,
        number(entry.revision),
        &entry.document[..]
    ])?;
    step.commit()?;
    Ok(Inserted::Yes)
}

fn list(file: &Connection, after: Option<&str>) -> rusqlite::Result<Page> {
    const LIST: &str = "\
        SELECT name, revision, document FROM firstwrite_intents WHERE name > ?1 ORDER BY name LIMIT ?2";
    let mut run = file.prepare_cached(LIST)?;
    // No name is empty, so every name comes after the empty one.
    let mut rows = run.query(params![after.unwrap_or_default(), PAGE])?;
    let (mut entries, mut last) = (Vec::new(), None);
    while let Some(row) = rows.next()? {
        let name: Option<String> = row.get(0).ok();
        let doing = || format!("reading the intent {:?}", name.as_deref().unwrap_or_default());
        entries.push(stored(row).map_err(|error| failed(doing(), error)));
        last = name.or(last);
    }
    let is_full = i32::try_from(entries.len()).is_ok_and(|count| count == PAGE);
    Ok(Page { entries, next: last.filter(|_| is_full) })
}

fn stored(row: &rusqlite::Row<'_>) -> rusqlite::Result<Stored> {
    let revision: i64 = row.get(1)?;
    let document: Vec<u8> = row.get(2)?;
    Ok(Stored {
        name: row.get(0)?,
        revision: u64::try_from(revision).unwrap_or_default(),
        document: Bytes::from(document),
    })
}

/// A revision as SQLite keeps it, in 63 bits.
fn number(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

fn writing(name: &str) -> String {
    format!("writing the intent {name:?}")
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

fn failed(doing: String, error: rusqlite::Error) -> StorageError {
    let kind = match (&error, error.sqlite_error_code()) {
        _ if is_busy(&error) => StorageErrorKind::Busy,
        // A column that is not what was written into it.
        (
            rusqlite::Error::InvalidColumnType(..) | rusqlite::Error::FromSqlConversionFailure(..),
            _,
        )
        | (_, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)) => {
            StorageErrorKind::Damaged
        }
        _ => StorageErrorKind::Unavailable,
    };
    StorageError::new(kind, doing, Some(error.into()))
}

#[cfg(test)]
mod tests;
