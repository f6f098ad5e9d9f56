//! The order of system calls: no byte of a request leaves before the kernel was told to make its mark durable.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::process::Command;

use crate::bed::bed;
use crate::victim::{Kind, Payment, Task};

/// Set to `all`, what is missing on this machine fails a test instead of being named.
const REQUIRE: &str = "FIRSTWRITE_TEST_REQUIRE";

/// A finished system call, as strace writes it.
#[derive(Debug)]
struct Call {
    name: String,
    arguments: String,
}

/// The calls of a victim in order: those that send by their beginning, all others by their end.
fn traced(task: &Task, log: &Path) -> Option<Vec<Call>> {
    let victim = task.command();
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-s", "64", "-o"]).arg(log);
    command.args([
        "-e",
        "trace=write,writev,sendto,sendmsg,pwrite64,ftruncate,fsync,fdatasync,rename,renameat,renameat2,\
         openat,mkdir,mkdirat",
    ]);
    command.arg(victim.get_program()).args(victim.get_args());
    for (name, value) in victim.get_envs() {
        command.env(name, value.unwrap());
    }
    let output = command.output().ok()?;
    let text = std::fs::read_to_string(log).unwrap_or_default();
    if text.is_empty() {
        return None;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (mut calls, mut begun) = (Vec::new(), HashMap::new());
    for line in text.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        if let Some(resumed) = rest.strip_prefix("<... ") {
            if let Some((name, end)) = resumed.split_once(" resumed>")
                && let Some(arguments) = begun.remove(&(thread.to_owned(), name.to_owned()))
            {
                calls.push(Call { name: name.to_owned(), arguments: arguments + end });
            }
            continue;
        }
        let Some((name, arguments)) = rest.split_once('(') else { continue };
        let (name, arguments) = (name.to_owned(), arguments.to_owned());
        let sends = arguments.contains("POST /payments");
        if arguments.ends_with("<unfinished ...>") && !sends {
            begun.insert((thread.to_owned(), name), arguments);
        } else {
            calls.push(Call { name, arguments });
        }
    }
    Some(calls)
}

impl Call {
    /// The file that the call is about: `3</path>`.
    fn file(&self) -> &str {
        let inside = self.arguments.split_once('<').map_or("", |(_, rest)| rest);
        inside.split_once('>').map_or("", |(path, _)| path)
    }

    /// The path of the file or folder that the call makes, where none is there.
    fn makes(&self) -> Option<&str> {
        if self.has_failed() {
            return None;
        }
        let is_making = self.name.starts_with("mkdir")
            || (self.name == "openat" && self.arguments.contains("O_CREAT"));
        let named = self.arguments.split_once('"')?.1.split_once('"')?.0;
        is_making.then_some(named)
    }

    fn writes(&self) -> bool {
        ["write", "writev", "pwrite64", "ftruncate"].contains(&self.name.as_str())
    }

    fn has_failed(&self) -> bool {
        self.arguments.rsplit_once(" = ").is_some_and(|(_, result)| result.starts_with('-'))
    }

    fn is_sync(&self) -> bool {
        self.name == "fsync" || self.name == "fdatasync"
    }
}

/// Files that need not be there after a crash: the lock, SQLite's index of the log, its journal before it keeps a log,
/// and a file before it has its name.
const NOT_KEPT: [&str; 4] = ["/lock", "-shm", "-journal", ".tmp"];

/// Returns the files and folders that are written, or have a new name in them, and are not made durable at each
/// request.
fn open_at_requests(calls: &[Call], folder: &str) -> Vec<Vec<String>> {
    let (mut open, mut at_requests) = (Vec::<String>::new(), Vec::new());
    let mut made = HashSet::new();
    for call in calls {
        if call.arguments.contains("POST /payments") {
            at_requests.push(open.clone());
        } else if let Some(path) = call.makes().filter(|path| path.starts_with(folder)) {
            // What is there already is opened with the same words.
            if made.insert(path) && !NOT_KEPT.iter().any(|end| path.ends_with(end)) {
                open.push(Path::new(path).parent().unwrap().display().to_string());
            }
        } else if call.is_sync() {
            open.retain(|file| file != call.file());
        } else if call.name.starts_with("rename") {
            // The folder has a new name in it.
            open.push(folder.to_owned());
        } else if call.writes() && call.file().starts_with(folder) {
            open.push(call.file().to_owned());
        }
    }
    at_requests
}

#[test]
fn key_and_mark_are_durable_before_the_first_byte() {
    for storage in [Kind::File, Kind::Sqlite] {
        let folder = tempfile::tempdir().unwrap();
        let task = Task {
            url: bed().payments(),
            folder: folder.path().to_owned(),
            storage,
            intents: vec![Payment { name: format!("order/{storage:?}"), amount: 100 }],
            dies_at: None,
            acknowledges: true,
            padding: 0,
        };
        let Some(calls) = traced(&task, &folder.path().join("trace")) else {
            let missing = "strace cannot be run here, so the order of system calls is not shown";
            assert_ne!(std::env::var(REQUIRE).as_deref(), Ok("all"), "{missing}");
            println!("skipped: {missing}");
            return;
        };
        let place = match storage {
            Kind::File => folder.path().join("intents"),
            Kind::Sqlite => folder.path().join("intents.db"),
        };
        let place = place.to_str().unwrap();
        let requests = open_at_requests(&calls, place);
        assert!(!requests.is_empty(), "the victim sent nothing");
        // SQLite's index of the log is memory, rebuilt after a crash.
        let is_kept = |file: &&String| !file.ends_with("-shm");
        for open in &requests {
            assert_eq!(
                open.iter().filter(is_kept).collect::<Vec<_>>(),
                Vec::<&String>::new(),
                "{storage:?}"
            );
        }
        let before = calls.iter().take_while(|call| !call.arguments.contains("POST /payments"));
        let syncs = before.filter(|call| call.is_sync() && call.file().starts_with(place)).count();
        let least = match storage {
            // The key and the mark, each in its file and in the folder.
            Kind::File => 4,
            Kind::Sqlite => 2,
        };
        assert!(syncs >= least, "{storage:?}: {syncs} calls to make the key and the mark durable");
    }
}
