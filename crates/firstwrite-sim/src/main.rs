//! Runs the whole-path simulator and its planted defects, and says what they found.
//!
//! `--histories N` (100000), `--seed N` (only that history, step by step), `--first N` (the first seed),
//! `--violations N` (stop after so many), `--fixed` (no fresh seeds), `--defects` (only the planted defects),
//! `--defect NAME` (only that one).

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command for people")]

use std::process::ExitCode;
use std::time::Instant;

use firstwrite_sim::{Defect, Plan, catch, run, run_many};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Command-line options.
struct Options {
    histories: u64,
    first: Option<u64>,
    seed: Option<u64>,
    violations: usize,
    is_fixed: bool,
    defects_only: bool,
    defect: Option<Defect>,
}

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
        None if options.defect.is_some() => defects(options.defect.as_slice()),
        None if options.defects_only => defects(Defect::ALL),
        None if options.first.is_some() => histories(&options),
        None => {
            let parts = [histories(&options), defects(Defect::ALL)];
            parts.into_iter().all(|good| good)
        }
    };
    println!("{}", if good { "all is well" } else { "NOT WELL" });
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one_history(seed: u64) -> bool {
    let ended = run(seed, Plan { is_traced: true, ..Plan::default() });
    ended.trace.iter().for_each(|line| println!("  {line}"));
    println!("seed {seed}: {} steps, digest {:016x}", ended.steps, ended.hash);
    println!("violations: {}", u8::from(ended.violation.is_some()));
    ended.violation.is_none()
}

/// Half of the histories from a fixed seed, half from a fresh one; all from the first seed, if one is given.
fn histories(options: &Options) -> bool {
    let fresh = fastrand::u64(..1 << 48);
    let half = options.histories / 2;
    let runs = match options.first {
        Some(first) => vec![("given", first, options.histories)],
        None if options.is_fixed => vec![("fixed", 0, options.histories)],
        None => vec![("fixed", 0, half), ("fresh", fresh, options.histories - half)],
    };
    let mut good = true;
    for (name, first, count) in runs {
        let begun = now();
        let summary = run_many(first, count, Plan::default(), options.violations);
        let seconds = begun.elapsed().as_secs_f64();
        println!("whole-path simulator, {name} seed {first}");
        println!("{summary}");
        println!("histories per minute: {:.0}", rate(summary.histories, seconds / 60.0));
        good &= summary.is_good();
    }
    good
}

/// Largest number of histories in which a defect must be caught.
const DEFECT_HISTORIES_MAX: u64 = 50_000;

fn defects(planted: &[Defect]) -> bool {
    let mut caught = 0;
    for defect in planted {
        let known = defect.first_seed();
        let caught_again = catch(*defect, known..known + 1);
        match caught_again.or_else(|| catch(*defect, 0..DEFECT_HISTORIES_MAX)) {
            Some(broken) => {
                caught += 1;
                println!("  {defect:?}: caught with seed {}: {}", broken.seed, broken.words);
            }
            None => println!("  {defect:?}: MISSED"),
        }
    }
    println!("planted defects caught: {caught} of {}", planted.len());
    caught == planted.len()
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        histories: 100_000,
        first: None,
        seed: None,
        violations: 1,
        is_fixed: false,
        defects_only: false,
        defect: None,
    };
    while let Some(name) = arguments.next() {
        let mut number = || {
            let value = arguments.next().unwrap_or_default();
            value.parse::<u64>().map_err(|error| format!("{name} {value}: {error}"))
        };
        match name.as_str() {
            "--histories" => options.histories = number()?,
            "--seed" => options.seed = Some(number()?),
            "--first" => options.first = Some(number()?),
            "--violations" => options.violations = usize::try_from(number()?).unwrap_or(usize::MAX),
            "--fixed" => options.is_fixed = true,
            "--defects" => options.defects_only = true,
            "--defect" => {
                let name = arguments.next().unwrap_or_default();
                let mut all = Defect::ALL.iter().copied();
                let found = all.find(|defect| format!("{defect:?}") == name);
                options.defect = Some(found.ok_or_else(|| format!("no defect is {name}"))?);
            }
            _ => return Err(format!("{name} is not an option; see the top of main.rs")),
        }
    }
    Ok(options)
}

#[expect(clippy::disallowed_methods, reason = "how fast it really was is what is measured")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn rate(count: u64, minutes: f64) -> f64 {
    count as f64 / minutes.max(f64::EPSILON)
}
