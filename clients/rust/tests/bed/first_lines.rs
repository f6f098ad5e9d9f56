//! The first lines of the README, in a crate outside of the workspace that depends on the package as it is built.
//!
//! They are run against the bed: the first process loses its answer and is killed while it waits, the second goes on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use http::Method;
use serde_json::json;

use crate::bed::Bed;
use crate::kills::kill_once;

const README: &str = include_str!("../../README.md");
/// The address in the README.
const DEMO: &str = "http://127.0.0.1:8080";
/// The dependency in the README.
const PUBLISHED: &str = "firstwrite-client = { version = \"0.1\",";
const LINES_MAX: usize = 10;
/// Long enough for a payment on a loaded machine.
const LIFE_MAX: Duration = Duration::from_mins(1);

/// Returns the first block of the README in a language.
fn block(language: &str) -> &'static str {
    let (_, rest) = README.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {told}");
}

/// Builds the package; returns the folder with what is in it.
fn package(place: &Path) -> PathBuf {
    let packages = place.join("packages");
    // One of an earlier version must not be taken for this one.
    drop(fs::remove_dir_all(&packages));
    let mut build = Command::new(env!("CARGO"));
    build.current_dir(env!("CARGO_MANIFEST_DIR")).arg("package");
    build.args(["--no-verify", "--allow-dirty", "--offline", "--target-dir"]).arg(&packages);
    run(&mut build);
    let name = concat!("firstwrite-client-", env!("CARGO_PKG_VERSION"));
    let mut unpack = Command::new("tar");
    unpack.arg("-xzf").arg(packages.join("package").join(name).with_added_extension("crate"));
    run(unpack.arg("-C").arg(&packages));
    packages.join(name)
}

/// Builds a program of the README's first lines over the package; returns its path.
fn program(place: &Path, url: &str) -> PathBuf {
    let package = package(place);
    let outside = place.join("outside");
    fs::create_dir_all(outside.join("src")).unwrap();
    let dependencies = block("toml");
    assert!(dependencies.contains(PUBLISHED), "{dependencies}");
    let path = format!("firstwrite-client = {{ path = \"{}\",", package.display());
    let manifest = format!(
        "[package]\nname = \"outside\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n{}",
        dependencies.replace(PUBLISHED, &path)
    );
    fs::write(outside.join("Cargo.toml"), manifest).unwrap();
    let lines = block("rust,no_run");
    assert!(lines.contains(DEMO), "{lines}");
    fs::write(outside.join("src/main.rs"), lines.replace(DEMO, url)).unwrap();
    // The versions that the workspace is tested with, which are on this machine.
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    fs::copy(lock, outside.join("Cargo.lock")).unwrap();
    let target = place.join("target");
    let mut build = Command::new(env!("CARGO"));
    build.current_dir(&outside).args(["build", "--offline", "--target-dir"]).arg(&target);
    run(&mut build);
    target.join("debug/outside")
}

#[test]
fn the_first_lines_of_the_readme_are_few_and_those_of_the_example() {
    let example = include_str!("../../examples/first_payment.rs");
    let lines = example.split_once("\n\n").unwrap().1;
    assert_eq!(block("rust,no_run"), lines, "the README shows the example as it is");
    let count = lines.lines().filter(|line| !line.trim().is_empty()).count();
    assert!(count <= LINES_MAX, "{count} lines");
}

#[test]
fn the_first_lines_over_the_built_package_pay_once_through_a_kill() {
    let bed = Bed::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("first-lines");
    let program = program(&place, &bed.proxy);
    let folder = tempfile::tempdir().unwrap();
    let command = || {
        let mut command = Command::new(&program);
        command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::piped());
        command
    };
    // Paid, and its answer is lost every time.
    let faults = json!({"cut-after": 1.0}).to_string();
    runtime.block_on(bed.ask(Method::POST, "faults", &faults));
    let is_paid = || runtime.block_on(bed.effects("cart7")).contains_key("cart7");
    let (status, was_killed) = kill_once(command().spawn().unwrap(), LIFE_MAX, is_paid);
    assert!(was_killed, "it waited for its answer until then: {status}");
    runtime.block_on(bed.ask(Method::POST, "faults", "{}"));
    let output = command().output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}");
    assert!(told.starts_with("Done(") && told.contains("replayed: true"), "{told}");

    assert_eq!(runtime.block_on(bed.effects("cart7"))["cart7"], 1);
    let log = runtime.block_on(bed.log("cart7"));
    assert!(log.len() >= 2 && log.iter().all(|entry| entry["key"] == log[0]["key"]), "{log:?}");
    let left = fs::read_dir(folder.path().join("intents")).unwrap();
    let left: Vec<_> = left.map(|file| file.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"], "it is acknowledged");
}
