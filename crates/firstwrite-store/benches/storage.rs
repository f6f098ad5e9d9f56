//! What a completed key takes on disk in `PostgreSQL`, table by table and index by index.
//!
//! `cargo xtask bench storage [--keys 1000000]` starts a server and runs it. One half of the keys is
//! completed in the write that makes them (the atomic mode), the other is reserved and completed after;
//! each half has a schema of its own. Keys arrive in no order, as they do, so indexes are as full as they
//! get. Sizes are taken after a plain `VACUUM`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints its figures")]

mod rounds;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::protocol::{self, Completed, Kept, Reserved};
use firstwrite_core::{
    BodyForm, Fingerprint, KeptHeaders, Key, Outcome, PartDigests, Policy, RecordId, Request,
    Tenant,
};
use firstwrite_store::{PostgresOptions, PostgresStore, SchemaName};
use http::StatusCode;
use rounds::{Plan, Server, as_f64, whole};

const BODY_BYTES: usize = 300;
/// What a key may take beyond the body that its caller wanted kept.
const GOAL_BYTES: f64 = 200.0;
/// As many as make full batches.
const CONCURRENCY: usize = 1024;
const TELL_EVERY: Duration = Duration::from_secs(5);

/// How keys come to be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Half {
    Atomic,
    Reserved,
}

fn main() {
    let Some(plan) = Plan::from_args(0.0, 1) else {
        println!("measures only when run by `cargo bench`");
        return;
    };
    let runtime = rounds::runtime();
    let keys = whole(plan.number("--keys", 1_000_000.0)) / 2;
    runtime.block_on(async {
        let server = Server::connect().await;
        println!(
            "PostgreSQL {}, {keys} keys in each half, bodies of {BODY_BYTES} bytes",
            server.version().await
        );
        for half in [Half::Atomic, Half::Reserved] {
            fill(&server, half, keys).await;
            report(&server, half, as_f64(keys as u64)).await;
            server.execute(&format!("DROP SCHEMA {} CASCADE", half.schema())).await;
        }
    });
}

/// Writes the keys through the store's own paths.
async fn fill(server: &Server, half: Half, keys: usize) {
    let schema = half.schema();
    server.execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE")).await;
    let mut options = PostgresOptions::default();
    options.schema = SchemaName::new(schema).expect("a plain name");
    options.cache_bytes_max = 0;
    PostgresStore::migrate(&rounds::address(), options.clone()).await.expect("a schema is made");
    let store = PostgresStore::connect_with(&rounds::address(), options).await;
    let store = store.expect("the store opens");
    let (policy, begun) = (Arc::new(Policy::default()), Arc::new(AtomicU64::new(0)));
    let began_at = rounds::stopwatch();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..CONCURRENCY {
        let (store, policy, begun) = (store.clone(), Arc::clone(&policy), Arc::clone(&begun));
        tasks.spawn(async move {
            while begun.fetch_add(1, Ordering::Relaxed) < keys as u64 {
                half.write(&store, &request(), &policy).await;
            }
        });
    }
    let mut every = tokio::time::interval(TELL_EVERY);
    every.tick().await;
    loop {
        tokio::select! {
            ended = tasks.join_next() => match ended {
                Some(ended) => ended.expect("filling works"),
                None => break,
            },
            _ = every.tick() => {
                eprintln!("{half:?}: {} of {keys} keys", begun.load(Ordering::Relaxed));
            }
        }
    }
    let seconds = began_at.elapsed().as_secs_f64();
    eprintln!("{half:?}: filled in {seconds:.0} s, {:.0} keys/s", as_f64(keys as u64) / seconds);
    store.close().await;
    server.execute(&format!("VACUUM ANALYZE {schema}.records, {schema}.endings")).await;
}

/// Prints what the half takes, after a check that all of it is there.
async fn report(server: &Server, half: Half, keys: f64) {
    let schema = half.schema();
    let sql = format!("SELECT count(*)::float8 FROM {schema}.standing WHERE state = 'completed'");
    let completed = server.number(&sql).await;
    assert!((completed - keys).abs() < 0.5, "{completed} of {keys} keys are completed");
    let bodies = as_f64(BODY_BYTES as u64) * keys;
    let outcomes = format!("SELECT sum(length(outcome))::float8 FROM {schema}.standing");
    let outcomes = server.number(&outcomes).await;
    assert!(outcomes >= bodies, "bodies are kept whole");
    println!("\n{half:?}: {keys:.0} keys, each completed and with its body: checked");
    let mut sum = 0.0;
    for (relation, bytes) in server.sizes(&sizes_of(schema)).await {
        println!("  {relation:<32} {:>8.1} bytes per key", bytes / keys);
        sum += bytes;
    }
    let beyond = (sum - bodies) / keys;
    let verdict = if beyond <= GOAL_BYTES { "met" } else { "missed" };
    println!("  {:<32} {:>8.1} bytes per key", "all", sum / keys);
    println!("  {:<32} {:>8.1} bytes per key", "its body", bodies / keys);
    println!(
        "  {:<32} {:>8.1} bytes per key",
        "its status and headers",
        (outcomes - bodies) / keys
    );
    println!(
        "{half:?}: {beyond:.1} bytes per key beyond the body, goal {GOAL_BYTES:.0}: {verdict}"
    );
}

/// What the tables take that hold keys, and their indexes, maps of free space included; what is stored
/// out of line stands apart.
fn sizes_of(schema: &str) -> String {
    format!(
        "WITH relations AS (
             SELECT oid, relname, relkind, reltoastrelid,
                    relname SIMILAR TO '(records|endings)%' AS is_counted
             FROM pg_class
             WHERE relnamespace = '{schema}'::regnamespace AND relkind IN ('r', 'i')),
         sizes AS (
             SELECT CASE WHEN NOT is_counted THEN 'all other tables and indexes'
                         WHEN relkind = 'r' THEN 'table ' || relname
                         ELSE 'index ' || relname END AS name,
                    pg_table_size(oid) - CASE reltoastrelid WHEN 0 THEN 0
                        ELSE pg_total_relation_size(reltoastrelid) END AS bytes
             FROM relations
             UNION ALL
             SELECT CASE WHEN NOT is_counted THEN 'all other tables and indexes'
                         ELSE 'out of line ' || relname END,
                    pg_total_relation_size(reltoastrelid)
             FROM relations WHERE reltoastrelid <> 0)
         SELECT name, sum(bytes)::float8 FROM sizes GROUP BY name
         ORDER BY name LIKE 'all%', name LIKE 'out%', name LIKE 'index%', name DESC"
    )
}

impl Half {
    fn schema(self) -> &'static str {
        match self {
            Self::Atomic => "bench_storage_atomic",
            Self::Reserved => "bench_storage_reserved",
        }
    }

    async fn write(self, store: &PostgresStore, request: &Request, policy: &Policy) {
        let outcome = outcome();
        let nonce = fastrand::u64(..);
        match self {
            Self::Atomic => match protocol::keep(store, request, policy, nonce, outcome).await {
                Ok(Kept::Done { .. }) => {}
                other => panic!("a fresh key is kept: {other:?}"),
            },
            Self::Reserved => {
                let reservation = match protocol::reserve(store, request, policy, nonce).await {
                    Ok(Reserved::Granted(reservation)) => reservation,
                    other => panic!("a fresh key is reserved: {other:?}"),
                };
                match protocol::complete(store, reservation, outcome).await {
                    Ok(Completed::Kept { .. }) => {}
                    other => panic!("an owner completes: {other:?}"),
                }
            }
        }
    }
}

fn request() -> Request {
    let tenant = Tenant::new(&format!("acct_{:06}", fastrand::u32(..1_000_000))).expect("a name");
    let key = Key::new(&uuid()).expect("a key");
    let mut digest = [0; 32];
    fastrand::fill(&mut digest);
    let parts = PartDigests::from_bytes(&fastrand::u64(..).to_be_bytes()).expect("four parts");
    Request {
        id: RecordId::of(&tenant, &key),
        tenant,
        key,
        operation: "POST /payments".into(),
        fingerprint: Fingerprint::from_stored(1, BodyForm::Canonical, digest, parts),
    }
}

/// A payment in JSON, most of it numbers that no two share.
fn outcome() -> Outcome {
    let mut text = format!(
        r#"{{"id":"{}","object":"payment","amount":{},"currency":"EUR","customer":"{}","invoice":"{}","trace":"{}","reference":""#,
        uuid(),
        fastrand::u32(100_000..1_000_000),
        uuid(),
        uuid(),
        uuid(),
    );
    while text.len() < BODY_BYTES - 2 {
        text.push(fastrand::alphanumeric());
    }
    text.push_str("\"}");
    assert_eq!(text.len(), BODY_BYTES, "{text}");
    let json = http::HeaderValue::from_static("application/json");
    let headers = http::HeaderMap::from_iter([(http::header::CONTENT_TYPE, json)]);
    let headers = Policy::default().kept_headers.keep(&headers);
    debug_assert_ne!(headers, KeptHeaders::default(), "the content type is kept");
    Outcome::new(StatusCode::CREATED, headers, Bytes::from(text))
}

/// A random UUID in its canonical spelling.
fn uuid() -> String {
    let hex = format!("{:032x}", fastrand::u128(..));
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
