//! `cargo xtask failover`: the primary is killed under load, its standby takes over, and the books are read.
//!
//! With a synchronous standby nothing that was acknowledged may be lost and nothing may happen twice. With
//! a standby that is behind, acknowledged history is lost; then the service must notice, and must not run
//! keys it does not know until an operator has looked.

mod behind;
mod pair;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::args::Args;
use crate::clients::ledger::Ledger;
use crate::clients::load::Clients;
use crate::clients::report::Report;
use crate::clients::{books, load};
use crate::clock::{Deadline, Stopwatch, pause, wait_until};
use crate::demo::Stage;
use crate::guard::Guard;
use crate::packages;
use crate::postgres;
use crate::random::{Random, fresh_seed};
use crate::workspace::{Build, Workspace};
use pair::{Pair, Standby};

pub use pair::Service;

/// The help text of `cargo xtask failover`.
pub const HELP: &str = "\
Starts two PostgreSQL servers, the second a standby of the first, and the demo with the addresses of both
(target_session_attrs=read-write). The primary is killed (-9, all its processes), the standby promoted.

  --failovers N      how often (default 3); in between, the dead server becomes the standby of the other
  --behind           instead: a standby that is cut off before the last writes, and promoted without them.
                     Keys that survived must replay, all others must get 409 outcome-unknown, until
                     `firstwrite doctor --clear-history-loss`; then new keys must run
  --restart-service  with --behind: the demo is started afresh after the failover, and has to notice too
  --seed S           repeat the schedule of an earlier run; threads make the rest a little different
  --release          run the release build

Without --behind the standby is synchronous (remote_apply), and the run fails if an acknowledged key is
lost, a key has two payments, or the clients do not get through to the new primary.";

/// Shortest and longest time for which the clients work before and after each failover.
const WORK_FOR: (Duration, Duration) = (Duration::from_millis(400), Duration::from_millis(2500));
/// Maximum time until the service finds the new primary.
const GET_THROUGH_MAX: Duration = Duration::from_mins(1);
/// Duration of one failover, including the work before and after it.
const FAILOVER_SECONDS: u64 = 8;
/// Maximum time of the last round.
const SETTLE_MAX: Duration = Duration::from_mins(4);
/// Bounds the last round.
const KEY_COUNT_MAX: usize = 20_000;

/// Parameters of a run with a synchronous standby.
#[derive(Clone, Debug)]
pub struct Plan {
    failovers: u64,
    seed: u64,
    build: Build,
    work_for: (Duration, Duration),
    key_count_max: usize,
    /// About how long all of it takes: to the end there must be new keys.
    keys_last_for: Duration,
}

/// System that fails over: the demo on two servers, or a stand-in in the tests.
trait Site {
    /// Starts all of it and waits until it answers.
    fn start(&mut self) -> anyhow::Result<SocketAddr>;
    /// Cuts the standby off: from now on it learns nothing more.
    fn hold_back(&mut self) -> anyhow::Result<()>;
    /// Kills the primary and promotes the standby. Returns where the clients send now.
    fn fail_over(&mut self) -> anyhow::Result<SocketAddr>;
    /// Makes the dead server the standby of the living one.
    fn restore(&mut self) -> anyhow::Result<()>;
    /// Does what an operator does after an inspection: allows unknown keys to run again.
    fn clear_history_loss(&mut self) -> anyhow::Result<()>;
}

impl Plan {
    /// A run with a fresh seed and the usual times.
    pub fn of(failovers: u64, build: Build) -> Self {
        Self {
            failovers,
            seed: fresh_seed(),
            build,
            work_for: WORK_FOR,
            key_count_max: KEY_COUNT_MAX,
            keys_last_for: Duration::from_secs(failovers.saturating_mul(FAILOVER_SECONDS)),
        }
    }
}

/// Runs `cargo xtask failover` with the words behind it.
pub fn run(workspace: &Workspace, mut args: Args) -> anyhow::Result<()> {
    let build = Build::of(args.flag("--release"));
    let service = if args.flag("--restart-service") { Service::Restarts } else { Service::Stays };
    let is_behind = args.flag("--behind");
    let mut plan = Plan::of(args.value("--failovers")?.unwrap_or(3), build);
    if let Some(seed) = args.value("--seed")? {
        plan.seed = seed;
    }
    args.finish()?;
    let guard = Guard::start()?;
    if is_behind {
        check_behind(workspace, build, service, &guard)
    } else {
        check(workspace, &plan, &guard)
    }
}

/// Failovers to a synchronous standby; an error if anything was found.
pub fn check(workspace: &Workspace, plan: &Plan, guard: &Guard) -> anyhow::Result<()> {
    println!("seed {}", plan.seed);
    let habits = (Standby::Synchronous, Service::Stays);
    on_a_pair(workspace, plan.build, habits, guard, |pair| {
        let report = fail_over_again_and_again(pair, plan)?;
        print!("{report}");
        report.judge().with_context(|| format!("seed {}", plan.seed))
    })
}

/// A failover to a standby that is behind; an error unless the service noticed.
pub fn check_behind(
    workspace: &Workspace,
    build: Build,
    service: Service,
    guard: &Guard,
) -> anyhow::Result<()> {
    on_a_pair(workspace, build, (Standby::Asynchronous, service), guard, |pair| {
        let findings = behind::fail_over(pair, fresh_seed(), behind::HEAR_MAX)?;
        print!("{findings}");
        findings.judge()
    })
}

/// Starts a pair of servers for `work`; their data stays if it fails.
fn on_a_pair(
    workspace: &Workspace,
    build: Build,
    habits: (Standby, Service),
    guard: &Guard,
    work: impl FnOnce(&mut dyn Site) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    packages::ensure(&[postgres::SERVER, postgres::PSQL])?;
    // For its folder: several of these may be run by one task.
    let name = match habits {
        (Standby::Synchronous, _) => "failover",
        (Standby::Asynchronous, Service::Stays) => "failover-behind",
        (Standby::Asynchronous, Service::Restarts) => "failover-behind-restart",
    };
    let stage = Stage::new(workspace, build, name, guard)?;
    let folder = stage.folder().to_owned();
    let mut pair = Pair::make(stage, habits, guard)?;
    let outcome = work(&mut pair);
    if outcome.is_err() {
        pair.keep();
        return outcome.with_context(|| format!("data in {}", workspace.spoken(&folder)));
    }
    pair.clear();
    Ok(())
}

fn fail_over_again_and_again(site: &mut dyn Site, plan: &Plan) -> anyhow::Result<Report> {
    let watch = Stopwatch::start();
    let ledger = Ledger::new(plan.seed, plan.key_count_max, plan.keys_last_for);
    let mut random = Random::new(plan.seed);
    let clients = Clients::new(&ledger);
    let mut address = site.start()?;
    std::thread::scope(|scope| {
        let _stop_even_on_panic = clients.start(scope, &mut random);
        clients.aim_at(address);
        let (shortest, longest) = plan.work_for;
        for number in 1..=plan.failovers {
            if number > 1 {
                site.restore().with_context(|| format!("before failover {number}"))?;
            }
            pause(random.between(shortest, longest));
            let answered = ledger.answered_count();
            let since = Stopwatch::start();
            address = site.fail_over().with_context(|| format!("failover {number}"))?;
            clients.aim_at(address);
            get_through(&ledger, answered, plan).with_context(|| format!("failover {number}"))?;
            println!("failover {number}: new payments after {:.2} s", since.seconds());
            pause(random.between(shortest, longest));
        }
        anyhow::Ok(())
    })?;
    ledger.load_is_over();
    let deadline = Deadline::after(SETTLE_MAX);
    // The first time settles the keys whose answer was lost; the second compares them too.
    for _ in 0..2 {
        load::retry_all(address, &ledger, deadline)?;
    }
    books::compare(address, &ledger, deadline)?;
    Ok(ledger.report(plan.failovers, watch.seconds()))
}

/// Waits until keys are answered that were not before: only a store that takes writes can do that.
fn get_through(ledger: &Ledger, answered: usize, plan: &Plan) -> anyhow::Result<()> {
    // Requests that were on their way when the primary died may still be answered.
    let enough = (answered + 2 * load::CLIENTS).min(plan.key_count_max);
    let is_through = wait_until(GET_THROUGH_MAX, || ledger.answered_count() >= enough);
    ensure!(is_through, "the clients do not get through to the new primary");
    Ok(())
}
