//! `cargo xtask guarantees`: the table of what each store was shown to keep, from a run of the conformance suite.
//!
//! The suite leaves one file per store in a folder ([`FOLDER`]); together they are the checked-in table, which the
//! binary prints (`firstwrite stores`). `cargo xtask test` compares the two.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use firstwrite_chaos::args::Args;
use firstwrite_chaos::guard::Guard;
use firstwrite_chaos::packages::{self, C_COMPILER};
use firstwrite_chaos::process;
use firstwrite_chaos::workspace::Workspace;
use serde_json::Value;

use crate::services::{self, Services};

pub(crate) const HELP: &str = "\
Starts the servers of all stores, runs the conformance suite on each, and writes what was claimed and how
many cases of each subject passed to crates/firstwrite-server/src/stores/shown.json, which `firstwrite stores`
prints. `cargo xtask test` compares its own run with that file: a claim that is gone or new, or fewer cases
than are written there, is a failure.

  --full      also the stores whose servers are costly to have (MySQL, Valkey, the newest PostgreSQL and
              Redis); without it their entries stay
  --compare   run nothing; hold what the last run left against the file, as `cargo xtask test` does";

/// The variable that tells the suite where to leave what it found.
pub(crate) const FOLDER: &str = "FIRSTWRITE_TEST_SHOWN";

const TABLE: &str = "crates/firstwrite-server/src/stores/shown.json";

/// Stores whose servers only full runs have.
const COSTLY: [&str; 4] = ["mysql", "postgres-newest", "redis-newest", "valkey"];

/// The tests that run the suite, by parts of their names.
const TESTS: [&str; 2] = ["conform", "one_writer_of_a_cluster"];
/// Not those of a store in front of another, nor the same store through another library.
const SKIPPED: [&str; 6] = ["--skip", "wrappers::", "--skip", "cached::", "--skip", "sqlx::"];

/// Results of one run, in a folder that is emptied first.
#[derive(Debug)]
pub(crate) struct Shown {
    folder: PathBuf,
    /// True if the run included the costly stores.
    is_full: bool,
}

pub(crate) fn run(workspace: &Workspace, mut args: Args) -> anyhow::Result<()> {
    let is_full = args.flag("--full");
    let is_compared = args.flag("--compare");
    args.finish()?;
    if is_compared {
        return Shown { folder: folder(workspace), is_full }.check(workspace);
    }
    packages::ensure(&[C_COMPILER])?;
    let shown = Shown::begin(workspace, is_full)?;
    let guard = Guard::start()?;
    let servers = if is_full { services::STORES_FULL } else { services::STORES };
    let data = workspace.target.join("services").join(format!("run-{}", std::process::id()));
    let services = Services::start(servers, &data, &guard)?;
    let mut command = workspace.cargo();
    command.args(["test", "--package", "firstwrite-testkit", "--package", "firstwrite-store"]);
    command.args(["--all-features", "--tests", "--"]).args(TESTS).args(SKIPPED);
    command.envs(services.environment()).env("FIRSTWRITE_TEST_REQUIRE", "all");
    command.env(FOLDER, shown.folder());
    process::run(&mut command)?;
    drop(services);
    let path = workspace.root.join(TABLE);
    let known = read_table(&path).unwrap_or_default();
    let found = shown.read()?;
    let table = merged(known, found);
    let mut text = serde_json::to_string_pretty(&table).context("writing the table")?;
    text.push('\n');
    fs::write(&path, text).with_context(|| format!("cannot write {TABLE}"))?;
    println!("{TABLE}: {} stores", table.len());
    Ok(())
}

fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("xtask").join("shown")
}

impl Shown {
    /// An empty folder for a run.
    pub(crate) fn begin(workspace: &Workspace, is_full: bool) -> anyhow::Result<Self> {
        let folder = folder(workspace);
        if folder.exists() {
            fs::remove_dir_all(&folder).context("cannot empty the folder for what is shown")?;
        }
        fs::create_dir_all(&folder).context("cannot make a folder for what is shown")?;
        Ok(Self { folder, is_full })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// An error unless the run showed everything that the table says.
    pub(crate) fn check(&self, workspace: &Workspace) -> anyhow::Result<()> {
        let known = read_table(&workspace.root.join(TABLE))?;
        let lost = differences(&known, &self.read()?, self.is_full);
        if lost.is_empty() {
            return Ok(());
        }
        bail!(
            "{}\n{TABLE} says otherwise; if that is meant, write it anew: cargo xtask guarantees{}",
            lost.join("\n"),
            if self.is_full { " --full" } else { "" }
        );
    }

    fn read(&self) -> anyhow::Result<Vec<Value>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder).context("what the suite showed")? {
            let path = entry?.path();
            let text = fs::read_to_string(&path)?;
            let one = serde_json::from_str(&text);
            found.push(one.with_context(|| format!("{} is no JSON", path.display()))?);
        }
        Ok(found)
    }
}

fn read_table(path: &Path) -> anyhow::Result<Vec<Value>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {TABLE}"))?;
    serde_json::from_str(&text).with_context(|| format!("{TABLE} is not what it was written as"))
}

/// The table with the entries that were found anew, by name.
fn merged(mut known: Vec<Value>, found: Vec<Value>) -> Vec<Value> {
    known.retain(|old| !found.iter().any(|new| new["store"] == old["store"]));
    known.extend(found);
    known.sort_by(|a, b| a["store"].as_str().cmp(&b["store"].as_str()));
    known
}

/// In what the run fell short of the table, or went beyond its claims. A server's version may differ, and more cases
/// than are written down are no loss.
fn differences(known: &[Value], found: &[Value], is_full: bool) -> Vec<String> {
    let mut differences = Vec::new();
    for old in known {
        let store = old["store"].as_str().unwrap_or_default();
        let Some(new) = found.iter().find(|new| new["store"] == old["store"]) else {
            if is_full || !COSTLY.contains(&store) {
                differences.push(format!("{store}: the suite did not run to its end"));
            }
            continue;
        };
        if old["claims"] != new["claims"] {
            differences.push(format!("{store}: claimed {}, now {}", old["claims"], new["claims"]));
        }
        for (subject, count) in old["shown"].as_object().into_iter().flatten() {
            let (before, now) = (count.as_u64(), new["shown"][subject].as_u64());
            if now < before {
                let (before, now) = (before.unwrap_or_default(), now.unwrap_or_default());
                differences.push(format!("{store}: {now} cases of `{subject}`, were {before}"));
            }
        }
    }
    let is_new = |new: &&Value| !known.iter().any(|old| old["store"] == new["store"]);
    differences.extend(found.iter().filter(is_new).map(|new| format!("{}: is new", new["store"])));
    differences
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(store: &str, claims: &[&str], outbox: u64) -> Value {
        json!({"store": store, "server": "x", "claims": claims, "shown": {"outbox": outbox}})
    }

    #[test]
    fn a_claim_that_is_gone_or_new_and_a_case_that_is_gone_are_differences() {
        let known = [entry("a", &["outbox"], 4)];
        let with = |found: Value| differences(&known, &[found], false);
        assert!(with(entry("a", &["outbox"], 4)).is_empty());
        assert!(with(entry("a", &["outbox"], 5)).is_empty());
        assert_eq!(with(entry("a", &["outbox"], 3)).len(), 1);
        assert_eq!(with(entry("a", &["outbox", "durable"], 4)).len(), 1);
        let silent = json!({"store": "a", "claims": [], "shown": {}});
        assert_eq!(with(silent).len(), 2);
    }

    #[test]
    fn a_store_that_did_not_run_is_missed_unless_only_full_runs_have_it() {
        let known = [entry("a", &[], 1), entry("mysql", &[], 1)];
        assert_eq!(differences(&known, &[], false).len(), 1);
        assert_eq!(differences(&known, &[], true).len(), 2);
        assert_eq!(differences(&[], &[entry("b", &[], 1)], false).len(), 1);
    }

    #[test]
    fn what_was_not_found_anew_stays_in_the_table() {
        let known = vec![entry("mysql", &[], 1), entry("a", &[], 1)];
        let table = merged(known, vec![entry("a", &[], 2)]);
        assert_eq!(table, [entry("a", &[], 2), entry("mysql", &[], 1)]);
    }
}
