//! A database of its own for each test on PostgreSQL or MariaDB, dropped at the end.

use std::collections::hash_map::RandomState;
use std::env;
use std::hash::BuildHasher as _;

use firstwrite_store::mysql_async::prelude::Queryable as _;
use firstwrite_store::mysql_async::{Conn, Opts};
use firstwrite_store::tokio_postgres::{Client, NoTls};

/// Name the servers, as `postgres://USER@HOST:PORT/DATABASE` and `mysql://…`.
pub(crate) const POSTGRES: &str = "FIRSTWRITE_TEST_POSTGRES";
pub(crate) const MARIADB: &str = "FIRSTWRITE_TEST_MARIADB";
pub(crate) const REDIS: &str = "FIRSTWRITE_TEST_REDIS";
/// Names an emulator of DynamoDB, as `http://HOST:PORT`.
const DYNAMODB: &str = "FIRSTWRITE_TEST_DYNAMODB";

/// A database; dropped with this.
pub(crate) struct Database {
    server: String,
    name: String,
    pub(crate) url: String,
}

/// Something that is in the way of others for as long as it lives.
pub(crate) struct Hindrance {
    _client: Client,
    _runtime: tokio::runtime::Runtime,
}

/// Runs each of these as a test of its own on every store that can be had; those after `sqlite, postgres:`
/// not on MariaDB, those after `postgres:` only there. Where no server is named, a test is skipped and
/// says so.
macro_rules! on_every_store {
    (
        $($name:ident,)*
        $(; sqlite, postgres: $($two:ident,)*)?
        $(; postgres: $($more:ident,)*)?
    ) => {
        mod sqlite {
            $(#[test] fn $name() { super::$name(&crate::process::Folder::new()); })*
            $($(#[test] fn $two() { super::$two(&crate::process::Folder::new()); })*)?
        }
        mod mariadb {
            $(#[test] fn $name() {
                if let Some(folder) = crate::process::Folder::on_mariadb() {
                    super::$name(&folder);
                }
            })*
        }
        crate::database::on_postgres!($($name,)* $($($two,)*)? $($($more,)*)?);
    };
}

/// Runs each of these as a test on PostgreSQL.
macro_rules! on_postgres {
    ($($name:ident,)*) => {
        mod postgres {
            $(#[test] fn $name() {
                if let Some(folder) = crate::process::Folder::on_postgres() {
                    super::$name(&folder);
                }
            })*
        }
    };
}

/// Runs each of these as a test on Redis, which has no transactions and no outbox: what needs neither.
macro_rules! on_redis {
    ($($name:ident,)*) => {
        mod redis {
            $(#[test] fn $name() {
                if let Some(folder) = crate::process::Folder::on_redis() {
                    super::$name(&folder);
                }
            })*
        }
    };
}

/// Runs each of these as a test on an emulator of DynamoDB.
macro_rules! on_dynamodb {
    ($($name:ident,)*) => {
        mod dynamodb {
            $(#[test] fn $name() {
                if let Some(folder) = crate::process::Folder::on_dynamodb() {
                    super::$name(&folder);
                }
            })*
        }
    };
}

pub(crate) use {on_dynamodb, on_every_store, on_postgres, on_redis};

/// An address on Redis with a prefix of its own; `None`, and a line that says so, if there is no server.
pub(crate) fn redis() -> Option<String> {
    let server = named(REDIS)?;
    Some(format!("{server}/?prefix=s-{:016x}", RandomState::new().hash_one(0)))
}

impl Database {
    /// A new, empty one; `None`, and a line that says so, if there is no server to have it on.
    pub(crate) fn create(variable: &str) -> Option<Self> {
        let server = named(variable)?;
        let name = new_name();
        run(&server, &[&format!("CREATE DATABASE {name}")]);
        let (place, query) = server.split_once('?').unwrap_or((&server, ""));
        let (place, _) = place.rsplit_once('/').expect("the address names a database");
        let query = if query.is_empty() { String::new() } else { format!("?{query}") };
        let url = format!("{place}/{name}{query}");
        Some(Self { server, name, url })
    }

    /// Runs statements, one after the other.
    pub(crate) fn run(&self, statements: &[&str]) {
        run(&self.url, statements);
    }

    /// Runs statements on the server, outside of this database.
    pub(crate) fn run_outside(&self, statements: &[&str]) {
        run(&self.server, statements);
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Statements that write records wait, until this is dropped.
    pub(crate) fn lock_records(&self) -> Hindrance {
        Hindrance::new(&self.url, &["BEGIN", "LOCK TABLE firstwrite.records IN EXCLUSIVE MODE"])
    }

    /// Commits of new records wait, until this is dropped.
    pub(crate) fn hold_up_commits(&self) -> Hindrance {
        self.run(&[
            "CREATE OR REPLACE FUNCTION wait_here() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NULL; END $$",
            "CREATE CONSTRAINT TRIGGER wait_here AFTER INSERT ON firstwrite.records \
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait_here()",
        ]);
        Hindrance::new(&self.url, &["DO $$ BEGIN PERFORM pg_advisory_lock(7); END $$"])
    }

    /// Waits until somebody waits for a lock, and ends that backend.
    pub(crate) fn end_who_waits(&self) {
        let end = "DO $$ DECLARE ended integer := 0; BEGIN WHILE ended = 0 LOOP \
            PERFORM pg_stat_clear_snapshot(); \
            SELECT count(pg_terminate_backend(pid)) INTO ended FROM pg_stat_activity \
            WHERE datname = current_database() AND wait_event_type = 'Lock'; \
            END LOOP; END $$";
        self.run(&["SET statement_timeout = '30s'", end]);
    }
}

impl Hindrance {
    fn new(url: &str, statements: &[&str]) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let (client, connection) =
                firstwrite_store::tokio_postgres::connect(url, NoTls).await.unwrap();
            tokio::spawn(connection);
            for statement in statements {
                client.batch_execute(statement).await.unwrap();
            }
            client
        });
        Self { _client: client, _runtime: runtime }
    }
}

#[expect(clippy::print_stdout, reason = "a test that did not run must say so")]
fn say_skipped(variable: &str) {
    println!("skipped: a server ({variable} is not set)");
}

impl Drop for Database {
    fn drop(&mut self) {
        let force = if is_postgres(&self.server) { " WITH (FORCE)" } else { "" };
        run(&self.server, &[&format!("DROP DATABASE {}{force}", self.name)]);
    }
}

fn run(url: &str, statements: &[&str]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        if !is_postgres(url) {
            let mut client = Conn::new(Opts::from_url(url).unwrap()).await.unwrap();
            for statement in statements {
                client.query_drop(*statement).await.unwrap();
            }
            return client.disconnect().await.unwrap();
        }
        let (client, connection) =
            firstwrite_store::tokio_postgres::connect(url, NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        for statement in statements {
            client.batch_execute(statement).await.unwrap();
        }
        drop(client);
        connection.await.unwrap().unwrap();
    });
}

fn new_name() -> String {
    format!("firstwrite_server_{:016x}", RandomState::new().hash_one(0))
}

/// The server that the environment names; `None`, and a line that says so, if it does not.
fn named(variable: &str) -> Option<String> {
    let server = env::var(variable).ok();
    if server.is_none() {
        let required = env::var("FIRSTWRITE_TEST_REQUIRE").is_ok_and(|value| value == "all");
        assert!(!required, "a server is required, and {variable} is not set");
        say_skipped(variable);
    }
    server
}

/// The address of a table that is not there yet, on the emulator that the environment names. Nobody deletes
/// it: it is gone with the emulator.
pub(crate) fn table() -> Option<String> {
    let endpoint = named(DYNAMODB)?;
    Some(format!("dynamodb:{}?endpoint={endpoint}&shards=2", new_name()))
}

fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres")
}
