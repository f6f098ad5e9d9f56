//! The whole-path simulator: production's layer, gateway, worker and reconciliation, run by one seeded executor with
//! simulated time, store, network and processes.
//!
//! One seed is one history, always the same. The world keeps its own ledger of what really happened, and a run is
//! judged by comparing the ledger with the store and with the answer to every caller:
//!
//! 1. one key has at most one effect within retention;
//! 2. every answer is the first kept answer, or a refusal;
//! 3. a refusal that says "nothing was run", or that a new key is safe, is true;
//! 4. a request that was accepted with 202 is known when a caller asks for its status;
//! 5. after recovery no key is blocked, and no key is uncertain under which nothing ran, or whose outcome a living
//!    process knows;
//! 6. a message arrives at least once, or is visibly unknown; no caller is told that it was refused when it arrived,
//!    or when the provider did not refuse it;
//! 7. a reconciliation frees or resends nothing whose effect exists or lands later, completes nothing without its own
//!    effect, and misses nothing in a complete account;
//! 8. where history was lost, no key runs that may have been used, until an operator clears the loss.

mod account;
mod cast;
mod chaos;
mod client;
mod courier;
mod customers;
mod defects;
mod events;
mod front;
mod ledger;
mod loss;
mod outbox;
mod payments;
mod reconcile;
mod stage;
mod store;
mod summary;
mod terms;
mod upstream;
mod world;

use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::timeout;

pub use defects::Defect;
pub use events::{Event, Events};
pub use summary::{BrokenPromise, HISTORIES_FOR_ALL_EVENTS, Summary, catch, run_many};

use client::Wish;
use stage::Stage;
use terms::{Path, Terms};
use world::World;

/// Options of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    /// A mistake to make; none for the real thing.
    pub defect: Option<Defect>,
    /// True if every step is recorded.
    pub is_traced: bool,
}

/// Result of one history.
#[derive(Debug)]
pub struct Ended {
    /// Events, and how often each happened.
    pub events: Events,
    /// Number of steps.
    pub steps: u64,
    /// A digest of everything that happened, in order.
    pub hash: u64,
    /// The first broken promise, if any.
    pub violation: Option<String>,
    /// Every step, if asked for.
    pub trace: Vec<String>,
}

/// Longer than any history: one that takes longer hangs.
const HISTORY_MAX: Duration = Duration::from_hours(2);

/// Runs the history of one seed.
pub fn run(seed: u64, plan: Plan) -> Ended {
    // Neighbouring seeds must not give neighbouring histories.
    let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5eed;
    // What production draws by itself: nonces, jitter.
    fastrand::seed(mixed);
    let mut rng = fastrand::Rng::with_seed(mixed);
    let mut account_rng = fastrand::Rng::with_seed(mixed.rotate_left(32) ^ 0xacc0);
    let mut terms = Terms::draw(&mut rng);
    // Few histories have messages, and few messages stay in doubt.
    let often = if terms.path == Path::Atomic { 3 } else { 1 };
    // A day that passes at once makes calls of a second take a day: no grace is as long.
    terms.reconciles = account_rng.u8(..4) < often && !terms.retention_jumps;
    let mut loss_rng = fastrand::Rng::with_seed(mixed.rotate_left(16) ^ 0x105e);
    let has_records_alone = matches!(terms.path, Path::Library | Path::Gateway);
    terms.loses_history =
        loss_rng.u8(..3) == 0 && has_records_alone && !terms.reconciles && !terms.retention_jumps;
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without I/O needs nothing of the system");
    runtime.block_on(async {
        let world = World::new([rng, account_rng, loss_rng], terms, plan.defect, plan.is_traced);
        if timeout(HISTORY_MAX, history(&world)).await.is_err() {
            world.violation(|| "the history does not come to its end".to_owned());
        }
        let mut state = world.state();
        Ended {
            events: state.log.events.clone(),
            steps: state.log.steps,
            hash: state.log.hash,
            violation: state.log.violation.take(),
            trace: state.log.lines.take().unwrap_or_default(),
        }
    })
}

async fn history(world: &World) {
    if let Some(lines) = &mut world.state().log.lines {
        lines.push(format!("{:#?}", world.terms()));
    }
    let stage = Stage::new(world.clone());
    let terms = world.terms();
    let wishes: Vec<Wish> = (0..terms.client_count)
        .map(|_| {
            let mut state = world.state();
            let key = if state.rng.u8(..4) == 0 { terms.key_count - 1 } else { 0 };
            // An upstream that recognises keys recognises them for one request; which one it was is forgotten where
            // a lost answer frees the key.
            let is_one = terms.path == Path::Atomic || terms.upstream_honours_keys();
            let is_other = state.rng.u8(..12) == 0 && !is_one;
            Wish { key, variant: u8::from(is_other) }
        })
        .collect();
    if terms.path == Path::Atomic {
        tokio::spawn(courier::work(stage.clone()));
    }
    if terms.reconciles {
        customers::come_before(&stage);
        tokio::spawn(customers::come(stage.clone()));
        tokio::spawn(reconcile::look_now_and_then(stage.clone()));
    }
    let mut actors = vec![tokio::spawn(chaos::bad_times(stage.clone()))];
    if terms.loses_history {
        actors.push(tokio::spawn(loss::lose(stage.clone())));
    }
    for wish in &wishes {
        actors.push(tokio::spawn(client::call(stage.clone(), *wish, 4)));
    }
    for actor in actors {
        if let Err(error) = actor.await {
            world.violation(|| format!("an actor broke down: {error}"));
        }
        if world.state().log.violation.is_some() {
            return;
        }
    }
    chaos::good_times(&stage, &wishes).await;
}
