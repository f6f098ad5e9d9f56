//! How many messages per second a worker delivers from `PostgreSQL` to a sink on loopback, and what a held
//! snapshot, a destination that is down and its recovery do to that.
//!
//! `cargo xtask bench outbox [--rounds 5] [--messages 8000] [--seconds 3]` starts a server and runs it.
//! Each slice delivers a backlog to its last message, a tenth of it where each claim takes one. The sink
//! answers every request at once with an id, so each message takes the whole way: claimed, sent over
//! HTTP, its id recorded, settled. `--seconds` is for the latencies at the end.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints its figures")]

#[path = "../../firstwrite-store/benches/rounds.rs"]
mod rounds;
#[path = "outbox/sink.rs"]
mod sink;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use firstwrite::carrier::http::HttpDestination;
use firstwrite::store::{PostgresOptions, PostgresStore, SchemaName};
use firstwrite::worker::{Deliver, Destination, Schedule, Worker};
use firstwrite::{Key, Message, Tenant};
use firstwrite_core::outbox::{Carrier, Outbox as _, Terms};
use firstwrite_core::{AuditEntry, BoxFuture, Store};
use rounds::{Plan, Server, Variant, Work};
use sink::Sink;
use tokio::runtime::Runtime;

/// How many messages dead rows and WAL are counted over.
const DEAD_ROWS_OF: u64 = 10_000;

const CLEAN: &str = "clean, claims in batches";
const SINGLE: &str = "clean, one message per claim";
const HELD: &str = "a snapshot is held, claims in batches";
const HELD_SINGLE: &str = "a snapshot is held, one message per claim";
const OUTAGE: &str = "another destination is down";
const RECOVERY: &str = "after an outage";
const ALONE: &str = "one at a time, nothing else";
const BESIDE: &str = "one at a time, another destination is down";

fn main() {
    let Some(plan) = Plan::from_args(3.0, 5) else {
        println!("measures only when run by `cargo bench`");
        return;
    };
    let runtime = Rc::new(rounds::runtime());
    let backlog = plan.number("--messages", 8000.0);
    let bench = Rc::new(runtime.block_on(Bench::prepare()));
    let holder = runtime.block_on(Server::connect());
    let variant = |name: &'static str, claim_max: usize| {
        let (bench, runtime) = (Rc::clone(&bench), Rc::clone(&runtime));
        let drain = move |_seconds: f64| bench.drain(&runtime, claim_max);
        Variant { name, work: Work::Program(Box::new(drain)) }
    };
    let variants = [
        variant(CLEAN, usize::MAX),
        variant(SINGLE, 1),
        variant(HELD, usize::MAX),
        variant(HELD_SINGLE, 1),
        variant(OUTAGE, usize::MAX),
        variant(RECOVERY, usize::MAX),
    ];
    let reset = |name: &str| {
        runtime.block_on(async {
            holder.execute("ROLLBACK").await;
            bench.empty().await;
            if matches!(name, HELD | HELD_SINGLE) {
                holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await;
                holder.number("SELECT count(*)::float8 FROM pg_class").await;
            }
            let is_single = matches!(name, SINGLE | HELD_SINGLE);
            bench.fill("sink", if is_single { backlog / 10.0 } else { backlog }).await;
            if name == OUTAGE {
                bench.fill("down", backlog).await;
            }
            if name == RECOVERY {
                bench.break_down().await;
            }
        });
    };
    let figures = rounds::run(&runtime, &plan, &bench.server, &variants, reset);
    println!("{}", figures.table());
    println!("{}", figures.goal(HELD, CLEAN, 0.9));
    println!("{}", figures.goal(HELD_SINGLE, SINGLE, 0.9));
    println!("{}", figures.goal(OUTAGE, CLEAN, 0.9));
    println!("{}", figures.goal(RECOVERY, CLEAN, 0.9));
    println!("{}", figures.goal(CLEAN, SINGLE, 1.0));
    runtime.block_on(async {
        holder.execute("ROLLBACK").await;
        bench.empty().await;
        bench.fill("sink", rounds::as_f64(DEAD_ROWS_OF)).await;
    });
    println!("{}", runtime.block_on(bench.dead_rows()));
    neighbours(&runtime, &plan, &bench);
    runtime.block_on(bench.server.execute("DROP SCHEMA bench_outbox CASCADE"));
}

/// How long one message takes from its commit to the sink, alone and beside a destination that is down.
fn neighbours(runtime: &Rc<Runtime>, plan: &Plan, bench: &Rc<Bench>) {
    let variant = |name: &'static str| {
        let bench = Arc::clone(&bench.parts);
        let operate = move || -> BoxFuture<'static, ()> {
            let bench = Arc::clone(&bench);
            Box::pin(async move { bench.round_trip().await })
        };
        Variant { name, work: Work::Tasks { concurrency: 1, operate: Arc::new(operate) } }
    };
    let variants = [variant(ALONE), variant(BESIDE)];
    let worker = std::cell::RefCell::new(None::<Worker>);
    let reset = |name: &str| {
        runtime.block_on(async {
            if let Some(worker) = worker.take() {
                worker.stop().await;
            }
            bench.empty().await;
            if name == BESIDE {
                bench.fill("down", 5000.0).await;
            }
            let started = bench.parts.worker(usize::MAX);
            bench.parts.warm_up().await;
            worker.replace(Some(started));
        });
    };
    let figures = rounds::run(runtime, plan, &bench.server, &variants, reset);
    println!("{}", figures.table());
    let p50 = |name| figures.median(name, |slice| slice.p50.as_secs_f64() * 1e6);
    let p99 = |name| figures.median(name, |slice| slice.p99.as_secs_f64() * 1e6);
    let (median, tail) = (p50(BESIDE) / p50(ALONE), p99(BESIDE) / p99(ALONE));
    let verdict = if median <= 1.1 { "met" } else { "missed" };
    println!(
        "latency beside an outage / alone: p50 {median:.2}, p99 {tail:.2}, goal 1.10: {verdict}"
    );
    if let Some(worker) = worker.take() {
        runtime.block_on(worker.stop());
    }
}

struct Bench {
    server: Server,
    parts: Arc<Parts>,
}

/// What the tasks of a slice share.
struct Parts {
    store: PostgresStore,
    sink: Sink,
}

impl Bench {
    /// Its destinations are known before anything is measured.
    async fn prepare() -> Self {
        let server = Server::connect().await;
        eprintln!("{}", server.version().await);
        server.execute("DROP SCHEMA IF EXISTS bench_outbox CASCADE").await;
        let mut options = PostgresOptions::default();
        options.schema = SchemaName::new("bench_outbox").expect("a plain name");
        PostgresStore::migrate(&rounds::address(), options.clone())
            .await
            .expect("a schema is made");
        let store = PostgresStore::connect_with(&rounds::address(), options)
            .await
            .expect("the store opens");
        let bench = Self { server, parts: Arc::new(Parts { store, sink: Sink::start().await }) };
        bench.fill("sink", 100.0).await;
        bench.fill("down", 1.0).await;
        let worker = bench.parts.worker(usize::MAX);
        bench.parts.sink.until(100).await;
        worker.stop().await;
        bench
    }

    /// Delivers everything that waits for the sink: how much, in how many seconds.
    fn drain(&self, runtime: &Runtime, claim_max: usize) -> (f64, f64) {
        runtime.block_on(async {
            let waits = "SELECT count(*)::float8 FROM bench_outbox.messages
                         WHERE destination = 'sink'";
            let waits = self.server.number(waits).await;
            let (wanted, began_at) =
                (self.parts.sink.count() + rounds::whole(waits) as u64, rounds::stopwatch());
            let worker = self.parts.worker(claim_max);
            self.parts.sink.until(wanted).await;
            let took = began_at.elapsed();
            worker.stop().await;
            (waits, took.as_secs_f64())
        })
    }

    async fn empty(&self) {
        self.server
            .execute(
                "TRUNCATE bench_outbox.messages, bench_outbox.pending, bench_outbox.deliveries,
                     bench_outbox.tallies;
                 UPDATE bench_outbox.destinations
                 SET open_until = NULL, open_cause = NULL, opening_count = 0",
            )
            .await;
    }

    async fn fill(&self, destination: &str, count: f64) {
        self.server
            .execute(&format!(
                "INSERT INTO bench_outbox.messages (id, tenant, derived_key, destination,
                     content_type, payload, created_at, not_before)
                 SELECT gen_random_uuid(), 'acme', gen_random_uuid() || ':pay', '{destination}',
                     'application/json', convert_to(repeat('x', 300), 'UTF8'),
                     bench_outbox.now(), bench_outbox.now()
                 FROM generate_series(1, {count:.0});
                 ANALYZE bench_outbox.messages"
            ))
            .await;
    }

    /// Leaves the sink as an outage leaves it: some messages put off, all workers told, a trial due.
    async fn break_down(&self) {
        let worker = self.parts.worker_to(&self.parts.sink.dead_url(), usize::MAX);
        let outbox = &self.parts.store;
        loop {
            let all = outbox.destinations().await.expect("destinations can be read");
            if all.iter().any(|view| view.name == "sink" && view.open_until.is_some()) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        worker.stop().await;
        let by = AuditEntry {
            actor: "bench".to_owned(),
            action: "resume".to_owned(),
            reason: "it is back".to_owned(),
        };
        firstwrite_core::outbox::protocol::resume(outbox, "sink", &by)
            .await
            .expect("it can be tried at once");
    }

    /// How many row versions die, and how many bytes are logged, for each message.
    async fn dead_rows(&self) -> String {
        let dead = "SELECT coalesce(sum(n_tup_upd + n_tup_del), 0)::float8 FROM pg_stat_user_tables
                    WHERE schemaname = 'bench_outbox'";
        let settled = || tokio::time::sleep(Duration::from_secs(3));
        settled().await;
        let (before, count) = (self.server.number(dead).await, self.parts.sink.count());
        let wal = self.server.wal_bytes().await;
        let worker = self.parts.worker(usize::MAX);
        self.parts.sink.until(count + DEAD_ROWS_OF).await;
        worker.stop().await;
        let wal = self.server.wal_bytes().await - wal;
        settled().await;
        let died = self.server.number(dead).await - before;
        let delivered = rounds::as_f64(self.parts.sink.count() - count);
        format!(
            "for each message: {:.2} dead rows, {:.0} bytes of WAL ({delivered:.0} messages)",
            died / delivered,
            wal / delivered
        )
    }
}

impl Parts {
    fn worker(&self, claim_max: usize) -> Worker {
        self.worker_to(&self.sink.url(), claim_max)
    }

    fn worker_to(&self, sink: &str, claim_max: usize) -> Worker {
        let terms = Terms {
            dedupe_for: Duration::from_hours(24),
            timeout: Duration::from_secs(5),
            concurrency_max: 64,
            pause_max: Duration::from_millis(500),
            pause_first: Duration::from_millis(500),
            ..Terms::default()
        };
        let to = |name: &str, url: &str| {
            let http = HttpDestination::new(url)
                .provider_id("/id".parse().expect("a pointer"))
                .allow_network("127.0.0.0/8".parse().expect("a network"))
                .build()
                .expect("a destination");
            Destination::new(name, terms.clone(), Arc::new(http) as Arc<dyn Carrier>)
        };
        let store: Arc<dyn Store> = Arc::new(self.store.clone());
        let destinations = vec![to("sink", sink), to("down", &self.sink.dead_url())];
        let deliver = Deliver::new(Arc::clone(&store), destinations).expect("names of their own");
        Worker::start(store, Schedule::default()).delivering(deliver.claim_max(claim_max))
    }

    /// Writes one message and waits until the sink has it.
    async fn round_trip(&self) {
        let tenant = Tenant::new("acme").expect("a name");
        let key = Key::new(&format!("{:032x}", fastrand::u128(..))).expect("a key");
        let payload = Bytes::from_static(b"{\"amount\":1}");
        let message = Message::new(&tenant, &key, "pay", "sink", payload).expect("small");
        let arrived = self.sink.next();
        self.store.enqueue(&message).await.expect("enqueuing works");
        arrived.await;
    }

    /// Lets the worker find its pace, and find out who is down.
    async fn warm_up(&self) {
        for _ in 0..50 {
            self.round_trip().await;
        }
    }
}
