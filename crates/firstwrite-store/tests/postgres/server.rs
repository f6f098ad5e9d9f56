//! A server to test on, and a database of its own for each test.

use std::env;
use std::panic::resume_unwind;

use firstwrite_store::tokio_postgres::{Client, NoTls, connect};

/// A database that one test has to itself.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    /// Directly at the server.
    pub(crate) url: String,
    /// Through a pooler in transaction mode, where one was asked for.
    pub(crate) pooled_url: Option<String>,
}

/// Where the tests reach a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Direct,
    Pooler,
    /// The newest version, which is costly to have, so only where it is named.
    Newest,
}

/// Makes a database with `settings`, runs `test` on it, and drops it, however the test ends.
///
/// Skipped where no server is named, unless everything is required.
pub(crate) async fn on_database<F, T>(way: Way, settings: &[&str], test: F)
where
    F: FnOnce(Database) -> T,
    T: Future<Output = ()> + Send + 'static,
{
    let direct = match way {
        Way::Direct | Way::Pooler => address("postgres", "FIRSTWRITE_TEST_POSTGRES"),
        // It comes from a private root and is part of full runs only.
        Way::Newest => env::var("FIRSTWRITE_TEST_POSTGRES_NEWEST").ok(),
    };
    let Some(direct) = direct else {
        println!("skipped: {way:?} (no server of it is named)");
        return;
    };
    let pooler = match way {
        Way::Direct | Way::Newest => None,
        Way::Pooler => match address("pgbouncer", "FIRSTWRITE_TEST_PGBOUNCER") {
            Some(address) => Some(address),
            None => return,
        },
    };
    let name = format!("firstwrite_{:016x}", fastrand::u64(..));
    let admin = client(&direct).await;
    admin.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
    for setting in settings {
        admin.batch_execute(&format!("ALTER DATABASE {name} SET {setting}")).await.unwrap();
    }
    let url = in_database(&direct, &name);
    let pooled_url =
        pooler.map(|pooler| format!("{}?pooler=transaction", in_database(&pooler, &name)));
    let ended = tokio::spawn(test(Database { url, pooled_url })).await;
    admin.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await.unwrap();
    if let Err(failed) = ended {
        resume_unwind(failed.into_panic());
    }
}

/// A connection outside any store.
pub(crate) async fn client(url: &str) -> Client {
    let (client, connection) = connect(url, NoTls).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    client
}

/// Where a server is. Skipped where none is named, unless everything is required.
pub(crate) fn address(what: &str, variable: &str) -> Option<String> {
    let address = env::var(variable).ok();
    if address.is_none() {
        let is_required = env::var("FIRSTWRITE_TEST_REQUIRE").is_ok_and(|value| value == "all");
        assert!(!is_required, "{variable} is not set and everything is required");
        println!("skipped: {what} ({variable} is not set)");
    }
    address
}

fn in_database(url: &str, name: &str) -> String {
    let (server, _database) = url.rsplit_once('/').unwrap();
    format!("{server}/{name}")
}
