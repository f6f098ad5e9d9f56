//! Interleaved rounds: every variant runs a slice in every round, every second round in reverse, and
//! ratios are taken within a round. The machine's noise then meets all variants alike.

#![allow(dead_code, reason = "each bench uses its part of this module")]

use std::fmt::Write as _;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use firstwrite_core::BoxFuture;
use firstwrite_store::tokio_postgres;
use tokio::runtime::Runtime;

/// One thing that is measured.
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    pub(crate) work: Work,
}

/// What a variant does in its slice.
pub(crate) enum Work {
    /// So many tasks, each doing the operation again and again until time is up.
    Tasks { concurrency: usize, operate: Operate },
    /// A program of its own, asked for so many seconds: how many operations it did, in how many.
    Program(Program),
}

pub(crate) type Program = Box<dyn Fn(f64) -> (f64, f64)>;
pub(crate) type Operate = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// What is asked for on the command line: `--seconds`, `--rounds` and what a bench adds.
pub(crate) struct Plan {
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    words: Vec<String>,
}

/// What one slice measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slice {
    pub(crate) per_second: f64,
    /// CPU time per operation of this process and of the server.
    pub(crate) client_micros: f64,
    pub(crate) server_micros: f64,
    pub(crate) wal_bytes: f64,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

/// All slices of all variants, by place and round.
pub(crate) struct Figures {
    names: Vec<&'static str>,
    slices: Vec<Vec<Slice>>,
}

/// The server that is measured: where its CPU time and its log's length are read.
pub(crate) struct Server {
    client: tokio_postgres::Client,
    postmaster: u32,
}

impl Plan {
    /// From the arguments; `None` if this is not `cargo bench`.
    pub(crate) fn from_args(seconds: f64, rounds: usize) -> Option<Self> {
        let words: Vec<String> = std::env::args().skip(1).collect();
        if !words.iter().any(|word| word == "--bench") {
            return None;
        }
        let mut plan = Self { seconds, rounds, words };
        plan.seconds = plan.number("--seconds", seconds);
        plan.rounds = whole(plan.number("--rounds", as_f64(rounds as u64))).max(1);
        Some(plan)
    }

    /// The same plan for other lengths.
    pub(crate) fn shortened(&self, seconds: f64, rounds: usize) -> Self {
        Self { seconds, rounds, words: self.words.clone() }
    }

    /// The word behind `flag`.
    pub(crate) fn word(&self, flag: &str) -> Option<&str> {
        let at = self.words.iter().position(|word| word == flag)?;
        self.words.get(at + 1).map(String::as_str)
    }

    /// The number behind `flag`.
    pub(crate) fn number(&self, flag: &str, default: f64) -> f64 {
        self.word(flag)
            .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{flag} is a number")))
    }
}

impl Server {
    /// Connects to the server whose address the environment names.
    pub(crate) async fn connect() -> Self {
        let url = address();
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
            .await
            .expect("the server in FIRSTWRITE_TEST_POSTGRES answers");
        tokio::spawn(connection);
        let row = client.query_one("SELECT pg_backend_pid()", &[]).await.expect("a pid");
        let backend: i32 = row.get(0);
        let stat = fs::read_to_string(format!("/proc/{backend}/stat")).expect("a local server");
        let postmaster = parent_of(&stat).expect("a backend has a parent");
        Self { client, postmaster }
    }

    pub(crate) async fn execute(&self, sql: &str) {
        self.client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    pub(crate) async fn number(&self, sql: &str) -> f64 {
        let row = self.client.query_one(sql, &[]).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
        row.get(0)
    }

    /// The first two columns of every row: a name and how much of it there is.
    pub(crate) async fn sizes(&self, sql: &str) -> Vec<(String, f64)> {
        let rows = self.client.query(sql, &[]).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    pub(crate) async fn version(&self) -> String {
        let row = self.client.query_one("SHOW server_version", &[]).await.expect("a version");
        row.get(0)
    }

    pub(crate) async fn wal_bytes(&self) -> f64 {
        self.number("SELECT (pg_current_wal_insert_lsn() - '0/0')::float8").await
    }

    /// The time all its processes have run so far, in microseconds.
    fn cpu_micros(&self) -> f64 {
        let mut sum = 0.0;
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let is_child = fs::read_to_string(entry.path().join("stat"))
                .is_ok_and(|stat| parent_of(&stat) == Some(self.postmaster));
            if is_child {
                sum += run_time(&entry.path().join("schedstat"));
            }
        }
        sum
    }
}

/// What all variants of a bench run on.
pub(crate) fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime starts")
}

/// The address of the server that is measured.
pub(crate) fn address() -> String {
    std::env::var("FIRSTWRITE_TEST_POSTGRES")
        .expect("FIRSTWRITE_TEST_POSTGRES names a server; `cargo xtask bench` starts one")
}

/// Runs every variant in every round; `reset` is called before each slice.
pub(crate) fn run(
    runtime: &Runtime,
    plan: &Plan,
    server: &Server,
    variants: &[Variant],
    reset: impl Fn(&str),
) -> Figures {
    let mut slices = vec![Vec::new(); variants.len()];
    for round in 0..plan.rounds {
        let mut order: Vec<usize> = (0..variants.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for place in order {
            let variant = &variants[place];
            reset(variant.name);
            slices[place].push(measure(runtime, plan, server, variant));
        }
        eprintln!("round {} of {}", round + 1, plan.rounds);
    }
    Figures { names: variants.iter().map(|variant| variant.name).collect(), slices }
}

fn measure(runtime: &Runtime, plan: &Plan, server: &Server, variant: &Variant) -> Slice {
    let wal = runtime.block_on(server.wal_bytes());
    let (client_cpu, server_cpu) = (own_cpu_micros(), server.cpu_micros());
    let (count, seconds, mut latencies) = match &variant.work {
        Work::Program(program) => {
            let (count, seconds) = program(plan.seconds);
            (count, seconds, Vec::new())
        }
        Work::Tasks { concurrency, operate } => {
            let began_at = stopwatch();
            let latencies = runtime.block_on(load(*concurrency, operate, plan.seconds));
            (as_f64(latencies.len() as u64), began_at.elapsed().as_secs_f64(), latencies)
        }
    };
    let server_micros = (server.cpu_micros() - server_cpu) / count;
    let client_micros = (own_cpu_micros() - client_cpu) / count;
    let wal_bytes = (runtime.block_on(server.wal_bytes()) - wal) / count;
    latencies.sort_unstable();
    let at = |share: f64| {
        let place = whole(as_f64(latencies.len() as u64) * share);
        latencies.get(place).copied().unwrap_or_default()
    };
    let (p50, p99) = (at(0.5), at(0.99));
    Slice { per_second: count / seconds, client_micros, server_micros, wal_bytes, p50, p99 }
}

pub(crate) async fn load(concurrency: usize, operate: &Operate, seconds: f64) -> Vec<Duration> {
    let ends_at = stopwatch() + Duration::from_secs_f64(seconds);
    let tasks: Vec<_> = (0..concurrency)
        .map(|_| {
            let operate = Arc::clone(operate);
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                let mut began_at = stopwatch();
                while began_at < ends_at {
                    operate().await;
                    let now = stopwatch();
                    latencies.push(now - began_at);
                    began_at = now;
                }
                latencies
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.expect("no operation fails"));
    }
    all
}

impl Figures {
    /// The median over the rounds of `of` this variant.
    pub(crate) fn median(&self, name: &str, of: impl Fn(&Slice) -> f64) -> f64 {
        median(self.of(name).iter().map(of))
    }

    /// The median, least and greatest ratio of the rates of two variants within a round.
    pub(crate) fn ratio(&self, name: &str, to: &str) -> (f64, f64, f64) {
        let ratios: Vec<f64> = self
            .of(name)
            .iter()
            .zip(self.of(to))
            .map(|(one, other)| one.per_second / other.per_second)
            .collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = ratios.iter().copied().fold(0.0, f64::max);
        (median(ratios.into_iter()), least, greatest)
    }

    /// One line per variant.
    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "{:<44} {:>9} {:>7} {:>9} {:>9} {:>9} {:>9} {:>8}\n",
            "variant", "ops/s", "ratio", "p50 µs", "p99 µs", "CPU here", "CPU PG", "WAL B"
        );
        let first = self.names[0];
        for name in &self.names {
            let micros = |of: fn(&Slice) -> Duration| {
                self.median(name, |slice| of(slice).as_secs_f64() * 1e6)
            };
            writeln!(
                text,
                "{name:<44} {:>9.0} {:>7.2} {:>9.0} {:>9.0} {:>9.1} {:>9.1} {:>8.0}",
                self.median(name, |slice| slice.per_second),
                self.ratio(name, first).0,
                micros(|slice| slice.p50),
                micros(|slice| slice.p99),
                self.median(name, |slice| slice.client_micros),
                self.median(name, |slice| slice.server_micros),
                self.median(name, |slice| slice.wal_bytes),
            )
            .expect("a string takes everything");
        }
        text
    }

    /// One line that says whether a goal was met.
    pub(crate) fn goal(&self, name: &str, to: &str, goal: f64) -> String {
        let (ratio, least, greatest) = self.ratio(name, to);
        let verdict = if ratio >= goal { "met" } else { "missed" };
        format!("{name} / {to}: {ratio:.2} ({least:.2}..{greatest:.2}), goal {goal:.2}: {verdict}")
    }

    fn of(&self, name: &str) -> &[Slice] {
        let place = self.names.iter().position(|known| *known == name).expect("a variant's name");
        &self.slices[place]
    }
}

/// A bench measures real time; there is no clock to hand in.
#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
pub(crate) fn stopwatch() -> Instant {
    Instant::now()
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[expect(clippy::cast_precision_loss, reason = "counts of a bench are far below 2^52")]
pub(crate) fn as_f64(number: u64) -> f64 {
    number as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
pub(crate) fn whole(number: f64) -> usize {
    number as usize
}

/// The parent's pid in a line of `/proc/PID/stat`; the program's name before it may hold anything.
fn parent_of(stat: &str) -> Option<u32> {
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// How long a process has run, in microseconds.
fn run_time(schedstat: &std::path::Path) -> f64 {
    let text = fs::read_to_string(schedstat).unwrap_or_default();
    let nanos: f64 = text.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or_default();
    nanos / 1000.0
}

fn own_cpu_micros() -> f64 {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks.map(|task| run_time(&task.path().join("schedstat"))).sum()
}
