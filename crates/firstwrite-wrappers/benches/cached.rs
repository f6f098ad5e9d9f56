//! What a cache in Redis is worth in front of `PostgreSQL`: replays that the process has not in its own memory, looked
//! up in batches in the database and one by one in Redis, in one interleaved run.
//!
//! `cargo xtask bench cached [--seconds 2] [--rounds 5]` starts both servers and runs it.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints its figures")]

#[path = "../../firstwrite-store/benches/rounds.rs"]
mod rounds;

use std::sync::Arc;

use bytes::Bytes;
use firstwrite_core::protocol::{self, Kept};
use firstwrite_core::{
    BodyForm, BoxFuture, Fingerprint, KeptHeaders, Key, Outcome, PartDigests, Policy, RecordId,
    Request, Store, Tenant,
};
use firstwrite_store::{PostgresOptions, PostgresStore, SchemaName};
use firstwrite_wrappers::{CacheOptions, CacheScope, CachedStore};
use http::StatusCode;
use rounds::{Plan, Server, Variant, Work};

const SCHEMA: &str = "bench_cached";
const BODY_BYTES: usize = 300;
const KEYS: usize = 20_000;
const WRITERS: usize = 50;

/// How many replays are under way at once, on both sides.
const PAIRS: [(usize, [&str; 2]); 2] = [
    (1, ["from PostgreSQL, 1 at once", "through Redis, 1 at once"]),
    (64, ["from PostgreSQL, 64 at once", "through Redis, 64 at once"]),
];

fn main() {
    let Some(plan) = Plan::from_args(2.0, 5) else {
        println!("measures only when run by `cargo bench`");
        return;
    };
    let runtime = rounds::runtime();
    let server = runtime.block_on(Server::connect());
    let store = runtime.block_on(prepare(&server));
    let ids = Arc::new(runtime.block_on(fill(&store)));
    let cached = runtime.block_on(warmed(&store, &ids));
    let mut variants = Vec::new();
    for (concurrency, [plain, through]) in PAIRS {
        variants.push(replays(plain, concurrency, Arc::new(store.clone()), &ids));
        variants.push(replays(through, concurrency, Arc::clone(&cached) as Arc<dyn Store>, &ids));
    }
    let version = runtime.block_on(server.version());
    println!("PostgreSQL {version}, {} s × {} rounds", plan.seconds, plan.rounds);
    let misses = cached.counts().misses;
    let figures = rounds::run(&runtime, &plan, &server, &variants, |_| {});
    println!("{}", figures.table());
    for (_, [plain, through]) in PAIRS {
        println!("{}", figures.goal(through, plain, 1.0));
    }
    let counts = cached.counts();
    assert_eq!(counts.misses, misses, "every replay came out of Redis: {counts:?}");
    println!("{counts:?}");
    runtime.block_on(server.execute(&format!("DROP SCHEMA {SCHEMA} CASCADE")));
}

/// Without memory of its own: most replays of many processes are of what another one made.
async fn prepare(server: &Server) -> PostgresStore {
    server.execute(&format!("DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")).await;
    let mut options = PostgresOptions::default();
    options.schema = SchemaName::new(SCHEMA).expect("a plain name");
    options.cache_bytes_max = 0;
    PostgresStore::migrate(&rounds::address(), options.clone()).await.expect("a schema is made");
    PostgresStore::connect_with(&rounds::address(), options).await.expect("the store opens")
}

async fn fill(store: &PostgresStore) -> Vec<RecordId> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..WRITERS {
        let store = store.clone();
        tasks.spawn(async move {
            let policy = Policy::default();
            let mut ids = Vec::new();
            for _ in 0..KEYS / WRITERS {
                let request = request();
                match protocol::keep(&store, &request, &policy, fastrand::u64(..), outcome()).await
                {
                    Ok(Kept::Done { .. }) => ids.push(request.id),
                    other => panic!("a fresh key is kept: {other:?}"),
                }
            }
            ids
        });
    }
    tasks.join_all().await.concat()
}

/// The cache, with every record in it.
async fn warmed(store: &PostgresStore, ids: &[RecordId]) -> Arc<CachedStore> {
    let redis = std::env::var("FIRSTWRITE_TEST_REDIS")
        .expect("FIRSTWRITE_TEST_REDIS names a server; `cargo xtask bench` starts one");
    let scope = CacheScope::of_postgres(store).await.expect("a scope");
    let mut options = CacheOptions::default();
    options.connect_timeout = std::time::Duration::from_secs(5);
    // A pause of the machine is no reason to go to the database instead.
    options.timeout = std::time::Duration::from_secs(5);
    let cached = CachedStore::new(Arc::new(store.clone()), scope, &redis, options);
    let cached = Arc::new(cached.expect("an address"));
    cached.now().await.expect("the store tells its time");
    for id in ids {
        assert!(cached.get(*id).await.expect("a look-up").is_some(), "a kept key is found");
    }
    cached
}

fn replays(
    name: &'static str,
    concurrency: usize,
    store: Arc<dyn Store>,
    ids: &Arc<Vec<RecordId>>,
) -> Variant {
    let ids = Arc::clone(ids);
    let operate = move || -> BoxFuture<'static, ()> {
        let (store, id) = (Arc::clone(&store), ids[fastrand::usize(..ids.len())]);
        Box::pin(async move {
            assert!(store.get(id).await.expect("a look-up").is_some(), "a kept key is found");
        })
    };
    Variant { name, work: Work::Tasks { concurrency, operate: Arc::new(operate) } }
}

fn outcome() -> Outcome {
    let body = Bytes::from(vec![b'x'; BODY_BYTES]);
    Outcome::new(StatusCode::CREATED, KeptHeaders::default(), body)
}

fn request() -> Request {
    let tenant = Tenant::new("acme").expect("a name");
    let key = Key::new(&format!("{:032x}", fastrand::u128(..))).expect("a key");
    let mut digest = [0; 32];
    fastrand::fill(&mut digest);
    let parts = PartDigests::from_bytes(&digest[..8]).expect("four parts");
    Request {
        id: RecordId::of(&tenant, &key),
        tenant,
        key,
        operation: "POST /payments".into(),
        fingerprint: Fingerprint::from_stored(1, BodyForm::Canonical, digest, parts),
    }
}
