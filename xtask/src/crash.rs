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
use crate::demo::{Backend, Build, Stage};
use crate::guard::Guard;
use crate::packages;
use crate::postgres::{self, Node};
use crate::random::{Random, fresh_seed};
use crate::workspace::Workspace;
use victims::{DemoVictim, ServerVictim};

pub(crate) const HELP: &str = "\
  --store S        sqlite (default) or postgres: a server of its own, started by this task
  --victim V       demo (default), or server: PostgreSQL itself is killed, all its processes at once, and
                   started again on the same data, while the demo stays
  --unsafe-commit  the negative control: PostgreSQL acknowledges commits before they are written
                   (synchronous_commit=off) and is killed. Acknowledged answers are lost, and the task
                   succeeds only if it noticed
  --kills N        how often (default 200; of a server 40)
  --seconds MAX    stop killing after this time, however often it was (default: 3 per kill, of a server 8,
                   at least 60)
  --seed S         repeat the schedule of an earlier run; threads make the rest a little different
  --release        run the release build

Fails if a key has no payment or more than one, in the demo's books or the provider's, if an answer changed
or was lost, or if a key never gets a final answer. The data of a run that failed stays below target/xtask.";

/// One kill in so many comes while the victim is still starting.
const EARLY_ONE_IN: u64 = 8;
/// How long the last round, without kills, may take.
const SETTLE_MAX: Duration = Duration::from_mins(4);
/// The same where history was lost on purpose: a service that notices lets those keys wait for ever.
const LOSS_MAX: Duration = Duration::from_secs(20);

/// What the demo runs on, and what is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scene {
    /// The demo on a file.
    Sqlite,
    /// The demo; `PostgreSQL` stays.
    Postgres,
    /// `PostgreSQL`; the demo stays.
    PostgresServer,
    /// `PostgreSQL`, set up so that it loses what it has acknowledged.
    Forgetful,
}

/// What a crash run does.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    scene: Scene,
    kills: u64,
    seed: u64,
    build: Build,
    /// When to stop killing, at the latest.
    kill_for: Duration,
    /// Whether fewer kills than planned are what was asked for.
    may_be_short: bool,
    /// The shortest and longest time between being ready and being killed.
    live_for: (Duration, Duration),
    /// Bounds the last round: every key is sent again, twice.
    key_count_max: usize,
    /// About how long the killing takes: to the end there must be new keys.
    keys_last_for: Duration,
    settle_max: Duration,
}

/// What is killed: the demo, its database, or a stand-in in the tests.
trait Victim {
    /// Starts it; it may not answer yet. Returns where the clients send.
    fn start(&mut self) -> anyhow::Result<SocketAddr>;
    fn wait_until_ready(&mut self) -> anyhow::Result<()>;
    fn kill(&mut self) -> anyhow::Result<()>;
}

impl Scene {
    fn of(args: &mut Args) -> anyhow::Result<Self> {
        let refuse = |text: String| Err(Usage(text).into());
        let store = args.value("--store")?.unwrap_or(Backend::Sqlite);
        let victim: Option<String> = args.value("--victim")?;
        let is_unsafe = args.flag("--unsafe-commit");
        let is_server = match victim.as_deref() {
            None => is_unsafe,
            Some("server") => true,
            Some("demo") if is_unsafe => {
                return refuse("--unsafe-commit shows only when the server is killed".to_owned());
            }
            Some("demo") => false,
            Some(other) => return refuse(format!("`{other}` is neither demo nor server")),
        };
        match (store, is_server) {
            (Backend::Sqlite, false) => Ok(Self::Sqlite),
            (Backend::Sqlite, true) => {
                refuse("SQLite has no server to kill; add --store postgres".to_owned())
            }
            (Backend::Postgres, false) => Ok(Self::Postgres),
            (Backend::Postgres, true) if is_unsafe => Ok(Self::Forgetful),
            (Backend::Postgres, true) => Ok(Self::PostgresServer),
        }
    }

    /// For its folder: several scenes may be played by one task.
    fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "crash-sqlite",
            Self::Postgres => "crash-postgres",
            Self::PostgresServer => "crash-server",
            Self::Forgetful => "crash-forgetful",
        }
    }

    fn kills_server(self) -> bool {
        match self {
            Self::Sqlite | Self::Postgres => false,
            Self::PostgresServer | Self::Forgetful => true,
        }
    }

    /// The server the demo runs on, where there is one; not started yet.
    fn server<'a>(self, folder: &Path, guard: &'a Guard) -> anyhow::Result<Option<Node<'a>>> {
        let settings: &[postgres::Settings] = match self {
            Self::Sqlite => return Ok(None),
            Self::Postgres | Self::PostgresServer => &[],
            Self::Forgetful => &[postgres::FORGETFUL],
        };
        packages::ensure(&[postgres::SERVER, postgres::PSQL])?;
        Node::create("postgres", folder, settings, guard).map(Some)
    }
}

impl Plan {
    pub(crate) fn of(scene: Scene, kills: u64, build: Build) -> Self {
        // A server takes its time to recover, and the demo to find it again.
        let (seconds, shortest, longest, usual) =
            if scene.kills_server() { (8, 100, 1500, 2500) } else { (3, 2, 400, 300) };
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
            settle_max: if scene == Scene::Forgetful { LOSS_MAX } else { SETTLE_MAX },
        }
    }
}

pub(crate) fn run(workspace: &Workspace, mut args: Args) -> anyhow::Result<()> {
    let scene = Scene::of(&mut args)?;
    let kills = args.value("--kills")?.unwrap_or(if scene.kills_server() { 40 } else { 200 });
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
pub(crate) fn check(workspace: &Workspace, plan: &Plan, guard: &Guard) -> anyhow::Result<()> {
    let mut stage = Stage::new(workspace, plan.build, plan.scene.name(), guard)?;
    let mut server = plan.scene.server(stage.folder(), guard)?;
    if let Some(server) = &server {
        stage = stage.on(server.address());
    }
    if plan.scene == Scene::Forgetful {
        stage = stage.answering_at_once();
    }
    println!("seed {}", plan.seed);
    let outcome = perform(&stage, server.as_mut(), plan);
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

fn perform(stage: &Stage<'_>, server: Option<&mut Node<'_>>, plan: &Plan) -> anyhow::Result<()> {
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
    if plan.scene == Scene::Forgetful {
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
            if plan.scene != Scene::Forgetful {
                return Err(error);
            }
            println!("{error:#}");
            break;
        }
    }
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
