//! Files that leave something to the command line: `check` says of them what a start says.

use clap::Parser as _;

use super::{CHECK, Command, DEMO, DOCTOR, GATEWAY, WORKER};
use crate::command::Arguments;

const SINGLE: &str = "[gateway.tenants]\nsources = [{ kind = 'single' }]\n";
const FLAGS: Command = &["--upstream", "http://127.0.0.1:9", "--tenants", "single"];

/// Returns the plan of a command with this file and no other flags than these, as text.
fn plan(command: Command, flags: Command, text: &str) -> Result<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("firstwrite.toml");
    std::fs::write(&path, text).unwrap();
    let config = ["--config", path.to_str().unwrap()];
    let typed = [&["firstwrite"], command, flags, &config[..]].concat();
    let plan = Arguments::try_parse_from(typed).map_err(|error| error.to_string())?.plan();
    plan.map(|plan| format!("{plan:?}")).map_err(|error| error.to_string())
}

#[test]
fn check_refuses_a_gateway_s_file_as_its_start_does() {
    let listen = "listen = '127.0.0.1:7'\n";
    let upstream = "upstreams = ['http://127.0.0.1:9']\n";
    let whole = format!("[gateway]\n{listen}{upstream}");
    let cases = [
        (format!("[gateway]\n{listen}{SINGLE}"), "no upstream is named"),
        (whole.clone(), "whose requests are these?"),
        (format!("{whole}cache = 'redis://127.0.0.1:1'\n{SINGLE}"), "PostgreSQL"),
        (format!("{whole}operator = '127.0.0.1:7'\n{SINGLE}"), "gateway.operator"),
        (format!("{whole}operator = '0.0.0.0:7'\n{SINGLE}"), "gateway.operator"),
        (format!("{whole}operator = '[::]:7'\n{SINGLE}"), "gateway.operator"),
    ];
    for (text, word) in cases {
        let started = plan(GATEWAY, &[], &text).expect_err(&text);
        assert!(started.contains(word), "{text}: {started}");
        assert_eq!(plan(CHECK, &[], &text), Err(started), "{text}");
    }
    for operator in ["127.0.0.1:8", "127.0.0.2:7", "[::1]:7"] {
        let text = format!("{whole}operator = '{operator}'\n{SINGLE}");
        assert!(plan(GATEWAY, &[], &text).is_ok(), "{text}");
        assert!(plan(CHECK, &[], &text).is_ok(), "{text}");
    }
}

#[test]
fn check_takes_what_a_start_is_given_besides_the_file() {
    for text in ["[gateway]\nlisten = '127.0.0.1:7'\n", "", "[gateway.default]\nlease = '7s'\n"] {
        assert!(plan(GATEWAY, FLAGS, text).is_ok(), "{text}");
        let checked = plan(CHECK, FLAGS, text);
        assert!(checked.is_ok_and(|said| !said.contains("--upstream")), "{text}");
    }
    let cached = "[gateway]\ncache = 'redis://127.0.0.1:1'\n";
    assert!(plan(CHECK, FLAGS, cached).is_err());
    let with_store = [FLAGS, &["--store", "postgres://h/d"]].concat();
    let with_store: &'static [&'static str] = with_store.leak();
    assert!(plan(GATEWAY, with_store, cached).is_ok());
    let checked = plan(CHECK, with_store, cached);
    assert!(checked.is_ok_and(|said| said.contains("firstwrite.toml: holds\\n")));
    let standby = "[doctor]\nexpect_standby = 'two'\n";
    let file: Command = &["--store", "sqlite:a.db"];
    assert_eq!(plan(CHECK, file, standby), plan(DOCTOR, file, standby));
}

/// A file for a worker, the demo or an application of one's own sets up no gateway.
#[test]
fn check_names_what_a_start_still_needs() {
    for text in ["log = 'info'\n", "[gateway.default]\nretention = '7days'\n"] {
        assert!(plan(GATEWAY, &[], text).is_err(), "{text}");
        assert!(plan(WORKER, &[], text).is_err(), "{text}");
        assert!(plan(DEMO, &[], text).is_ok(), "{text}");
        let said = plan(CHECK, &[], text).unwrap();
        let needs = "--upstream and --tenants (gateway), --store (worker, doctor)";
        assert!(said.contains(needs), "{text}: {said}");
        assert!(!said.contains("firstwrite.toml: holds\\n"), "{text}: {said}");
    }
    let stored = "store = 'sqlite:a.db'\n[gateway.default]\nretention = '7days'\n";
    let said = plan(CHECK, &[], stored).unwrap();
    assert!(said.contains("--upstream and --tenants (gateway)\\n"), "{said}");
    let whole = format!("store = 'sqlite:a.db'\n[gateway]\nupstreams = ['http://h']\n{SINGLE}");
    let said = plan(CHECK, &[], &whole).unwrap();
    assert!(said.contains("firstwrite.toml: holds\\n"), "{said}");
}
