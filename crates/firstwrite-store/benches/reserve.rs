//! What batching is worth on `PostgreSQL`: reservations, completions and replays of concurrent
//! requests against one statement per request, in one interleaved run with durable commits.
//!
//! `cargo xtask bench reserve [--seconds 2] [--rounds 5]` starts a server and runs it. The program
//! `pgbench` in `FIRSTWRITE_BENCH_PGBENCH` does the single-row inserts.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints its figures")]

mod rounds;

use std::io::Write as _;
use std::process::Command;
use std::sync::Arc;

use bytes::Bytes;
use firstwrite_core::protocol::{self, Completed, Reserved};
use firstwrite_core::{
    BodyForm, BoxFuture, Fingerprint, KeptHeaders, Key, Outcome, PartDigests, Policy, RecordId,
    Request, Store, Tenant,
};
use firstwrite_store::{PostgresOptions, PostgresStore, SchemaName};
use http::StatusCode;
use rounds::{Figures, Plan, Server, Variant, Work};

const BODY_BYTES: usize = 300;
const REPLAYED_KEYS: usize = 200_000;
/// More connections gain nothing for single look-ups on two cores.
const LOOKUP_POOL: usize = 16;

/// What is replayed, by how many at once, and whether each is looked up alone. Of records that were
/// reserved there are two rows to find, of those that were completed at once there is one.
const REPLAYS: [Replay; 6] = [
    ("replay reserved, single look-ups, 64", Replayed::Reserved, 64, Lookups::Single),
    ("replay reserved, batched, 64", Replayed::Reserved, 64, Lookups::Batched),
    ("replay atomic, single look-ups, 64", Replayed::Atomic, 64, Lookups::Single),
    ("replay atomic, batched, 64", Replayed::Atomic, 64, Lookups::Batched),
    ("replay atomic, single look-ups, 256", Replayed::Atomic, 256, Lookups::Single),
    ("replay atomic, batched, 256", Replayed::Atomic, 256, Lookups::Batched),
];

type Replay = (&'static str, Replayed, usize, Lookups);

#[derive(Clone, Copy)]
enum Replayed {
    Reserved,
    Atomic,
}

#[derive(Clone, Copy)]
enum Lookups {
    Single,
    Batched,
}

/// Ids of records to be replayed.
struct Kept {
    reserved: Arc<Vec<RecordId>>,
    atomic: Arc<Vec<RecordId>>,
}

/// What `pgbench` does: one row of a reservation, in a transaction of its own.
const SINGLE_INSERT: &str = "\
\\set a random(1, 9000000000000000000)
INSERT INTO bench_reserve.records (id, fence, created_at, lease_until, profile, tenant, key, fingerprint, outcome)
VALUES (gen_random_uuid(), :a, now(), now() + interval '30 seconds', 1, 'acme', \
uuid_send(gen_random_uuid()), sha256(int8send(:a)), '')
ON CONFLICT (id) DO NOTHING RETURNING id;
";

fn main() {
    let Some(plan) = Plan::from_args(2.0, 5) else {
        println!("measures only when run by `cargo bench`");
        return;
    };
    let runtime = rounds::runtime();
    let server = runtime.block_on(Server::connect());
    let kept = runtime.block_on(prepare(&server));
    let version = runtime.block_on(server.version());
    println!("PostgreSQL {version}, {} s × {} rounds", plan.seconds, plan.rounds);
    let variants = runtime.block_on(variants(&kept));
    let reset = |variant: &str| {
        if !variant.starts_with("replay") {
            let sql = "TRUNCATE bench_reserve.records, bench_reserve.endings";
            runtime.block_on(server.execute(sql));
        }
    };
    let figures = rounds::run(&runtime, &plan, &server, &variants, reset);
    print_figures(&figures);
    runtime.block_on(
        server.execute("DROP SCHEMA bench_reserve CASCADE; DROP SCHEMA bench_replay CASCADE"),
    );
}

fn print_figures(figures: &Figures) {
    println!("{}", figures.table());
    for (name, to, goal) in [
        ("reserve batched, 64 at once", "pgbench single insert, 64 clients", 2.0),
        ("reserve batched, 256 at once", "pgbench single insert, 256 clients", 4.0),
        ("reserve+complete batched, 64", "reserve+complete single, 64", 2.0),
        ("reserve+complete batched, 256", "reserve+complete single, 256", 4.0),
        (REPLAYS[1].0, REPLAYS[0].0, 5.0),
        (REPLAYS[3].0, REPLAYS[2].0, 5.0),
        (REPLAYS[5].0, REPLAYS[4].0, 5.0),
    ] {
        println!("{}", figures.goal(name, to, goal));
    }
}

/// Two schemas: one is emptied before each slice, the other holds what is replayed.
async fn prepare(server: &Server) -> Kept {
    for schema in ["bench_reserve", "bench_replay"] {
        server.execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE")).await;
        PostgresStore::migrate(&rounds::address(), options(schema))
            .await
            .expect("a schema is made");
    }
    let store = store("bench_replay", 0).await;
    let kept = Kept {
        reserved: Arc::new(fill(&store, Replayed::Reserved).await),
        atomic: Arc::new(fill(&store, Replayed::Atomic).await),
    };
    server.execute("VACUUM ANALYZE bench_replay.records, bench_replay.endings").await;
    kept
}

async fn fill(store: &PostgresStore, replayed: Replayed) -> Vec<RecordId> {
    let mut tasks = tokio::task::JoinSet::new();
    let policy = Arc::new(Policy::default());
    for _ in 0..64 {
        let (store, policy) = (store.clone(), Arc::clone(&policy));
        tasks.spawn(async move {
            let mut ids = Vec::new();
            for _ in 0..REPLAYED_KEYS / 64 {
                let request = request();
                match replayed {
                    Replayed::Reserved => reserve_and_complete(&store, &request, &policy).await,
                    Replayed::Atomic => keep(&store, &request, &policy).await,
                }
                ids.push(request.id);
            }
            ids
        });
    }
    let mut kept = Vec::with_capacity(REPLAYED_KEYS);
    while let Some(ids) = tasks.join_next().await {
        kept.extend(ids.expect("filling works"));
    }
    kept
}

async fn variants(kept: &Kept) -> Vec<Variant> {
    let policy = Arc::new(Policy::default());
    let store_reserve = store("bench_reserve", 0).await;
    let store_replay = store("bench_replay", 0).await;
    let cached = store("bench_replay", 512 * 1024 * 1024).await;
    let single = deadpool(64);
    let lookups = deadpool(LOOKUP_POOL);
    let mut variants = Vec::new();
    for (name, clients) in
        [("pgbench single insert, 64 clients", 64), ("pgbench single insert, 256 clients", 256)]
    {
        let work = Work::Program(Box::new(move |seconds| pgbench(clients, seconds)));
        variants.push(Variant { name, work });
    }
    for (name, concurrency) in
        [("reserve batched, 64 at once", 64), ("reserve batched, 256 at once", 256)]
    {
        let (store, policy) = (store_reserve.clone(), Arc::clone(&policy));
        let operate = move || -> BoxFuture<'static, ()> {
            let (store, policy) = (store.clone(), Arc::clone(&policy));
            Box::pin(async move { reserve(&store, &request(), &policy).await })
        };
        variants.push(tasks(name, concurrency, operate));
    }
    for (name, concurrency) in
        [("reserve+complete single, 64", 64), ("reserve+complete single, 256", 256)]
    {
        let pool = single.clone();
        let operate = move || -> BoxFuture<'static, ()> {
            let pool = pool.clone();
            Box::pin(async move { two_statements(&pool, &request()).await })
        };
        variants.push(tasks(name, concurrency, operate));
    }
    for (name, concurrency) in
        [("reserve+complete batched, 64", 64), ("reserve+complete batched, 256", 256)]
    {
        let (store, policy) = (store_reserve.clone(), Arc::clone(&policy));
        let operate = move || -> BoxFuture<'static, ()> {
            let (store, policy) = (store.clone(), Arc::clone(&policy));
            Box::pin(async move { reserve_and_complete(&store, &request(), &policy).await })
        };
        variants.push(tasks(name, concurrency, operate));
    }
    for (name, replayed, concurrency, look) in REPLAYS {
        let ids = kept.of(replayed);
        variants.push(match look {
            Lookups::Single => {
                let pool = lookups.clone();
                tasks(name, concurrency, move || {
                    let (pool, id) = (pool.clone(), ids[fastrand::usize(..ids.len())]);
                    Box::pin(async move { single_lookup(&pool, id).await })
                })
            }
            Lookups::Batched => replays(name, concurrency, &store_replay, ids),
        });
    }
    variants.push(replays("replay from memory, 64", 64, &cached, kept.of(Replayed::Atomic)));
    variants
}

fn replays(
    name: &'static str,
    concurrency: usize,
    store: &PostgresStore,
    ids: Arc<Vec<RecordId>>,
) -> Variant {
    let store = store.clone();
    tasks(name, concurrency, move || {
        let (store, id) = (store.clone(), ids[fastrand::usize(..ids.len())]);
        Box::pin(async move {
            assert!(store.get(id).await.expect("a look-up").is_some(), "a kept key is found");
        })
    })
}

impl Kept {
    fn of(&self, replayed: Replayed) -> Arc<Vec<RecordId>> {
        Arc::clone(match replayed {
            Replayed::Reserved => &self.reserved,
            Replayed::Atomic => &self.atomic,
        })
    }
}

fn tasks(
    name: &'static str,
    concurrency: usize,
    operate: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static,
) -> Variant {
    Variant { name, work: Work::Tasks { concurrency, operate: Arc::new(operate) } }
}

fn options(schema: &str) -> PostgresOptions {
    let mut options = PostgresOptions::default();
    options.schema = SchemaName::new(schema).expect("a plain name");
    options
}

async fn store(schema: &str, cache_bytes_max: u64) -> PostgresStore {
    let mut options = options(schema);
    options.cache_bytes_max = cache_bytes_max;
    PostgresStore::connect_with(&rounds::address(), options).await.expect("the store opens")
}

fn deadpool(size: usize) -> deadpool_postgres::Pool {
    let config = rounds::address().parse().expect("an address");
    let manager = deadpool_postgres::Manager::new(config, tokio_postgres::NoTls);
    deadpool_postgres::Pool::builder(manager).max_size(size).build().expect("a pool")
}

async fn reserve(store: &PostgresStore, request: &Request, policy: &Policy) {
    match protocol::reserve(store, request, policy, fastrand::u64(..)).await {
        // Dropped: it frees when its lease runs out, long after the bench.
        Ok(Reserved::Granted(reservation)) => drop(reservation),
        other => panic!("a fresh key is reserved: {other:?}"),
    }
}

async fn reserve_and_complete(store: &PostgresStore, request: &Request, policy: &Policy) {
    let reservation = match protocol::reserve(store, request, policy, fastrand::u64(..)).await {
        Ok(Reserved::Granted(reservation)) => reservation,
        other => panic!("a fresh key is reserved: {other:?}"),
    };
    match protocol::complete(store, reservation, outcome()).await {
        Ok(Completed::Kept { .. }) => {}
        other => panic!("an owner completes: {other:?}"),
    }
}

async fn keep(store: &PostgresStore, request: &Request, policy: &Policy) {
    match protocol::keep(store, request, policy, fastrand::u64(..), outcome()).await {
        Ok(protocol::Kept::Done { .. }) => {}
        other => panic!("a fresh key is kept: {other:?}"),
    }
}

fn outcome() -> Outcome {
    let body = Bytes::from(vec![b'x'; BODY_BYTES]);
    Outcome::new(StatusCode::CREATED, KeptHeaders::default(), body)
}

/// What an application would write by hand: an insert, and another one, each committed alone.
async fn two_statements(pool: &deadpool_postgres::Pool, request: &Request) {
    const RESERVE: &str = "INSERT INTO bench_reserve.records (id, fence, created_at, lease_until,
            profile, tenant, key, fingerprint, outcome)
        VALUES ($1::text::uuid, $2, now(), now() + interval '30 seconds', 1, $3, $4, $5, '')
        ON CONFLICT (id) DO NOTHING RETURNING id";
    const COMPLETE: &str = "INSERT INTO bench_reserve.endings (id, fence, ended_at, retained_until,
            kept_until, outcome)
        SELECT id, fence, now(), now() + interval '1 day', now() + interval '25 hours', $3
        FROM bench_reserve.records WHERE id = $1::text::uuid AND fence = $2 ON CONFLICT DO NOTHING";
    let client = pool.get().await.expect("a connection");
    let (id, fence) = (request.id.to_string(), fastrand::i64(1..));
    let (tenant, key) = (request.tenant.as_str(), request.key.as_str().as_bytes());
    let digest = &request.fingerprint.digest()[..];
    let statement = client.prepare_cached(RESERVE).await.expect("a statement");
    client
        .query_one(&statement, &[&id, &fence, &tenant, &key, &digest])
        .await
        .expect("a row is written");
    let statement = client.prepare_cached(COMPLETE).await.expect("a statement");
    let body = vec![b'x'; BODY_BYTES];
    let count = client.execute(&statement, &[&id, &fence, &body]).await.expect("a row is written");
    assert_eq!(count, 1, "the reservation is there");
}

async fn single_lookup(pool: &deadpool_postgres::Pool, id: RecordId) {
    const LOOKUP: &str = "SELECT r.fence, r.created_at, r.lease_until, r.profile, r.tenant, r.key,
            r.fingerprint, r.outcome, e.retained_until, e.kept_until, e.outcome
        FROM bench_replay.records r
        LEFT JOIN bench_replay.endings e ON e.id = r.id AND e.fence = r.fence
        WHERE r.id = $1::text::uuid";
    let client = pool.get().await.expect("a connection");
    let statement = client.prepare_cached(LOOKUP).await.expect("a statement");
    let row = client.query_one(&statement, &[&id.to_string()]).await.expect("a kept key is found");
    let body: Vec<u8> = row.get::<_, Option<Vec<u8>>>(10).unwrap_or_else(|| row.get(7));
    assert!(body.len() >= BODY_BYTES, "the outcome comes back");
}

fn request() -> Request {
    let tenant = Tenant::new("acme").expect("a name");
    let (a, b) = (fastrand::u128(..), fastrand::u64(..));
    let hex = format!("{a:032x}");
    let key =
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
    let key = Key::new(&key).expect("a key");
    let mut digest = [0; 32];
    fastrand::fill(&mut digest);
    let parts = PartDigests::from_bytes(&b.to_be_bytes()).expect("four parts");
    Request {
        id: RecordId::of(&tenant, &key),
        tenant,
        key,
        operation: "POST /payments".into(),
        fingerprint: Fingerprint::from_stored(1, BodyForm::Canonical, digest, parts),
    }
}

/// Runs `pgbench` and reads what it says: operations, and in how many seconds.
fn pgbench(clients: u32, seconds: f64) -> (f64, f64) {
    let program =
        std::env::var("FIRSTWRITE_BENCH_PGBENCH").unwrap_or_else(|_| "pgbench".to_owned());
    // Its time begins before its clients are connected, and many take a while.
    let seconds = seconds.max(1.0) + f64::from(clients / 64);
    let mut script = tempfile::NamedTempFile::new().expect("a file can be made");
    script.write_all(SINGLE_INSERT.as_bytes()).expect("a file can be written");
    let output = Command::new(program)
        .args(["--no-vacuum", "--protocol=prepared", "--jobs=2"])
        .arg(format!("--client={clients}"))
        .arg(format!("--time={seconds:.0}"))
        .arg("--file")
        .arg(script.path())
        .arg(rounds::address())
        .output()
        .expect("pgbench runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = text
        .lines()
        .find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse::<f64>().ok());
    let count = text.lines().find_map(|line| {
        line.strip_prefix("number of transactions actually processed: ")?.parse::<f64>().ok()
    });
    let Some((count, rate)) = count.zip(rate) else {
        eprintln!("{text}{}", String::from_utf8_lossy(&output.stderr));
        panic!("pgbench told no rate");
    };
    (count, count / rate)
}
