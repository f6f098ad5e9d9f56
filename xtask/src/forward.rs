//! Tasks that only hand their words on to a program of the workspace.

use crate::args::{Args, Usage};
use crate::demo::Build;
use crate::process;
use crate::workspace::Workspace;

pub(crate) const SIM_HELP: &str = "\
Runs `firstwrite-testkit`'s example `sim`; all words are handed on to it. A failure prints the seed that
repeats it: `cargo xtask sim --seed N`.";

pub(crate) const MODEL_HELP: &str = "\
Runs the same example as `sim` with `--model`: every order of events of a small system, not a sample.
All words are handed on.";

pub(crate) const BENCH_HELP: &str = "\
Runs one measurement; words after its name are handed on. Without a name, lists them.";

/// One measurement: what to type, where it lives, what it tells.
struct Bench {
    name: &'static str,
    package: &'static str,
    measures: &'static str,
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "layer",
        package: "firstwrite",
        measures: "what the layer adds to a request: fresh, replay and unprotected side by side",
    },
    Bench {
        name: "sqlite",
        package: "firstwrite-store",
        measures: "the SQLite store: reservations, completions and replays per second",
    },
];

pub(crate) fn sim(workspace: &Workspace, args: Args) -> anyhow::Result<()> {
    let words = args.rest();
    run_sim(workspace, Build::Release, &words.iter().map(String::as_str).collect::<Vec<_>>())
}

pub(crate) fn model(workspace: &Workspace, args: Args) -> anyhow::Result<()> {
    let words = args.rest();
    let mut all = vec!["--model"];
    all.extend(words.iter().map(String::as_str));
    run_sim(workspace, Build::Release, &all)
}

/// Runs the simulator with the given words.
pub(crate) fn run_sim(workspace: &Workspace, build: Build, words: &[&str]) -> anyhow::Result<()> {
    let mut command = workspace.cargo();
    command.arg("run").args(build.arguments());
    command.args(["--package", "firstwrite-testkit", "--features", "model", "--example", "sim"]);
    process::run(command.arg("--").args(words))
}

pub(crate) fn bench(workspace: &Workspace, mut args: Args) -> anyhow::Result<()> {
    let Some(name) = args.word() else {
        for Bench { name, package, measures } in BENCHES {
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
    process::run(command.arg("--").args(args.rest()))
}
