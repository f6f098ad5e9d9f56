//! The worker from outside: one turn, many turns, and its end.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use crate::database::{on_dynamodb, on_every_store};
use crate::open_records::{document, json, leave_lapsed_records};
use crate::process::{Folder, firstwrite, stderr, stdout};

on_every_store! {
    one_turn_frees_and_marks_and_says_so,
    it_works_until_it_is_told_to_stop,
    ; postgres:
    two_workers_share_the_work,
    it_works_beside_a_service,
}

on_dynamodb! {
    one_turn_frees_and_marks_and_says_so,
    it_works_until_it_is_told_to_stop,
}

fn once(folder: &Folder) -> Command {
    let mut command = firstwrite(folder);
    command.args(["worker", "--once", "--store", folder.store()]);
    command
}

fn one_turn_frees_and_marks_and_says_so(folder: &Folder) {
    leave_lapsed_records(folder, 3);
    let turn = once(folder).args(["--format", "json"]).output().unwrap();
    assert_eq!(turn.status.code(), Some(0), "{}", stderr(&turn));
    let turn = document(&turn);
    // The orphans of an SQLite file are swept before that, when it is opened.
    let count = if folder.store().starts_with("sqlite:") { 0 } else { 3 };
    let swept = (&turn["swept"]["freed"], &turn["swept"]["uncertain"]);
    assert_eq!(swept, (&count.into(), &count.into()));
    let left = json(folder, &["list"]);
    let left = left["records"].as_array().unwrap();
    for state in ["uncertain", "released"] {
        assert_eq!(left.iter().filter(|record| record["state"] == state).count(), 3, "{left:?}");
    }
    assert_eq!(left.len(), 6);
    let table = stdout(&once(folder).output().unwrap());
    assert!(table.starts_with("LOOP     WHAT"), "{table}");
    assert!(table.contains("sweep    freed: the key may run again          0\n"), "{table}");
}

/// A running worker; killed when dropped.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn it_works_until_it_is_told_to_stop(folder: &Folder) {
    leave_lapsed_records(folder, 2);
    let settings = "[worker]\nsweep_every = '20ms'\nreap_every = '20ms'\n";
    fs::write(folder.path().join("firstwrite.toml"), settings).unwrap();
    let mut command = firstwrite(folder);
    command.args(["worker", "--config", "firstwrite.toml", "--store", folder.store()]);
    let mut worker = Worker(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut log = BufReader::new(worker.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    // The orphans of an SQLite file are swept before that, when it is opened.
    let is_file = folder.store().starts_with("sqlite:");
    let word = if is_file { "left reservations" } else { "leases ran out" };
    assert!(is_file || log.any(|line| line.contains("at work")));
    let swept = log.find(|line| line.contains(word)).unwrap();
    assert!(swept.contains("freed=2") && swept.contains("uncertain=2"), "{swept}");
    assert!(!is_file || log.any(|line| line.contains("at work")));
    let process = worker.0.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &process]).status().unwrap().success());
    assert!(log.any(|line| line.contains("SIGHUP changes nothing here")));
    assert!(Command::new("kill").args(["-TERM", &process]).status().unwrap().success());
    assert!(log.any(|line| line.contains("stopping")));
    assert!(worker.0.wait().unwrap().success());
    let left = json(folder, &["list", "--state", "uncertain"]);
    assert_eq!(left["records"].as_array().unwrap().len(), 2);
}

fn two_workers_share_the_work(folder: &Folder) {
    leave_lapsed_records(folder, 40);
    let start = || {
        let mut command = once(folder);
        command.args(["--format", "json"]).stdout(Stdio::piped()).spawn().unwrap()
    };
    let (one, other) = (start(), start());
    let turns = [one, other].map(|worker| document(&worker.wait_with_output().unwrap()));
    for what in ["freed", "uncertain"] {
        let done: u64 = turns.iter().map(|turn| turn["swept"][what].as_u64().unwrap()).sum();
        assert_eq!(done, 40, "{what}: {turns:?}");
    }
}

fn it_works_beside_a_service(folder: &Folder) {
    leave_lapsed_records(folder, 1);
    let demo = folder.demo(&[]);
    let turn = once(folder).output().unwrap();
    assert_eq!(turn.status.code(), Some(0), "{}", stderr(&turn));
    assert_eq!(json(folder, &["show", "acme", "Resend-0"])["record"]["state"], "released");
    assert_eq!(demo.payment_count(), 0);
}

#[test]
fn a_file_that_a_service_holds_open_is_refused() {
    let folder = Folder::new();
    let _demo = folder.demo(&[]);
    for more in [&["--once"][..], &[]] {
        let arguments = [&["worker", "--store", "sqlite:demo.db"][..], more].concat();
        let refused = folder.refuse(&arguments);
        assert_eq!(refused.status.code(), Some(1));
        let complaint = stderr(&refused);
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
        assert!(complaint.contains("another firstwrite process"), "{complaint}");
    }
}
