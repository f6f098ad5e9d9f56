//! `cargo xtask crash`: kill -9 under load, then count payments and compare answers.
//!
//! Clients keep sending while the demo, or the database under it, is killed and started again, many times,
//! at random moments. In the end every key is sent once more: each must have exactly one payment, which the
//! provider has made exactly once, and each final answer that a client ever saw must come back byte for byte.
//!
//! A killed process leaves the kernel's page cache behind, so this shows what survives the death of the
//! process, not of the machine.

#[cfg(test)]
mod tests;
mod victims;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::args::{Args, Usage};
use crate::clients::ledger::Ledger;
use crate::clients::load::Clients;
use crate::clients::report::Report;
use crate::clients::{books, effects, load};
use crate::clock::{Deadline, Stopwatch, pause};
use crate::demo::{Backend, Stage};
use crate::engine::{self, Engine};
use crate::guard::Guard;
use crate::random::{Random, fresh_seed};
use crate::workspace::{Build, Workspace};
use crate::{mariadb, postgres};
use victims::{DemoVictim, ServerVictim};

/// The help text of `cargo xtask crash`.
pub const HELP: &str = "\
  --store S        sqlite (default), or postgres or mariadb: a server of its own, started by this task
  --victim V       demo (default), or server: the database itself is killed, all its processes at once, and
                   started again on the same data, while the demo stays; or, with mariadb, node: one of the
                   three nodes of a Galera cluster, whose others go on, and which joins again
  --unsafe-commit  the negative control: the server acknowledges commits before they are written
                   (synchronous_commit=off, innodb_flush_log_at_trx_commit=0) and is killed. Acknowledged
                   answers are lost, and the task succeeds only if it noticed
  --kills N        how often (default 200; of a server 40, of a node 20)
  --seconds MAX    stop killing after this time, however often it was (default: 3 per kill, of a server 8,
                   of a node 40, at least 60)
  --seed S         repeat the schedule of an earlier run; threads make the rest a little different
  --release        run the release build

Fails if a key has no payment or more than one, in the demo's books or the provider's, if an answer changed
or was lost, if a key never gets a final answer, or if a payment stays pending. The data of a run that failed stays below target/xtask.";

/// One kill in so many comes while the victim is still starting.
const EARLY_ONE_IN: u64 = 8;
/// Longer than the provider goes on trying to deliver a webhook.
const TOLD_MAX: Duration = Duration::from_mins(1);
/// Maximum time of the last round, which has no kills.
const SETTLE_MAX: Duration = Duration::from_mins(4);
/// The same where history was lost on purpose: a service that notices lets those keys wait for ever.
const LOSS_MAX: Duration = Duration::from_secs(20);

/// Store of the demo, and the process that is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// The demo on a file.
    Sqlite,
    /// The demo; `PostgreSQL` stays.
    Postgres,
    /// `PostgreSQL`; the demo stays.
    PostgresServer,
    /// `PostgreSQL`, set up so that it loses what it has acknowledged.
    Forgetful,
    /// The demo; `MariaDB` stays.
    MariaDb,
    /// `MariaDB`; the demo stays.
    MariaDbServer,
    /// `MariaDB`, set up so that it loses what it has acknowledged.
    MariaDbForgetful,
    /// One of three nodes of a cluster; the others and the demo stay.
    GaleraNode,
}

/// Parameters of a crash run.
#[derive(Clone, Debug)]
pub struct Plan {
    scene: Scene,
    kills: u64,
    seed: u64,
    build: Build,
    /// Time after which no more kills follow.
    kill_for: Duration,
    /// True if the caller set a time limit, so that fewer kills than planned are fine.
    may_be_short: bool,
    /// The shortest and longest time between being ready and being killed.
    live_for: (Duration, Duration),
    /// Bounds the last round: every key is sent again, twice.
    key_count_max: usize,
    /// About how long the killing takes: to the end there must be new keys.
    keys_last_for: Duration,
    settle_max: Duration,
    /// Time the provider may take to report what it did before the last kill.
    told_max: Duration,
}

/// Process that is killed: the demo, its database, or a stand-in in the tests.
trait Victim {
    /// Starts it; it may not answer yet. Returns where the clients send.
    fn start(&mut self) -> anyhow::Result<SocketAddr>;
    fn wait_until_ready(&mut self) -> anyhow::Result<()>;
    fn kill(&mut self) -> anyhow::Result<()>;
}

impl Scene {
    fn of(args: &mut Args) -> anyhow::Result<Self> {
        let refuse = |text: &str| Err(Usage(text.to_owned()).into());
        let store = args.value("--store")?.unwrap_or(Backend::Sqlite);
        let victim: Option<String> = args.value("--victim")?;
        let is_unsafe = args.flag("--unsafe-commit");
        let usual = if is_unsafe { "server" } else { "demo" };
        match (store, victim.as_deref().unwrap_or(usual), is_unsafe) {
            (_, "demo", true) => refuse("--unsafe-commit shows only when the server is killed"),
            (_, "node", true) => refuse("what one node forgets, the others know"),
            (Backend::Sqlite, "demo", false) => Ok(Self::Sqlite),
            (Backend::Sqlite, "server", _) => {
                refuse("SQLite has no server to kill; add --store postgres or --store mariadb")
            }
            (Backend::Postgres, "demo", false) => Ok(Self::Postgres),
            (Backend::Postgres, "server", false) => Ok(Self::PostgresServer),
            (Backend::Postgres, "server", true) => Ok(Self::Forgetful),
            (Backend::MariaDb, "demo", false) => Ok(Self::MariaDb),
            (Backend::MariaDb, "server", false) => Ok(Self::MariaDbServer),
            (Backend::MariaDb, "server", true) => Ok(Self::MariaDbForgetful),
            (Backend::MariaDb, "node", false) => Ok(Self::GaleraNode),
            (_, "node", false) => refuse("a cluster is made of MariaDB; add --store mariadb"),
            (_, other, _) => refuse(&format!("`{other}` is none of demo, server, node")),
        }
    }

    /// For its folder: several scenes may be played by one task.
    fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "crash-sqlite",
            Self::Postgres => "crash-postgres",
            Self::PostgresServer => "crash-server",
            Self::Forgetful => "crash-forgetful",
            Self::MariaDb => "crash-mariadb",
            Self::MariaDbServer => "crash-mariadb-server",
            Self::MariaDbForgetful => "crash-mariadb-forgetful",
            Self::GaleraNode => "crash-galera",
        }
    }

    fn kills_server(self) -> bool {
        match self {
            Self::Sqlite | Self::Postgres | Self::MariaDb => false,
            Self::PostgresServer
            | Self::Forgetful
            | Self::MariaDbServer
            | Self::MariaDbForgetful
            | Self::GaleraNode => true,
        }
    }

    /// Returns true if acknowledged writes are lost on purpose.
    fn is_forgetful(self) -> bool {
        matches!(self, Self::Forgetful | Self::MariaDbForgetful)
    }

    fn kills_usual(self) -> u64 {
        match (self == Self::GaleraNode, self.kills_server()) {
            (true, _) => 20,
            (false, true) => 40,
            (false, false) => 200,
        }
    }

    /// The server the demo runs on, where there is one; not started yet.
    fn server<'a>(
        self,
        folder: &Path,
        seed: u64,
        guard: &'a Guard,
    ) -> anyhow::Result<Option<Box<dyn Engine + 'a>>> {
        Ok(match self {
            Self::Sqlite => None,
            Self::Postgres | Self::PostgresServer => engine::of(Backend::Postgres, folder, guard)?,
            Self::MariaDb | Self::MariaDbServer => engine::of(Backend::MariaDb, folder, guard)?,
            Self::Forgetful => {
                Some(Box::new(engine::on_postgres(folder, &[postgres::FORGETFUL], guard)?))
            }
            Self::MariaDbForgetful => {
                Some(Box::new(engine::on_mariadb(folder, mariadb::FORGETFUL, guard)?))
            }
            Self::GaleraNode => Some(Box::new(engine::on_cluster(folder, seed, guard)?)),
        })
    }
}

impl Plan {
    /// A run with a fresh seed and the usual times of its scene.
    pub fn of(scene: Scene, kills: u64, build: Build) -> Self {
        // A server takes its time to recover, and the demo to find it again.
        let (seconds, shortest, longest, usual) = match scene.kills_server() {
            // The others wait some seconds before they give a node up, and it is sent everything anew.
            true if scene == Scene::GaleraNode => (40, 100, 1500, 10_000),
            true => (8, 100, 1500, 2500),
            false => (3, 2, 400, 300),
        };
        Self {
            scene,
            kills,
            seed: fresh_seed(),
            build,
            kill_for: Duration::from_secs(kills.saturating_mul(seconds).max(60)),
            may_be_short: false,
            live_for: (Duration::from_millis(shortest), Duration::from_millis(longest)),
            key_count_max: 20_000,
            keys_last_for: Duration::from_millis(kills.saturating_mul(usual)),
            settle_max: if scene.is_forgetful() { LOSS_MAX } else { SETTLE_MAX },
            told_max: if scene.is_forgetful() { Duration::ZERO } else { TOLD_MAX },
        }
    }
}

/// Runs `cargo xtask crash` with the words behind it.
pub fn run(workspace: &Workspace, mut args: Args) -> anyhow::Result<()> {
    let scene = Scene::of(&mut args)?;
    let kills = args.value("--kills")?.unwrap_or(scene.kills_usual());
    let mut plan = Plan::of(scene, kills, Build::of(args.flag("--release")));
    if let Some(seed) = args.value("--seed")? {
        plan.seed = seed;
    }
    if let Some(seconds) = args.value("--seconds")? {
        plan.kill_for = Duration::from_secs(seconds);
        plan.may_be_short = true;
    }
    args.finish()?;
    check(workspace, &plan, &Guard::start()?)
}

/// One crash run against the demo; an error if anything was found.
pub fn check(workspace: &Workspace, plan: &Plan, guard: &Guard) -> anyhow::Result<()> {
    let mut stage = Stage::new(workspace, plan.build, plan.scene.name(), guard)?;
    let mut server = plan.scene.server(stage.folder(), plan.seed, guard)?;
    if let Some(server) = &server {
        stage = stage.on(server.address());
    }
    if plan.scene.is_forgetful() {
        stage = stage.answering_at_once();
    }
    println!("seed {}", plan.seed);
    let outcome = perform(&stage, server.as_deref_mut(), plan);
    if outcome.is_err()
        && let Some(server) = &mut server
    {
        server.keep();
    }
    let folder = workspace.spoken(stage.folder());
    outcome.with_context(|| format!("seed {}, data in {folder}", plan.seed))?;
    drop(server);
    stage.clear();
    Ok(())
}

fn perform(
    stage: &Stage<'_>,
    server: Option<&mut (dyn Engine + '_)>,
    plan: &Plan,
) -> anyhow::Result<()> {
    let effects = stage.provider_ledger();
    let report = match server {
        Some(server) if plan.scene.kills_server() => {
            crash(&mut ServerVictim::new(stage, server), plan, Some(&effects))?
        }
        Some(server) => {
            server.start()?;
            server.wait_until_ready()?;
            crash(&mut DemoVictim::new(stage), plan, Some(&effects))?
        }
        None => crash(&mut DemoVictim::new(stage), plan, Some(&effects))?,
    };
    print!("{report}");
    if plan.scene.is_forgetful() {
        let lost = report.judge_loss()?;
        println!("as it must be: answers are lost, and this run sees it ({lost} findings)");
        return Ok(());
    }
    report.judge()
}

/// Kills `victim` as planned while clients are at work, then lets everything settle and looks.
/// `effects`: what the provider wrote down, if there is one.
fn crash(victim: &mut dyn Victim, plan: &Plan, effects: Option<&Path>) -> anyhow::Result<Report> {
    let watch = Stopwatch::start();
    let ledger = Ledger::new(plan.seed, plan.key_count_max, plan.keys_last_for);
    let mut random = Random::new(plan.seed);
    let clients = Clients::new(&ledger);
    let kills = std::thread::scope(|scope| {
        let _stop_even_on_panic = clients.start(scope, &mut random);
        kill_again_and_again(victim, plan, &clients, &mut random)
    })?;
    ledger.load_is_over();
    if kills == 0 || (kills < plan.kills && !plan.may_be_short) {
        bail!("only {kills} of {} kills within {} s", plan.kills, plan.kill_for.as_secs());
    }
    let address = victim.start()?;
    victim.wait_until_ready()?;
    // The first time settles the keys whose answer was lost; the second compares them too.
    let deadline = Deadline::after(plan.settle_max);
    for _ in 0..2 {
        if let Err(error) = load::retry_all(address, &ledger, deadline) {
            if !plan.scene.is_forgetful() {
                return Err(error);
            }
            println!("{error:#}");
            break;
        }
    }
    books::wait_until_settled(address, &ledger, Deadline::after(plan.told_max))?;
    books::compare(address, &ledger, Deadline::after(SETTLE_MAX))?;
    if let Some(file) = effects {
        effects::compare(file, &ledger)?;
    }
    victim.kill()?;
    Ok(ledger.report(kills, watch.seconds()))
}

fn kill_again_and_again(
    victim: &mut dyn Victim,
    plan: &Plan,
    clients: &Clients<'_>,
    random: &mut Random,
) -> anyhow::Result<u64> {
    let deadline = Deadline::after(plan.kill_for);
    let mut kills = 0;
    while kills < plan.kills && !deadline.is_over() {
        clients.aim_at(victim.start()?);
        let (shortest, longest) = plan.live_for;
        if !random.once_in(EARLY_ONE_IN) {
            victim.wait_until_ready().with_context(|| format!("after {kills} kills"))?;
        }
        pause(random.between(shortest, longest));
        victim.kill()?;
        kills += 1;
    }
    Ok(kills)
}
