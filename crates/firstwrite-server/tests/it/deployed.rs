//! The commands of `deploy/`, started as they are written: only paths of settings, listeners and the store's
//! address are replaced.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use crate::process::{Demo, Folder, firstwrite, stderr};

const UNITS: [&str; 2] = [
    include_str!("../../../../deploy/systemd/firstwrite-gateway.service"),
    include_str!("../../../../deploy/systemd/firstwrite-worker.service"),
];
const COMPOSE: &str = include_str!("../../../../deploy/container/compose.yaml");
const WORKER_SETTINGS: &str = include_str!("../../../../deploy/container/firstwrite.toml");
const GATEWAY_SETTINGS: &str = "[gateway]\nupstreams = ['http://127.0.0.1:9']\n\
                                listen = '127.0.0.1:0'\n\
                                [gateway.tenants]\nsources = [{ kind = 'authorization' }]\n";

/// The commands of units and services, without the program.
fn commands() -> Vec<Vec<String>> {
    let units = UNITS.into_iter().flat_map(str::lines);
    let started = units.filter_map(|line| line.strip_prefix("ExecStart=/usr/bin/firstwrite "));
    let started = started.map(|line| line.split_whitespace().map(str::to_owned).collect());
    let services = COMPOSE.lines().filter_map(|line| line.trim().strip_prefix("command: "));
    started.chain(services.map(|line| serde_json::from_str(line).unwrap())).collect()
}

/// The command in a folder of this test, on a store that was created there before, as the files say.
fn start(folder: &Folder, words: &[String]) -> Command {
    let settings = if words[0] == "worker" { WORKER_SETTINGS } else { GATEWAY_SETTINGS };
    fs::write(folder.path().join("firstwrite.toml"), settings).unwrap();
    let created = folder.run(&["migrate", "--store", folder.store()]);
    assert!(created.status.success(), "{}", stderr(&created));
    let mut command = firstwrite(folder);
    for word in words {
        command.arg(match word.as_str() {
            "/etc/firstwrite/firstwrite.toml" => "firstwrite.toml",
            "0.0.0.0:8080" | "0.0.0.0:9464" => "127.0.0.1:0",
            other => other,
        });
    }
    command.env("FIRSTWRITE_STORE", folder.store());
    if words[0] == "gateway" && !words.iter().any(|word| word == "--config") {
        command.env("FIRSTWRITE_UPSTREAM", "http://127.0.0.1:9");
    }
    command
}

/// With `DynamicUser`, systemd gives a directory that two units name to whichever starts last.
#[test]
fn no_two_units_have_one_state_directory() {
    let value = |unit: &str, name: &str| {
        let lines = unit.lines().filter_map(|line| line.strip_prefix(name));
        let values: Vec<String> = lines.map(str::to_owned).collect();
        assert_eq!(values.len(), 1, "{name} {values:?}");
        values[0].clone()
    };
    let directories = UNITS.map(|unit| value(unit, "StateDirectory="));
    assert_ne!(directories[0], directories[1]);
    for (unit, directory) in UNITS.iter().zip(&directories) {
        assert_eq!(value(unit, "WorkingDirectory="), format!("%S/{directory}"));
    }
}

#[test]
fn each_deployed_gateway_starts_and_stops() {
    let gateways: Vec<_> = commands().into_iter().filter(|words| words[0] == "gateway").collect();
    assert_eq!(gateways.len(), 2, "a unit and a service");
    for words in gateways {
        let folder = Folder::new();
        let gateway = Demo::start(&mut start(&folder, &words));
        gateway.terminate();
        assert!(gateway.end().success(), "{words:?}");
    }
}

#[test]
fn each_deployed_worker_is_at_work_and_stops() {
    let workers: Vec<_> = commands().into_iter().filter(|words| words[0] == "worker").collect();
    assert_eq!(workers.len(), 2, "a unit and a service");
    for words in workers {
        let folder = Folder::new();
        let mut command = start(&folder, &words);
        let mut worker = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(worker.stderr.take().unwrap()).lines().map(Result::unwrap);
        let started = log.find(|line| line.contains("at work"));
        let process = worker.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &process]).status().unwrap().success());
        let rest = log.collect::<Vec<_>>().join("\n");
        let ended = worker.wait().unwrap();
        let started = started.unwrap_or_else(|| panic!("{words:?} did not start: {rest}"));
        assert!(started.contains("provider"), "it delivers to its destination: {started}");
        assert!(serde_json::from_str::<serde_json::Value>(&started).is_ok(), "{started}");
        assert!(ended.success(), "{words:?}: {rest}");
    }
}
