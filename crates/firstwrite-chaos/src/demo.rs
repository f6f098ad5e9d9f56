//! The demo as a process of ours: built, started on a private port, killed by its pid.

use std::fs::{File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::clock::{Stopwatch, wait_until};
use crate::guard::{Guard, Running};
use crate::process;
use crate::workspace::{Build, Workspace};

/// Maximum time until the demo answers; long, since a loaded machine is no finding.
const START_MAX: Duration = Duration::from_secs(20);

/// Store of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// A file.
    Sqlite,
    /// A server, started by the task.
    Postgres,
    /// The same.
    MariaDb,
}

/// Parameters to start the demo repeatedly on the same data.
pub(crate) struct Stage<'a> {
    binary: PathBuf,
    folder: PathBuf,
    /// The address of the store, as the demo takes it.
    store: String,
    /// Further words of its command line.
    words: Vec<String>,
    guard: &'a Guard,
}

/// A running demo. Dropping it kills it.
pub(crate) struct Demo<'a> {
    child: Child,
    running: Option<Running>,
    guard: &'a Guard,
    log: PathBuf,
    pub(crate) address: SocketAddr,
    started: Stopwatch,
}

impl FromStr for Backend {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "sqlite" => Ok(Self::Sqlite),
            "postgres" => Ok(Self::Postgres),
            "mariadb" => Ok(Self::MariaDb),
            _ => Err(()),
        }
    }
}

impl<'a> Stage<'a> {
    /// Builds the demo and makes an empty folder for it, with a SQLite file as its store.
    pub(crate) fn new(
        workspace: &Workspace,
        build: Build,
        name: &str,
        guard: &'a Guard,
    ) -> anyhow::Result<Self> {
        let binary = build.binary(workspace)?;
        let folder = workspace.target.join("xtask").join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make the folder {}", workspace.spoken(&folder)))?;
        let store = format!("sqlite:{}", folder.join("demo.db").display());
        Ok(Self { binary, folder, store, words: Vec::new(), guard })
    }

    /// The same store in a folder that is named, with a binary that is built.
    pub(crate) fn in_folder(
        binary: PathBuf,
        folder: PathBuf,
        guard: &'a Guard,
    ) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let store = format!("sqlite:{}", folder.join("demo.db").display());
        Ok(Self { binary, folder, store, words: Vec::new(), guard })
    }

    /// The same with another store.
    pub(crate) fn on(self, store: String) -> Self {
        Self { store, ..self }
    }

    /// The same with callers that do not wait for the provider's word: far more are answered.
    pub(crate) fn answering_at_once(self) -> Self {
        self.with_words(vec!["--wait-for".to_owned(), "0s".to_owned()])
    }

    /// The same with further words of its command line.
    pub(crate) fn with_words(self, words: Vec<String>) -> Self {
        Self { words, ..self }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of the ledger in which the demo's own provider records what it did.
    pub(crate) fn provider_ledger(&self) -> PathBuf {
        let name = if self.store.starts_with("sqlite:") { "demo" } else { "firstwrite-demo" };
        self.folder.join(format!("{name}.provider.jsonl"))
    }

    /// Starts the demo on `port`; it may not answer yet.
    pub(crate) fn start(&self, port: u16) -> anyhow::Result<Demo<'a>> {
        let log = self.folder.join("demo.log");
        let output = open_log(&log)?;
        let mut command = Command::new(&self.binary);
        command.arg("demo").args(["--listen", &format!("127.0.0.1:{port}")]);
        command.args(["--store", &self.store]).args(&self.words);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let started = Stopwatch::start();
        let child = command.current_dir(&self.folder).spawn().context("cannot start the demo")?;
        let running = Running::new(child.id(), "KILL");
        if let Some(running) = &running {
            self.guard.watch(running);
        }
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Ok(Demo { child, running, guard: self.guard, log, address, started })
    }

    /// Another command of the same program on the same store, run to its end.
    pub(crate) fn run(&self, name: &str, words: &[&str]) -> anyhow::Result<()> {
        let mut command = Command::new(&self.binary);
        command.arg(name).args(["--store", &self.store]).args(words);
        process::run(command.current_dir(&self.folder))
    }

    /// Deletes the folder; not called after a failure, when the data is evidence.
    pub(crate) fn clear(self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            println!("leaving {}: {error}", self.folder.display());
        }
    }
}

impl Demo<'_> {
    /// Waits until the demo accepts connections; returns how long that took from its start.
    pub(crate) fn wait_until_ready(&mut self) -> anyhow::Result<Duration> {
        let mut has_ended = false;
        let is_ready = wait_until(START_MAX, || {
            has_ended = self.child.try_wait().is_ok_and(|status| status.is_some());
            has_ended || TcpStream::connect_timeout(&self.address, START_MAX).is_ok()
        });
        let took = self.started.elapsed();
        if is_ready && !has_ended {
            return Ok(took);
        }
        let last = self.output().lines().next_back().unwrap_or("nothing").to_owned();
        let what = if has_ended { "ended" } else { "did not listen" };
        bail!("the demo {what} after {:.1} s; its last words: {last}", took.as_secs_f64());
    }

    /// Waits until the demo says that it serves: it takes its port before it makes its tables.
    pub(crate) fn wait_until_it_serves(&mut self) -> anyhow::Result<()> {
        self.wait_until_ready()?;
        let words = format!("listening on http://{}\n", self.address);
        let serves = wait_until(START_MAX, || self.output().contains(&words));
        ensure!(serves, "the demo does not say `{}`", words.trim_end());
        Ok(())
    }

    /// All that the demo has printed so far, in this run and earlier ones on the same stage.
    pub(crate) fn output(&self) -> String {
        std::fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// SIGKILL, to this one process; then waits until the kernel has buried it.
    pub(crate) fn kill(mut self) -> anyhow::Result<()> {
        self.end().context("cannot kill the demo")
    }

    fn end(&mut self) -> std::io::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        if let Some(running) = self.running.take() {
            self.guard.forget(&running);
        }
        Ok(())
    }
}

impl Drop for Demo<'_> {
    fn drop(&mut self) {
        if self.running.is_some()
            && let Err(error) = self.end()
        {
            eprintln!("cannot stop the demo: {error}");
        }
    }
}

fn open_log(path: &Path) -> anyhow::Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))
}
