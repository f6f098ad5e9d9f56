//! What a key costs on MySQL or MariaDB: reservations and completions of concurrent requests against plain
//! inserts of such rows in commits of the same size, in one interleaved run with durable commits.
//!
//! A key that is reserved and completed is two steps, in two commits; both ratios are printed.
//!
//! `cargo xtask bench mysql [--seconds 1] [--rounds 5]`, or
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
const AT_ONCE: [usize; 2] = [64, 256];

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if !words.iter().any(|word| word == "--bench") {
        println!("measures only when run by `cargo bench`");
        return;
    }
    let number = |flag: &str, usual: f64| {
        let at = words.iter().position(|word| word == flag);
        let text = at.and_then(|at| words.get(at + 1));
        text.map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{flag} is a number")))
    };
    let plan = Plan {
        slice: Duration::from_secs_f64(number("--seconds", 1.0)),
        rounds: number("--rounds", 5.0),
    };
    let url =
        std::env::var("FIRSTWRITE_TEST_MARIADB").expect("FIRSTWRITE_TEST_MARIADB names a server");
    tokio::runtime::Runtime::new().expect("a runtime starts").block_on(measure(&url, &plan));
}

struct Plan {
    slice: Duration,
    rounds: f64,
}

/// What is measured.
const VARIANTS: [&str; 4] = [
    "plain inserts, a statement for each row",
    "plain inserts, one statement for all rows",
    "reserve",
    "reserve + complete",
];

async fn measure(url: &str, plan: &Plan) {
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
        let mut figures: [Vec<f64>; VARIANTS.len()] = Default::default();
        let mut round = 0.0;
        while round < plan.rounds {
            for (variant, rates) in figures.iter_mut().enumerate() {
                for table in ["firstwrite_records", "bench_plain"] {
                    admin.query_drop(format!("TRUNCATE {table}")).await.expect("it is emptied");
                }
                rates.push(match variant {
                    0 => plain(&mut admin, plan.slice, at_once, Rows::OneByOne).await,
                    1 => plain(&mut admin, plan.slice, at_once, Rows::Together).await,
                    2 => keys(&store, plan.slice, at_once, Steps::Reserve).await,
                    _ => keys(&store, plan.slice, at_once, Steps::Both).await,
                });
            }
            round += 1.0;
        }
        println!("{at_once} at once, median of {} rounds of {:?}:", plan.rounds, plan.slice);
        let medians = figures.map(median);
        for (name, rate) in VARIANTS.iter().zip(medians) {
            println!("  {name:<42} {rate:8.0}/s");
        }
        let [apart, together, reserve, both] = medians;
        for (name, plain) in [("a statement for each row", apart), ("one statement", together)] {
            println!(
                "  beside {name}: reserve {:.2}, reserve + complete {:.2} as keys, {:.2} as steps",
                reserve / plain,
                both / plain,
                2.0 * both / plain
            );
        }
    }
    admin.query_drop("DROP TABLE bench_plain").await.expect("it is dropped");
}

/// What becomes of a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Steps {
    Reserve,
    Both,
}

#[derive(Clone, Copy)]
enum Rows {
    OneByOne,
    Together,
}

/// What the server takes: rows of the same size, in commits of the same size, over one connection.
async fn plain(conn: &mut Conn, slice: Duration, batch: usize, rows: Rows) -> f64 {
    let (started, mut count) = (Instant::now(), 0_u32);
    let body = "ab".repeat(BODY_BYTES);
    while started.elapsed() < slice {
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

async fn keys(store: &MysqlStore, slice: Duration, at_once: usize, steps: Steps) -> f64 {
    let (started, policy) = (Instant::now(), Arc::new(Policy::default()));
    let tasks: Vec<_> = (0..at_once)
        .map(|_| {
            let (store, policy) = (store.clone(), Arc::clone(&policy));
            tokio::spawn(async move {
                let mut count = 0_u32;
                while started.elapsed() < slice {
                    one(&store, &policy, steps).await;
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

async fn one(store: &MysqlStore, policy: &Policy, steps: Steps) {
    let request = request();
    let reserved = protocol::reserve(store, &request, policy, fastrand::u64(..)).await;
    let Ok(Reserved::Granted(reservation)) = reserved else { panic!("a fresh key: {reserved:?}") };
    if steps == Steps::Reserve {
        return;
    }
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
