//! What protecting a handler costs on `PostgreSQL`: the same handler unprotected, protected by hand in
//! two phases, and in firstwrite's atomic mode, in one interleaved run with durable commits.
//!
//! `cargo xtask bench golden [--seconds 2] [--rounds 9] [--connections 32]` starts a server and runs it.
//! 64 requests at once, each with a key of its own. Every handler inserts an order, waits for its
//! number, and answers with it; all but `a` also leave a message that names it.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints its figures")]

#[path = "golden/held.rs"]
mod held;
#[path = "golden/plain.rs"]
mod plain;
mod rounds;
#[path = "golden/shop.rs"]
mod shop;
#[path = "golden/sqlx_pool.rs"]
mod sqlx_pool;

use std::sync::Arc;

use firstwrite_core::{BoxFuture, Policy};
use firstwrite_store::{PostgresOptions, PostgresStore, SchemaName, SqlxPostgresStore};
use rounds::{Figures, Plan, Server, Variant, Work};
use shop::{RECORDS, Shop};

const CONCURRENCY: usize = 64;
/// Before anything is measured, every connection is made and has its statements prepared.
const WARM_UP_SECONDS: f64 = 0.5;

const A: &str = "a  unprotected: row";
const B: &str = "b  unprotected: row, message";
const B_FLIGHT: &str = "b' as b, BEGIN in the first flight";
const C: &str = "c  by hand: two phases";
const D: &str = "d  firstwrite";
const D_AHEAD: &str = "d' as d, first statement sent ahead";
const D_FLIGHT: &str = "d\" as d, the row is not waited for";
const B_SQLX: &str = "b  with sqlx";
const E: &str = "e  firstwrite with sqlx";

/// What is waited for, one word for each flight to the server and back.
const FLIGHTS: [(&str, &str); 9] = [
    (B, "BEGIN | order | message, COMMIT"),
    (B_FLIGHT, "BEGIN, order | message, COMMIT"),
    (A, "BEGIN | order | COMMIT"),
    (C, "key | BEGIN | order | message, key, COMMIT (two commits)"),
    (D, "BEGIN, look | order | message, record, COMMIT"),
    (D_AHEAD, "BEGIN, look, order | message, record, COMMIT"),
    (D_FLIGHT, "BEGIN, look | order, message, record, COMMIT"),
    (B_SQLX, "BEGIN | order | message | COMMIT"),
    (E, "BEGIN | look | order | message and record | COMMIT"),
];

fn main() {
    let Some(plan) = Plan::from_args(2.0, 9) else {
        println!("measures only when run by `cargo bench`");
        return;
    };
    let runtime = rounds::runtime();
    let connections = rounds::whole(plan.number("--connections", 32.0));
    let server = runtime.block_on(Server::connect());
    let golden = runtime.block_on(prepare(&server, connections));
    let (variants, shops): (Vec<_>, Vec<_>) = golden.variants().into_iter().unzip();
    let warm_up = plan.shortened(WARM_UP_SECONDS, 1);
    rounds::run(&runtime, &warm_up, &server, &variants, |_| {});
    println!(
        "PostgreSQL {}, {CONCURRENCY} at once, {connections} connections for each variant, \
         {} s × {} rounds",
        runtime.block_on(server.version()),
        plan.seconds,
        plan.rounds
    );
    let figures = rounds::run(&runtime, &plan, &server, &variants, |_| {});
    print_figures(&figures);
    for shop in &shops {
        runtime.block_on(shop.check(&server));
        runtime.block_on(server.execute(&format!("DROP SCHEMA {} CASCADE", shop.schema)));
    }
    println!("every answered request has its rows: checked");
    runtime.block_on(server.execute(&format!("DROP SCHEMA {RECORDS} CASCADE")));
}

fn print_figures(figures: &Figures) {
    println!("flights of each request, `|` where it waits for the server:");
    for (name, flights) in FLIGHTS {
        println!("  {name:<38} {flights}");
    }
    println!("\n{}", figures.table());
    for (name, to, goal) in [(D, B, 0.9), (D, C, 1.4), (E, B, 0.7)] {
        println!("{}", figures.goal(name, to, goal));
    }
    println!("like for like, without a goal:");
    for (name, to) in [(D_AHEAD, B), (D_AHEAD, B_FLIGHT), (D, B_FLIGHT), (D_FLIGHT, B), (E, B_SQLX)]
    {
        let (ratio, least, greatest) = figures.ratio(name, to);
        println!("{name} / {to}: {ratio:.2} ({least:.2}..{greatest:.2})");
    }
}

/// What requests are served with: three pools of one size.
struct Golden {
    pool: deadpool_postgres::Pool,
    store: PostgresStore,
    with_sqlx: SqlxPostgresStore,
    policy: Arc<Policy>,
}

async fn prepare(server: &Server, connections: usize) -> Golden {
    server.execute(&format!("DROP SCHEMA IF EXISTS {RECORDS} CASCADE")).await;
    let mut options = PostgresOptions::default();
    options.schema = SchemaName::new(RECORDS).expect("a plain name");
    options.pool_size_max = connections;
    PostgresStore::migrate(&rounds::address(), options.clone()).await.expect("a schema is made");
    let store = PostgresStore::connect_with(&rounds::address(), options).await;
    let store = store.expect("the store opens");
    let with_sqlx = SqlxPostgresStore::new(store.clone(), sqlx_pool::open(connections).await);
    for (name, _) in FLIGHTS {
        Shop::create(server, name).await;
    }
    let policy = Arc::new(Policy::atomic());
    Golden { pool: plain::pool(connections), store, with_sqlx, policy }
}

impl Golden {
    /// What is measured, and where it leaves its rows. `b` first: ratios are to it.
    fn variants(&self) -> Vec<(Variant, Arc<Shop>)> {
        let Self { pool, store, with_sqlx, policy } = self;
        let sqlx_pool = with_sqlx.pool();
        let held = (store.clone(), Arc::clone(policy));
        let both = (with_sqlx.clone(), Arc::clone(policy));
        vec![
            variant(B, pool, |pool, shop| Box::pin(plain::message(pool, shop))),
            variant(B_FLIGHT, pool, |pool, shop| Box::pin(plain::flights(pool, shop))),
            variant(A, pool, |pool, shop| Box::pin(plain::row(pool, shop))),
            variant(C, pool, |pool, shop| Box::pin(plain::two_phases(pool, shop))),
            variant(D, &held, |(store, policy), shop| Box::pin(held::atomic(store, policy, shop))),
            variant(D_AHEAD, &held, |(store, policy), shop| {
                Box::pin(held::ahead(store, policy, shop))
            }),
            variant(D_FLIGHT, &held, |(store, policy), shop| {
                Box::pin(held::flight(store, policy, shop))
            }),
            variant(B_SQLX, sqlx_pool, |pool, shop| Box::pin(sqlx_pool::message(pool, shop))),
            variant(E, &both, |(store, policy), shop| {
                Box::pin(sqlx_pool::atomic(store, policy, shop))
            }),
        ]
    }
}

/// Serves one request with the means given, in a shop.
type Serve<M> = fn(M, Arc<Shop>) -> BoxFuture<'static, ()>;

/// A variant that serves a request with its own clone of `means`.
fn variant<M: Clone + Send + Sync + 'static>(
    name: &'static str,
    means: &M,
    serve: Serve<M>,
) -> (Variant, Arc<Shop>) {
    let (means, shop) = (means.clone(), Arc::new(Shop::new(name)));
    let own = Arc::clone(&shop);
    let operate = Arc::new(move || serve(means.clone(), Arc::clone(&own)));
    (Variant { name, work: Work::Tasks { concurrency: CONCURRENCY, operate } }, shop)
}
