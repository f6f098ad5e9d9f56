//! What a key costs on MySQL or MariaDB: reservations and completions of concurrent requests against plain
//! inserts of the same rows in batches of the same size, in one interleaved run with durable commits.
//!
//! `FIRSTWRITE_TEST_MARIADB=mysql://… cargo bench -p firstwrite-store --features mysql --bench mysql`
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::protocol::{self, Completed, Reserved};
use firstwrite_core::{
    BodyForm, Fingerprint, KeptHeaders, Key, Outcome, PartDigests, Policy, RecordId, Request,
    Tenant,
};
use firstwrite_store::mysql_async::prelude::Queryable as _;
use firstwrite_store::mysql_async::{Conn, Opts};
use firstwrite_store::{MysqlOptions, MysqlStore};
use http::StatusCode;
use tokio::time::Instant;

const BODY_BYTES: usize = 300;
const SLICE: Duration = Duration::from_secs(2);
const ROUNDS: usize = 5;
const AT_ONCE: [usize; 2] = [64, 256];

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        println!("measures only when run by `cargo bench`");
        return;
    }
    let url =
        std::env::var("FIRSTWRITE_TEST_MARIADB").expect("FIRSTWRITE_TEST_MARIADB names a server");
    tokio::runtime::Runtime::new().expect("a runtime starts").block_on(measure(&url));
}

async fn measure(url: &str) {
    let mut admin = connect(url).await;
    MysqlStore::migrate(url, MysqlOptions::default()).await.expect("tables are made");
    for sql in [
        "DROP TABLE IF EXISTS bench_plain",
        "CREATE TABLE bench_plain (id BINARY(16) NOT NULL PRIMARY KEY, fingerprint BLOB NOT NULL,
         fence BIGINT NOT NULL, created_at BIGINT NOT NULL, outcome LONGBLOB) ENGINE = InnoDB",
    ] {
        admin.query_drop(sql).await.expect("a table is made");
    }
    let store = MysqlStore::connect(url).await.expect("a store is opened");
    for at_once in AT_ONCE {
        let mut figures: [Vec<f64>; 3] = Default::default();
        for _ in 0..ROUNDS {
            for (variant, rates) in figures.iter_mut().enumerate() {
                for table in ["firstwrite_records", "bench_plain"] {
                    admin.query_drop(format!("TRUNCATE {table}")).await.expect("it is emptied");
                }
                rates.push(match variant {
                    0 => plain(&mut admin, at_once, Rows::OneByOne).await,
                    1 => plain(&mut admin, at_once, Rows::Together).await,
                    _ => keys(&store, at_once).await,
                });
            }
        }
        let [apart, together, keys] = figures.map(median);
        println!("{at_once} at once, median of {ROUNDS} rounds of {} s:", SLICE.as_secs());
        println!("  plain inserts, {at_once} statements in a commit  {apart:8.0} rows/s");
        println!("  plain inserts, {at_once} rows in one statement   {together:8.0} rows/s");
        println!("  reserve + complete                       {keys:8.0} keys/s");
        println!("  ratios {:.2} and {:.2}", keys / apart, keys / together);
    }
    admin.query_drop("DROP TABLE bench_plain").await.expect("it is dropped");
}

#[derive(Clone, Copy)]
enum Rows {
    OneByOne,
    Together,
}

/// What the server takes: rows of the same size, in commits of the same size, over one connection.
async fn plain(conn: &mut Conn, batch: usize, rows: Rows) -> f64 {
    let (started, mut count) = (Instant::now(), 0_u32);
    let body = "ab".repeat(BODY_BYTES);
    while started.elapsed() < SLICE {
        let mut sql = "START TRANSACTION".to_owned();
        for at in 0..batch {
            let (id, digest) = (fastrand::u128(..), fastrand::u128(..));
            let row = format!("(x'{id:032x}', x'{digest:032x}{digest:032x}', 1, 1, x'{body}')");
            match rows {
                Rows::Together if at > 0 => write!(sql, ",{row}"),
                Rows::Together | Rows::OneByOne => {
                    write!(sql, ";INSERT INTO bench_plain VALUES {row}")
                }
            }
            .expect("a string takes everything");
        }
        sql.push_str(";COMMIT");
        conn.query_drop(sql).await.expect("rows are inserted");
        count += u32::try_from(batch).expect("a batch is small");
    }
    f64::from(count) / started.elapsed().as_secs_f64()
}

async fn keys(store: &MysqlStore, at_once: usize) -> f64 {
    let (started, policy) = (Instant::now(), Arc::new(Policy::default()));
    let tasks: Vec<_> = (0..at_once)
        .map(|_| {
            let (store, policy) = (store.clone(), Arc::clone(&policy));
            tokio::spawn(async move {
                let mut count = 0_u32;
                while started.elapsed() < SLICE {
                    one(&store, &policy).await;
                    count += 1;
                }
                count
            })
        })
        .collect();
    let mut count = 0;
    for task in tasks {
        count += task.await.expect("a client ends");
    }
    f64::from(count) / started.elapsed().as_secs_f64()
}

async fn one(store: &MysqlStore, policy: &Policy) {
    let request = request();
    let reserved = protocol::reserve(store, &request, policy, fastrand::u64(..)).await;
    let Ok(Reserved::Granted(reservation)) = reserved else { panic!("a fresh key: {reserved:?}") };
    let body = Bytes::from(vec![b'x'; BODY_BYTES]);
    let outcome = Outcome::new(StatusCode::CREATED, KeptHeaders::default(), body);
    let completed = protocol::complete(store, reservation, outcome, policy.retention()).await;
    assert!(matches!(completed, Ok(Completed::Kept { .. })), "{completed:?}");
}

fn request() -> Request {
    let tenant = Tenant::new("acme").expect("a tenant");
    let key = Key::new(&format!("{:032x}", fastrand::u128(..))).expect("a key");
    let mut digest = [0; 32];
    fastrand::fill(&mut digest);
    Request {
        id: RecordId::of(&tenant, &key),
        tenant,
        key,
        operation: "POST /payments".into(),
        fingerprint: Fingerprint::from_stored(
            1,
            BodyForm::Canonical,
            digest,
            PartDigests::from_bytes(&fastrand::u64(..).to_be_bytes()).expect("four parts"),
        ),
    }
}

async fn connect(url: &str) -> Conn {
    Conn::new(Opts::from_url(url).expect("an address")).await.expect("a server")
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
