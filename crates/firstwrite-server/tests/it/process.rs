//! Starts the binary and waits for what it says, never for time to pass.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tempfile::TempDir;

use crate::database::{self, Database, MARIADB, POSTGRES};
use crate::http::{Request, Response, get};

/// A folder of its own for each test, and a store: a file in it, or a database.
pub(crate) struct Folder {
    place: TempDir,
    database: Option<Database>,
    /// The address on Redis or of a table in DynamoDB, where nothing has to be dropped.
    elsewhere: Option<String>,
}

/// A running demo; killed when dropped.
pub(crate) struct Demo {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub(crate) address: SocketAddr,
}

/// Enough for half a minute, on a machine that answers within a millisecond.
const ASKED_MAX: usize = 30_000;

/// The binary, with nothing in its environment or on its terminal that could change what it says.
pub(crate) fn firstwrite(folder: &Folder) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_firstwrite"));
    command.current_dir(folder.path()).stdin(Stdio::null());
    for name in std::env::vars_os().map(|(name, _)| name) {
        if name.to_string_lossy().starts_with("FIRSTWRITE_") || name == "COLUMNS" {
            command.env_remove(name);
        }
    }
    command
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self { place: TempDir::new().unwrap(), database: None, elsewhere: None }
    }

    /// With a database of its own on the PostgreSQL server that the environment names, if it does.
    pub(crate) fn on_postgres() -> Option<Self> {
        Self::on(POSTGRES)
    }

    /// With a database of its own on the MariaDB server that the environment names, if it does.
    pub(crate) fn on_mariadb() -> Option<Self> {
        Self::on(MARIADB)
    }

    /// With a prefix of its own on the Redis server that the environment names, if it does.
    pub(crate) fn on_redis() -> Option<Self> {
        Some(Self { elsewhere: Some(database::redis()?), ..Self::new() })
    }

    /// With a table of its own on the emulator of DynamoDB that the environment names, if it does.
    pub(crate) fn on_dynamodb() -> Option<Self> {
        Some(Self { elsewhere: Some(database::table()?), ..Self::new() })
    }

    fn on(variable: &str) -> Option<Self> {
        let database = Database::create(variable)?;
        Some(Self { database: Some(database), ..Self::new() })
    }

    pub(crate) fn path(&self) -> &Path {
        self.place.path()
    }

    /// The address of the store, as `--store` takes it in this folder.
    pub(crate) fn store(&self) -> &str {
        let on_server = self.database.as_ref().map(|database| &database.url);
        on_server.or(self.elsewhere.as_ref()).map_or("sqlite:demo.db", String::as_str)
    }

    /// The database, on a server.
    pub(crate) fn database(&self) -> &Database {
        self.database.as_ref().unwrap()
    }

    /// Runs the binary to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        firstwrite(self).args(arguments).output().unwrap()
    }

    /// Runs what must be refused. If it says anything but a complaint, it may never end: it is
    /// killed, and the test fails.
    pub(crate) fn refuse(&self, arguments: &[&str]) -> Output {
        let command = &mut firstwrite(self);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if !line.is_empty() {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{arguments:?} was not refused: {line}");
        }
        child.wait_with_output().unwrap()
    }

    /// Starts a demo on this folder's store and a free port.
    pub(crate) fn demo(&self, more: &[&str]) -> Demo {
        Demo::start(self.demo_command().args(more))
    }

    fn demo_command(&self) -> Command {
        let mut command = firstwrite(self);
        command.args(["demo", "--listen", "127.0.0.1:0", "--store", self.store()]);
        // A loaded machine may be slow; the answers are what is looked at.
        command.env("FIRSTWRITE_WAIT_FOR", "30s");
        command
    }

    /// Starts a payment provider with its ledger in this folder, on a free port.
    pub(crate) fn provider(&self, more: &[&str]) -> Demo {
        self.provider_at("127.0.0.1:0", more)
    }

    /// The same, on this address.
    pub(crate) fn provider_at(&self, listen: &str, more: &[&str]) -> Demo {
        let mut command = firstwrite(self);
        command.args(["demo-provider", "--listen", listen, "--ledger", "provider.jsonl"]);
        Demo::start(command.args(more))
    }

    /// Whatever the provider's ledger holds that is a payment.
    pub(crate) fn provider_payments(&self, ledger: &str) -> Vec<firstwrite_provider::Payment> {
        let ledger = firstwrite_provider::Ledger::read(self.path().join(ledger)).unwrap();
        ledger.payments()
    }

    /// The same, with its log lines in `demo.log`.
    pub(crate) fn logging_demo(&self, more: &[&str]) -> Demo {
        let log = File::create(self.path().join("demo.log")).unwrap();
        Demo::logging_to(self.demo_command().args(more), log)
    }
}

impl Demo {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self::logging_to(command, Stdio::null())
    }

    pub(crate) fn logging_to(command: &mut Command, log: impl Into<Stdio>) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let address = line
            .trim_end()
            .strip_prefix("listening on http://")
            .unwrap_or_else(|| panic!("the demo did not start: {line:?}"));
        Self { child, address: address.parse().unwrap(), stdout }
    }

    /// The next lines it prints, up to and with the first that `last` holds for.
    pub(crate) fn lines_until(&mut self, last: impl Fn(&str) -> bool) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "it ended after {lines:?}");
            let line = line.trim_end().to_owned();
            let done = last(&line);
            lines.push(line);
            if done {
                return lines;
            }
        }
    }

    /// Sends a request that must be answered.
    pub(crate) fn answer(&self, request: &Request) -> Response {
        request.send(self.address).expect("the connection ended without an answer")
    }

    /// Asks again and again until the answer is as wanted.
    pub(crate) fn answer_when(
        &self,
        request: &Request,
        is_wanted: impl Fn(&Response) -> bool,
    ) -> Response {
        for _ in 0..ASKED_MAX {
            let answer = self.answer(request);
            if is_wanted(&answer) {
                return answer;
            }
        }
        panic!("it never came: {:?}", self.answer(request));
    }

    /// A payment of acme's, once it is settled.
    pub(crate) fn settled(&self, id: &str) -> serde_json::Value {
        let request = get(&format!("/payments/{id}")).acme();
        self.answer_when(&request, |answer| answer.json()["status"] == "settled").json()
    }

    /// How many payments a tenant has.
    pub(crate) fn payment_count(&self) -> u64 {
        self.answer(&get("/payments").acme()).json()["count"].as_u64().unwrap()
    }

    /// How much memory it takes up at the moment, in KiB, as the system counts it.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end, as a process supervisor does.
    pub(crate) fn terminate(&self) {
        self.signal("-TERM");
    }

    pub(crate) fn signal(&self, signal: &str) {
        let process = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &process]).status().unwrap();
        assert!(sent.success());
    }

    /// How many files and connections it has open.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// Lets it have no more than so many open from now on.
    pub(crate) fn limit_descriptors(&self, count: usize) {
        let count = u64::try_from(count).unwrap();
        let limit = Rlimit { current: Some(count), maximum: Some(count) };
        prlimit(Some(Pid::from_child(&self.child)), Resource::Nofile, limit).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // It may have ended by itself, which is what some tests are about.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
