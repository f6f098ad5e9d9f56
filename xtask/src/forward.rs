//! Tasks that hand their words on to a program of the workspace.

use std::path::PathBuf;
use std::process::Command;

use firstwrite_chaos::args::{Args, Usage};
use firstwrite_chaos::guard::Guard;
use firstwrite_chaos::packages;
use firstwrite_chaos::place::delete;
use firstwrite_chaos::postgres::{self, Node};
use firstwrite_chaos::process;
use firstwrite_chaos::workspace::{Build, Workspace};

use crate::services::{self, Recipe, Services};

pub(crate) const SIM_HELP: &str = "\
Runs `firstwrite-sim`, the simulator of the whole path; all words are handed on to it. A failure prints the seed
that repeats it: `cargo xtask sim --seed N`. With `--protocol` as the first word, runs `firstwrite-testkit`'s example
`sim` instead: the protocol alone over a store, the model, and planted defects of stores.";

pub(crate) const MODEL_HELP: &str = "\
Runs the same example as `sim` with `--model`: every order of events of a small system, not a sample.
`--full` explores millions of states. All words are handed on.";

pub(crate) const BENCH_HELP: &str = "\
Runs one measurement; words after its name are handed on. Without a name, lists them.

Those on PostgreSQL get a server of their own, with durable settings and 2 GB of buffers, in
FIRSTWRITE_TEST_POSTGRES, and the path of pgbench in FIRSTWRITE_BENCH_PGBENCH. `cached` gets PostgreSQL and Redis,
`stores` one of every kind, or of the one behind `--only`, with default settings and durable commits.";

/// One measurement: what to type, where it lives, what it tells.
struct Bench {
    name: &'static str,
    package: &'static str,
    measures: &'static str,
    server: Server,
}

/// Servers that a measurement needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Nothing,
    Postgres,
    PostgresAndHttp,
    PostgresAndNginx,
    PostgresAndRedis,
    EveryStore,
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "layer",
        package: "firstwrite",
        measures: "what the layer adds to a request: fresh, replay and unprotected side by side",
        server: Server::Nothing,
    },
    Bench {
        name: "sqlite",
        package: "firstwrite-store",
        measures: "the SQLite store: reservations, completions and replays per second",
        server: Server::Nothing,
    },
    Bench {
        name: "golden",
        package: "firstwrite-store",
        measures: "atomic handlers on PostgreSQL beside unprotected and two-phase ones",
        server: Server::Postgres,
    },
    Bench {
        name: "reserve",
        package: "firstwrite-store",
        measures: "batched reservations, completions and replays on PostgreSQL beside pgbench",
        server: Server::Postgres,
    },
    Bench {
        name: "reap",
        package: "firstwrite-store",
        measures: "what reaping costs reservations on PostgreSQL",
        server: Server::Postgres,
    },
    Bench {
        name: "storage",
        package: "firstwrite-store",
        measures: "bytes per key on PostgreSQL, tables and indexes",
        server: Server::Postgres,
    },
    Bench {
        name: "stores",
        package: "firstwrite-store",
        measures: "the same work on every store beside plain inserts on the same server",
        server: Server::EveryStore,
    },
    Bench {
        name: "cached",
        package: "firstwrite-wrappers",
        measures: "replays through a cache in Redis beside those from PostgreSQL",
        server: Server::PostgresAndRedis,
    },
    Bench {
        name: "outbox",
        package: "firstwrite",
        measures: "messages delivered from PostgreSQL to a sink: clean, held snapshot, outage, recovery",
        server: Server::PostgresAndHttp,
    },
    Bench {
        name: "gateway",
        package: "firstwrite-gateway",
        measures: "the gateway beside nginx: passed through, new keys, replays",
        server: Server::PostgresAndNginx,
    },
];

pub(crate) fn sim(workspace: &Workspace, args: Args) -> anyhow::Result<()> {
    let words = args.rest();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.split_first() {
        Some((&"--protocol", words)) => run_sim(workspace, Build::Release, words),
        _ => run_whole_path(workspace, Build::Release, &words),
    }
}

pub(crate) fn model(workspace: &Workspace, args: Args) -> anyhow::Result<()> {
    let words = args.rest();
    let mut all = vec!["--model"];
    all.extend(words.iter().map(String::as_str));
    run_sim(workspace, Build::Release, &all)
}

/// Runs the simulator of the whole path with the given words.
pub(crate) fn run_whole_path(
    workspace: &Workspace,
    build: Build,
    words: &[&str],
) -> anyhow::Result<()> {
    let mut command = workspace.cargo();
    command.arg("run").args(build.arguments()).args(["--package", "firstwrite-sim"]);
    process::run(command.arg("--").args(words))
}

/// Runs the simulator of the protocol, the model and the planted defects of stores.
pub(crate) fn run_sim(workspace: &Workspace, build: Build, words: &[&str]) -> anyhow::Result<()> {
    let mut command = workspace.cargo();
    command.arg("run").args(build.arguments());
    command.args(["--package", "firstwrite-testkit", "--features", "model", "--example", "sim"]);
    process::run(command.arg("--").args(words))
}

pub(crate) fn bench(workspace: &Workspace, mut args: Args) -> anyhow::Result<()> {
    let Some(name) = args.word() else {
        for Bench { name, package, measures, .. } in BENCHES {
            println!("{name:<8} {measures} ({package})");
        }
        return Ok(());
    };
    let Some(bench) = BENCHES.iter().find(|bench| bench.name == name) else {
        let message = format!("there is no bench `{name}`; `cargo xtask bench` lists them");
        return Err(Usage(message).into());
    };
    let mut command = workspace.cargo();
    command.args(["bench", "--package", bench.package, "--bench", bench.name]);
    match bench.server {
        Server::Nothing => process::run(command.arg("--").args(args.rest())),
        Server::Postgres => {
            command.args(["--features", "postgres,sqlx", "--"]).args(args.rest());
            on_postgres(workspace, &mut command)
        }
        Server::PostgresAndHttp => {
            command.args(["--features", "postgres,http-destination", "--"]).args(args.rest());
            on_postgres(workspace, &mut command)
        }
        Server::PostgresAndNginx => {
            packages::ensure(&[packages::NGINX])?;
            // Beside a program that was built for service, one that was, too.
            command.args(["--profile", "dist", "--"]).args(args.rest());
            on_postgres(workspace, &mut command)
        }
        Server::PostgresAndRedis => {
            command.args(["--features", "postgres,redis-cache", "--"]).args(args.rest());
            let is_meant = |recipe: &&&Recipe| ["postgres", "redis"].contains(&recipe.name);
            let recipes: Vec<_> = services::STORES.iter().filter(is_meant).copied().collect();
            on_servers(workspace, &recipes, &mut command)
        }
        Server::EveryStore => {
            let words = args.rest();
            let only = words.iter().position(|word| word == "--only").map(|at| words.get(at + 1));
            let is_asked_for = |recipe: &&&Recipe| {
                only.is_none_or(|only| only.is_some_and(|only| *only == recipe.name))
            };
            let recipes: Vec<_> = services::STORES.iter().filter(is_asked_for).copied().collect();
            command.args(["--features", "dynamodb,mysql,postgres,redis", "--"]).args(words);
            on_servers(workspace, &recipes, &mut command)
        }
    }
}

/// Builds a measurement before its server runs: neither disturbs the other.
fn build(workspace: &Workspace, command: &Command) -> anyhow::Result<()> {
    let mut build = workspace.cargo();
    build.args(command.get_args().take_while(|word| *word != "--")).arg("--no-run");
    process::run(&mut build)
}

/// Returns the folder in which the server of a measurement keeps its data.
fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("xtask").join(format!("bench-{}", std::process::id()))
}

/// Runs a measurement on servers of its own.
fn on_servers(
    workspace: &Workspace,
    recipes: &[&'static Recipe],
    command: &mut Command,
) -> anyhow::Result<()> {
    build(workspace, command)?;
    let guard = Guard::start()?;
    let servers = Services::start(recipes, &folder(workspace), &guard)?;
    process::run(command.envs(servers.environment()))
}

/// Runs a measurement on a PostgreSQL of its own.
fn on_postgres(workspace: &Workspace, command: &mut Command) -> anyhow::Result<()> {
    packages::ensure(&[postgres::SERVER, postgres::PGBENCH, postgres::PSQL])?;
    build(workspace, command)?;
    let guard = Guard::start()?;
    let folder = folder(workspace);
    let mut server = Node::create("postgres", &folder, &[postgres::MEASURED], &guard)?;
    server.start()?;
    server.wait_until_ready()?;
    command.env("FIRSTWRITE_TEST_POSTGRES", server.address());
    command.env("FIRSTWRITE_BENCH_PGBENCH", postgres::program("pgbench")?);
    let outcome = process::run(command);
    drop(server);
    delete(&folder);
    outcome
}
