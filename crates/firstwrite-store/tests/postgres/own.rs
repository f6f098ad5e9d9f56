//! A PostgreSQL server of a test's own: on loopback, in a folder that goes with it.
//!
//! It ends with the thread that started it, also if that is killed.

use std::env;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use firstwrite_store::tokio_postgres::{NoTls, connect};
use tempfile::TempDir;
use tokio::time::{Instant, interval};

const START_MAX: Duration = Duration::from_mins(1);
const VERSIONS: &str = "/usr/lib/postgresql";
const USER: &str = "postgres";

pub(crate) struct Own {
    folder: TempDir,
    port: u16,
    child: Option<Child>,
}

impl Own {
    /// `None`, and a word about it, where there is no server to start.
    pub(crate) async fn start() -> Option<Self> {
        if program("postgres").is_none() {
            let is_required = env::var("FIRSTWRITE_TEST_REQUIRE").is_ok_and(|value| value == "all");
            assert!(!is_required, "{VERSIONS} is missing and everything is required");
            println!("skipped: a PostgreSQL of its own ({VERSIONS} is missing)");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        if is_root() {
            let owner = Command::new("chown").arg(USER).arg(folder.path()).status().unwrap();
            assert!(owner.success());
        }
        let mut own = Self { folder, port: free_port(), child: None };
        let mut install = as_user("initdb");
        install.args(["--auth=trust", "--username=postgres", "--no-sync", "--pgdata"]);
        let ended = install.arg(own.data()).output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        own.serve().await;
        Some(own)
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Starts it again, on what is in its folder.
    pub(crate) async fn serve(&mut self) {
        let log = File::create(self.folder.path().join("log")).unwrap();
        let mut command = as_user("postgres");
        command.arg("-D").arg(self.data()).args(["-p", &self.port.to_string()]);
        for setting in ["listen_addresses=127.0.0.1", "unix_socket_directories="] {
            command.args(["-c", setting]);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.child = Some(command.spawn().unwrap());
        let started = Instant::now();
        let mut tick = interval(Duration::from_millis(50));
        while connect(&self.url(), NoTls).await.is_err() {
            let words = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(started.elapsed() < START_MAX, "the server does not answer:\n{words}");
            tick.tick().await;
        }
    }

    /// Stops it in good order, cutting its clients off.
    pub(crate) fn stop(&mut self) {
        let mut child = self.child.take().unwrap();
        let asked = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        assert!(asked.unwrap().success());
        child.wait().unwrap();
    }

    /// Puts what is in the data folder aside, as a backup.
    pub(crate) fn back_up(&self) {
        copy(&self.data(), &self.folder.path().join("backup"));
    }

    /// Puts the backup in the place of what is there.
    pub(crate) fn put_back(&self) {
        std::fs::remove_dir_all(self.data()).unwrap();
        copy(&self.folder.path().join("backup"), &self.data());
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.stop();
        }
    }
}

/// With owners and modes.
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}

/// One of the server's programs, of the newest version that is installed.
fn program(name: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir(VERSIONS).ok()?.flatten();
    let version = |entry: &std::fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let newest = versions.max_by_key(version)?;
    Some(newest.path().join("bin").join(name)).filter(|path| path.exists())
}

/// The server refuses to be root.
fn as_user(name: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if is_root() {
        command.args(["--reuid", USER, "--regid", USER, "--init-groups"]);
    }
    command.arg(program(name).unwrap());
    command
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Free now, and below what the kernel hands out by itself.
fn free_port() -> u16 {
    let mut tries = std::iter::repeat_with(|| fastrand::u16(20_000..32_000)).take(1000);
    tries.find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()).unwrap()
}
