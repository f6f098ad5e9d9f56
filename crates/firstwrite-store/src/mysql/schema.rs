//! The tables, their version, and their migration.
//!
//! Opening a store migrates nothing: a migration takes rights which an application should not have, and an
//! operator chooses its moment. The server ends a transaction at every statement that creates a table, so
//! each step consists of statements that may be run again, and its version is written last: several
//! processes may migrate at once, and the next run continues one that was cut off.

use std::fmt::Write as _;

use super::connect::{Connection, Server};
use super::driver_error::{DriverError, code};
use super::options::{Address, MysqlOptions};
use super::pipeline::{Pipeline, SendError};
use crate::rows::Columns as _;
use crate::{Access, Migrated, OpenError};

/// Version of the schema that this build reads and writes. A migration appends to [`STEPS`]; released steps
/// never change.
pub(super) const VERSION: i64 = 1;

/// `STEPS[n]` leads from version n to version n + 1. Statements end with a semicolon at the end of a line.
const STEPS: [&str; 1] = [include_str!("schema.sql")];

const META: &str = "CREATE TABLE IF NOT EXISTS firstwrite_migrations (
    version    INT    NOT NULL PRIMARY KEY,
    applied_at BIGINT NOT NULL
) ENGINE = InnoDB";

/// Brings the database that `url` names to this build's version.
pub(super) async fn migrate(url: &str, options: MysqlOptions) -> Result<Migrated, OpenError> {
    let server = Server::new(Address::parse(url, options)?, Access::Write)?;
    let mut connection = server.connect().await.map_err(|error| server.unreachable(&error))?;
    let found = version(&mut connection).await.map_err(|error| server.unreachable(&error))?;
    let from = found.unwrap_or(0);
    if from >= VERSION {
        check(&server, found)?;
        return Ok(Migrated { from, to: from });
    }
    let failed = |error: SendError| {
        OpenError::new(format!(
            "the tables could not be made in {}; check that this user may create tables and views, \
             or hand them to somebody who may: firstwrite migrate --dump",
            server.address
        ))
        .caused_by(error.cause.to_string())
    };
    for statement in statements(from) {
        let mut pipeline = Pipeline::new();
        pipeline.add(&statement, &[]);
        connection.send(&pipeline).await.map_err(failed)?;
    }
    tracing::info!(server = %server.address, from, to = VERSION, "migrated");
    Ok(Migrated { from, to: VERSION })
}

/// Returns the SQL that creates all tables, for users who may not migrate themselves.
pub(super) fn dump() -> String {
    let mut sql = statements(0).join(";\n\n");
    sql.push_str(";\n");
    sql
}

/// The SQL that lets `user` use the tables in `database` as an application: all it needs, nothing more.
pub(super) fn grants(database: &str, user: &str) -> String {
    let quoted = |name: &str| format!("`{}`", name.replace('`', "``"));
    let (database, user) = (quoted(database), format!("'{}'@'%'", user.replace(['\'', '\\'], "")));
    let mut sql = String::new();
    for table in [
        "records",
        "locks",
        "audit",
        "messages",
        "pending",
        "deliveries",
        "destinations",
        "tallies",
        "inbox",
        "documents",
        "history_losses",
        "history",
        "mark",
    ] {
        let rights = "SELECT, INSERT, UPDATE, DELETE";
        writeln!(sql, "GRANT {rights} ON {database}.firstwrite_{table} TO {user};")
            .expect("a string takes everything");
    }
    for table in ["clock", "migrations"] {
        writeln!(sql, "GRANT SELECT ON {database}.firstwrite_{table} TO {user};")
            .expect("a string takes everything");
    }
    sql
}

/// Checks that the tables are of a version that this build knows.
pub(super) fn check(server: &Server, found: Option<i64>) -> Result<(), OpenError> {
    let address = &server.address;
    match found {
        Some(VERSION) => Ok(()),
        Some(found) if found > 0 => Err(OpenError::other_version(address, (found, VERSION))),
        Some(_) | None => {
            Err(OpenError::missing(&format!("{address} has no firstwrite tables"), address))
        }
    }
}

/// The version that was written down last, if any was.
pub(super) async fn version(connection: &mut Connection) -> Result<Option<i64>, DriverError> {
    let mut pipeline = Pipeline::new();
    pipeline.add("SELECT COALESCE(MAX(version), 0) FROM firstwrite_migrations", &[]);
    match connection.send(&pipeline).await {
        Ok(answers) => match answers[0].rows.first() {
            Some(row) => Ok(Some(row.integer(0)?)),
            None => Ok(None),
        },
        Err(error) if error.cause.code() == Some(code::NO_SUCH_TABLE) => Ok(None),
        Err(error) => Err(error.cause),
    }
}

/// The statements from version `from` to this build's.
fn statements(from: i64) -> Vec<String> {
    let mut all = vec![META.to_owned()];
    let done = usize::try_from(from).unwrap_or(0);
    for (place, step) in STEPS.iter().enumerate().skip(done) {
        all.extend(step.split(";\n").map(without_comments).filter(|text| !text.is_empty()));
        all.push(format!(
            "INSERT INTO firstwrite_migrations (version, applied_at) SELECT {}, now \
             FROM firstwrite_clock ON DUPLICATE KEY UPDATE applied_at = applied_at",
            place + 1
        ));
    }
    all
}

fn without_comments(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("--"));
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_step_to_every_version() {
        assert_eq!(i64::try_from(STEPS.len()).unwrap(), VERSION);
    }

    #[test]
    fn every_statement_may_be_run_again_and_every_table_can_roll_back() {
        for statement in statements(0) {
            let may_repeat = ["IF NOT EXISTS", "OR REPLACE", "ON DUPLICATE KEY"];
            assert!(may_repeat.iter().any(|words| statement.contains(words)), "{statement}");
            if statement.contains("CREATE TABLE") {
                assert!(statement.contains("ENGINE = InnoDB"), "{statement}");
            }
        }
        assert_eq!(dump().matches("CREATE TABLE").count(), 14);
    }

    #[test]
    fn a_name_cannot_end_its_quotes() {
        let sql = grants("a`b", "o'x");
        assert!(sql.contains("`a``b`.firstwrite_records") && sql.contains("'ox'@'%'"), "{sql}");
    }
}
