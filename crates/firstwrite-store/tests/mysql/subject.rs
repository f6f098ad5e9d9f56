//! A MySQL store under test: a database of its own, whose clock a test moves.
//!
//! The clock is the view that every pipeline asks. A test replaces it in its own database, so that the store
//! needs no hook for it.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use firstwrite_core::{
    BoxError, BoxFuture, Change, Draft, Fence, OnLostAnswer, Policy, Store, StoreError,
};
use firstwrite_store::mysql_async::Conn;
use firstwrite_store::mysql_async::prelude::Queryable as _;
use firstwrite_store::{MysqlOptions, MysqlStore, MysqlTx};
use firstwrite_testkit::{Script, ScriptReport, Subject, play_held, sample};

use crate::server::{Database, client};

/// Tables that one test after the other has to itself: making them anew for each takes longer than the
/// test.
#[derive(Clone)]
pub(crate) struct Tables {
    admin: Arc<tokio::sync::Mutex<Conn>>,
    url: String,
}

pub(crate) struct MysqlSubject {
    tables: Tables,
    options: MysqlOptions,
    open: Mutex<MysqlStore>,
}

/// What a case may have written to.
const TABLES: [&str; 11] = [
    "firstwrite_records",
    "firstwrite_locks",
    "firstwrite_audit",
    "firstwrite_messages",
    "firstwrite_pending",
    "firstwrite_deliveries",
    "firstwrite_destinations",
    "firstwrite_tallies",
    "firstwrite_inbox",
    "firstwrite_documents",
    "firstwrite_history_losses",
];

impl Tables {
    pub(crate) async fn new(database: &Database) -> Self {
        let url = database.url.clone();
        MysqlStore::migrate(&url, MysqlOptions::default()).await.unwrap();
        let mut admin = client(&url).await;
        for sql in [
            "CREATE TABLE test_clock (at BIGINT NOT NULL PRIMARY KEY) ENGINE = InnoDB",
            "INSERT INTO test_clock VALUES (0)",
            "CREATE TABLE business (name VARCHAR(200) PRIMARY KEY, value TEXT NOT NULL) ENGINE = InnoDB",
            "CREATE OR REPLACE VIEW firstwrite_clock AS SELECT at AS now FROM test_clock",
        ] {
            admin.query_drop(sql).await.unwrap();
        }
        Self { admin: Arc::new(tokio::sync::Mutex::new(admin)), url }
    }

    /// Empties the tables, stops the clock where it began, and opens a store on them.
    pub(crate) async fn subject(&self, options: MysqlOptions) -> MysqlSubject {
        for table in TABLES {
            self.tell(&format!("DELETE FROM {table}")).await;
        }
        // The first instant of 2026.
        self.tell("UPDATE test_clock SET at = 1767225600000").await;
        let store = MysqlStore::connect_with(&self.url, options.clone()).await.unwrap();
        MysqlSubject { tables: self.clone(), options, open: Mutex::new(store) }
    }

    pub(crate) async fn tell(&self, sql: &str) {
        self.admin.lock().await.query_drop(sql).await.unwrap();
    }

    /// The first column of what `sql` finds.
    pub(crate) async fn ask(&self, sql: &str) -> Vec<String> {
        self.admin.lock().await.query(sql).await.unwrap()
    }
}

impl MysqlSubject {
    pub(crate) async fn new(database: &Database, options: MysqlOptions) -> Self {
        Tables::new(database).await.subject(options).await
    }

    pub(crate) fn mysql(&self) -> MysqlStore {
        self.open.lock().unwrap().clone()
    }

    /// A second store on the same tables, as another process has it.
    pub(crate) async fn rival(&self) -> MysqlStore {
        MysqlStore::connect_with(&self.tables.url, self.options.clone()).await.unwrap()
    }

    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Has the server end every connection to this database but ours.
    pub(crate) async fn cut(&self) {
        let sql = "SELECT CAST(id AS CHAR) FROM information_schema.processlist
                   WHERE db = DATABASE() AND id <> CONNECTION_ID()";
        for id in self.tables.ask(sql).await {
            // One that has gone by itself meanwhile is gone too.
            drop(self.tables.admin.lock().await.query_drop(format!("KILL {id}")).await);
        }
    }
}

/// Writes one business row as a handler does.
pub(crate) fn put(
    tx: &mut MysqlTx,
    name: String,
    value: String,
) -> BoxFuture<'_, Result<(), BoxError>> {
    Box::pin(async move {
        let sql =
            "INSERT INTO business VALUES (?, ?) ON DUPLICATE KEY UPDATE value = VALUES(value)";
        tx.exec_drop(sql, (name, value)).await.map_err(Into::into)
    })
}

impl Subject for MysqlSubject {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.mysql())
    }

    fn advance(&self, by: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let millis = by.as_millis();
            self.tables.tell(&format!("UPDATE test_clock SET at = at + {millis}")).await;
        })
    }

    fn transact(&self, script: Script) -> BoxFuture<'_, Result<ScriptReport, StoreError>> {
        Box::pin(async move {
            play_held(&self.mysql(), script, put, |tx, message| {
                let enqueued = tx.enqueue(&message).map_err(Into::into);
                Box::pin(async { enqueued })
            })
            .await
        })
    }

    fn row<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            let sql = "SELECT value FROM business WHERE name = ?";
            self.tables.admin.lock().await.exec_first(sql, (name,)).await.unwrap()
        })
    }

    fn message_keys(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async move {
            self.tables.ask("SELECT derived_key FROM firstwrite_messages ORDER BY message").await
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

impl fmt::Debug for MysqlSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MysqlSubject").field(&self.mysql()).finish()
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
