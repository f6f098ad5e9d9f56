//! Runs the simulator, the model and the planted defects, and says what they found.
//!
//! `--histories N` (100000), `--seed N` (only that history), `--model` (only the model),
//! `--full` (the models' long forms: millions of states), `--model-depth N` (the same with N attempts, 2 to 8).

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command for people")]

use std::process::ExitCode;
use std::time::Instant;

use firstwrite_testkit::defects::{Defect, catch};
use firstwrite_testkit::model::outbox::{OutboxDesign, Scope, explore_outbox};
use firstwrite_testkit::model::{Bounds, Design, explore};
use firstwrite_testkit::sim::{Plan, Trace, run, run_many};

/// What was asked for.
struct Options {
    histories: u64,
    seed: Option<u64>,
    model_only: bool,
    bounds: Bounds,
}

/// Attempts in the long form of the model.
const FULL_DEPTH: u8 = 3;

/// The same histories in every run, beside the fresh ones.
const FIXED_SEED: u64 = 0;

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(words) => {
            eprintln!("{words}");
            return ExitCode::from(2);
        }
    };
    let good = match options.seed {
        Some(seed) => one_history(seed),
        None if options.model_only => model(options.bounds),
        None => {
            // All three speak, also when the first has bad news.
            let parts = [histories(options.histories), model(options.bounds), defects()];
            parts.into_iter().all(|good| good)
        }
    };
    println!("{}", if good { "all is well" } else { "NOT WELL" });
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one_history(seed: u64) -> bool {
    let ended = run(seed, Plan { trace: Trace::On, ..Plan::default() });
    ended.trace.iter().for_each(|line| println!("  {line}"));
    println!("seed {seed}: {} steps", ended.steps);
    println!("violations: {}", u8::from(ended.violation.is_some()));
    ended.violation.is_none()
}

/// Half of the histories from a fixed seed, half from a fresh one.
fn histories(count: u64) -> bool {
    let fresh = fastrand::u64(..1 << 48);
    let mut good = true;
    for (name, first, count) in
        [("fixed", FIXED_SEED, count / 2), ("fresh", fresh, count - count / 2)]
    {
        let begun = now();
        let summary = run_many(first, count, Plan::default(), |done| {
            eprintln!("histories from seed {first}: {done} of {count}");
        });
        let seconds = begun.elapsed().as_secs_f64();
        println!("simulator, {name} seed {first}");
        println!("{summary}");
        println!("histories per second: {:.0}", rate(summary.histories, seconds));
        good &= summary.is_good();
    }
    good
}

fn model(bounds: Bounds) -> bool {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (mut good, mut states, mut refuted) = (true, 0, Vec::new());
    for design in Design::ALL {
        eprintln!("exploring {design:?}");
        // A known-bad design is explored until it is refuted, which takes little.
        let bounds = if design.is_real() { bounds } else { Bounds::SMALL };
        let explored = explore(design, bounds, threads);
        println!("{explored}");
        states += explored.unique_states;
        good &= explored.is_as_expected();
        if !design.is_real() && !explored.broken.is_empty() {
            refuted.push(format!("{design:?}"));
        }
    }
    println!("model states: {states}; refuted designs: {}", refuted.join(", "));
    outbox_model(bounds, threads) && good
}

fn outbox_model(bounds: Bounds, threads: usize) -> bool {
    let scopes = if bounds == Bounds::SMALL { Scope::SHORT } else { Scope::LONG };
    let (mut good, mut states, mut refuted) = (true, 0, 0);
    for design in OutboxDesign::ALL {
        eprintln!("exploring the outbox, {design:?}");
        let explored = explore_outbox(design, scopes, threads);
        println!("{explored}");
        states += explored.unique_states;
        good &= explored.is_as_expected();
        refuted += usize::from(design.must_break().is_some() && explored.is_as_expected());
    }
    let bad = OutboxDesign::ALL.len() - 1;
    println!("outbox states: {states}; refuted designs: {refuted} of {bad}");
    good
}

fn defects() -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.expect("a runtime without drivers needs nothing of the system");
    let mut caught = 0;
    for defect in Defect::ALL {
        match runtime.block_on(catch(defect)) {
            Some(catcher) => {
                caught += 1;
                println!("  {defect:?}: caught by {catcher}");
            }
            None => println!("  {defect:?}: MISSED"),
        }
    }
    println!("planted defects caught: {caught} of {}", Defect::ALL.len());
    caught == Defect::ALL.len()
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let (histories, bounds) = (100_000, Bounds::SMALL);
    let mut options = Options { histories, seed: None, model_only: false, bounds };
    while let Some(name) = arguments.next() {
        let mut number = || {
            let value = arguments.next().unwrap_or_default();
            value.parse::<u64>().map_err(|error| format!("{name} {value}: {error}"))
        };
        match name.as_str() {
            "--histories" => options.histories = number()?,
            "--seed" => options.seed = Some(number()?),
            "--model" => options.model_only = true,
            "--full" => options.bounds = Bounds::of_depth(FULL_DEPTH),
            "--model-depth" => {
                options.bounds = Bounds::of_depth(u8::try_from(number()?).unwrap_or(u8::MAX));
            }
            _ => return Err(format!("{name} is not an option; see the top of examples/sim.rs")),
        }
    }
    Ok(options)
}

#[expect(clippy::disallowed_methods, reason = "how fast it really was is what is measured")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn rate(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds.max(f64::EPSILON)
}
