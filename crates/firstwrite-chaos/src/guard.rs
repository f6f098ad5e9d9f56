//! A second process that cleans up when this one cannot.
//!
//! Destructors do not run on Ctrl-C or a kill. So every process a task starts is named to a guard: this same
//! program, in its own process group, reading from a pipe. However the task ends, the kernel closes the pipe,
//! and the guard stops what is still running, by pid, and deletes the folders that were meant to go.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context;

use crate::clock::wait_until;
use crate::{place, process};

/// Name of the task that is the guard; not listed, since it is never typed by hand.
pub const TASK: &str = "stand-guard";

/// Time a process may take to end when asked, before it is killed.
const PATIENCE: Duration = Duration::from_secs(15);

/// A running process, named so that a later one with the same pid is not taken for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its number.
    pub pid: u32,
    /// The time of its start, in the kernel's own count.
    pub started_at: u64,
    /// Signal that asks it to end, without `SIG`.
    pub signal: String,
}

/// The task's side of the pipe.
#[derive(Debug)]
pub struct Guard {
    process: Child,
    pipe: Mutex<Option<ChildStdin>>,
}

impl Running {
    /// Names a process; `None` if it has ended already.
    pub fn new(pid: u32, signal: &str) -> Option<Self> {
        Some(Self { pid, started_at: process::started_at(pid)?, signal: signal.to_owned() })
    }

    /// True while it runs.
    pub fn is_alive(&self) -> bool {
        process::started_at(self.pid) == Some(self.started_at)
    }

    /// Asks the process to end, and kills it if it does not.
    pub fn stop(&self) {
        for signal in [self.signal.as_str(), "KILL"] {
            if self.is_alive() && process::signal(self.pid, signal) {
                wait_until(PATIENCE, || !self.is_alive());
            }
        }
    }

    /// One line that [`Running::from_line`] reads back.
    pub fn to_line(&self) -> String {
        format!("{} {} {}", self.pid, self.started_at, self.signal)
    }

    /// Reads a line of [`Running::to_line`].
    pub fn from_line(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (pid, started_at) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { pid, started_at, signal: words.next()?.to_owned() })
    }
}

impl Guard {
    /// Starts the guard, which is the program of this process: its `main` calls [`stand_watch`] when its first word
    /// is [`TASK`].
    pub fn start() -> anyhow::Result<Self> {
        // Not the path of the program: a build that this task starts may replace the file meanwhile.
        let mut process = Command::new("/proc/self/exe")
            .arg(TASK)
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .context("cannot start the guard process")?;
        let pipe = Mutex::new(process.stdin.take());
        Ok(Self { process, pipe })
    }

    /// From now on, `running` does not outlive this task.
    pub fn watch(&self, running: &Running) {
        self.tell(&format!("watch {}\n", running.to_line()));
    }

    /// The process has ended, or may stay.
    pub fn forget(&self, running: &Running) {
        self.tell(&format!("forget {}\n", running.to_line()));
    }

    /// The folder does not outlive this task either.
    pub fn clear(&self, folder: &Path) {
        self.tell(&format!("clear {}\n", folder.display()));
    }

    fn tell(&self, line: &str) {
        let mut pipe = self.pipe.lock().expect("telling the guard does not panic");
        if let Some(open) = pipe.as_mut()
            && open.write_all(line.as_bytes()).is_err()
        {
            eprintln!("the guard process is gone; what this task started may outlive it");
            *pipe = None;
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Closing the pipe is the order to clean up; waiting makes sure that it is done.
        if let Ok(mut pipe) = self.pipe.lock() {
            *pipe = None;
        }
        if let Err(error) = self.process.wait() {
            eprintln!("waiting for the guard process: {error}");
        }
    }
}

/// The guard's own side: reads names until the pipe closes, then stops what is left.
pub fn stand_watch() {
    let (left, folders) = left_over(std::io::stdin().lock());
    for running in left {
        running.stop();
    }
    for folder in folders.iter().filter(|folder| folder.exists()) {
        place::delete(folder);
    }
}

fn left_over(lines: impl BufRead) -> (Vec<Running>, Vec<PathBuf>) {
    let (mut watched, mut folders) = (BTreeMap::new(), Vec::new());
    for line in lines.lines().map_while(Result::ok) {
        let Some((verb, rest)) = line.split_once(' ') else { continue };
        if verb == "clear" {
            folders.push(PathBuf::from(rest));
            continue;
        }
        let Some(running) = Running::from_line(rest) else { continue };
        if verb == "watch" {
            watched.insert(running.pid, running);
        } else {
            watched.remove(&running.pid);
        }
    }
    (watched.into_values().collect(), folders)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_watched_and_not_forgotten_is_left_over() {
        let lines = "watch 7 100 INT\nclear /t/a b\nwatch 8 101 TERM\nforget 7 100 INT\n";
        let (left, folders) = left_over(lines.as_bytes());
        assert_eq!(left.len(), 1);
        assert_eq!(folders, [Path::new("/t/a b")]);
        assert_eq!(left[0].to_line(), "8 101 TERM");
    }

    #[test]
    fn a_process_is_stopped_by_its_name() {
        let mut child =
            Command::new("sh").args(["-c", "read x"]).stdin(Stdio::piped()).spawn().unwrap();
        let running = Running::new(child.id(), "TERM").unwrap();
        assert!(running.is_alive());
        let other = Running { started_at: running.started_at + 1, ..running.clone() };
        other.stop();
        assert!(running.is_alive(), "a later process with the same pid is another process");
        running.stop();
        assert!(!child.wait().unwrap().success());
        assert!(!running.is_alive());
    }
}
