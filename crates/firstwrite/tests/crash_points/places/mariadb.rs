//! Databases of a MariaDB server, which one case after the other has to itself: making one takes longer than
//! a case.

use std::env;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use firstwrite::store::mysql_async::prelude::Queryable as _;
use firstwrite::store::mysql_async::{Conn, Opts};
use firstwrite::store::{MysqlOptions, MysqlStore};
use firstwrite_core::Timestamp;
use tokio::runtime::{Builder, Runtime};

/// The address of a server, as every suite takes it.
pub(super) const ADDRESS: &str = "FIRSTWRITE_TEST_MARIADB";

/// A server, and a connection outside any store.
pub(super) struct Server {
    runtime: Runtime,
    admin: tokio::sync::Mutex<Conn>,
    address: String,
    databases: Mutex<Databases>,
}

#[derive(Default)]
struct Databases {
    all: Vec<String>,
    free: Vec<String>,
}

/// A database that is in use; dropped, it is free for the next.
#[derive(Debug)]
pub(super) struct Tables {
    server: Arc<Server>,
    name: String,
}

/// How long a server may take to notice that a client is gone.
const BURIED_WITHIN: Duration = Duration::from_secs(10);

/// The clock is a view; here it tells what a table says.
const OURS: [&str; 4] = [
    "CREATE TABLE payments (id BIGINT AUTO_INCREMENT PRIMARY KEY, `key` VARCHAR(255) NOT NULL)",
    "CREATE TABLE test_clock (at BIGINT NOT NULL PRIMARY KEY)",
    "INSERT INTO test_clock VALUES (0)",
    "CREATE OR REPLACE VIEW firstwrite_clock AS SELECT at AS now FROM test_clock",
];

/// Sets the clock of the store at `url`.
pub(crate) async fn set_clock(url: &str, now: Timestamp) {
    let mut own = client(url).await;
    let sql = format!("UPDATE test_clock SET at = {}", now.as_millis());
    own.query_drop(sql).await.unwrap();
    own.disconnect().await.unwrap();
}

impl Server {
    pub(super) fn connect() -> Arc<Self> {
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let address = env::var(ADDRESS).unwrap();
        let admin = tokio::sync::Mutex::new(runtime.block_on(client(&address)));
        Arc::new(Self { runtime, admin, address, databases: Mutex::default() })
    }

    /// Drops all databases.
    pub(super) fn clear(&self) {
        for name in std::mem::take(&mut *self.databases.lock().unwrap()).all {
            self.tell(&format!("DROP DATABASE {name}"));
        }
    }

    fn url(&self, name: &str) -> String {
        format!("{}/{name}", self.address.rsplit_once('/').unwrap().0)
    }

    fn make(&self) -> String {
        let name = format!("firstwrite_points_{:016x}", fastrand::u64(..));
        self.tell(&format!("CREATE DATABASE {name}"));
        self.databases.lock().unwrap().all.push(name.clone());
        self.runtime.block_on(async {
            let url = self.url(&name);
            MysqlStore::migrate(&url, MysqlOptions::default()).await.unwrap();
            let mut own = client(&url).await;
            for sql in OURS {
                own.query_drop(sql).await.unwrap();
            }
            own.disconnect().await.unwrap();
        });
        name
    }

    fn tell(&self, sql: &str) {
        self.runtime.block_on(async { self.admin.lock().await.query_drop(sql).await.unwrap() });
    }

    fn ask<T>(&self, sql: &str) -> Vec<T>
    where
        T: firstwrite::store::mysql_async::prelude::FromRow + Send + 'static,
    {
        self.runtime.block_on(async { self.admin.lock().await.query(sql).await.unwrap() })
    }
}

impl Tables {
    /// A database without a row in it.
    pub(super) fn take(server: &Arc<Server>) -> Self {
        let free = server.databases.lock().unwrap().free.pop();
        let name = free.unwrap_or_else(|| server.make());
        let tables = Self { server: Arc::clone(server), name };
        let own = format!(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = '{}'
             AND table_type = 'BASE TABLE' AND table_name NOT IN ('firstwrite_migrations', 'test_clock')",
            tables.name
        );
        for table in server.ask::<String>(&own) {
            server.tell(&format!("DELETE FROM {}.{table}", tables.name));
        }
        tables
    }

    pub(super) fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// Waits until no connection to it is left, and nothing that was open in one.
    pub(super) fn bury(&self) {
        let who = format!(
            "SELECT CAST(id AS CHAR) FROM information_schema.processlist WHERE db = '{}'",
            self.name
        );
        self.server.runtime.block_on(async {
            let gone = async {
                let mut admin = self.server.admin.lock().await;
                loop {
                    let ids: Vec<String> = admin.query(&who).await.unwrap();
                    for id in &ids {
                        // One that has gone by itself meanwhile is gone too.
                        drop(admin.query_drop(format!("KILL {id}")).await);
                    }
                    if ids.is_empty() {
                        return;
                    }
                }
            };
            tokio::time::timeout(BURIED_WITHIN, gone).await.unwrap();
        });
    }

    /// How many rows there are under a key, and how many messages.
    pub(super) fn counts(&self, key: &str) -> (i64, i64) {
        let name = &self.name;
        let count = format!(
            "SELECT (SELECT count(*) FROM {name}.payments WHERE `key` = '{key}'),
                    (SELECT count(*) FROM {name}.firstwrite_messages)"
        );
        self.server.ask(&count)[0]
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        self.server.databases.lock().unwrap().free.push(self.name.clone());
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

async fn client(url: &str) -> Conn {
    Conn::new(Opts::from_url(url).unwrap()).await.unwrap()
}
