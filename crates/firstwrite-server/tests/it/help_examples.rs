//! The examples of the help texts, run as they are printed. That all of them are understood is a test of the
//! command line; these are the ones that need nothing but the demo.

use std::process::{Command, Output};

use crate::http::post;
use crate::payments::ORDER;
use crate::process::{Demo, Folder, stderr, stdout};

/// The store that examples name.
const STORE: &str = "sqlite:firstwrite-demo.db";

/// The commands whose examples read, ask or check, with what comes before `--help`.
const COMMANDS: [&str; 8] =
    ["", "keys", "keys list", "keys show", "outbox", "stores", "verify", "demo"];

#[test]
fn examples_that_need_nothing_but_the_demo_work_as_printed() {
    let folder = Folder::new();
    let mut start = crate::process::firstwrite(&folder);
    start.args(["demo", "--listen", "127.0.0.1:0", "--store", STORE]);
    // A loaded machine may be slow; the answers are what is looked at.
    let demo = Demo::start(start.env("FIRSTWRITE_WAIT_FOR", "30s"));
    let made = demo.answer(&post("/payments", ORDER).acme().key("order-1"));
    assert_eq!(made.status, 201, "{made:?}");
    let listed = folder.run(&["keys", "list", "--store", STORE, "--format", "json"]);
    let page: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let id = page["records"][0]["record_id"].as_str().unwrap();
    let mut count = 0;
    for command in COMMANDS {
        let words: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        for example in examples(&stdout(&folder.run(&words))) {
            // The one port and the one id that differ from run to run.
            let example = example.replace("127.0.0.1:8080", &demo.address.to_string());
            let example = example.replace("8fb62d20e1c18e12c4ab64d7a10f2e35", id);
            let ran = run(&folder, &example);
            assert!(ran.status.success(), "{example}\n{}{}", stdout(&ran), stderr(&ran));
            count += 1;
        }
    }
    assert!(count >= 12, "only {count} were found");
}

/// What is printed below a help text and can be run: all but what starts a service or needs one of its own.
fn examples(help: &str) -> Vec<String> {
    let joined = help.replace("\\\n", " ");
    let lines = joined.lines().map(str::trim).filter(|line| line.starts_with("firstwrite "));
    let examples = lines.map(|line| match line.find("        ") {
        // An explanation stands behind many blanks; what a backslash joins begins with a flag.
        Some(at) if !line[at..].trim_start().starts_with('-') => line[..at].to_owned(),
        _ => line.to_owned(),
    });
    examples
        .filter(|line| !line.starts_with("firstwrite demo") && !line.contains("[OPTIONS]"))
        .collect()
}

fn run(folder: &Folder, example: &str) -> Output {
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_firstwrite"));
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", binary.parent().unwrap().display());
    let mut command = Command::new("sh");
    for name in ["http_proxy", "https_proxy", "all_proxy"] {
        command.env_remove(name).env_remove(name.to_ascii_uppercase());
    }
    command.args(["-c", example]).env("PATH", path).current_dir(folder.path()).output().unwrap()
}
