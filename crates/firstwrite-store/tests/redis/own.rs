//! Servers that a test starts, kills and starts again, on loopback, in a folder that goes with them.
//!
//! Each ends with the thread that started it, also if that is killed.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::server::is_required;

const START_MAX: Duration = Duration::from_mins(1);

/// Every write on disk before it is acknowledged, and nothing evicted.
pub(crate) const SAFE: [&str; 6] =
    ["--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction"];

pub(crate) struct Own {
    pub(crate) port: u16,
    arguments: Vec<String>,
    child: Child,
    folder: TempDir,
}

impl Own {
    /// `None`, and a word about it, where there is no server to start.
    pub(crate) async fn start(arguments: &[&str]) -> Option<Self> {
        if program().is_none() {
            assert!(!is_required(), "redis-server is missing and everything is required");
            println!("skipped: a server of its own (redis-server is missing)");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let arguments: Vec<String> =
            arguments.iter().map(|&argument| argument.to_owned()).collect();
        let child = serve(port, &arguments, &folder);
        let mut own = Self { port, arguments, child, folder };
        own.wait_until_ready().await;
        Some(own)
    }

    pub(crate) async fn safe() -> Option<Self> {
        Self::start(&SAFE).await
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Without a warning.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// As an operator stops it: everything is on disk first.
    pub(crate) async fn stop(&mut self) {
        // The connection ends instead of an answer.
        let mut client = self.client().await;
        drop(redis::cmd("SHUTDOWN").query_async::<()>(&mut client).await);
        self.child.wait().unwrap();
    }

    /// Stops it, puts another log in place of its own and starts it again.
    pub(crate) async fn restart_with_log(&mut self, log: &Path) {
        self.stop().await;
        std::fs::remove_dir_all(self.log()).unwrap();
        copy(log, &self.log());
        self.restart().await;
    }

    /// A copy of its log as it is now.
    pub(crate) fn copy_log(&self) -> TempDir {
        let backup = tempfile::tempdir().unwrap();
        copy(&self.log(), backup.path());
        backup
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("appendonlydir")
    }

    /// On what is left in its folder.
    pub(crate) async fn restart(&mut self) {
        self.child = serve(self.port, &self.arguments, &self.folder);
        self.wait_until_ready().await;
    }

    pub(crate) async fn client(&self) -> MultiplexedConnection {
        connect(self.port).await.unwrap()
    }

    pub(crate) async fn tell(&self, words: &[&str]) -> redis::Value {
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(word);
        }
        command.query_async(&mut self.client().await).await.unwrap()
    }

    /// One thing that the server says of itself.
    pub(crate) async fn says(&self, name: &str) -> Option<String> {
        let text: String = redis::cmd("INFO").query_async(&mut self.client().await).await.unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(|value| value.trim().to_owned())
    }

    async fn wait_until_ready(&mut self) {
        let started = Instant::now();
        let mut tick = tokio::time::interval(Duration::from_millis(20));
        loop {
            if let Ok(mut connection) = connect(self.port).await
                && redis::cmd("PING").query_async::<String>(&mut connection).await.is_ok()
            {
                return;
            }
            let words = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(self.child.try_wait().unwrap().is_none(), "the server ended:\n{words}");
            assert!(started.elapsed() < START_MAX, "the server does not start:\n{words}");
            tick.tick().await;
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // One that was killed is dead already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

fn serve(port: u16, arguments: &[String], folder: &TempDir) -> Child {
    let log = File::create(folder.path().join("log")).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program().unwrap());
    command.args(["--bind", "127.0.0.1", "--daemonize", "no", "--save", ""]);
    command.arg("--port").arg(port.to_string()).arg("--dir").arg(folder.path()).args(arguments);
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
}

async fn connect(port: u16) -> redis::RedisResult<MultiplexedConnection> {
    patiently(&redis::Client::open(("127.0.0.1", port))?).await
}

/// A connection that waits for a busy machine; the driver's own limit is half a second.
pub(crate) async fn patiently(client: &redis::Client) -> redis::RedisResult<MultiplexedConnection> {
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(START_MAX))
        .set_response_timeout(Some(START_MAX));
    client.get_multiplexed_async_connection_with_config(&config).await
}

fn program() -> Option<PathBuf> {
    let usual = ["/usr/bin/redis-server", "/usr/local/bin/redis-server", "/usr/sbin/redis-server"];
    usual.iter().map(PathBuf::from).find(|path| path.exists())
}

/// Free now, and below what the kernel hands out by itself.
pub(crate) fn free_port() -> u16 {
    let mut tries = std::iter::repeat_with(|| fastrand::u16(20_000..32_000)).take(1000);
    tries.find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()).unwrap()
}
