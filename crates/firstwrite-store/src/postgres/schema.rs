//! The tables, their version, and their migration.
//!
//! Opening a store migrates nothing: a migration takes rights which an application should not have, and an
//! operator chooses its moment.

use std::fmt::Write as _;

use tokio_postgres::SimpleQueryMessage;

use super::connect::{Role, Server};
use super::driver_error::text_of;
use super::options::{Address, PostgresOptions, SchemaName};
use super::sql::in_schema;
use crate::{Access, Migrated, OpenError};

/// Version of the schema that this build reads and writes. A migration appends to [`STEPS`]; released steps
/// never change.
pub(super) const VERSION: i32 = 1;

/// `STEPS[n]` leads from version n to version n + 1.
const STEPS: [&[&str]; 1] = [&[
    include_str!("schema.sql"),
    include_str!("outbox.sql"),
    include_str!("inbox.sql"),
    include_str!("documents.sql"),
    include_str!("functions.sql"),
]];

const META: &str = "CREATE TABLE firstwrite.migrations (
    version    integer     PRIMARY KEY,
    applied_at timestamptz NOT NULL
);";

pub(super) async fn migrate(url: &str, options: PostgresOptions) -> Result<Migrated, OpenError> {
    let server = Server::new(Address::parse(url, options)?, Access::Write)?;
    let client = server.connect(Role::Pooled).await.map_err(|error| server.unreachable(&error))?;
    let schema = &server.address.options.schema;
    let found = content(&client, schema).await.map_err(|error| server.unreachable(&error))?;
    if let Content::Version(from @ VERSION..) = found {
        check(&server, found)?;
        return Ok(Migrated { from: from.into(), to: from.into() });
    }
    let failed = |error: tokio_postgres::Error| {
        OpenError::new(format!(
            "the tables could not be made in {}; check that this user may create them, \
             or hand them to somebody who may: firstwrite migrate --dump",
            server.address
        ))
        .caused_by(text_of(&error))
    };
    // The lock ends with the transaction, so that this works through a pooler too. A process that waited
    // for the lock then examines the schema anew.
    let begin = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = 0; \
         SET LOCAL statement_timeout = 0; \
         SELECT pg_advisory_xact_lock(hashtextextended('firstwrite migrate {schema}', 0))"
    );
    client.batch_execute(&begin).await.map_err(failed)?;
    let found = content(&client, schema).await.map_err(failed)?;
    let from = found.version();
    if from < VERSION {
        client.batch_execute(&steps(schema, found)).await.map_err(failed)?;
    }
    client.batch_execute("COMMIT").await.map_err(failed)?;
    let migrated = Migrated { from: from.into(), to: VERSION.max(from).into() };
    tracing::info!(server = %server.address, from = migrated.from, to = migrated.to, "migrated");
    Ok(migrated)
}

pub(super) fn dump(schema: &SchemaName) -> String {
    format!("BEGIN;\n{}COMMIT;\n", steps(schema, Content::Nothing))
}

pub(super) fn grants(schema: &SchemaName, role: &str) -> String {
    let role = format!("\"{}\"", role.replace('"', "\"\""));
    let tables = format!("\"{schema}\"");
    format!(
        "GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {tables}.records, {tables}.endings, {tables}.messages, \
         {tables}.pending, {tables}.deliveries, {tables}.tallies, {tables}.inbox, \
         {tables}.documents, {tables}.history TO {role};
GRANT SELECT, INSERT, UPDATE ON {tables}.destinations TO {role};
GRANT SELECT, UPDATE ON {tables}.intake TO {role};
GRANT SELECT, INSERT ON {tables}.profiles, {tables}.audit TO {role};
GRANT SELECT, INSERT, UPDATE ON {tables}.history_losses TO {role};
GRANT SELECT, UPDATE ON {tables}.mark TO {role};
GRANT SELECT ON {tables}.migrations, {tables}.standing, {tables}.keys TO {role};
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {role};
"
    )
}

/// Checks that the schema is of a version that this build knows.
pub(super) fn check(server: &Server, found: Content) -> Result<(), OpenError> {
    let (address, schema) = (&server.address, &server.address.options.schema);
    match found {
        Content::Version(VERSION) => Ok(()),
        Content::Version(found) => Err(OpenError::other_version(address, (found, VERSION))),
        Content::Nothing | Content::EmptySchema => {
            let text = format!("{address} has no firstwrite tables in the schema {schema}");
            Err(OpenError::missing(&text, address))
        }
    }
}

/// Contents of a database, as far as they are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Not even the schema.
    Nothing,
    /// The schema, and no tables of ours in it.
    EmptySchema,
    Version(i32),
}

/// Reads what is there by scanning the catalog: a session caches failed look-ups of names until it takes a
/// lock, and another process may have created the tables since.
pub(super) async fn content(
    client: &tokio_postgres::Client,
    schema: &SchemaName,
) -> Result<Content, tokio_postgres::Error> {
    let there = format!(
        "SELECT (SELECT count(*) FROM pg_catalog.pg_class c
                 WHERE c.relnamespace = n.oid AND c.relname = 'migrations')
         FROM pg_catalog.pg_namespace n WHERE n.nspname = '{schema}'"
    );
    match first_value(client, &there).await?.as_deref() {
        None => return Ok(Content::Nothing),
        Some("0") => return Ok(Content::EmptySchema),
        Some(_) => {}
    }
    let sql = format!("SELECT coalesce(max(version), 0) FROM \"{schema}\".migrations");
    let version = first_value(client, &sql).await?.and_then(|version| version.parse().ok());
    Ok(Content::Version(version.unwrap_or(0)))
}

/// Returns a unique identity of the tables: the database's number and name, the schema, and the time of
/// their creation.
pub(super) async fn identity(
    client: &tokio_postgres::Client,
    schema: &SchemaName,
) -> Result<Option<String>, tokio_postgres::Error> {
    let sql = format!(
        "SELECT concat_ws(' ', d.oid, d.datname, '{schema}', extract(epoch FROM m.applied_at))
         FROM pg_catalog.pg_database d, \"{schema}\".migrations m
         WHERE d.datname = current_database() AND m.version = 1"
    );
    first_value(client, &sql).await
}

/// Returns the first value of an answer. Simple queries only: they need no session and no types.
async fn first_value(
    client: &tokio_postgres::Client,
    sql: &str,
) -> Result<Option<String>, tokio_postgres::Error> {
    let messages = client.simple_query(sql).await?;
    Ok(messages.into_iter().find_map(|message| {
        let SimpleQueryMessage::Row(row) = message else { return None };
        row.try_get(0).ok().flatten().map(str::to_owned)
    }))
}

/// The SQL from version `from` to this build's.
fn steps(schema: &SchemaName, from: Content) -> String {
    let mut sql = String::new();
    if from == Content::Nothing {
        // A user who may use a schema and create none is not even allowed `IF NOT EXISTS`.
        writeln!(sql, "CREATE SCHEMA {schema};").expect("a string takes everything");
    }
    if from.version() == 0 {
        sql.push_str(META);
        sql.push_str("\n\n");
    }
    let done = usize::try_from(from.version()).unwrap_or(0);
    for (place, step) in STEPS.iter().enumerate().skip(done) {
        for part in *step {
            sql.push_str(part);
            sql.push('\n');
        }
        let version = place + 1;
        writeln!(sql, "INSERT INTO firstwrite.migrations VALUES ({version}, clock_timestamp());\n")
            .expect("a string takes everything");
    }
    in_schema(&sql, schema)
}

impl Content {
    /// The version of the tables; 0 if there are none.
    fn version(self) -> i32 {
        match self {
            Self::Nothing | Self::EmptySchema => 0,
            Self::Version(version) => version,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_step_to_every_version() {
        assert_eq!(i32::try_from(STEPS.len()).unwrap(), VERSION);
    }

    #[test]
    fn a_dump_names_the_schema_everywhere() {
        let schema = SchemaName::new("keys").unwrap();
        for sql in [dump(&schema), grants(&schema, "shop \"x\"")] {
            assert!(!sql.contains("firstwrite."), "{sql}");
        }
        assert!(grants(&schema, "o'neill").contains("GRANT SELECT, UPDATE ON \"keys\".mark TO"));
        assert!(dump(&schema).contains("CREATE SCHEMA keys;"));
        assert!(grants(&schema, "shop \"x\"").contains("TO \"shop \"\"x\"\"\";"));
    }
}
