//! `cargo xtask ci`: all that must hold before a change is taken.

use anyhow::bail;
use firstwrite_chaos::args::Args;
use firstwrite_chaos::process;
use firstwrite_chaos::workspace::Workspace;

use crate::crates::{self, Package};
use crate::steps::{Row, Steps};
use crate::{test, tidy};

pub(crate) const HELP: &str = "\
Runs, in this order: cargo fmt --check, clippy, rustdoc (warnings are errors in all three), tidy, each
feature of each crate alone, typos and cargo-deny (deny.toml: licences, sources, banned crates, and
advisories where their database can be reached) where they are installed, and `test`. Every step is
printed with its time; a step that is skipped is named with the reason, also at the end.

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
    advisories(workspace, &mut steps);
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
        process::run(
            std::process::Command::new(program).args(&words[1..]).current_dir(&workspace.root),
        )
    });
}

/// Known faults of what is linked. They are told by a database that not every machine reaches.
fn advisories(workspace: &Workspace, steps: &mut Steps) {
    const NAME: &str = "cargo-deny: advisories";
    let Some(program) = process::find("cargo-deny") else {
        return steps.skip(NAME, "cargo-deny is not installed");
    };
    let deny = |words: &[&str]| {
        let mut command = std::process::Command::new(&program);
        command.args(words).current_dir(&workspace.root);
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
}
