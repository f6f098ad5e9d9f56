//! The tables, their version, and their creation.
//!
//! `user_version` and `application_id` belong to the application whose tables are in the same file, so our
//! version is in a table of our own.

use rusqlite::{Connection, OptionalExtension};

use super::connect::{ForeignFile, MissingFile, SqliteOptions};
use crate::{Migrated, OpenError};

/// Version of the schema that this build writes. A migration appends to [`STEPS`]; released steps never
/// change.
pub(super) const VERSION: i64 = 1;

/// The tables of version 1.
pub(super) const SQL: &str = include_str!("schema.sql");

/// `STEPS[n]` leads from version n to version n + 1.
const STEPS: [&str; 1] = [SQL];

/// Warning about switching to another file.
pub(super) const EMPTY: &str =
    "a new file knows no key: every retry of earlier requests runs again";

const META: &str = "CREATE TABLE firstwrite_meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
     INSERT INTO firstwrite_meta (name, value) VALUES ('schema_version', 0);";

/// Contents of a file, as found at opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Nothing,
    Foreign,
    Version(i64),
}

/// Checks that a file may be written to, before anything in it is touched.
pub(super) fn admit(
    connection: &Connection,
    file: &str,
    options: &SqliteOptions,
) -> Result<(), OpenError> {
    let refuses_foreign = options.foreign_file == ForeignFile::Refuse;
    match content(connection, file)? {
        Content::Version(version) if version > VERSION => Err(newer(file, version)),
        Content::Nothing if refuses_foreign && options.missing_file == MissingFile::Refuse => {
            Err(empty(file))
        }
        Content::Foreign if refuses_foreign => Err(OpenError::new(format!(
            "{file} is an SQLite database that firstwrite did not make; name the file that holds your \
             records ({EMPTY})"
        ))),
        Content::Version(_) | Content::Foreign | Content::Nothing => Ok(()),
    }
}

/// Brings an admitted file to this build's version. One transaction: a crash leaves the old one.
pub(super) fn migrate(connection: &mut Connection, file: &str) -> Result<Migrated, OpenError> {
    let failed = |error| {
        let text = format!("the tables of firstwrite could not be made in {file}; is it writable?");
        OpenError::new(text).caused_by(error)
    };
    let transaction = connection
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .map_err(failed)?;
    let from = match content(&transaction, file)? {
        Content::Version(version) => version,
        Content::Foreign | Content::Nothing => {
            transaction.execute_batch(META).map_err(failed)?;
            0
        }
    };
    let migrated = Migrated { from, to: VERSION };
    if from == VERSION {
        return Ok(migrated);
    }
    let done = usize::try_from(from).unwrap_or(0);
    for step in STEPS.iter().skip(done) {
        transaction.execute_batch(step).map_err(failed)?;
    }
    let set = "UPDATE firstwrite_meta SET value = ?1 WHERE name = 'schema_version'";
    transaction.execute(set, [VERSION]).map_err(failed)?;
    transaction.commit().map_err(failed)?;
    if migrated.is_new() {
        tracing::warn!(file, "created: the store is new and empty, and knows no key used before");
    } else {
        tracing::info!(file, from, to = VERSION, "migrated");
    }
    Ok(migrated)
}

/// Checks that a file that is only read can be understood.
pub(super) fn check(connection: &Connection, file: &str) -> Result<(), OpenError> {
    match content(connection, file)? {
        Content::Version(version) if version > VERSION => Err(newer(file, version)),
        Content::Version(VERSION) => Ok(()),
        Content::Version(version) => Err(OpenError::new(format!(
            "{file} has schema version {version} and this build reads {VERSION}; \
             open it for writing once to migrate it"
        ))),
        Content::Nothing => Err(empty(file)),
        Content::Foreign => Err(OpenError::new(format!(
            "{file} holds no firstwrite records; name the file that does ({EMPTY})"
        ))),
    }
}

/// Reads the id of the last life of the file: `None` before the first.
pub(super) fn life(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT value FROM firstwrite_meta WHERE name = 'life'";
    connection.query_row(sql, [], |row| row.get(0)).optional()
}

/// Draws the id of a new life.
pub(super) fn new_life(connection: &Connection) -> rusqlite::Result<String> {
    connection.query_row("SELECT lower(hex(randomblob(16)))", [], |row| row.get(0))
}

/// Writes the id of the life that begins.
pub(super) fn put_life(connection: &Connection, life: &str) -> rusqlite::Result<()> {
    let sql = "INSERT INTO firstwrite_meta (name, value) VALUES ('life', ?1)
               ON CONFLICT DO UPDATE SET value = ?1";
    connection.execute(sql, [life]).map(drop)
}

fn content(connection: &Connection, file: &str) -> Result<Content, OpenError> {
    let unreadable = |error| {
        let text = format!(
            "{file} is not an SQLite database that can be read; if it held your records, keep it and \
             restore a backup ({EMPTY})"
        );
        OpenError::new(text).caused_by(error)
    };
    let count = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let ours = "SELECT count(*) FROM sqlite_schema WHERE name = 'firstwrite_meta'";
    if count(ours).map_err(unreadable)? == 0 {
        let any = count("SELECT count(*) FROM sqlite_schema").map_err(unreadable)?;
        return Ok(if any == 0 { Content::Nothing } else { Content::Foreign });
    }
    let version = "SELECT value FROM firstwrite_meta WHERE name = 'schema_version'";
    let version: Option<i64> =
        connection.query_row(version, [], |row| row.get(0)).optional().map_err(unreadable)?;
    match version {
        Some(version) if version >= 0 => Ok(Content::Version(version)),
        Some(_) | None => Err(OpenError::new(format!(
            "{file} says nothing sensible of its schema version; keep it and restore a backup ({EMPTY})"
        ))),
    }
}

fn empty(file: &str) -> OpenError {
    let text = format!("{file} holds no firstwrite store");
    OpenError::missing(&text, format_args!("sqlite:{file}"))
}

fn newer(file: &str, version: i64) -> OpenError {
    OpenError::new(format!(
        "{file} has schema version {version} and this build knows {VERSION}; \
         use the newer build that wrote it"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_step_to_every_version() {
        assert_eq!(i64::try_from(STEPS.len()).unwrap(), VERSION);
    }
}
