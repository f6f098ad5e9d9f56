//! `cargo xtask crash`: kill -9 under load, then count payments and compare answers.
//!
//! Clients keep sending while the demo is killed and started again, many times, at random moments. In the
//! end every key is sent once more: each must have exactly one payment, and each answer that a client ever
//! saw must come back byte for byte.
//!
//! A killed process leaves the kernel's page cache behind, so this shows what survives the death of the
//! process, not of the machine.

mod books;
mod ledger;
mod load;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::args::Args;
use crate::clock::{Deadline, Stopwatch, pause};
use crate::demo::{Build, Demo, Stage, free_port};
use crate::guard::Guard;
use crate::random::{Random, fresh_seed};
use crate::workspace::Workspace;
use ledger::{Ledger, Report};
use load::Clients;

pub(crate) const HELP: &str = "\
  --kills N       how often (default 200)
  --seconds MAX   stop killing after this time, however often it was (default: 3 per kill, at least 60)
  --seed S        repeat the schedule of an earlier run; threads make the rest a little different
  --release       kill the release build

Fails if a key has no payment or more than one, if an answer changed or was lost, or if a key never gets
an answer. The data of a run that failed stays below target/xtask.";

const KILLS: u64 = 200;
/// One kill in so many comes while the demo is still starting.
const EARLY_ONE_IN: u64 = 8;
/// How long the last round, without kills, may take.
const SETTLE_MAX: Duration = Duration::from_mins(4);

/// What a crash run does.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
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
}

/// What is killed: the demo, or a stand-in in the tests.
trait Victim {
    /// Starts it; it may not answer yet.
    fn start(&mut self) -> anyhow::Result<SocketAddr>;
    fn wait_until_ready(&mut self) -> anyhow::Result<()>;
    fn kill(&mut self) -> anyhow::Result<()>;
}

/// The demo on its stage.
struct DemoVictim<'a> {
    stage: &'a Stage<'a>,
    demo: Option<Demo<'a>>,
}

impl Plan {
    pub(crate) fn of(kills: u64, build: Build) -> Self {
        Self {
            kills,
            seed: fresh_seed(),
            build,
            kill_for: Duration::from_secs(kills.saturating_mul(3).max(60)),
            may_be_short: false,
            live_for: (Duration::from_millis(2), Duration::from_millis(400)),
            key_count_max: 20_000,
        }
    }
}

pub(crate) fn run(workspace: &Workspace, mut args: Args) -> anyhow::Result<()> {
    let kills = args.value("--kills")?.unwrap_or(KILLS);
    let mut plan = Plan::of(kills, Build::of(args.flag("--release")));
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
    let stage = Stage::new(workspace, plan.build, "crash", guard)?;
    let evidence = format!("seed {}, data in {}", plan.seed, workspace.spoken(stage.folder()));
    println!("seed {}", plan.seed);
    let report = crash(&mut DemoVictim { stage: &stage, demo: None }, plan)
        .with_context(|| evidence.clone())?;
    print!("{report}");
    report.judge().context(evidence)?;
    stage.clear();
    Ok(())
}

/// Kills `victim` as planned while clients are at work, then lets everything settle and looks.
fn crash(victim: &mut dyn Victim, plan: &Plan) -> anyhow::Result<Report> {
    let watch = Stopwatch::start();
    let ledger = Ledger::new(plan.seed, plan.key_count_max);
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
    let deadline = Deadline::after(SETTLE_MAX);
    // The first time settles the keys whose answer was lost; the second compares them too.
    for _ in 0..2 {
        load::retry_all(address, &ledger, deadline)?;
    }
    books::compare(address, &ledger, deadline)?;
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

impl Victim for DemoVictim<'_> {
    fn start(&mut self) -> anyhow::Result<SocketAddr> {
        // A fresh port each time: the old one may still be held by connections that are winding down.
        let demo = self.stage.start(free_port()?)?;
        let address = demo.address;
        self.demo = Some(demo);
        Ok(address)
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        match &mut self.demo {
            Some(demo) => demo.wait_until_ready().map(|_| ()),
            None => bail!("the demo was not started"),
        }
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        self.demo.take().map_or(Ok(()), Demo::kill)
    }
}
