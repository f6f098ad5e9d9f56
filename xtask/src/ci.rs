//! `cargo xtask ci`: all that must hold before a change is taken.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context as _, bail};
use firstwrite_chaos::args::Args;
use firstwrite_chaos::process;
use firstwrite_chaos::workspace::Workspace;

use crate::crates::{self, Package};
use crate::steps::{Row, Steps};
use crate::{fuzz, test, tidy};

pub(crate) const HELP: &str = "\
Runs, in this order: cargo fmt --check, clippy, rustdoc (warnings are errors in all three), tidy, each
feature of each crate alone, typos and cargo-deny (deny.toml: licences, sources, banned crates, and
advisories where their database can be reached) where they are installed, the units of deploy/systemd by
systemd-analyze, the targets of fuzz/ as a program of their own, and `test`. Every step is printed with its
time; a step that is skipped is named with the reason, also at the end.

  --full   passed on to `test`";

pub(crate) fn run(workspace: &Workspace, args: Args) -> anyhow::Result<()> {
    let mut steps = Steps::default();
    steps.check("format", || {
        process::run(workspace.cargo().args(["fmt", "--all", "--", "--check"]))
    });
    steps.check("clippy", || {
        process::run(
            workspace
                .cargo()
                .args(["clippy", "--workspace", "--all-targets", "--all-features"])
                .args(["--", "-D", "warnings"]),
        )
    });
    steps.check("documentation", || {
        process::run(
            workspace
                .cargo()
                .args(["doc", "--no-deps", "--workspace", "--all-features"])
                .env("RUSTDOCFLAGS", "-D warnings"),
        )
    });
    steps.measure("tidy", || Ok(vec![Row::new("tidy", tidy::count(workspace)?)]));
    for arguments in crates::load(workspace)?.iter().flat_map(feature_checks) {
        steps.check(&format!("features: {}", arguments[2..].join(" ")), || {
            process::run(workspace.cargo().args(&arguments))
        });
    }
    if_installed(workspace, &mut steps, "typos", &["typos"], None);
    let deny = ["cargo-deny", "check", "bans", "licenses", "sources"];
    if_installed(workspace, &mut steps, "cargo-deny", &deny, Some("deny.toml"));
    advisories(&workspace.root, process::find("cargo-deny"), &mut steps);
    units(workspace, &mut steps);
    fuzz::check_step(workspace, &mut steps);
    steps.check("test", || test::run(workspace, args));
    conclude(&steps)
}

/// The arguments of one `cargo check` per feature, and of one without any. Features whose name begins with an
/// underscore are private: others enable them.
fn feature_checks(package: &Package) -> Vec<Vec<String>> {
    let bare = ["check", "--package", &package.name, "--no-default-features"].map(str::to_owned);
    let mut checks = vec![bare.to_vec()];
    for feature in package.features.iter().filter(|name| !name.starts_with('_')) {
        let mut check = bare.to_vec();
        check.extend(["--features".to_owned(), feature.clone()]);
        checks.push(check);
    }
    checks
}

/// A tool that cannot be had everywhere: run where it is, named where it is not.
fn if_installed(
    workspace: &Workspace,
    steps: &mut Steps,
    name: &str,
    words: &[&str],
    settings: Option<&str>,
) {
    if let Some(file) = settings.filter(|file| !workspace.root.join(file).is_file()) {
        return steps.skip(name, &format!("there is no {file}"));
    }
    let Some(program) = process::find(words[0]) else {
        return steps.skip(name, &format!("{} is not installed", words[0]));
    };
    steps.check(name, || {
        process::run(Command::new(program).args(&words[1..]).current_dir(&workspace.root))
    });
}

/// The units as systemd reads them. The program that they start need not be installed here.
fn units(workspace: &Workspace, steps: &mut Steps) {
    const NAME: &str = "systemd units";
    let Some(program) = process::find("systemd-analyze") else {
        return steps.skip(NAME, "systemd-analyze is not installed");
    };
    let (from, to) = (workspace.root.join("deploy/systemd"), workspace.target.join("units"));
    steps.check(NAME, || {
        let units = with_program(&from, &to, &env::current_exe()?)?;
        let mut command = Command::new(program);
        let read = command.args(["verify", "--man=no"]).args(units).output()?;
        // A setting that systemd does not know is no failure to it.
        let said = String::from_utf8_lossy(&read.stderr);
        if !read.status.success() || !said.trim().is_empty() {
            bail!("{}", said.trim());
        }
        Ok(())
    });
}

/// Copies the units with a program that exists; returns the copies.
fn with_program(from: &Path, to: &Path, program: &Path) -> anyhow::Result<Vec<PathBuf>> {
    const WRITTEN: &str = "/usr/bin/firstwrite";
    fs::create_dir_all(to)?;
    let mut copies = Vec::new();
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let path = entry?.path();
        let text = fs::read_to_string(&path)?;
        let starts = text.contains(&format!("\nExecStart={WRITTEN} "));
        let Some(name) = path.file_name().filter(|_| starts) else {
            bail!("{} does not start {WRITTEN}", path.display());
        };
        let copy = to.join(name);
        fs::write(&copy, text.replace(WRITTEN, &program.display().to_string()))?;
        copies.push(copy);
    }
    Ok(copies)
}

/// Known faults of what is linked. They are told by a database that not every machine reaches.
fn advisories(root: &Path, program: Option<PathBuf>, steps: &mut Steps) {
    const NAME: &str = "cargo-deny: advisories";
    let Some(program) = program else {
        return steps.skip(NAME, "cargo-deny is not installed");
    };
    let deny = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words).current_dir(root);
        command
    };
    if !process::succeeds(&mut deny(&["fetch", "db"])) {
        return steps.skip(NAME, "the database of advisories cannot be reached");
    }
    steps.check(NAME, || process::run(&mut deny(&["check", "--disable-fetch", "advisories"])));
}

fn conclude(steps: &Steps) -> anyhow::Result<()> {
    println!("\n{}", steps.table());
    for (name, reason) in &steps.skipped {
        println!("skipped: {name}, {reason}");
    }
    for problem in &steps.problems {
        println!("failed: {problem}");
    }
    match steps.totals().failed {
        0 => Ok(()),
        count => bail!("{count} of the checks failed; they are listed above"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_feature_is_checked_alone_and_none_too() {
        let package = Package {
            name: "firstwrite-store".to_owned(),
            manifest: "crates/firstwrite-store/Cargo.toml".to_owned(),
            features: ["_tls", "default", "sqlite"].map(str::to_owned).to_vec(),
            dependencies: Vec::new(),
        };
        let lines: Vec<String> =
            feature_checks(&package).iter().map(|check| check.join(" ")).collect();
        assert_eq!(
            lines,
            [
                "check --package firstwrite-store --no-default-features",
                "check --package firstwrite-store --no-default-features --features default",
                "check --package firstwrite-store --no-default-features --features sqlite",
            ]
        );
    }

    /// A cargo-deny that ends so for each of its commands.
    fn cargo_deny(folder: &Path, fetch: u8, check: u8) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;

        let path = folder.join("cargo-deny");
        let script = format!("#!/bin/sh\n[ \"$1\" = fetch ] && exit {fetch}\nexit {check}\n");
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        path
    }

    #[test]
    fn advisories_are_skipped_by_name_where_their_database_cannot_be_reached() {
        let folder = tempfile::tempdir().unwrap();
        let ran = |program| {
            let mut steps = Steps::default();
            advisories(folder.path(), program, &mut steps);
            let totals = steps.totals();
            (totals.passed, totals.failed, steps.skipped.pop().map(|(_, reason)| reason))
        };
        let unreached = "the database of advisories cannot be reached".to_owned();
        let deny = |fetch, check| Some(cargo_deny(folder.path(), fetch, check));
        assert_eq!(ran(deny(1, 0)), (0, 0, Some(unreached)));
        assert_eq!(ran(deny(0, 0)), (1, 0, None));
        assert_eq!(ran(deny(0, 1)), (0, 1, None), "a fault that is known fails the run");
        assert_eq!(ran(None), (0, 0, Some("cargo-deny is not installed".to_owned())));
    }

    #[test]
    fn units_are_read_with_a_program_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir(&from).unwrap();
        fs::write(from.join("a.service"), "[Service]\nExecStart=/usr/bin/firstwrite worker\n")
            .unwrap();
        let copies = with_program(&from, &to, Path::new("/bin/true")).unwrap();
        assert_eq!(
            fs::read_to_string(&copies[0]).unwrap(),
            "[Service]\nExecStart=/bin/true worker\n"
        );
        fs::write(from.join("b.service"), "[Service]\nExecStart=/opt/firstwrite\n").unwrap();
        assert!(with_program(&from, &to, Path::new("/bin/true")).is_err());
    }
}
