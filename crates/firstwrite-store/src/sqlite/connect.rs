//! Opens connections: one that writes, some that read.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

use firstwrite_core::encoding::as_i64;
use firstwrite_core::{BoxError, StoreErrorKind};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::driver_error::kind_of;
use super::schema;
use super::writer_lock::Word;
use crate::{Migrated, OpenError};
use firstwrite_core::host_clock::{Clock, Stopwatch};

/// Settings of an `SQLite` store, each with a default.
#[derive(Clone)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// Clock of the host, from which the store's time continues at opening. Default: the host's own clock,
    /// since the host is the backend.
    pub clock: Option<Clock>,
    /// Measures elapsed time while the store is open. Default: the monotonic clock, or `clock` if that is
    /// set.
    pub stopwatch: Option<Stopwatch>,
    /// Maximum number of commands that wait for the writer, and of look-ups that wait for the readers; one
    /// more is refused at once as too busy. Default: 4096, a second's work.
    pub queue_max: usize,
    /// Maximum number of commands in one commit. Default: 512, some milliseconds of work, so that the first
    /// of a batch does not wait long for the last.
    pub batch_max: usize,
    /// Number of threads that look up records; the application's own reads get as many again. Default: 2.
    pub readers: usize,
    /// Time to wait for a foreign process that has the file locked. Default: 2 s.
    pub busy_for: Duration,
    /// Maximum size of the file, beyond which the store is full. Default: limited by the disk only.
    pub file_bytes_max: Option<u64>,
    /// Action for an `SQLite` database that has no firstwrite tables. Default: refuse it.
    pub foreign_file: ForeignFile,
    /// Action if there is no file. Default: refuse to open.
    pub missing_file: MissingFile,
}

/// Action if there is no file at the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingFile {
    /// Refuse to open: the path is probably mistyped, and in an empty store every key used before runs again.
    Refuse,
    /// Create a new and empty store.
    Create,
}

/// Action for an `SQLite` database that firstwrite did not make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForeignFile {
    /// Refuse to open: it is probably the wrong file.
    Refuse,
    /// Add the firstwrite tables: it is the application's own database.
    Adopt,
}

/// A file that only this process writes to.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) path: PathBuf,
    /// The path as it was given, which may lead to `path` through symbolic links.
    pub(super) given: PathBuf,
    /// Name of the file in messages.
    pub(super) name: String,
}

/// Versions before this one can damage a file in WAL mode when a checkpoint meets a reset.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// A completed record is some 400 bytes, and what is left of a page when the next one does not fit is
/// lost: half a record on average, so half as much of a page twice the usual size.
const PAGE_BYTES: u32 = 8192;

/// The log is folded into the file after this many pages (32 MiB): seldom enough to cost little,
/// often enough that a start after a crash takes no time.
const CHECKPOINT_PAGES: u32 = 4000;

/// After a burst, the log's file shrinks to this again.
const LOG_BYTES_KEPT: u32 = 64 * 1024 * 1024;

const WRITER_CACHE_KIB: i64 = 64 * 1024;
const READER_CACHE_KIB: i64 = 16 * 1024;

/// Ours are about thirty; the rest is for the application's.
const STATEMENTS_KEPT: usize = 128;

impl Target {
    /// Returns the file to write to; creates it if it is missing and `missing` says so.
    pub(super) fn for_writing(path: &Path, missing: MissingFile) -> Result<Self, OpenError> {
        let name = path.display().to_string();
        check_version(rusqlite::version_number())?;
        let creates = missing == MissingFile::Create;
        if !path.exists() && (!creates || is_remembered(path)) {
            return Err(not_there(path));
        }
        // SQLite gives the files that it makes beside this one the same mode.
        let made = private(OpenOptions::new().create(creates).append(true)).open(path);
        let paths = made.and_then(|_file| Ok((path.canonicalize()?, std::path::absolute(path)?)));
        let (path, given) = paths.map_err(|error| {
            OpenError::new(format!(
                "{name} cannot be opened for writing; check that its folder exists and is writable"
            ))
            .caused_by(error)
        })?;
        if has_several_names(&path) {
            return Err(OpenError::new(format!(
                "{name} has several names (hard links), through which two processes could write to it; \
                 leave it one, and copy it where a second file is wanted"
            )));
        }
        Ok(Self { path, given, name })
    }

    /// The file to read from.
    pub(super) fn for_reading(path: &Path) -> Result<Self, OpenError> {
        let name = path.display().to_string();
        check_version(rusqlite::version_number())?;
        let given = path.to_owned();
        let path = path.canonicalize().map_err(|error| not_there(path).caused_by(error))?;
        Ok(Self { path, given, name })
    }

    /// Returns the path of a file next to this one.
    pub(super) fn beside(&self, suffix: &str) -> PathBuf {
        beside(&self.path, suffix)
    }

    /// Opens the one connection that writes, creates the tables, and returns what was there before.
    pub(super) fn connect_writer(
        &self,
        options: &SqliteOptions,
    ) -> Result<(Connection, Migrated), OpenError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = self.connect(flags, options.busy_for)?;
        schema::admit(&connection, &self.name, options)?;
        self.set_up_writer(&connection, options)?;
        let migrated = schema::migrate(&mut connection, &self.name)?;
        Ok((connection, migrated))
    }

    /// One more connection that reads.
    pub(super) fn connect_reader(&self, busy_for: Duration) -> Result<Connection, OpenError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = self.connect(flags, busy_for)?;
        let pragmas = || {
            connection.pragma_update(None, "query_only", true)?;
            connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)
        };
        pragmas().map_err(|error| self.unusable(error))?;
        schema::check(&connection, &self.name)?;
        Ok(connection)
    }

    fn connect(&self, flags: OpenFlags, busy_for: Duration) -> Result<Connection, OpenError> {
        let connection =
            Connection::open_with_flags(&self.path, flags).map_err(|error| self.unusable(error))?;
        let settings = || {
            connection.busy_timeout(busy_for)?;
            // Otherwise a statement whose plan may depend on its parameters is compiled again each
            // time they change, which costs ten times what running it does.
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
        };
        settings().map_err(|error| self.unusable(error))?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
        Ok(connection)
    }

    fn set_up_writer(
        &self,
        connection: &Connection,
        options: &SqliteOptions,
    ) -> Result<(), OpenError> {
        let pragmas = || {
            // Only a file that is still empty takes it on.
            connection.pragma_update(None, "page_size", PAGE_BYTES)?;
            let mode: String =
                connection
                    .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
            connection.pragma_update(None, "synchronous", "full")?;
            let synchronous: i64 =
                connection.pragma_query_value(None, "synchronous", |row| row.get(0))?;
            connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
            connection.pragma_update(None, "journal_size_limit", LOG_BYTES_KEPT)?;
            connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
            // What a savepoint may have to undo stays in memory.
            connection.pragma_update(None, "temp_store", "memory")?;
            if let Some(bytes_max) = options.file_bytes_max {
                let page: i64 =
                    connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
                let pages_max = as_i64(bytes_max) / page;
                connection.pragma_update(None, "max_page_count", pages_max.max(1))?;
            }
            Ok((mode, synchronous))
        };
        let (mode, synchronous) = pragmas().map_err(|error| self.unusable(error))?;
        // 2 is FULL: a commit has reached the disk before it is answered.
        if mode != "wal" || synchronous != 2 {
            return Err(OpenError::new(format!(
                "{} cannot be written durably here (journal {mode}, synchronous {synchronous}); \
                 put it on a local disk",
                self.name
            )));
        }
        Ok(())
    }

    /// Returns the error for tables that cannot be read.
    pub(super) fn unreadable(&self, error: impl Into<BoxError>) -> OpenError {
        let text = format!(
            "{} cannot be read; keep it and restore a backup ({})",
            self.name,
            schema::EMPTY
        );
        OpenError::new(text).caused_by(error)
    }

    /// Returns the error for a lock file that keeps no note: the next opening could not trust the file.
    pub(super) fn lock_unwritable(&self, error: impl Into<BoxError>) -> OpenError {
        let text = format!(
            "the lock beside {} cannot be written; check the disk and the rights on the file",
            self.name
        );
        OpenError::new(text).caused_by(error)
    }

    fn unusable(&self, error: rusqlite::Error) -> OpenError {
        if kind_of(&error) == StoreErrorKind::Corrupt {
            return self.unreadable(error);
        }
        let text = format!(
            "{} cannot be used as an SQLite database; check the file and the rights on its folder",
            self.name
        );
        OpenError::new(text).caused_by(error)
    }
}

/// Returns true if a file that is not at `path` was there: its lock has seen it.
fn is_remembered(path: &Path) -> bool {
    Word::at(&beside(path, "-lock")).seen.is_some()
}

fn not_there(path: &Path) -> OpenError {
    let name = path.display();
    if is_remembered(path) {
        return OpenError::new(format!(
            "{name} is gone, and {name}-lock remembers it; put the file back, or delete the lock if every \
             key that it knew may run again"
        ));
    }
    OpenError::missing(&format!("there is no file {name}"), format_args!("sqlite:{name}"))
}

/// Returns the path of a file next to the one at `path`.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Makes new files accessible to their owner alone, whatever the umask: they hold answers.
pub(super) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

#[cfg(unix)]
fn has_several_names(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;

    fs::metadata(path).is_ok_and(|metadata| metadata.nlink() > 1)
}

#[cfg(not(unix))]
fn has_several_names(_path: &Path) -> bool {
    false
}

fn check_version(version: i32) -> Result<(), OpenError> {
    if version >= SQLITE_VERSION_MIN {
        return Ok(());
    }
    Err(OpenError::new(format!(
        "SQLite {version} can damage a file in WAL mode; \
         build with SQLite {SQLITE_VERSION_MIN} or newer"
    )))
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            clock: None,
            stopwatch: None,
            queue_max: 4096,
            batch_max: 512,
            readers: 2,
            busy_for: Duration::from_secs(2),
            file_bytes_max: None,
            foreign_file: ForeignFile::Refuse,
            missing_file: MissingFile::Refuse,
        }
    }
}

impl fmt::Debug for SqliteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteOptions")
            .field("queue_max", &self.queue_max)
            .field("batch_max", &self.batch_max)
            .field("readers", &self.readers)
            .field("busy_for", &self.busy_for)
            .field("file_bytes_max", &self.file_bytes_max)
            .field("foreign_file", &self.foreign_file)
            .field("missing_file", &self.missing_file)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_can_damage_files_is_refused() {
        let error = check_version(3_051_002).unwrap_err();
        assert!(error.to_string().contains("3051003"), "{error}");
        assert!(check_version(3_051_003).is_ok());
        assert!(check_version(rusqlite::version_number()).is_ok());
    }
}
