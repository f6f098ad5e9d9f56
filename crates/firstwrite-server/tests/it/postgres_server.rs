//! A PostgreSQL server of a test's own, on loopback, in a folder that goes with it. It ends with the thread that
//! started it.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Debian's place for its programs; one folder per version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// Each look starts a process, so this is about a minute.
const LOOKS_MAX: usize = 10_000;

pub(crate) struct PostgresServer {
    pub(crate) port: u16,
    place: TempDir,
    running: Option<Child>,
}

impl PostgresServer {
    /// An empty server that runs; `None`, and a line that says so, where there is none to start.
    #[expect(clippy::print_stdout, reason = "a test that did not run must say so")]
    pub(crate) fn start() -> Option<Self> {
        if program("initdb").is_none() {
            let is_required =
                std::env::var("FIRSTWRITE_TEST_REQUIRE").is_ok_and(|value| value == "all");
            assert!(!is_required, "PostgreSQL is missing and everything is required");
            println!("skipped: a PostgreSQL of its own (initdb is missing)");
            return None;
        }
        let mut server = Self::absent();
        let initial = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"];
        server.run("initdb", |command| command.args(initial).arg("--pgdata"));
        server.serve();
        Some(server)
    }

    /// A place for a server, with nothing in it.
    pub(crate) fn absent() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let place = TempDir::new().unwrap();
        if is_root() {
            let owned = Command::new("chown").arg("postgres:").arg(place.path()).status().unwrap();
            assert!(owned.success());
        }
        Self { port, place, running: None }
    }

    /// Becomes a standby with what `primary` has now. It does not run, so it gets nothing more.
    pub(crate) fn copy(&self, primary: &Self) {
        let source = format!("host=127.0.0.1 port={} user=postgres", primary.port);
        let words = ["-d", &source, "-R", "-X", "stream", "-c", "fast", "-D"];
        self.run("pg_basebackup", |command| command.args(words));
    }

    /// Starts a standby whose primary is gone, as the new primary.
    pub(crate) fn take_over(&mut self) {
        self.serve();
        self.run("pg_ctl", |command| command.args(["promote", "-w", "-s", "-D"]));
    }

    /// Ends it at once, with everybody's connections.
    pub(crate) fn crash(&mut self) {
        self.end(Signal::QUIT);
    }

    fn data(&self) -> PathBuf {
        self.place.path().join("data")
    }

    /// Runs a program on the data folder, which is its last argument.
    fn run(&self, name: &str, words: impl FnOnce(&mut Command) -> &mut Command) {
        let output = words(&mut command(name)).arg(self.data()).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn serve(&mut self) {
        let log = File::create(self.place.path().join("log")).unwrap();
        let mut command = command("postgres");
        command.arg("-D").arg(self.data()).args(["-p", &self.port.to_string()]);
        for setting in ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off"] {
            command.args(["-c", setting]);
        }
        command.args(["-c", "dynamic_shared_memory_type=mmap", "-c", "shared_buffers=16MB"]);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.running = Some(command.spawn().unwrap());
        let port = self.port.to_string();
        for _ in 0..LOOKS_MAX {
            let looked = Command::new(program("pg_isready").unwrap())
                .args(["-q", "--host=127.0.0.1", "--port", &port])
                .status();
            if looked.unwrap().success() {
                return;
            }
            let ended = self.running.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "it ended: {}", self.words());
        }
        panic!("it does not answer: {}", self.words());
    }

    fn words(&self) -> String {
        std::fs::read_to_string(self.place.path().join("log")).unwrap_or_default()
    }

    fn end(&mut self, signal: Signal) {
        let Some(mut child) = self.running.take() else { return };
        // One that has ended is gone already.
        let (Ok(()) | Err(_)) = kill_process(Pid::from_child(&child), signal);
        drop(child.wait());
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.end(Signal::QUIT);
    }
}

/// A program of the server, as the user that the server runs as: it refuses to be root.
fn command(name: &str) -> Command {
    let mut command = Command::new("setpriv");
    if is_root() {
        command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]);
    }
    command.args(["--pdeathsig", "KILL"]).arg(program(name).unwrap());
    command.current_dir("/");
    command
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A program of the newest version that is installed.
fn program(name: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir(Path::new(VERSIONS)).ok()?.flatten();
    let numbered = versions.filter_map(|entry| {
        let version: u32 = entry.file_name().to_str()?.parse().ok()?;
        let path = entry.path().join("bin").join(name);
        path.is_file().then_some((version, path))
    });
    numbered.max().map(|(_, path)| path)
}
