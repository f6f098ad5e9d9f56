//! `cargo xtask fuzz`: feeds malformed bytes to everything that parses input from others.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};
use firstwrite_chaos::args::Args;
use firstwrite_chaos::process;
use firstwrite_chaos::workspace::Workspace;

use crate::steps::Steps;

pub(crate) const HELP: &str = "\
Drives every target of fuzz/ without coverage, on stable, from the examples in fuzz/corpus: keys, heads, tokens, key
sets, fingerprints, stored forms, documents, envelopes, addresses, settings, exports, answers. The same targets run
in every `test`, in a short form, and in `test --full` in this one. Then compiles fuzz/ as cargo fuzz builds it, and
drives each target with coverage, where there is a nightly toolchain with cargo-fuzz; what is missing is named.

  --executions N   for each target";

/// For each of 20 targets: more than three million in all, in a few minutes.
pub(crate) const EXECUTIONS_FULL: &str = "200000";

/// No input with coverage is longer, as none without is.
const BYTES_MAX: &str = "4096";

pub(crate) fn run(workspace: &Workspace, mut args: Args) -> anyhow::Result<()> {
    let executions: Option<u64> = args.value("--executions")?;
    args.finish()?;
    let executions =
        executions.map_or_else(|| EXECUTIONS_FULL.to_owned(), |count| count.to_string());
    let mut command = workspace.cargo();
    command.args(["test", "--package", "firstwrite-server", "--all-features", "--test", "fuzz"]);
    process::run(command.env("FIRSTWRITE_TEST_FUZZ", &executions))?;
    check(workspace)?;
    match missing_for_coverage() {
        Some(missing) => println!("skipped: with coverage, {missing}"),
        None => with_coverage(workspace, &executions)?,
    }
    Ok(())
}

/// The step of other tasks in which the programs of `fuzz/` are compiled.
pub(crate) fn check_step(workspace: &Workspace, steps: &mut Steps) {
    steps.check("fuzz targets compile", || check(workspace));
}

/// Compiles `fuzz/`, which no build of the workspace does, with the workspace's own versions.
fn check(workspace: &Workspace) -> anyhow::Result<()> {
    let lock = workspace.root.join("Cargo.lock");
    fs::copy(&lock, workspace.root.join("fuzz/Cargo.lock")).context("copying the lock file")?;
    let mut command = workspace.cargo();
    command.args(["check", "--manifest-path", "fuzz/Cargo.toml", "--bins", "--target-dir"]);
    process::run(command.arg(folder(workspace)))
}

/// Of cargo fuzz and of the check before it: another build than the workspace's.
fn folder(workspace: &Workspace) -> std::path::PathBuf {
    workspace.target.join("fuzz")
}

/// The first thing without which nothing can be driven with coverage.
fn missing_for_coverage() -> Option<&'static str> {
    if process::find("cargo-fuzz").is_none() {
        return Some("cargo-fuzz is not installed (cargo install cargo-fuzz --locked)");
    }
    let mut nightly = Command::new("rustup");
    let is_there = process::succeeds(nightly.args(["run", "nightly", "rustc", "--version"]));
    (!is_there).then_some("there is no nightly toolchain (rustup toolchain install nightly)")
}

/// Drives each target with coverage. Inputs that it finds stay out of the tree: the corpus there is small.
fn with_coverage(workspace: &Workspace, executions: &str) -> anyhow::Result<()> {
    for target in targets(&workspace.root.join("fuzz/targets"))? {
        let found = folder(workspace).join("corpus").join(&target);
        fs::create_dir_all(&found)?;
        let mut command = Command::new("rustup");
        command.current_dir(&workspace.root).args(["run", "nightly", "cargo", "fuzz", "run"]);
        command.arg("--target-dir").arg(folder(workspace)).arg(&target).arg(found);
        command.arg(workspace.root.join("fuzz/corpus").join(&target));
        command.args(["--", &format!("-runs={executions}"), &format!("-max_len={BYTES_MAX}")]);
        process::run(command.env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN"))?;
    }
    Ok(())
}

/// The targets, by the names of their programs.
fn targets(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.file_stem().and_then(|name| name.to_str()) {
            Some(name) if path.extension().is_some_and(|kind| kind == "rs") => {
                names.push(name.to_owned());
            }
            Some(_) | None => bail!("{} is no target", path.display()),
        }
    }
    names.sort();
    Ok(names)
}
