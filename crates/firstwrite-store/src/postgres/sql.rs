//! Prepares and runs statements: with the schema's name filled in, prepared by name or not.

use deadpool_postgres::ClientWrapper;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row};

use super::options::SchemaName;

/// A statement and the types of its parameters.
#[derive(Debug)]
pub(super) struct Statement {
    text: String,
    types: Vec<Type>,
}

/// Tells whether a statement is prepared by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    /// Once for each connection, and kept there.
    Named,
    /// Each time, since the next transaction may be on another connection.
    Unnamed,
}

/// One statement's parameters.
pub(super) type Parameters<'a> = [&'a (dyn ToSql + Sync)];

/// Replaces `firstwrite.` by the schema's name.
pub(super) fn in_schema(sql: &str, schema: &SchemaName) -> String {
    sql.replace("firstwrite.", &format!("\"{schema}\"."))
}

/// Fills in the schema's name, and expands the short names in our statements.
pub(super) fn spelt_out(sql: &str, schema: &SchemaName) -> String {
    in_schema(sql, schema)
        .replace("LATEST", LATEST)
        .replace("AGES", AGES)
        .replace("INTERIM", INTERIM)
        .replace("UNCERTAIN", UNCERTAIN)
}

impl Statement {
    pub(super) fn new(schema: &SchemaName, text: &str, types: &[Type]) -> Self {
        Self { text: spelt_out(text, schema), types: types.to_vec() }
    }

    /// Makes the next [`query`](Self::query) on this connection send its request at once, so that several
    /// can be sent in one pipeline.
    pub(super) async fn prepare(
        &self,
        client: &ClientWrapper,
        naming: Naming,
    ) -> Result<(), Error> {
        match naming {
            Naming::Named => client.prepare_typed_cached(&self.text, &self.types).await.map(drop),
            Naming::Unnamed => Ok(()),
        }
    }

    pub(super) async fn query(
        &self,
        client: &ClientWrapper,
        naming: Naming,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, Error> {
        match naming {
            Naming::Named => {
                let statement = client.prepare_typed_cached(&self.text, &self.types).await?;
                client.query(&statement, parameters).await
            }
            Naming::Unnamed => {
                let typed: Vec<_> =
                    parameters.iter().copied().zip(self.types.iter().cloned()).collect();
                client.query_typed(&self.text, &typed).await
            }
        }
    }
}

/// The end of time, as far as a column holds it.
const LATEST: &str = "timestamptz '294276-12-31 23:59:59.999+00'";

/// The lease of a record that was completed at once with an interim outcome: later than any lease, and
/// not the end of time. So it is found with its ending, if there is one, and never lapses.
const INTERIM: &str = "timestamptz '294276-01-01 00:00:00+00'";

/// The first `lease_until` of an uncertain record, see `firstwrite.uncertain` in schema.sql: a lease that
/// ends later than any does.
const UNCERTAIN: &str = "timestamptz '192102-06-07 10:40:00+00'";

/// Durations of this many milliseconds (285 years) and more end at the end of time. Below it, an
/// interval's arithmetic is exact to the millisecond.
const AGES: &str = "9000000000000";
