//! `cargo xtask histories`: several processes on one server that is killed and paused; every answer they got
//! must be explained by some order of their steps.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::args::{Args, Usage};
use crate::clock::{Stopwatch, pause};
use crate::engine::{self, Engine};
use crate::guard::Guard;
use crate::process;
use crate::random::{Random, fresh_seed};
use crate::redis;
use crate::workspace::Workspace;

/// The help text of `cargo xtask histories`.
pub const HELP: &str = "\
Starts a server of each kind, and runs `firstwrite-store`'s example `histories` on it: two or three processes insert,
renew, complete, mark, take over, remove and look under a few keys, each through a proxy that loses answers, cuts
connections and partitions: it holds bytes back both ways, in some of them for longer than a store waits. The
processes are paused. Meanwhile this task kills (-9) the server, starts it again, and
pauses it. What the processes recorded is checked: some order of the steps must explain every answer. Two more
runs make a mistake on purpose (a swap that ignores its guard; a lost answer called undone), and must be caught.

  --full      more than 300,000 operations in all
  --store S   postgres, mariadb or redis only
  --seed N    repeat the steps and the schedule of an earlier run; processes make the rest a little different";

/// Length of a run.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    rounds: u64,
}

impl Size {
    /// Some thousand operations on each store.
    pub const SHORT: Self = Self { rounds: 2 };
    /// More than a hundred thousand on each.
    pub const FULL: Self = Self { rounds: 36 };
}

/// The servers that are tried.
const STORES: [&str; 3] = ["postgres", "mariadb", "redis"];
/// Mistakes that the processes make on purpose.
const MISTAKES: [&str; 2] = ["ignores-guard", "calls-lost-undone"];

/// With a binary log that is on disk before a commit is seen. Without one, `InnoDB` shows a commit to others before it
/// is on disk, and a kill takes back what they saw.
const MARIADB: &[&str] = &[
    "--innodb-flush-log-at-trx-commit=1",
    "--log-bin=binlog",
    "--sync-binlog=1",
    "--binlog-format=ROW",
];

/// A mistake is noticed in one of the first rounds, and ends the run.
const MISTAKEN_ROUNDS: &str = "100";

/// Shortest and longest time until the server is killed first, which happens in every run.
const FIRST: (Duration, Duration) = (Duration::from_millis(300), Duration::from_millis(900));
/// Shortest and longest time between two disturbances: clients have to find the server again.
const CALM: (Duration, Duration) = (Duration::from_millis(1500), Duration::from_secs(4));
/// Shortest and longest time for which the server is paused.
const STILL: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Runs `cargo xtask histories` with the words behind it.
pub fn run(workspace: &Workspace, mut args: Args) -> anyhow::Result<()> {
    let size = if args.flag("--full") { Size::FULL } else { Size::SHORT };
    let only: Option<String> = args.value("--store")?;
    let seed = args.value("--seed")?.unwrap_or_else(fresh_seed);
    args.finish()?;
    if let Some(name) = &only
        && !STORES.contains(&name.as_str())
    {
        let message = format!("`{name}` is none of {}", STORES.join(", "));
        return Err(Usage(message).into());
    }
    let guard = Guard::start()?;
    let is_asked_for = |store: &&str| only.as_ref().is_none_or(|only| only == store);
    let stores: Vec<_> = STORES.into_iter().filter(is_asked_for).collect();
    check(workspace, size, &stores, seed, &guard)
}

/// All stores, in this size.
pub fn check_all(workspace: &Workspace, size: Size, guard: &Guard) -> anyhow::Result<()> {
    check(workspace, size, &STORES, fresh_seed(), guard)
}

fn check(
    workspace: &Workspace,
    size: Size,
    stores: &[&str],
    seed: u64,
    guard: &Guard,
) -> anyhow::Result<()> {
    println!("seed {seed}");
    let mut build = workspace.cargo();
    // With the words of the tests, which have built it already.
    build.args(["build", "--workspace", "--all-features", "--example", "histories"]);
    process::run(&mut build)?;
    let program = workspace.target.join("debug").join("examples").join("histories");
    let folder = workspace.target.join("xtask").join(format!("histories-{}", std::process::id()));
    for store in stores {
        let mut server = server(store, &folder, guard)?;
        server.start()?;
        server.wait_until_ready()?;
        let mut random = Random::new(seed);
        // Two processes, then three.
        for processes in [2, 3] {
            println!("{store}, {processes} processes");
            let mut command = recording(&program, &*server, seed);
            command.args(["--processes", &processes.to_string()]);
            command.args(["--rounds", &size.rounds.to_string()]);
            let ended = disturbed(&mut command, &mut *server, &mut random)?;
            if !ended {
                server.keep();
            }
            ensure!(ended, "a history on {store} is not explained; --seed {seed}");
        }
        for mistake in MISTAKES {
            println!("{store}, a process that makes a mistake: {mistake}");
            let mut command = recording(&program, &*server, seed);
            command.args(["--mistake", mistake, "--rounds", MISTAKEN_ROUNDS]).stderr(Stdio::null());
            let ended = disturbed(&mut command, &mut *server, &mut random)?;
            ensure!(!ended, "the mistake {mistake} on {store} was not noticed; --seed {seed}");
        }
    }
    Ok(())
}

fn server<'a>(
    store: &str,
    folder: &Path,
    guard: &'a Guard,
) -> anyhow::Result<Box<dyn Engine + 'a>> {
    Ok(match store {
        "postgres" => Box::new(engine::on_postgres(folder, &[], guard)?),
        "mariadb" => Box::new(engine::on_mariadb(folder, MARIADB, guard)?),
        _ => Box::new(redis::Node::create(folder, guard)?),
    })
}

fn recording(program: &Path, server: &dyn Engine, seed: u64) -> Command {
    let mut command = Command::new(program);
    command.args(["--url", &server.address(), "--seed", &seed.to_string()]);
    command
}

/// Runs `command` while the server is killed and paused; says whether it succeeded.
fn disturbed(
    command: &mut Command,
    server: &mut dyn Engine,
    random: &mut Random,
) -> anyhow::Result<bool> {
    println!("$ {}", process::spelled(command));
    let mut child = command.stdin(Stdio::null()).spawn().context("cannot start the recorder")?;
    let (mut kills, mut stills) = (0, 0);
    let status = loop {
        let (from, to) = if kills == 0 { FIRST } else { CALM };
        if let Some(status) = wait(&mut child, random.between(from, to))? {
            break status;
        }
        if kills == 0 || random.once_in(2) {
            kills += 1;
            server.kill()?;
            server.start()?;
            server.wait_until_ready()?;
        } else {
            stills += 1;
            let pids = server.pids();
            process::signal_all(&pids, "STOP");
            pause(random.between(STILL.0, STILL.1));
            process::signal_all(&pids, "CONT");
        }
    };
    println!("the server was killed {kills} times and paused {stills} times");
    Ok(status)
}

/// Waits up to `time` for the child to end. Returns whether it succeeded, or `None` if it still runs.
fn wait(child: &mut Child, time: Duration) -> anyhow::Result<Option<bool>> {
    let watch = Stopwatch::start();
    while watch.elapsed() < time {
        if let Some(status) = child.try_wait().context("waiting for the recorder")? {
            return Ok(Some(status.success()));
        }
        pause(BETWEEN_LOOKS);
    }
    Ok(None)
}
