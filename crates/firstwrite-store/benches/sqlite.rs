//! What protection costs on `SQLite`, in one interleaved run with durable commits everywhere.
//!
//! `cargo bench -p firstwrite-store --bench sqlite -- [--seconds 2] [--rounds 5] [--concurrency 64]
//! [--keys 200000]`. Every second round runs in reverse order, figures are medians, and ratios are
//! taken within each round: absolute numbers say more about the machine than about the store.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use firstwrite_core::protocol::{self, Atomic, Completed, Reserved};
use firstwrite_core::{
    BodyForm, Fingerprint, Key, Message, Outcome, PartDigests, Policy, RecordId, Request, Store,
    Tenant,
};
use firstwrite_store::{MissingFile, SqliteOptions, SqliteStore, SqliteTx, rusqlite};
use http::{Response, StatusCode};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// What is measured, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Unprotected,
    Golden,
    GoldenAlone,
    Reserved,
    Replay,
}

const CASES: [Case; 5] =
    [Case::Unprotected, Case::Golden, Case::GoldenAlone, Case::Reserved, Case::Replay];

struct Settings {
    seconds: f64,
    rounds: usize,
    concurrency: usize,
    keys: usize,
    /// Letters of the cases to run; the others are left out, and so are the ratios.
    only: String,
}

/// One store per case, filled further in every round.
struct Bench {
    case: Case,
    store: SqliteStore,
    _folder: TempDir,
    kept: Arc<Vec<RecordId>>,
    policy: Arc<Policy>,
}

#[derive(Clone, Copy)]
struct Figure {
    per_second: f64,
    cpu_micros: f64,
    commands_per_commit: f64,
}

/// Status (3), `content-type: application/json` (28) and body make 300 bytes.
const BODY_BYTES: usize = 300 - 3 - 28;
const TENANT_COUNT: u64 = 100;
const REPLAYED_KEYS: usize = 10_000;

fn main() {
    let settings = Settings::from_args();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime starts");
    println!("SQLite {}, {}", rusqlite::version(), settings.describe());
    let benches: Vec<Bench> = CASES.iter().map(|case| Bench::open(*case, &runtime)).collect();
    let mut figures = vec![Vec::new(); CASES.len()];
    for round in 0..settings.rounds {
        let mut order: Vec<usize> = (0..CASES.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for place in order {
            if !settings.runs(CASES[place]) {
                continue;
            }
            figures[place].push(benches[place].measure(&settings, &runtime));
        }
    }
    print_table(&figures);
    drop(benches);
    print_sizes(&settings, &runtime);
}

impl Settings {
    fn from_args() -> Self {
        let mut settings =
            Self { seconds: 2.0, rounds: 5, concurrency: 64, keys: 200_000, only: String::new() };
        let mut args = std::env::args().skip(1);
        while let Some(flag) = args.next() {
            if flag == "--only" {
                settings.only = args.next().expect("--only needs letters, such as be");
                continue;
            }
            let mut number = || -> f64 {
                let value = args.next().and_then(|value| value.parse().ok());
                value.unwrap_or_else(|| panic!("{flag} needs a number"))
            };
            match flag.as_str() {
                "--seconds" => settings.seconds = number(),
                "--rounds" => settings.rounds = whole(number()).max(1),
                "--concurrency" => settings.concurrency = whole(number()).max(1),
                "--keys" => settings.keys = whole(number()),
                // Cargo says this to every bench.
                "--bench" => {}
                _ => panic!("unknown flag {flag}"),
            }
        }
        settings
    }

    fn runs(&self, case: Case) -> bool {
        self.only.is_empty() || self.only.contains(&case.name()[..1])
    }

    fn describe(&self) -> String {
        let Self { seconds, rounds, concurrency, .. } = self;
        format!("{seconds} s × {rounds} rounds, {concurrency} at once, medians")
    }
}

impl Case {
    fn name(self) -> &'static str {
        match self {
            Self::Unprotected => "a  unprotected row, group commit",
            Self::Golden => "b  golden: row + message + outcome",
            Self::GoldenAlone => "c  golden, one commit per request",
            Self::Reserved => "d  reserve, then complete",
            Self::Replay => "e  replay look-up",
        }
    }
}

impl Bench {
    fn open(case: Case, runtime: &Runtime) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let mut options = SqliteOptions::default();
        options.missing_file = MissingFile::Create;
        if case == Case::GoldenAlone {
            options.batch_max = 1;
        }
        let store = SqliteStore::open_with(folder.path().join("bench.db"), options)
            .expect("a fresh store opens");
        let table = "CREATE TABLE payments (payment INTEGER PRIMARY KEY, tenant TEXT NOT NULL,
                     amount INTEGER NOT NULL, currency TEXT NOT NULL, reference TEXT NOT NULL)";
        let kept = runtime.block_on(async {
            store.write(move |c| c.execute_batch(table)).await.expect("a table is made");
            let keys = if case == Case::Replay { REPLAYED_KEYS } else { 0 };
            fill_atomic(&store, keys, BODY_BYTES..=BODY_BYTES).await
        });
        Self { case, store, _folder: folder, kept: Arc::new(kept), policy: Arc::default() }
    }

    fn measure(&self, settings: &Settings, runtime: &Runtime) -> Figure {
        let count = Arc::new(AtomicU64::new(0));
        let (cpu, commits, began_at) = (cpu_micros(), self.store.commit_count(), stopwatch());
        let ends_at = began_at + Duration::from_secs_f64(settings.seconds);
        runtime.block_on(async {
            let tasks: Vec<_> = (0..settings.concurrency)
                .map(|_| {
                    let (store, kept) = (self.store.clone(), Arc::clone(&self.kept));
                    let (policy, count, case) =
                        (Arc::clone(&self.policy), Arc::clone(&count), self.case);
                    tokio::spawn(async move {
                        while stopwatch() < ends_at {
                            operate(case, &store, &kept, &policy).await;
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("no operation fails");
            }
        });
        let count = as_f64(count.load(Ordering::Relaxed));
        let commits = as_f64(self.store.commit_count() - commits).max(1.0);
        Figure {
            per_second: count / began_at.elapsed().as_secs_f64(),
            cpu_micros: (cpu_micros() - cpu) / count,
            commands_per_commit: count / commits,
        }
    }
}

async fn operate(case: Case, store: &SqliteStore, kept: &[RecordId], policy: &Arc<Policy>) {
    match case {
        Case::Unprotected => {
            let tenant = tenant();
            store.write(move |c| pay(c, tenant.as_str())).await.expect("a row is written");
        }
        Case::Golden | Case::GoldenAlone => golden(store, policy, BODY_BYTES).await,
        Case::Reserved => reserve_and_complete(store, policy, BODY_BYTES).await,
        Case::Replay => {
            let id = kept[fastrand::usize(..kept.len())];
            assert!(store.get(id).await.expect("a look-up").is_some(), "a kept key is found");
        }
    }
}

fn pay(connection: &rusqlite::Connection, tenant: &str) -> Result<(), rusqlite::Error> {
    let sql = "INSERT INTO payments (tenant, amount, currency, reference) VALUES (?1, ?2, ?3, ?4)";
    let row = (tenant, fastrand::i64(1..100_000), "EUR", "an invoice of some length, number 4711");
    connection.prepare_cached(sql)?.execute(row).map(drop)
}

async fn golden(store: &SqliteStore, policy: &Arc<Policy>, body_bytes: usize) {
    let request = request();
    let (tenant, key) = (request.tenant.clone(), request.key.clone());
    let work = move |tx: &mut SqliteTx<'_>| -> Result<Response<Bytes>, std::convert::Infallible> {
        pay(tx, tenant.as_str()).expect("a row is written");
        let payload = Bytes::from_static(&[b'm'; 100]);
        let message = Message::new(&tenant, &key, "receipt", "mailer", payload).expect("fits");
        tx.enqueue(&message).expect("a message is written");
        Ok(response(body_bytes))
    };
    let done =
        protocol::atomic(store, Arc::new(request), Arc::clone(policy), fastrand::u64(..), work);
    let done = done.await.expect("the store works");
    assert!(matches!(done, Atomic::Kept { .. }), "a fresh key runs");
}

async fn reserve_and_complete(store: &SqliteStore, policy: &Policy, body_bytes: usize) {
    let reserved = protocol::reserve(store, &request(), policy, fastrand::u64(..)).await;
    let Ok(Reserved::Granted(reservation)) = reserved else { panic!("a fresh key is granted") };
    let response = response(body_bytes);
    let headers = policy.kept_headers.keep(response.headers());
    let outcome = Outcome::new(response.status(), headers, response.into_body());
    let done = protocol::complete(store, reservation, outcome).await;
    assert!(matches!(done, Ok(Completed::Kept { .. })), "an owner completes");
}

/// Fills a store with completed keys alone, and says which.
async fn fill_atomic(
    store: &SqliteStore,
    keys: usize,
    body_bytes: std::ops::RangeInclusive<usize>,
) -> Vec<RecordId> {
    let policy = Arc::new(Policy::default());
    let mut ids = Vec::with_capacity(keys);
    let mut tasks = tokio::task::JoinSet::new();
    while ids.len() < keys {
        let (request, store, policy) = (Arc::new(request()), store.clone(), Arc::clone(&policy));
        ids.push(request.id);
        let body_bytes = fastrand::usize(body_bytes.clone());
        tasks.spawn(async move {
            let work = move |_tx: &mut SqliteTx<'_>| Ok::<_, ()>(response(body_bytes));
            let done = protocol::atomic(&store, request, policy, fastrand::u64(..), work).await;
            assert!(matches!(done, Ok(Atomic::Kept { .. })), "a fresh key runs");
        });
        if tasks.len() >= 512 {
            tasks.join_next().await;
        }
    }
    tasks.join_all().await;
    ids
}

async fn fill_reserved(store: &SqliteStore, keys: usize) {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..keys {
        let store = store.clone();
        tasks.spawn(async move {
            reserve_and_complete(&store, &Policy::default(), BODY_BYTES).await;
        });
        if tasks.len() >= 512 {
            tasks.join_next().await;
        }
    }
    tasks.join_all().await;
}

fn request() -> Request {
    let (tenant, key) = (tenant(), key());
    let mut parts = [0; 16];
    let mut digest = [0; 32];
    fastrand::fill(&mut parts);
    fastrand::fill(&mut digest);
    let parts = PartDigests::from_bytes(&parts).expect("eight parts");
    Request {
        id: RecordId::of(&tenant, &key),
        tenant,
        key,
        operation: "POST /payments".into(),
        fingerprint: Fingerprint::from_stored(1, BodyForm::Canonical, digest, parts),
    }
}

fn tenant() -> Tenant {
    Tenant::new(&format!("merchant-{:04}", fastrand::u64(..TENANT_COUNT))).expect("a name")
}

fn key() -> Key {
    let number = format!("{:032x}", fastrand::u128(..));
    let groups = [&number[..8], &number[8..12], &number[12..16], &number[16..20], &number[20..]];
    Key::new(&groups.join("-")).expect("a UUID is a key")
}

fn response(body_bytes: usize) -> Response<Bytes> {
    let body = Bytes::from(vec![b'x'; body_bytes]);
    Response::builder()
        .status(StatusCode::CREATED)
        .header("content-type", "application/json")
        .body(body)
        .expect("a response")
}

fn print_table(figures: &[Vec<Figure>]) {
    println!("\n{:<38}{:>10}{:>14}{:>16}", "", "per s", "CPU µs each", "per commit");
    for (case, rounds) in CASES.iter().zip(figures).filter(|(_, rounds)| !rounds.is_empty()) {
        let median = |of: fn(&Figure) -> f64| median(rounds.iter().map(of).collect());
        println!(
            "{:<38}{:>10.0}{:>14.1}{:>16.1}",
            case.name(),
            median(|figure| figure.per_second),
            median(|figure| figure.cpu_micros),
            median(|figure| figure.commands_per_commit),
        );
    }
    if figures.iter().any(Vec::is_empty) {
        return;
    }
    let ratio = |over: usize, under: usize| {
        let pairs = figures[over].iter().zip(&figures[under]);
        median(pairs.map(|(over, under)| over.per_second / under.per_second).collect())
    };
    println!();
    judge("b / c  what sharing commits gains", ratio(1, 2), |ratio| ratio >= 10.0, "≥ 10");
    judge("b / a  what protection leaves", ratio(1, 0), |ratio| ratio >= 0.45, "≥ 0.45");
}

fn print_sizes(settings: &Settings, runtime: &Runtime) {
    if settings.keys == 0 {
        return;
    }
    println!("\nbytes per key with an outcome of 300 B, {} keys", settings.keys);
    let varied = BODY_BYTES - 50..=BODY_BYTES + 50;
    for (name, body_bytes) in [
        ("atomic, outcomes of 300 B", Some(BODY_BYTES..=BODY_BYTES)),
        ("atomic, outcomes of 250 to 350 B", Some(varied)),
        ("reserved, then completed", None),
    ] {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let store =
            SqliteStore::open_or_create(folder.path().join("bytes.db")).expect("a store opens");
        let sizes = runtime.block_on(async {
            match body_bytes {
                Some(body_bytes) => drop(fill_atomic(&store, settings.keys, body_bytes).await),
                None => fill_reserved(&store, settings.keys).await,
            }
            let sql = "SELECT name, pgsize FROM dbstat WHERE aggregate = TRUE AND pgsize > 65536
                       AND name LIKE '%firstwrite%' ORDER BY pgsize DESC";
            let sizes = store.read(move |c| {
                let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
                c.prepare(sql)?.query_map([], read)?.collect::<Result<Vec<(String, f64)>, _>>()
            });
            sizes.await.expect("sizes can be read")
        });
        let keys = as_f64(settings.keys as u64);
        let total: f64 = sizes.iter().map(|(_, bytes)| bytes / keys).sum();
        judge(name, total, |bytes| bytes <= 430.0, "≤ 430");
        for (table, bytes) in &sizes {
            println!("    {table:<34}{:>8.1}", bytes / keys);
        }
    }
}

fn judge(name: &str, value: f64, passes: impl Fn(f64) -> bool, goal: &str) {
    let word = if passes(value) { "pass" } else { "MISS" };
    println!("{name:<38}{value:>10.2}   goal {goal:<8}{word}");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Processor time of the whole process, from `/proc/self/stat`; in ticks of 10 ms.
fn cpu_micros() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let fields: Vec<f64> =
        after_name.split(' ').skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    fields.iter().sum::<f64>() * 10_000.0
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn stopwatch() -> Instant {
    Instant::now()
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2⁵²")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number from the command line"
)]
fn whole(number: f64) -> usize {
    number as usize
}
