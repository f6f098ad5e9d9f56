//! What reaping costs reservations on `PostgreSQL`, with and without a snapshot that somebody holds.
//!
//! `cargo xtask bench reap [--seconds 3] [--rounds 5] [--keys 1500000]` starts a server and runs it.
//! While 64 requests at once reserve keys, a reaper removes two expired records for every key that
//! arrives; the expired ones were put there first.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints its figures")]

mod rounds;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use firstwrite_core::protocol::{self, Reserved};
use firstwrite_core::{
    BodyForm, BoxFuture, Fingerprint, Key, PartDigests, Policy, RecordId, Request, Store, Tenant,
};
use firstwrite_store::{PostgresOptions, PostgresStore, SchemaName};
use rounds::{Plan, Server, Variant, Work};

const QUIET: &str = "reserve, nothing else";
const REAPING: &str = "reserve, reaping twice as many";
const HELD: &str = "reserve, a snapshot is held";
const HELD_REAPING: &str = "reserve, reaping, a snapshot is held";
/// What the reap loop of a worker takes at a time.
const BATCH: usize = 500;

/// What goes on beside the reservations.
#[derive(Default)]
struct Beside {
    reaps: AtomicBool,
    /// Keys that arrived since the reaper was switched on, and records it removed.
    arrived: AtomicU64,
    reaped: AtomicU64,
}

fn main() {
    let Some(plan) = Plan::from_args(3.0, 5) else {
        println!("measures only when run by `cargo bench`");
        return;
    };
    let runtime = rounds::runtime();
    let server = runtime.block_on(Server::connect());
    let keys = plan.number("--keys", 1_500_000.0);
    let store = runtime.block_on(prepare(&server, keys));
    let holder = runtime.block_on(Server::connect());
    let beside = Arc::new(Beside::default());
    runtime.spawn(reap(store.clone(), Arc::clone(&beside)));
    let variants: Vec<Variant> = [QUIET, REAPING, HELD, HELD_REAPING]
        .into_iter()
        .map(|name| Variant { name, work: work(&store, &beside) })
        .collect();
    let reset = |name: &str| {
        beside.arrived.store(0, Ordering::SeqCst);
        beside.reaped.store(0, Ordering::SeqCst);
        beside.reaps.store(matches!(name, REAPING | HELD_REAPING), Ordering::SeqCst);
        runtime.block_on(async {
            holder.execute("ROLLBACK").await;
            if matches!(name, HELD | HELD_REAPING) {
                holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await;
                holder.number("SELECT count(*)::float8 FROM pg_class").await;
            }
        });
    };
    let before = runtime.block_on(count(&server));
    let figures = rounds::run(&runtime, &plan, &server, &variants, reset);
    println!("{}", figures.table());
    println!("{}", figures.goal(REAPING, QUIET, 0.9));
    println!("{}", figures.goal(HELD, QUIET, 0.9));
    println!("{}", figures.goal(HELD_REAPING, HELD, 0.9));
    println!("{}", figures.goal(HELD_REAPING, REAPING, 0.9));
    let left = runtime.block_on(count(&server));
    println!("expired records: {before:.0} before, {left:.0} after");
    if left == 0.0 {
        println!("the reaper ran out of expired records: give --keys a larger number");
    }
    runtime.block_on(async {
        holder.execute("ROLLBACK").await;
        server.execute("DROP SCHEMA bench_reap CASCADE").await;
    });
}

fn work(store: &PostgresStore, beside: &Arc<Beside>) -> Work {
    let (store, beside, policy) = (store.clone(), Arc::clone(beside), Arc::new(Policy::default()));
    let operate = move || -> BoxFuture<'static, ()> {
        let (store, beside, policy) = (store.clone(), Arc::clone(&beside), Arc::clone(&policy));
        Box::pin(async move {
            match protocol::reserve(&store, &request(), &policy, fastrand::u64(..)).await {
                Ok(Reserved::Granted(reservation)) => drop(reservation),
                other => panic!("a fresh key is reserved: {other:?}"),
            }
            beside.arrived.fetch_add(1, Ordering::Relaxed);
        })
    };
    Work::Tasks { concurrency: 64, operate: Arc::new(operate) }
}

/// Removes two records for every key that arrives, while it is switched on.
async fn reap(store: PostgresStore, beside: Arc<Beside>) {
    loop {
        let (arrived, reaped) =
            (beside.arrived.load(Ordering::SeqCst), beside.reaped.load(Ordering::SeqCst));
        if beside.reaps.load(Ordering::SeqCst) && reaped < 2 * arrived {
            let count = store.reap(BATCH).await.expect("reaping works");
            beside.reaped.fetch_add(count as u64, Ordering::SeqCst);
        } else {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

async fn prepare(server: &Server, keys: f64) -> PostgresStore {
    server.execute("DROP SCHEMA IF EXISTS bench_reap CASCADE").await;
    let mut options = PostgresOptions::default();
    options.schema = SchemaName::new("bench_reap").expect("a plain name");
    options.cache_bytes_max = 0;
    PostgresStore::migrate(&rounds::address(), options.clone()).await.expect("a schema is made");
    eprintln!("writing {keys:.0} expired records");
    server
        .execute(&format!(
            "INSERT INTO bench_reap.profiles (operation, on_lost_answer, fingerprint_version,
                 fingerprint_form, replay_for, linger_for)
             VALUES ('POST /payments', 0, 1, 1, 86400000, 3600000);
             INSERT INTO bench_reap.records (id, fence, created_at, lease_until, profile, tenant,
                 key, fingerprint, outcome)
             SELECT gen_random_uuid(), 1, now() - interval '3 days', '-infinity',
                 (SELECT profile FROM bench_reap.profiles), 'acme', uuid_send(gen_random_uuid()),
                 sha256(int8send(n)), convert_to(repeat('x', 300), 'UTF8')
             FROM generate_series(1, {keys:.0}) n;
             ANALYZE bench_reap.records; CHECKPOINT"
        ))
        .await;
    PostgresStore::connect_with(&rounds::address(), options).await.expect("the store opens")
}

async fn count(server: &Server) -> f64 {
    let sql = "SELECT count(*)::float8 FROM bench_reap.records WHERE lease_until = '-infinity'";
    server.number(sql).await
}

fn request() -> Request {
    let tenant = Tenant::new("acme").expect("a name");
    let key = Key::new(&format!("{:032x}", fastrand::u128(..))).expect("a key");
    let mut digest = [0; 32];
    fastrand::fill(&mut digest);
    let parts = PartDigests::from_bytes(&[1; 8]).expect("four parts");
    Request {
        id: RecordId::of(&tenant, &key),
        tenant,
        key,
        operation: "POST /payments".into(),
        fingerprint: Fingerprint::from_stored(1, BodyForm::Canonical, digest, parts),
    }
}
