//! Programs of others that tests of the gateway run against it: a browser, and the official Stripe libraries.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use firstwrite_chaos::packages::{self, Need};
use firstwrite_chaos::process;
use firstwrite_chaos::workspace::Workspace;

use crate::examples::VENV;

/// Without fonts it starts and shows boxes, which no test looks at.
pub(crate) const CHROMIUM: Need = Need { program: "chromium", packages: &["chromium"], find: None };
pub(crate) const NODE: Need = Need { program: "node", packages: &["nodejs"], find: None };
pub(crate) const NPM: Need = Need { program: "npm", packages: &["npm"], find: None };

const PYTHON: &str = "/usr/bin/python3";

/// Folder of the scripts and of the library versions that they are written for.
const STRIPE: &str = "crates/firstwrite-server/tests/stripe";

/// Installs them; returns the environment variables by which tests find them. Libraries go below the target folder
/// and are kept for the next run.
pub(crate) fn install(workspace: &Workspace) -> anyhow::Result<Vec<(&'static str, String)>> {
    packages::ensure(&[CHROMIUM, NODE, NPM, VENV])?;
    let chromium = process::find(CHROMIUM.program).context("there is no chromium")?;
    let (sources, kept) = (workspace.root.join(STRIPE), workspace.target.join("stripe"));
    let node = for_node(&sources, &kept.join("node"))?;
    let python = for_python(&sources, &kept.join("venv"))?;
    let named = [
        ("FIRSTWRITE_TEST_CHROMIUM", chromium),
        ("FIRSTWRITE_TEST_STRIPE_NODE", node),
        ("FIRSTWRITE_TEST_STRIPE_PYTHON", python),
    ];
    Ok(named.map(|(name, path)| (name, path.display().to_string())).into())
}

fn for_node(sources: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(folder).context("cannot make a folder for a library")?;
    for file in ["package.json", "package-lock.json"] {
        std::fs::copy(sources.join(file), folder.join(file))
            .with_context(|| format!("cannot copy {file}"))?;
    }
    let mut install = Command::new(NPM.program);
    install.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
    process::run(install.current_dir(folder))?;
    Ok(folder.to_owned())
}

fn for_python(sources: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    let programs = folder.join("bin");
    if !programs.join("pip").exists() {
        process::run(Command::new(PYTHON).args(["-m", "venv"]).arg(folder))?;
    }
    let mut install = Command::new(programs.join("pip"));
    install.args(["install", "--quiet", "--disable-pip-version-check", "--requirement"]);
    process::run(install.arg(sources.join("requirements.txt")))?;
    Ok(programs.join("python"))
}
