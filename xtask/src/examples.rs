//! `cargo xtask examples`: the examples that other languages bring, run against a real gateway.

mod actor;
mod fastapi;
mod stripe;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use firstwrite_chaos::args::Args;
use firstwrite_chaos::guard::Guard;
use firstwrite_chaos::packages::{self, Need};
use firstwrite_chaos::workspace::{Build, Workspace};
use firstwrite_chaos::{place, postgres, process};

pub(crate) const HELP: &str = "\
Runs examples/fastapi and examples/stripe behind a gateway, and checks how they end:

  fastapi   kills itself between its commit and its answer; the client is answered all the same, once, and
            there is one payment; the same where it repeats its transaction because the COMMIT was not
            acknowledged
  stripe    the official library, whose first answer is lost on its way, pays once against a stand-in for
            Stripe

Python packages are installed into a folder below the target folder (about 100 MB, kept for the next time), as
the requirements.txt beside each example say. Part of `test --full`, not of `test`.

  --release   with the release build";

const PYTHON: &str = "/usr/bin/python3";

/// Debian's interpreter, and what makes private folders for it.
pub(crate) const VENV: Need =
    Need { program: "python3-venv", packages: &["python3", "python3-venv"], find: Some(venv) };

/// Environment that every example runs in.
struct Ground<'a> {
    /// The `firstwrite` binary.
    binary: PathBuf,
    /// Folder of Python's programs.
    python: PathBuf,
    /// The example's own sources.
    sources: PathBuf,
    /// A folder for this run.
    folder: PathBuf,
    guard: &'a Guard,
}

type Check = fn(&Ground<'_>) -> anyhow::Result<()>;

const EXAMPLES: [(&str, Check); 2] = [("fastapi", fastapi::check), ("stripe", stripe::check)];

pub(crate) fn run(workspace: &Workspace, mut args: Args) -> anyhow::Result<()> {
    let build = Build::of(args.flag("--release"));
    args.finish()?;
    check(workspace, build, &Guard::start()?)
}

/// Runs each example and checks that it ends as it says.
pub(crate) fn check(workspace: &Workspace, build: Build, guard: &Guard) -> anyhow::Result<()> {
    packages::ensure(&[VENV, postgres::SERVER])?;
    let binary = build.binary(workspace)?;
    let kept = workspace.target.join("examples");
    let root = workspace.root.join("examples");
    let python = install(&kept, &EXAMPLES.map(|(name, _)| root.join(name)))?;
    for (name, check) in EXAMPLES {
        let folder = kept.join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).context("cannot make a folder for an example")?;
        let (binary, python) = (binary.clone(), python.clone());
        let ground = Ground { binary, python, sources: root.join(name), folder, guard };
        let seen = workspace.spoken(&ground.folder);
        check(&ground).with_context(|| format!("examples/{name}; see {seen}"))?;
        place::delete(&ground.folder);
    }
    Ok(())
}

/// Installs what the examples need into a folder of their own; returns where its programs are.
fn install(kept: &Path, examples: &[PathBuf]) -> anyhow::Result<PathBuf> {
    let folder = kept.join("venv");
    let programs = folder.join("bin");
    if !programs.join("pip").exists() {
        process::run(Command::new(PYTHON).args(["-m", "venv"]).arg(&folder))?;
    }
    let mut install = Command::new(programs.join("pip"));
    install.args(["install", "--quiet", "--disable-pip-version-check"]);
    for example in examples {
        install.arg("--requirement").arg(example.join("requirements.txt"));
    }
    process::run(&mut install)?;
    Ok(programs)
}

/// The module is there when it can be asked for help, and can bring pip along.
fn venv() -> Option<PathBuf> {
    let is_there = process::succeeds(Command::new(PYTHON).args(["-c", "import venv, ensurepip"]));
    is_there.then(|| PathBuf::from(PYTHON))
}
