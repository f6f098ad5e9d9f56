//! The SQL functions of the `PostgreSQL` schema, called as `psql` and other languages call them: as text
//! over one connection.

mod arguments;
mod encoding;
mod grants;
mod ownership;
mod psql;
mod python;
mod repeats;
mod rivals;
mod verdicts;

use std::time::Duration;

use tokio_postgres::{Client, Error, NoTls, SimpleQueryMessage};

/// One row, as text.
type Row = Vec<Option<String>>;

/// A schema of the test's own with the functions in it, whose clock only the test moves.
struct Schema {
    url: String,
    name: String,
}

/// A connection that writes `firstwrite.` for the schema, as applications do.
struct Session {
    client: Client,
    schema: String,
}

/// Where the store's clock stands when a test begins, in milliseconds.
const BEGINNING: i64 = 1_800_000_000_000;

/// Says that a test did not run, and that it should have where everything is required.
#[expect(clippy::print_stdout, reason = "a skip is never silent")]
fn skipped(what: &str, reason: &str) -> bool {
    let required = std::env::var("FIRSTWRITE_TEST_REQUIRE").is_ok_and(|value| value == "all");
    assert!(!required, "{what}: {reason}");
    println!("skipped: {what} ({reason})");
    false
}

/// Runs `test` in a new schema and drops it; says so if there is no server.
async fn in_schema(test: impl AsyncFnOnce(&Schema)) {
    let Ok(url) = std::env::var("FIRSTWRITE_TEST_POSTGRES") else {
        skipped("postgres", "FIRSTWRITE_TEST_POSTGRES is not set");
        return;
    };
    let schema = Schema { url, name: format!("functions_{:016x}", fastrand::u64(..)) };
    let admin = schema.connect().await;
    admin.run("CREATE SCHEMA firstwrite").await;
    admin.run(include_str!("../../src/postgres/schema.sql")).await;
    admin.run(include_str!("../../src/postgres/functions.sql")).await;
    admin
        .run(&format!(
            "CREATE TABLE firstwrite.test_clock (millis bigint);
             INSERT INTO firstwrite.test_clock VALUES ({BEGINNING});
             CREATE OR REPLACE FUNCTION firstwrite.now() RETURNS timestamptz LANGUAGE sql VOLATILE
                 RETURN (SELECT to_timestamp(millis / 1000.0) FROM firstwrite.test_clock);
             CREATE TABLE firstwrite.orders (number bigint GENERATED ALWAYS AS IDENTITY, item text)"
        ))
        .await;
    test(&schema).await;
    admin.run("DROP SCHEMA firstwrite CASCADE").await;
}

impl Schema {
    async fn connect(&self) -> Session {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let session = Session { client, schema: self.name.clone() };
        // Who would wait for ever fails instead.
        session.run("SET lock_timeout = '5s'").await;
        session
    }
}

impl Session {
    /// The rows of the last statement, or the error.
    async fn ask(&self, sql: &str) -> Result<Vec<Row>, Error> {
        let sql = sql
            .replace("SCHEMA firstwrite", &format!("SCHEMA {}", self.schema))
            .replace("firstwrite.", &format!("{}.", self.schema));
        let answers = self.client.simple_query(&sql).await?;
        let mut rows = Vec::new();
        for message in &answers {
            if let SimpleQueryMessage::Row(row) = message {
                rows.push((0..row.len()).map(|place| row.get(place).map(str::to_owned)).collect());
            }
        }
        Ok(rows)
    }

    async fn run(&self, sql: &str) {
        if let Err(error) = self.ask(sql).await {
            panic!("{sql}: {error:?}");
        }
    }

    /// The only row.
    async fn row(&self, sql: &str) -> Row {
        let mut rows = self.ask(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        assert_eq!(rows.len(), 1, "{sql}");
        rows.remove(0)
    }

    /// The only value.
    async fn value(&self, sql: &str) -> String {
        let row = self.row(sql).await;
        row.into_iter().next().flatten().unwrap_or_else(|| panic!("{sql}: null"))
    }

    /// The code of the error that `sql` must end with.
    async fn code(&self, sql: &str) -> String {
        match self.ask(sql).await {
            Ok(rows) => panic!("{sql}: no error but {rows:?}"),
            Err(error) => code_of(&error),
        }
    }

    /// Reserves a key and returns the fence of the attempt.
    async fn reserve(&self, key: &str) -> i64 {
        let row = self.row(&reserving(key)).await;
        assert!(["fresh", "take over"].contains(&row[0].as_deref().unwrap()), "{row:?}");
        row[1].as_deref().unwrap().parse().unwrap()
    }

    async fn verdict(&self, key: &str) -> String {
        self.row(&reserving(key)).await.remove(0).unwrap()
    }

    async fn pass(&self, duration: Duration) {
        let millis = duration.as_millis();
        self.run(&format!("UPDATE firstwrite.test_clock SET millis = millis + {millis}")).await;
    }
}

/// A reservation that may be taken over once its lease has run out.
fn reserving(key: &str) -> String {
    format!(
        "SELECT * FROM firstwrite.reserve('acme', '{key}', sha256('a'), on_lost_answer => 'resend')"
    )
}

fn completing(key: &str, fence: i64, body: &str) -> String {
    format!(
        "SELECT firstwrite.complete('acme', '{key}', {fence}, 201,
                                    '[[\"location\", \"/orders/1\"]]', '{body}')"
    )
}

fn releasing(key: &str, fence: i64) -> String {
    format!("SELECT firstwrite.release('acme', '{key}', {fence})")
}

fn enqueuing(key: &str, fence: i64) -> String {
    format!("SELECT firstwrite.enqueue('acme', '{key}', {fence}, 'pack', 'warehouse', '{{}}')")
}

fn code_of(error: &Error) -> String {
    let code = error.code().unwrap_or_else(|| panic!("not of the server: {error:?}"));
    code.code().to_owned()
}
