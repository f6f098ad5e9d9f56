//! Servers to test on, and a database of its own for each test.

use std::env;
use std::panic::resume_unwind;

use firstwrite_store::mysql_async::prelude::Queryable as _;
use firstwrite_store::mysql_async::{Conn, Opts};

/// Where a test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    MariaDb,
    /// Costly to have, so only where it is named.
    MySql,
}

/// A database that one test has to itself.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    pub(crate) url: String,
}

/// Makes a database, runs `test` on it, and drops it, however the test ends.
///
/// Skipped where no server is named, unless everything is required.
pub(crate) async fn on_database<F, T>(which: Which, test: F)
where
    F: FnOnce(Database) -> T,
    T: Future<Output = ()> + Send + 'static,
{
    let Some(server) = address(which) else { return };
    let name = format!("firstwrite_{:016x}", fastrand::u64(..));
    let mut admin = client(&server).await;
    admin.query_drop(format!("CREATE DATABASE {name}")).await.unwrap();
    let url = in_database(&server, &name);
    let ended = tokio::spawn(test(Database { url })).await;
    admin.query_drop(format!("DROP DATABASE {name}")).await.unwrap();
    if let Err(failed) = ended {
        resume_unwind(failed.into_panic());
    }
}

/// Runs `test` on every kind of server.
pub(crate) async fn on_each<F, T>(test: F)
where
    F: Fn(Database) -> T,
    T: Future<Output = ()> + Send + 'static,
{
    for which in [Which::MariaDb, Which::MySql] {
        on_database(which, &test).await;
    }
}

/// A connection outside any store.
pub(crate) async fn client(url: &str) -> Conn {
    Conn::new(Opts::from_url(url).unwrap()).await.unwrap()
}

/// Whether a test that cannot run must fail.
pub(crate) fn is_required() -> bool {
    env::var("FIRSTWRITE_TEST_REQUIRE").is_ok_and(|value| value == "all")
}

fn address(which: Which) -> Option<String> {
    let (variable, is_costly) = match which {
        Which::MariaDb => ("FIRSTWRITE_TEST_MARIADB", false),
        // It comes from a private root and is part of full runs only.
        Which::MySql => ("FIRSTWRITE_TEST_MYSQL", true),
    };
    let address = env::var(variable).ok();
    if address.is_none() {
        let must_run = is_required() && !is_costly;
        assert!(!must_run, "{variable} is not set and everything is required");
        println!("skipped: {which:?} ({variable} is not set)");
    }
    address
}

pub(crate) fn in_database(url: &str, name: &str) -> String {
    let (server, _database) = url.rsplit_once('/').unwrap();
    format!("{server}/{name}")
}
