//! `cargo xtask test`: everything that shows the project works, on a machine that has only Rust.

pub(crate) mod suites;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use anyhow::{Context, bail};
use firstwrite_chaos::args::Args;
use firstwrite_chaos::crash::Scene;
use firstwrite_chaos::demo::Backend;
use firstwrite_chaos::failover::Service;
use firstwrite_chaos::guard::Guard;
use firstwrite_chaos::packages::{self, C_COMPILER, CPP_COMPILER, CURL, MAKE, PSYCOPG, STRACE};
use firstwrite_chaos::workspace::{Build, Workspace};
use firstwrite_chaos::{crash, demo_check, failover, histories, postgres, process};

use crate::guarantees::Shown;
use crate::services::{self, Recipe, Services};
use crate::steps::{Counts, Row, Steps};
use crate::{alerts, clients, examples, foreign, forward, fuzz, guarantees, tidy, vectors};
use suites::SuiteReader;

pub(crate) const HELP: &str = "\
Installs what is missing (as root, from Debian packages; otherwise says what to install), starts the
servers the suites need (PostgreSQL, PgBouncer, MariaDB, an emulator of DynamoDB, Redis, NATS, RabbitMQ), and runs: tidy, all tests and doc tests with all features,
the clients in TypeScript and Python, the simulator, the demo's own commands, crash runs on SQLite, PostgreSQL and MariaDB with their negative
control, and failovers to a standby. Nothing is left running, also after Ctrl-C.

  --full   more histories, more kills, release builds, a second PgBouncer that follows prepared
           statements, MySQL beside MariaDB, nodes of a Galera cluster killed under the demo, the newest
           PostgreSQL and Redis, Valkey, a second emulator of DynamoDB, the alert rules tried by promtool, the
           examples in Python, signatures of Wycheproof, Firefox, and servers of others for the clients where
           ../shared/peers holds them; for a release, not for every change

The last lines are a table of suites and `N passed, N failed`. The exit code is 0 only if nothing failed,
nothing was ignored, and something ran.";

/// Sizes of the longer steps.
struct Size {
    /// Arguments of the simulator: number of histories, and depth of the model.
    simulator: &'static [&'static str],
    /// Of the whole path: each is about a hundred steps of production's own code.
    whole_path: &'static [&'static str],
    /// Crash runs, each with its number of kills. A database server takes a while to come back, a node of a cluster
    /// longer.
    crashes: &'static [(&'static str, Scene, u64)],
    failovers: u64,
    /// Recorded histories of several processes.
    recorded: histories::Size,
    build: Build,
    servers: &'static [&'static Recipe],
    /// Prometheus is large to install.
    tries_alerts: bool,
    /// So are the packages that the examples in Python need.
    runs_examples: bool,
    /// Vectors have to be fetched, and the programs of `fuzz/` are a build of their own.
    checks_parsers: bool,
    /// Environment variables for tests that can take longer than usual.
    settings: &'static [(&'static str, &'static str)],
}

const SHORT: Size = Size {
    simulator: &["--histories", "100000"],
    // Fixed seeds: a failure found by a fresh one belongs in the long form, not in a change that did not cause it.
    whole_path: &["--histories", "20000", "--fixed"],
    crashes: &[
        ("crash run", Scene::Sqlite, 30),
        ("crash run on PostgreSQL", Scene::Postgres, 30),
        ("crash run of PostgreSQL", Scene::PostgresServer, 8),
        ("crash run that must lose", Scene::Forgetful, 8),
        // Of nodes of a cluster, a suite of the store kills two in every run.
        ("crash run of MariaDB", Scene::MariaDbServer, 8),
    ],
    failovers: 2,
    recorded: histories::Size::SHORT,
    build: Build::Debug,
    servers: services::SUITES,
    tries_alerts: false,
    runs_examples: false,
    checks_parsers: false,
    settings: &[],
};

const FULL: Size = Size {
    simulator: &["--histories", "1000000", "--full"],
    whole_path: &["--histories", "2000000"],
    crashes: &[
        ("crash run", Scene::Sqlite, 200),
        ("crash run on PostgreSQL", Scene::Postgres, 200),
        ("crash run of PostgreSQL", Scene::PostgresServer, 60),
        ("crash run that must lose", Scene::Forgetful, 60),
        ("crash run on MariaDB", Scene::MariaDb, 200),
        ("crash run of MariaDB", Scene::MariaDbServer, 60),
        ("crash run of MariaDB that must lose", Scene::MariaDbForgetful, 20),
        ("crash run of Galera nodes", Scene::GaleraNode, 20),
    ],
    failovers: 10,
    recorded: histories::Size::FULL,
    build: Build::Release,
    servers: services::SUITES_FULL,
    tries_alerts: true,
    runs_examples: true,
    checks_parsers: true,
    settings: &[
        (clients::KILLS, clients::KILLS_LONG),
        ("FIRSTWRITE_TEST_FUZZ", fuzz::EXECUTIONS_FULL),
        ("FIRSTWRITE_TEST_GIB", "10"),
        ("FIRSTWRITE_TEST_NOISE", "100000"),
    ],
};

/// Programs that the suites need besides servers: curl for the demo's commands, Python and psql for the examples,
/// strace for the order in which the client writes down and sends.
const PROGRAMS: [packages::Need; 7] =
    [C_COMPILER, CPP_COMPILER, MAKE, CURL, PSYCOPG, STRACE, postgres::PSQL];

pub(crate) fn run(workspace: &Workspace, mut args: Args) -> anyhow::Result<()> {
    let size = if args.flag("--full") { FULL } else { SHORT };
    args.finish()?;
    let mut steps = Steps::default();
    run_steps(workspace, &size, &mut steps)?;
    conclude(&steps)
}

fn run_steps(workspace: &Workspace, size: &Size, steps: &mut Steps) -> anyhow::Result<()> {
    let guard = Guard::start()?;
    if !steps.check("programs from the system", || packages::ensure(&PROGRAMS)) {
        return Ok(());
    }
    let mut services = None;
    let mut servers = size.servers;
    if !process::is_root() && servers.len() > services::SUITES.len() {
        steps.skip("servers from a private root", "only root can enter one");
        servers = services::SUITES;
    }
    let folder = workspace.target.join("services").join(format!("run-{}", std::process::id()));
    if !steps.check("servers", || {
        services = Some(Services::start(servers, &folder, &guard)?);
        Ok(())
    }) {
        return Ok(());
    }
    steps.measure("tidy", || Ok(vec![Row::new("tidy", tidy::count(workspace)?)]));
    if size.tries_alerts {
        steps.check("alert rules", || alerts::check(workspace));
    }
    let mut names = BTreeMap::new();
    let is_built = steps.check("build the tests", || {
        names = build_tests(workspace)?;
        Ok(())
    });
    if is_built {
        let others = clients::servers_beside(workspace, size.build, steps);
        let mut environment = services.as_ref().map(Services::environment).unwrap_or_default();
        environment.extend(foreign(workspace, steps));
        environment.extend(size.settings.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let shown = Shown::begin(workspace, servers.len() > services::SUITES.len())?;
        environment.push((guarantees::FOLDER, shown.folder().display().to_string()));
        steps.measure("cargo test", || run_tests(workspace, &names, environment, &others));
        steps.check("guarantees of the stores", || shown.check(workspace));
        clients::run_steps(workspace, matches!(size.build, Build::Release), &others, steps);
    }
    // The servers have done their part; the machine is small.
    drop(services);
    if is_built && size.checks_parsers {
        check_parsers(workspace, steps);
    }
    steps.check("simulator", || forward::run_sim(workspace, size.build, size.simulator));
    steps.check("recorded histories", || histories::check_all(workspace, size.recorded, &guard));
    steps.check("simulator of the whole path", || {
        forward::run_whole_path(workspace, size.build, size.whole_path)
    });
    for (name, backend) in [
        ("demo check", Backend::Sqlite),
        ("demo check on PostgreSQL", Backend::Postgres),
        ("demo check on MariaDB", Backend::MariaDb),
    ] {
        steps.check(name, || demo_check::check(workspace, size.build, backend, &guard));
    }
    if size.runs_examples {
        steps.check("examples", || examples::check(workspace, size.build, &guard));
    }
    for &(name, scene, kills) in size.crashes {
        let plan = crash::Plan::of(scene, kills, size.build);
        steps.check(name, || crash::check(workspace, &plan, &guard));
    }
    let plan = failover::Plan::of(size.failovers, size.build);
    steps.check("failover", || failover::check(workspace, &plan, &guard));
    for (name, service) in [
        ("failover that loses history", Service::Stays),
        ("failover that loses history, and a restart", Service::Restarts),
    ] {
        steps.check(name, || failover::check_behind(workspace, size.build, service, &guard));
    }
    Ok(())
}

/// Checks of the readers of others' bytes that take longer than the tests.
fn check_parsers(workspace: &Workspace, steps: &mut Steps) {
    fuzz::check_step(workspace, steps);
    steps.check("vectors", || vectors::check(workspace));
}

/// Installs what tests run against the gateway; returns what they find it by.
fn foreign(workspace: &Workspace, steps: &mut Steps) -> Vec<(&'static str, String)> {
    let mut environment = Vec::new();
    steps.check("a browser and the libraries of others", || {
        environment = foreign::install(workspace)?;
        environment.push((clients::BED, clients::bed()?));
        Ok(())
    });
    environment
}

/// Prints the table and the last line; an error unless all is well.
fn conclude(steps: &Steps) -> anyhow::Result<()> {
    let totals = steps.totals();
    println!("\n{}", steps.table());
    for (name, reason) in &steps.skipped {
        println!("skipped: {name}, {reason}");
    }
    for problem in &steps.problems {
        println!("failed: {problem}");
    }
    let skipped =
        if totals.ignored > 0 { format!(", {} skipped", totals.ignored) } else { String::new() };
    println!("{} passed, {} failed{skipped}", totals.passed, totals.failed);
    if totals.failed > 0 {
        bail!("not all is well; look for FAILED above");
    }
    if totals.ignored > 0 {
        bail!("a test was ignored; make it run or delete it");
    }
    if totals.passed == 0 {
        bail!("nothing ran");
    }
    Ok(())
}

/// Builds all tests; returns what each test program is called, by its file name.
fn build_tests(workspace: &Workspace) -> anyhow::Result<BTreeMap<String, String>> {
    let mut command = workspace.cargo();
    command.args(["test", "--workspace", "--all-features", "--no-run"]);
    command.arg("--message-format=json-render-diagnostics");
    println!("$ {}", process::spelled(&command));
    Ok(suites::names_of_programs(&process::read(&mut command)?))
}

fn run_tests(
    workspace: &Workspace,
    names: &BTreeMap<String, String>,
    environment: Vec<(&'static str, String)>,
    others: &[clients::Foreign],
) -> anyhow::Result<Vec<Row>> {
    let mut command = workspace.cargo();
    command.args(["test", "--workspace", "--all-features", "--no-fail-fast"]);
    command.arg("--").args(clients::arguments_of_tests(others));
    command.envs(environment).envs(others.iter().cloned());
    // Most of them wait, for a lease or for a server: more at a time than there are cores.
    let threads = 2 * std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    command.env("RUST_TEST_THREADS", threads.to_string());
    // A suite that cannot reach its server fails instead of passing without having run.
    command.env("FIRSTWRITE_TEST_REQUIRE", "all");
    command.env("CARGO_TERM_COLOR", "never");
    let mut reader = SuiteReader::new(names);
    let status = process::read_lines(command, |line| {
        println!("{line}");
        reader.line(line);
    })?;
    let (suites, noteworthy) = reader.finish();
    for line in &noteworthy {
        println!("note: {line}");
    }
    let mut counts = Counts::default();
    for suite in &suites {
        counts.add(suite.counts);
    }
    if counts.passed + counts.failed == 0 {
        bail!("no test ran ({status})");
    }
    if !status.success() && counts.failed == 0 {
        return Err(anyhow::anyhow!("{status}")).context("cargo test failed outside any test");
    }
    Ok(suites)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn concluded(counts: Counts) -> Result<(), String> {
        let mut steps = Steps::default();
        steps.measure("suite", || Ok(vec![Row::new("suite", counts)]));
        conclude(&steps).map_err(|error| error.to_string())
    }

    #[test]
    fn only_tests_that_ran_and_passed_are_good() {
        assert!(concluded(Counts { passed: 1, failed: 0, ignored: 0 }).is_ok());
        assert!(concluded(Counts { passed: 1, failed: 1, ignored: 0 }).is_err());
        assert!(concluded(Counts { passed: 1, failed: 0, ignored: 1 }).is_err());
        assert!(concluded(Counts::default()).is_err());
    }
}
