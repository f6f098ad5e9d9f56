//! A mistyped store: in an empty one every key used before would run again, so none is made unless asked.

use crate::database::{on_dynamodb, on_every_store, on_redis};
use crate::process::{Demo, Folder, firstwrite, stderr};

on_every_store! { a_store_is_created_only_when_asked, }
on_redis! { a_store_is_created_only_when_asked, }
on_dynamodb! { a_store_is_created_only_when_asked, }

const NEW: &str = "this store is new and empty: it knows no key used before";

fn gateway(folder: &Folder, more: &[&str]) -> Demo {
    let mut command = firstwrite(folder);
    command.args([
        "gateway",
        "--tenants",
        "single",
        "--listen",
        "127.0.0.1:0",
        "--upstream",
        "http://127.0.0.1:9",
    ]);
    Demo::start(command.args(more))
}

/// Whether a gateway says that its store is new; it is stopped then.
fn is_new(mut gateway: Demo) -> bool {
    let lines = gateway.lines_until(|line| line == NEW || line.starts_with("operator: "));
    gateway.terminate();
    assert!(gateway.end().success());
    lines.iter().any(|line| line == NEW)
}

/// The one line with which a command refuses a store that is not there.
fn refusal(folder: &Folder, arguments: &[&str]) -> String {
    let refused = folder.refuse(&[arguments, &["--log", "off"]].concat());
    let text = stderr(&refused);
    assert_eq!(
        (refused.status.code(), text.lines().count()),
        (Some(1), 1),
        "{arguments:?}: {text}"
    );
    assert!(text.contains("firstwrite migrate --store '"), "{arguments:?}: {text}");
    text
}

fn a_store_is_created_only_when_asked(folder: &Folder) {
    let store = folder.store();
    let gateway_words =
        ["gateway", "--tenants", "single", "--upstream", "http://127.0.0.1:9", "--store", store];
    let operator = ["--store", store, "--operator", "127.0.0.1:0"];
    let all: [&[&str]; 7] = [
        &gateway_words,
        &["worker", "--once", "--store", store],
        &["keys", "list", "--store", store],
        &["outbox", "status", "--store", store],
        &["reconcile", "findings", "--store", store],
        &["doctor", "--store", store],
        // That none of them has made it.
        &gateway_words,
    ];
    for arguments in all {
        let text = refusal(folder, arguments);
        assert_eq!(text.contains("--create"), arguments[0] == "gateway", "{text}");
    }
    assert!(is_new(gateway(folder, &[&operator[..], &["--create"]].concat())));
    assert!(!is_new(gateway(folder, &[&operator[..], &["--create"]].concat())), "it was there");
    assert!(!is_new(gateway(folder, &operator)));
    let other = Folder::new();
    let gateway = ["gateway", "--tenants=single", "--upstream=http://127.0.0.1:9"];
    let gateway = [&gateway[..], &["--store", store, "--moving-to", "sqlite:b.db"]].concat();
    let migrate = vec!["keys", "migrate", "--from", store, "--to", "sqlite:b.db"];
    for mut words in [gateway, migrate] {
        let file = store.strip_prefix("sqlite:").map(|file| folder.path().join(file));
        let named = file.map(|file| format!("sqlite:{}", file.display()));
        for word in words.iter_mut().filter(|word| **word == store) {
            *word = named.as_deref().unwrap_or(word);
        }
        refusal(&other, &words);
    }
    assert!(std::fs::read_dir(other.path()).unwrap().next().is_none(), "something was made");
}

#[test]
fn a_mistyped_schema_is_refused() {
    let Some(folder) = Folder::on_postgres() else { return };
    assert!(folder.run(&["migrate", "--store", folder.store()]).status.success());
    let mistyped = format!("{}?schema=firstwrit", folder.store());
    let text = refusal(
        &folder,
        &[
            "gateway",
            "--tenants",
            "single",
            "--upstream",
            "http://127.0.0.1:9",
            "--store",
            &mistyped,
        ],
    );
    assert!(text.contains("schema=firstwrit"), "{text}");
}

/// A gateway that has lost its `FIRSTWRITE_STORE`, or starts in another folder, names no store.
#[test]
fn the_usual_file_is_created_only_when_asked_either() {
    let folder = Folder::new();
    let (usual, operator) = (folder.path().join("firstwrite.db"), ["--operator", "127.0.0.1:0"]);
    let words = ["gateway", "--tenants", "single", "--upstream", "http://127.0.0.1:9"];
    let text = refusal(&folder, &words);
    for step in [
        "no store is named, and there is no firstwrite.db in the working directory",
        "the first time, add --create or run `firstwrite migrate --store 'sqlite:firstwrite.db'`",
        "otherwise, name the store that you used with --store or FIRSTWRITE_STORE",
    ] {
        assert!(text.contains(step), "{step}: {text}");
    }
    assert!(!usual.exists(), "it was made unasked");
    assert!(is_new(gateway(&folder, &[&operator[..], &["--create"]].concat())));
    assert!(!is_new(gateway(&folder, &operator)));
    assert!(usual.exists());
    let mistyped = refusal(&folder, &[&words[..], &["--store", "sqlite:fristwrite.db"]].concat());
    assert!(mistyped.contains("there is no store at sqlite:fristwrite.db"), "{mistyped}");
    assert!(!folder.path().join("fristwrite.db").exists());
}

#[test]
fn the_usual_file_may_be_made_by_migrate() {
    let folder = Folder::new();
    let made = folder.run(&["migrate", "--store", "sqlite:firstwrite.db"]);
    assert!(made.status.success(), "{}", stderr(&made));
    assert!(!is_new(gateway(&folder, &["--operator", "127.0.0.1:0"])));
}
