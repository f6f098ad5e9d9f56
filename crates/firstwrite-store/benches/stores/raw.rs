//! The stores to measure, and what the server of each takes without one.

use std::fmt::Write as _;
use std::sync::Arc;

use firstwrite_core::{BoxFuture, Store};
use firstwrite_store::aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use firstwrite_store::aws_sdk_dynamodb::primitives::Blob;
use firstwrite_store::aws_sdk_dynamodb::types::AttributeValue;
use firstwrite_store::aws_sdk_dynamodb::{Client, Config};
use firstwrite_store::mysql_async::prelude::Queryable as _;
use firstwrite_store::mysql_async::{Conn, Opts};
use firstwrite_store::{
    DynamoOptions, DynamoStore, MysqlOptions, MysqlStore, PostgresOptions, PostgresStore,
    RedisOptions, RedisStore, SqliteStore,
};
use tokio::sync::Mutex;

use crate::RECORD_BYTES;
use crate::rounds::Operate;

/// A store, and its server without it.
pub(crate) struct Subject {
    pub(crate) store: Arc<dyn Store>,
    /// Ways to write plainly what the store writes.
    pub(crate) raws: Vec<Raw>,
    /// What share of the raw rate its steps should reach.
    pub(crate) goal: Option<f64>,
    /// Deleted with it.
    _folder: Option<tempfile::TempDir>,
}

/// Plain inserts.
pub(crate) struct Raw {
    pub(crate) name: &'static str,
    /// How many do it at once.
    pub(crate) concurrency: usize,
    /// How many rows each call inserts.
    pub(crate) rows: usize,
    pub(crate) operate: Operate,
    /// Empties its table: one that outgrew the server's memory would be slower than what it is compared with.
    pub(crate) reset: Option<Operate>,
}

type Open = fn(usize) -> BoxFuture<'static, Option<Subject>>;

pub(crate) const SUBJECTS: &[(&str, Open)] = &[
    ("sqlite", |clients| Box::pin(sqlite(clients))),
    ("postgres", |clients| Box::pin(postgres(clients))),
    ("mariadb", |clients| Box::pin(mariadb(clients))),
    ("redis", |clients| Box::pin(redis(clients))),
    ("dynamodb", |clients| Box::pin(dynamodb(clients))),
];

/// Through the store's own writer: whoever waits shares its next commit.
async fn sqlite(clients: usize) -> Option<Subject> {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let store = SqliteStore::open_or_create(folder.path().join("bench.db")).expect("a store opens");
    let table = "CREATE TABLE bench_raw (id BLOB PRIMARY KEY, record BLOB) WITHOUT ROWID";
    store.write(move |c| c.execute_batch(table)).await.expect("a table is made");
    let writer = store.clone();
    let operate: Operate = Arc::new(move || {
        let writer = writer.clone();
        Box::pin(async move {
            let insert = |c: &rusqlite::Connection| {
                let sql = "INSERT INTO bench_raw VALUES (?1, ?2)";
                c.prepare_cached(sql)?.execute((id(), record())).map(drop)
            };
            writer.write(move |c| insert(c)).await.expect("a row is written");
        })
    });
    let writer = store.clone();
    let reset: Operate = Arc::new(move || {
        let writer = writer.clone();
        Box::pin(async move {
            writer
                .write(|c| c.execute_batch("DELETE FROM bench_raw"))
                .await
                .expect("it is emptied");
        })
    });
    let (concurrency, reset) = (clients, Some(reset));
    let raw = Raw { name: "one row each, group commit", concurrency, rows: 1, operate, reset };
    Some(Subject { store: Arc::new(store), raws: vec![raw], goal: None, _folder: Some(folder) })
}

async fn postgres(clients: usize) -> Option<Subject> {
    let url = std::env::var("FIRSTWRITE_TEST_POSTGRES").ok()?;
    PostgresStore::migrate(&url, PostgresOptions::default()).await.expect("tables are made");
    let store = PostgresStore::connect(&url).await.expect("a store is opened");
    let (client, connection) =
        tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("a server");
    tokio::spawn(connection);
    let table = "DROP TABLE IF EXISTS bench_raw;
                 CREATE TABLE bench_raw (id bytea PRIMARY KEY, record bytea NOT NULL)";
    client.batch_execute(table).await.expect("a table is made");
    let sql = "INSERT INTO bench_raw SELECT * FROM unnest($1::bytea[], $2::bytea[])";
    let statement = client.prepare(sql).await.expect("a statement");
    let client = Arc::new(client);
    let resetting = Arc::clone(&client);
    let reset: Operate = Arc::new(move || {
        let client = Arc::clone(&resetting);
        Box::pin(async move {
            client.batch_execute("TRUNCATE bench_raw").await.expect("it is emptied");
        })
    });
    let operate: Operate = Arc::new(move || {
        let (client, statement) = (Arc::clone(&client), statement.clone());
        Box::pin(async move {
            let ids: Vec<Vec<u8>> = (0..clients).map(|_| id()).collect();
            let records = vec![record(); clients];
            client.execute(&statement, &[&ids, &records]).await.expect("rows are inserted");
        })
    });
    let reset = Some(reset);
    let raw = Raw { name: ONE_STATEMENT, concurrency: 1, rows: clients, operate, reset };
    Some(Subject { store: Arc::new(store), raws: vec![raw], goal: None, _folder: None })
}

const ONE_STATEMENT: &str = "all rows in one statement and commit";

async fn mariadb(clients: usize) -> Option<Subject> {
    let url = std::env::var("FIRSTWRITE_TEST_MARIADB").ok()?;
    MysqlStore::migrate(&url, MysqlOptions::default()).await.expect("tables are made");
    let store = MysqlStore::connect(&url).await.expect("a store is opened");
    let mut conn = Conn::new(Opts::from_url(&url).expect("an address")).await.expect("a server");
    let table = "CREATE OR REPLACE TABLE bench_raw
                 (id BINARY(16) NOT NULL PRIMARY KEY, record BLOB NOT NULL) ENGINE = InnoDB";
    conn.query_drop(table).await.expect("a table is made");
    let conn = Arc::new(Mutex::new(conn));
    let inserting = |is_together: bool| -> Operate {
        let conn = Arc::clone(&conn);
        Arc::new(move || {
            let conn = Arc::clone(&conn);
            Box::pin(async move {
                let sql = inserts(clients, is_together);
                conn.lock().await.query_drop(sql).await.expect("rows are inserted");
            })
        })
    };
    let resetting = Arc::clone(&conn);
    let reset: Operate = Arc::new(move || {
        let conn = Arc::clone(&resetting);
        Box::pin(async move {
            conn.lock().await.query_drop("TRUNCATE bench_raw").await.expect("it is emptied");
        })
    });
    let apart = "a row a statement, one commit for all";
    let raws = [(apart, false), (ONE_STATEMENT, true)].map(|(name, is_together)| Raw {
        name,
        concurrency: 1,
        rows: clients,
        operate: inserting(is_together),
        reset: Some(Arc::clone(&reset)),
    });
    Some(Subject { store: Arc::new(store), raws: raws.into(), goal: Some(0.8), _folder: None })
}

/// Rows of many clients in one transaction.
fn inserts(count: usize, is_together: bool) -> String {
    let mut sql = "START TRANSACTION".to_owned();
    let record = "78".repeat(RECORD_BYTES);
    for at in 0..count {
        let start = if is_together && at > 0 { "," } else { ";INSERT INTO bench_raw VALUES" };
        write!(sql, "{start} (x'{:032x}', x'{record}')", fastrand::u128(..))
            .expect("a string takes everything");
    }
    sql.push_str(";COMMIT");
    sql
}

/// Over one connection that all share, as the store does.
async fn redis(clients: usize) -> Option<Subject> {
    let url = std::env::var("FIRSTWRITE_TEST_REDIS").ok()?;
    RedisStore::migrate(&url, RedisOptions::default()).await.expect("a store is made");
    let store = RedisStore::connect(&url).await.expect("a store is opened");
    let client = redis::Client::open(url).expect("an address");
    let mut plain = client.get_multiplexed_async_connection().await.expect("a server");
    // A process that writes everything anew would meet some slices and not others.
    for (name, value) in [("save", ""), ("auto-aof-rewrite-percentage", "0")] {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg(name).arg(value);
        set.query_async::<()>(&mut plain).await.expect("a server of one's own is told");
    }
    let operate: Operate = Arc::new(move || {
        let mut plain = plain.clone();
        Box::pin(async move {
            let mut command = redis::cmd("SET");
            command.arg(id()).arg(record()).arg("NX");
            command.query_async::<()>(&mut plain).await.expect("the server answers");
        })
    });
    let (name, concurrency) = ("SET NX each, one connection", clients);
    let raw = Raw { name, concurrency, rows: 1, operate, reset: None };
    Some(Subject { store: Arc::new(store), raws: vec![raw], goal: Some(0.7), _folder: None })
}

async fn dynamodb(clients: usize) -> Option<Subject> {
    let endpoint = std::env::var("FIRSTWRITE_TEST_DYNAMODB").ok()?;
    let url = format!("dynamodb:bench?endpoint={endpoint}");
    DynamoStore::migrate(&url, DynamoOptions::default()).await.expect("a table is made");
    let store = DynamoStore::connect(&url).await.expect("a store is opened");
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(endpoint)
        .region(Region::new("us-east-1"))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .credentials_provider(Credentials::new("bench", "bench", None, None, "bench"))
        .build();
    let client = Client::from_conf(config);
    let operate: Operate = Arc::new(move || {
        let put = client.put_item().table_name("bench");
        Box::pin(async move {
            put.item("shard", AttributeValue::S("plain".to_owned()))
                .item("id", AttributeValue::B(Blob::new(id())))
                .item("record", AttributeValue::B(Blob::new(record())))
                .condition_expression("attribute_not_exists(id)")
                .send()
                .await
                .expect("an item is put");
        })
    });
    let (name, concurrency) = ("one conditional put each", clients);
    let raw = Raw { name, concurrency, rows: 1, operate, reset: None };
    Some(Subject { store: Arc::new(store), raws: vec![raw], goal: None, _folder: None })
}

fn id() -> Vec<u8> {
    fastrand::u128(..).to_be_bytes().to_vec()
}

fn record() -> Vec<u8> {
    vec![b'x'; RECORD_BYTES]
}
