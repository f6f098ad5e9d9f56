//! What people read: help texts, complaints and the demo's first lines.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use crate::process::{Demo, Folder, firstwrite, stderr, stdout};

#[test]
fn every_help_text_is_as_reviewed() {
    let folder = Folder::new();
    for (name, arguments) in [
        ("help", &["--help"][..]),
        ("help_demo", &["demo", "--help"]),
        ("help_keys", &["keys", "--help"]),
        ("help_keys_list", &["keys", "list", "--help"]),
        ("help_keys_show", &["keys", "show", "--help"]),
        ("help_keys_release", &["keys", "release", "--help"]),
        ("help_keys_settle", &["keys", "settle", "--help"]),
        ("help_demo_provider", &["demo-provider", "--help"]),
        ("help_outbox", &["outbox", "--help"]),
        ("help_outbox_status", &["outbox", "status", "--help"]),
        ("help_outbox_list", &["outbox", "list", "--help"]),
        ("help_outbox_show", &["outbox", "show", "--help"]),
        ("help_outbox_redrive", &["outbox", "redrive", "--help"]),
        ("help_outbox_pause", &["outbox", "pause", "--help"]),
        ("help_outbox_resume", &["outbox", "resume", "--help"]),
        ("help_outbox_settle", &["outbox", "settle", "--help"]),
        ("help_gateway", &["gateway", "--help"]),
        ("help_verify", &["verify", "--help"]),
        ("help_audit", &["audit", "--help"]),
        ("help_check", &["check", "--help"]),
        ("help_stores", &["stores", "--help"]),
        ("help_worker", &["worker", "--help"]),
        ("help_migrate", &["migrate", "--help"]),
        ("help_doctor", &["doctor", "--help"]),
    ] {
        let help = folder.run(arguments);
        assert!(help.status.success(), "{name}");
        assert_eq!(stderr(&help), "");
        insta::assert_snapshot!(name, stdout(&help));
    }
}

#[test]
fn the_version_is_the_packages() {
    let version = Folder::new().run(&["--version"]);
    assert_eq!(stdout(&version), concat!("firstwrite ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn wrong_usage_is_one_clear_complaint_and_exit_code_two() {
    let folder = Folder::new();
    fs::write(folder.path().join("bad.toml"), "log = 'info'\n[demo]\nlissten = 'x'\n").unwrap();
    fs::write(folder.path().join("short.toml"), "[demo]\nretention = '1s'\n").unwrap();
    let nowhere = "[destinations.provider]\nkind = 'http'\nurl = 'secret'\n";
    fs::write(folder.path().join("nowhere.toml"), nowhere).unwrap();
    let mut complaints = String::new();
    for arguments in [
        &["demo", "--store", "oracle://u:secret@h/d"][..],
        &["demo", "--listen", "8080"],
        &["demo", "--config", "bad.toml"],
        &["demo", "--config", "short.toml"],
        &["demo", "--config", "absent.toml"],
        &["demo", "--log", "firstwrite=loud"],
        &["keys", "list"],
        &["keys", "list", "--store", "sqlite:a.db", "--state", "stuck"],
        &["keys", "list", "--store", "sqlite:a.db", "--after", "x"],
        &["keys", "show", "acme", "a b", "--store", "sqlite:a.db"],
        &["keys", "release", "acme", "k", "--store", "sqlite:a.db"],
        &["keys", "release", "acme", "k", "--store", "sqlite:a.db", "--reason", " "],
        &["keys", "settle", "acme", "k", "--store", "sqlite:a.db", "--reason", "r"],
        &["demo", "--provider", "127.0.0.1:8090"],
        &["demo", "--provider", "http://127.0.0.1:1", "--webhook-secret", "secret"],
        &["demo-provider", "--listen", "0.0.0.0:8090"],
        &["demo-provider", "--lose-answers", "sometimes"],
        &["demo-provider", "--webhook-duplicates", "2"],
        &["outbox", "list"],
        &["outbox", "list", "--store", "sqlite:a.db", "--state", "stuck"],
        &["outbox", "show", "first", "--store", "sqlite:a.db"],
        &["outbox", "redrive", "--store", "sqlite:a.db"],
        &["outbox", "redrive", "--store", "sqlite:a.db", "--all", "--tenant", "acme"],
        &["outbox", "redrive", "--store", "sqlite:a.db", "--all", "--yes"],
        &["outbox", "redrive", "--store", "sqlite:a.db", "--all", "--rate", "50"],
        &["outbox", "pause", "a:b", "--store", "sqlite:a.db", "--reason", "r"],
        &["outbox", "pause", "provider", "--store", "sqlite:a.db"],
        &["outbox", "settle", "1", "--store", "sqlite:a.db", "--reason", "r"],
        &["outbox", "settle", "1", "--store", "sqlite:a.db", "--drop", "--provider-id", "x"],
        &["worker"],
        &["worker", "--store", "sqlite:a.db", "--config", "nowhere.toml"],
        &["migrate", "--store", "postgres://h/d?schema=Ö"],
        &["doctor", "--store", "sqlite:a.db", "--expect-standby", "two"],
        &["doctor", "--store", "postgres://u:secret@h/d", "--clear-history-loss"],
    ] {
        let refused = folder.refuse(arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        let line = arguments.join(" ");
        writeln!(complaints, "$ firstwrite {line}\n{}", stderr(&refused)).unwrap();
    }
    insta::assert_snapshot!("complaints", complaints);
    let left: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "something was created: {left:?}");
}

#[test]
fn a_flag_wins_over_the_environment_and_the_environment_over_the_file() {
    let folder = Folder::new();
    let file = "store = 'sqlite:file.db'\n[demo]\nlisten = '127.0.0.1:0'\nfaults = true\n";
    fs::write(folder.path().join("firstwrite.toml"), file).unwrap();
    let start = |command: &mut Command| {
        let mut demo = Demo::start(command.args(["demo", "--config", "firstwrite.toml"]));
        demo.lines_until(|line| line.starts_with("faults:"))
    };
    let from_file = start(&mut firstwrite(&folder));
    assert_eq!(from_file[0], "store: sqlite:file.db");
    assert!(from_file[1].starts_with("faults: ON"), "{from_file:?}");
    let mut with_environment = firstwrite(&folder);
    with_environment.env("FIRSTWRITE_STORE", "sqlite:env.db").env("FIRSTWRITE_FAULTS", "false");
    let from_environment = start(&mut with_environment);
    assert_eq!(from_environment[0], "store: sqlite:env.db");
    assert!(from_environment[1].starts_with("faults: off"), "{from_environment:?}");
    let mut with_flag = firstwrite(&folder);
    with_flag.env("FIRSTWRITE_STORE", "sqlite:env.db").args(["demo", "--store", "sqlite:flag.db"]);
    let mut demo = Demo::start(with_flag.args(["--config", "firstwrite.toml"]));
    assert_eq!(demo.lines_until(|_| true)[0], "store: sqlite:flag.db");
}

/// The demo's own words, taken at theirs: the commands are run by a shell as they are printed.
#[test]
fn the_printed_commands_do_what_their_headings_say() {
    let folder = Folder::new();
    for _start in 0..2 {
        let mut demo = folder.demo(&[]);
        let printed = demo.lines_until(|line| line.starts_with("Stop:"));
        let commands: Vec<_> =
            printed.iter().filter(|line| line.starts_with("curl -i ")).cloned().collect();
        let run = |command: &String| {
            let shell = &mut Command::new("sh");
            // A proxy of the machine's is no part of the command as printed.
            for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
                shell.env_remove(name);
            }
            let ran = shell.args(["-c", &format!("{command} -s")]).output().unwrap();
            stdout(&ran)
        };
        let answers: Vec<_> = commands.iter().map(run).collect();
        let [first, replay, mismatch] = &answers[..] else { panic!("{printed:?}") };
        assert!(first.starts_with("HTTP/1.1 201") && !first.contains("idempotent-replayed"));
        assert!(replay.starts_with("HTTP/1.1 201"), "{replay}");
        assert!(replay.contains("idempotent-replayed: true"), "{replay}");
        assert!(mismatch.starts_with("HTTP/1.1 422"), "{mismatch}");
        assert!(mismatch.contains("key-reused"), "{mismatch}");
        demo.kill();
    }
}

#[test]
fn the_first_lines_of_the_demo_are_as_reviewed() {
    let folder = Folder::new();
    let mut demo = folder.demo(&[]);
    let text = demo.lines_until(|line| line.starts_with("Stop:")).join("\n");
    let (before, after) = text.split_once("Idempotency-Key: \"").unwrap();
    assert!(!before.is_empty());
    let (key, _) = after.split_once('"').unwrap();
    let (_, after) = text.split_once("provider: ").unwrap();
    let (provider, _) = after.split_once(',').unwrap();
    let steady = text
        .replace(key, "KEY")
        .replace(provider, "http://PROVIDER")
        .replace(&demo.address.to_string(), "ADDRESS")
        .replace(env!("CARGO_BIN_EXE_firstwrite"), "firstwrite");
    insta::assert_snapshot!("banner", steady);
}
