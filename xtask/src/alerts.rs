//! `cargo xtask alerts`: the alert rules, checked and tried by Prometheus's own tool.

use std::path::Path;
use std::process::Command;

use firstwrite_chaos::args::Args;
use firstwrite_chaos::packages::{self, Need};
use firstwrite_chaos::process;
use firstwrite_chaos::workspace::Workspace;

pub(crate) const HELP: &str = "\
Runs promtool on deploy/prometheus: `check rules`, `check config`, and `test rules`, which replays made-up
series and compares the alerts that fire. Installs Debian's package `prometheus` if it is missing (as root;
332 MB, so it is no part of `test` but of `test --full`).";

/// Brings the server along, which stays stopped.
pub(crate) const PROMTOOL: Need =
    Need { program: "promtool", packages: &["prometheus"], find: None };

pub(crate) fn run(workspace: &Workspace, args: Args) -> anyhow::Result<()> {
    args.finish()?;
    check(workspace)
}

/// Checks that the rules are valid, and that they fire when they should and only then.
pub(crate) fn check(workspace: &Workspace) -> anyhow::Result<()> {
    packages::ensure(&[PROMTOOL])?;
    let folder = workspace.root.join("deploy/prometheus");
    for words in [
        ["check", "rules", "alerts.yml"],
        ["check", "config", "prometheus.yml"],
        ["test", "rules", "alerts.test.yml"],
    ] {
        process::run(promtool(&folder).args(words))?;
    }
    Ok(())
}

fn promtool(folder: &Path) -> Command {
    let mut command = Command::new("promtool");
    command.current_dir(folder);
    command
}
