//! A PostgreSQL store under test: a schema of its own, whose clock a test moves.
//!
//! The clock is the function that every statement asks. A test replaces it in its own schema, so that the
//! store needs no hook for it.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use firstwrite_core::{
    BoxError, BoxFuture, Change, Draft, Fence, OnLostAnswer, Policy, Store, StoreError,
};
use firstwrite_store::tokio_postgres::Client;
use firstwrite_store::tokio_postgres::types::{ToSql, Type};
use firstwrite_store::{PostgresOptions, PostgresStore, PostgresTx, SchemaName};
use firstwrite_testkit::{Script, ScriptReport, Subject, play_held, sample};

use crate::server::{Database, client};

/// Tables that one test after the other has to itself: making them anew for each takes longer than the
/// test.
#[derive(Clone)]
pub(crate) struct Tables {
    admin: Arc<Client>,
    schema: SchemaName,
    url: String,
}

pub(crate) struct PostgresSubject {
    tables: Tables,
    options: PostgresOptions,
    open: Mutex<PostgresStore>,
}

impl Tables {
    /// Through the pooler where the database has one.
    pub(crate) async fn new(database: &Database) -> Self {
        let schema = SchemaName::new(&format!("s_{:016x}", fastrand::u64(..))).unwrap();
        let admin = Arc::new(client(&database.url).await);
        admin.batch_execute(&PostgresStore::dump(&schema)).await.unwrap();
        admin.batch_execute(&stopped_clock(&schema)).await.unwrap();
        let url = database.pooled_url.as_ref().unwrap_or(&database.url).clone();
        Self { admin, schema, url }
    }

    /// Empties the tables, stops the clock where it began, and opens a store on them.
    pub(crate) async fn subject(&self, options: PostgresOptions) -> PostgresSubject {
        let empty = "DELETE FROM records; DELETE FROM endings; DELETE FROM messages;
                     DELETE FROM audit; DELETE FROM documents; DELETE FROM history_losses; DELETE FROM pending;
                     DELETE FROM deliveries; DELETE FROM destinations; DELETE FROM tallies;
                     UPDATE test_clock SET at = '2026-01-01 00:00:00+00'";
        self.admin.batch_execute(empty).await.unwrap();
        let mut options = options;
        options.schema = self.schema.clone();
        let store = PostgresStore::connect_with(&self.url, options.clone()).await.unwrap();
        PostgresSubject { tables: self.clone(), options, open: Mutex::new(store) }
    }
}

impl PostgresSubject {
    pub(crate) async fn new(database: &Database, options: PostgresOptions) -> Self {
        Tables::new(database).await.subject(options).await
    }

    pub(crate) fn postgres(&self) -> PostgresStore {
        self.open.lock().unwrap().clone()
    }

    /// A second store on the same tables, as another process has it.
    pub(crate) async fn rival(&self) -> PostgresStore {
        PostgresStore::connect_with(&self.tables.url, self.options.clone()).await.unwrap()
    }

    /// A connection outside the store, which finds the tables by their names alone.
    pub(crate) fn admin(&self) -> &Client {
        &self.tables.admin
    }

    pub(crate) fn schema(&self) -> &str {
        self.tables.schema.as_str()
    }

    /// Where the store's connections go.
    pub(crate) fn url(&self) -> &str {
        &self.tables.url
    }

    /// Has the server end every connection but ours.
    pub(crate) async fn cut(&self) {
        let sql = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
                   WHERE datname = current_database() AND pid <> pg_backend_pid()
                     AND application_name = $1";
        self.tables.admin.query(sql, &[&"firstwrite"]).await.unwrap();
    }
}

/// Puts another server behind the connections there are, as a pooler does after a fail-over.
pub(crate) async fn replace_server(subject: &PostgresSubject) {
    let schema = subject.schema();
    let sql = format!(
        "CREATE OR REPLACE FUNCTION {schema}.incarnation() RETURNS bigint LANGUAGE sql STABLE
             RETURN {}",
        fastrand::i64(1..)
    );
    subject.admin().batch_execute(&sql).await.unwrap();
}

/// Has the server write another line of history, as after a fail-over.
pub(crate) async fn replace_history(subject: &PostgresSubject) {
    let schema = subject.schema();
    let sql = format!(
        "CREATE OR REPLACE FUNCTION {schema}.epoch() RETURNS text LANGUAGE sql STABLE RETURN '{}'",
        fastrand::i64(1..)
    );
    subject.admin().batch_execute(&sql).await.unwrap();
}

fn stopped_clock(schema: &SchemaName) -> String {
    format!(
        "SET search_path = {schema};
         CREATE TABLE test_clock (at timestamptz NOT NULL);
         INSERT INTO test_clock VALUES ('2026-01-01 00:00:00+00');
         CREATE TABLE rows (name text PRIMARY KEY, value text NOT NULL);
         CREATE OR REPLACE FUNCTION {schema}.now() RETURNS timestamptz LANGUAGE sql VOLATILE
             AS 'SELECT at FROM {schema}.test_clock'"
    )
}

/// Writes one business row as a handler does, without naming a statement.
pub(crate) fn put<'t>(
    tx: &'t PostgresTx,
    schema: &str,
    name: String,
    value: String,
) -> BoxFuture<'t, Result<(), BoxError>> {
    let sql = format!(
        "INSERT INTO {schema}.rows VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = $2"
    );
    Box::pin(async move {
        let given: [(&(dyn ToSql + Sync), Type); 2] = [(&name, Type::TEXT), (&value, Type::TEXT)];
        tx.query_typed(&sql, &given).await.map(drop).map_err(Into::into)
    })
}

impl Subject for PostgresSubject {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.postgres())
    }

    fn advance(&self, by: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let millis = by.as_millis();
            let sql =
                format!("UPDATE test_clock SET at = at + {millis} * interval '1 millisecond'");
            self.tables.admin.batch_execute(&sql).await.unwrap();
            // The store's own idea of the time follows at its next answer; a clock that jumps a day
            // between two of them is a test's alone.
            self.postgres().now().await.unwrap();
        })
    }

    fn transact(&self, script: Script) -> BoxFuture<'_, Result<ScriptReport, StoreError>> {
        Box::pin(async move {
            play_held(
                &self.postgres(),
                script,
                |tx, name, value| put(tx, self.schema(), name, value),
                |tx, message| {
                    let enqueued = tx.enqueue(&message).map_err(Into::into);
                    Box::pin(async { enqueued })
                },
            )
            .await
        })
    }

    fn row<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            let rows = self.admin().query("SELECT value FROM rows WHERE name = $1", &[&name]).await;
            rows.unwrap().first().map(|row| row.get(0))
        })
    }

    fn message_keys(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async move {
            let sql = "SELECT derived_key FROM messages ORDER BY message";
            self.admin().query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
        })
    }

    /// Goes on with a new store after the server has cut every connection of the old one.
    fn reopen(&self) -> Option<BoxFuture<'_, ()>> {
        Some(Box::pin(async move {
            self.cut().await;
            let store = self.rival().await;
            *self.open.lock().unwrap() = store;
        }))
    }
}

impl fmt::Debug for PostgresSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostgresSubject").field(&self.tables.schema).finish()
    }
}

/// A reservation under `key`.
pub(crate) fn reserved(key: &str, fence: Fence) -> Draft {
    let request = sample::request(&sample::tenant("shop"), &sample::key(key), 1);
    sample::reserved(&request, &sample::policy(OnLostAnswer::Resend), fence)
}

/// A record under `key` that is completed at once, with a body of this many bytes.
pub(crate) fn completed(key: &str, fence: Fence, body_bytes: usize) -> Draft {
    let request = sample::request(&sample::tenant("shop"), &sample::key(key), 1);
    let outcome = sample::outcome(201, &"x".repeat(body_bytes));
    sample::completed(&request, &Policy::default(), fence, outcome)
}

/// The owner's word that it is done.
pub(crate) fn done() -> Change {
    let retention = Policy::default().record_retention();
    Change::Complete { outcome: sample::outcome(201, "done"), retention }
}
