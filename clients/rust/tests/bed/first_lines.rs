//! The package as it is built, in crates outside of the workspace that depend on it.
//!
//! One has the README's first lines. They are run against the bed: the first process loses its answer and is killed
//! while it waits, the second goes on. The others have every feature, and none.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
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

/// The folder of all that is built here.
fn place() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("first-lines")
}

/// Builds the package, once; returns the folder with what is in it.
fn package() -> &'static Path {
    static PACKAGE: OnceLock<PathBuf> = OnceLock::new();
    PACKAGE.get_or_init(|| {
        let packages = place().join("packages");
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
    })
}

/// Builds a program of a crate outside of the workspace, with these dependencies; returns its path.
fn program(name: &str, dependencies: &str, lines: &str) -> PathBuf {
    assert!(dependencies.contains(PUBLISHED), "{dependencies}");
    let crate_folder = place().join(name);
    fs::create_dir_all(crate_folder.join("src")).unwrap();
    let path = format!("firstwrite-client = {{ path = \"{}\",", package().display());
    let manifest = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n{}",
        dependencies.replace(PUBLISHED, &path)
    );
    fs::write(crate_folder.join("Cargo.toml"), manifest).unwrap();
    fs::write(crate_folder.join("src/main.rs"), lines).unwrap();
    // The versions that the workspace is tested with, which are on this machine.
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    fs::copy(lock, crate_folder.join("Cargo.lock")).unwrap();
    let target = place().join("target");
    let mut build = Command::new(env!("CARGO"));
    build.current_dir(&crate_folder).args(["build", "--offline", "--target-dir"]).arg(&target);
    run(&mut build);
    target.join("debug").join(name)
}

#[test]
fn the_built_package_works_with_every_feature_and_with_none() {
    let dependencies =
        |features: &str| format!("[dependencies]\n{PUBLISHED} features = [{features}] }}\n");
    let manifest = include_str!("../../Cargo.toml");
    let (_, features) = manifest.split_once("\n[features]\n").unwrap();
    let (features, _) = features.split_once("\n\n").unwrap();
    let features: Vec<String> = features
        .lines()
        .filter_map(|line| Some(format!("\"{}\"", line.split_once(" = ")?.0)))
        .filter(|feature| !feature.contains('#'))
        .collect();
    assert!(features.len() >= 4, "{features:?}");
    let all = "\
        use firstwrite_client::transport::{HyperTransport, ReqwestTransport};\n\
        use firstwrite_client::{OneKey, SqliteStorage};\n\
        fn main() {\n\
            let path = std::env::args().nth(1).unwrap();\n\
            println!(\"{:?}\", SqliteStorage::open(path));\n\
            let _ = (size_of::<OneKey>(), size_of::<ReqwestTransport>(), HyperTransport::plain());\n\
        }\n";
    let none = "\
        fn main() {\n\
            let path = std::env::args().nth(1).unwrap();\n\
            println!(\"{:?}\", firstwrite_client::FileStorage::open(path));\n\
        }\n";
    for (name, features, lines) in
        [("with-all", features.join(", "), all), ("with-none", String::new(), none)]
    {
        let program = program(name, &dependencies(&features), lines);
        let folder = tempfile::tempdir().unwrap();
        let output = Command::new(program).arg(folder.path().join("place")).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.starts_with("Ok("), "{name}: {output:?}");
    }
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
    let lines = block("rust,no_run");
    assert!(lines.contains(DEMO), "{lines}");
    let program = program("outside", block("toml"), &lines.replace(DEMO, &bed.proxy));
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
