//! A MariaDB server of a test's own: on loopback, in a folder that goes with it, with the settings the test wants.
//!
//! It ends with the thread that started it, also if that is killed.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use firstwrite_store::mysql_async::prelude::Queryable as _;
use firstwrite_store::mysql_async::{Conn, OptsBuilder, SslOpts};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::server::is_required;

const START_MAX: Duration = Duration::from_mins(1);

pub(crate) struct Own {
    folder: TempDir,
    port: u16,
    arguments: Vec<String>,
    child: Option<Child>,
}

impl Own {
    /// `None`, and a word about it, where there is no server to start. `arguments` may name files in the folder that
    /// `prepare` is given.
    pub(crate) async fn start(prepare: impl FnOnce(&Path) -> Vec<String>) -> Option<Self> {
        if server().is_none() {
            assert!(!is_required(), "mariadbd is missing and everything is required");
            println!("skipped: a MariaDB of its own (mariadbd is missing)");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        // The server gives up being root, and its user must still be able to enter.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let arguments = prepare(folder.path());
        let mut own = Self { folder, port: free_port(), arguments, child: None };
        own.install();
        own.serve().await;
        let mut conn = own.client().await.unwrap();
        conn.query_drop("CREATE DATABASE shop").await.unwrap();
        Some(own)
    }

    /// With nothing behind the question mark.
    pub(crate) fn url(&self) -> String {
        format!("mysql://root@127.0.0.1:{}/shop", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// What it is started with from now on.
    pub(crate) fn set_arguments(&mut self, arguments: Vec<String>) {
        self.arguments = arguments;
    }

    /// Starts it again, on what is in its folder.
    pub(crate) async fn serve(&mut self) {
        let log = File::create(self.folder.path().join("log")).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(server().unwrap());
        command.arg("--no-defaults").args(as_user());
        command.arg(format!("--datadir={}", self.data().display()));
        command.env("TMPDIR", temporary(self.folder.path()));
        command.args(["--bind-address=127.0.0.1", "--socket=socket", "--pid-file=pid"]);
        command.arg(format!("--port={}", self.port)).args(&self.arguments);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.child = Some(command.spawn().unwrap());
        let started = Instant::now();
        let mut tick = tokio::time::interval(Duration::from_millis(50));
        while self.client().await.is_none() {
            let words = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(started.elapsed() < START_MAX, "the server does not answer:\n{words}");
            tick.tick().await;
        }
    }

    /// Stops it in good order.
    pub(crate) async fn stop(&mut self) {
        let mut conn = self.client().await.unwrap();
        // The connection ends with the server.
        drop(conn.query_drop("SHUTDOWN").await);
        self.child.take().unwrap().wait().unwrap();
    }

    /// Without a warning.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
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

    fn install(&self) {
        let mut command = Command::new("mariadb-install-db");
        command.args(["--no-defaults", "--auth-root-authentication-method=normal"]);
        command.arg("--skip-test-db").args(as_user());
        command.arg(format!("--datadir={}", self.data().display()));
        command.env("TMPDIR", temporary(self.folder.path()));
        let ended = command.output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "mariadb-install-db: {}\n{said}", ended.status);
    }

    /// Encrypted where the server has it; it may insist.
    async fn client(&self) -> Option<Conn> {
        let plain = OptsBuilder::default().ip_or_hostname("127.0.0.1").tcp_port(self.port);
        let plain = plain.user(Some("root")).prefer_socket(false);
        if let Ok(conn) = Conn::new(plain.clone()).await {
            return Some(conn);
        }
        drop(rustls::crypto::ring::default_provider().install_default());
        let anybody = SslOpts::default().with_danger_accept_invalid_certs(true);
        let anybody = anybody.with_danger_skip_domain_validation(true);
        Conn::new(plain.ssl_opts(Some(anybody))).await.ok()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// A folder for a server's temporary files. One that starts deletes those of others that keep theirs in the same.
pub(crate) fn temporary(folder: &Path) -> PathBuf {
    let temporary = folder.join("tmp");
    std::fs::create_dir_all(&temporary).unwrap();
    std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o777)).unwrap();
    temporary
}

/// With owners and modes.
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}

fn server() -> Option<PathBuf> {
    let usual = ["/usr/sbin/mariadbd", "/usr/bin/mariadbd", "/usr/local/sbin/mariadbd"];
    usual.iter().map(PathBuf::from).find(|path| path.exists())
}

/// The server refuses to be root.
fn as_user() -> Vec<&'static str> {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if is_root { vec!["--user=mysql"] } else { vec![] }
}

/// Free now, and below what the kernel hands out by itself.
fn free_port() -> u16 {
    let mut tries = std::iter::repeat_with(|| fastrand::u16(20_000..32_000)).take(1000);
    tries.find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()).unwrap()
}
