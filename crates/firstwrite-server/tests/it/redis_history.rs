//! Two gateways, as processes, on a Redis of their own: what it loses is noticed by the one that did not write it, and a
//! restart that loses nothing is not taken for a loss by either.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::process::Folder;
use crate::scene::{Scene, pay, said};

const PROGRAM: &str = "/usr/bin/redis-server";

pub(crate) struct Server {
    pub(crate) port: u16,
    place: TempDir,
    child: Child,
}

impl Server {
    /// `None`, and a line that says so, where there is no server to start.
    #[expect(clippy::print_stdout, reason = "a test that did not run must say so")]
    pub(crate) fn start() -> Option<Self> {
        if !Path::new(PROGRAM).exists() {
            let is_required =
                std::env::var("FIRSTWRITE_TEST_REQUIRE").is_ok_and(|value| value == "all");
            assert!(!is_required, "redis-server is missing and everything is required");
            println!("skipped: a server of its own (redis-server is missing)");
            return None;
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let place = TempDir::new().unwrap();
        let child = serve(port, place.path());
        Some(Self { port, place, child })
    }

    fn end_and_start(&mut self, signal: Signal) {
        let process = Pid::from_child(&self.child);
        kill_process(process, signal).unwrap();
        self.child.wait().unwrap();
        self.child = serve(self.port, self.place.path());
    }

    fn tell(&self, command: &str) {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).unwrap();
        stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"+OK\r\n");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that has ended is dead already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Starts it on what is in its folder, and waits until it says that it is ready.
fn serve(port: u16, place: &Path) -> Child {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", PROGRAM, "--bind", "127.0.0.1", "--save", ""]);
    command.args(["--appendonly", "yes", "--appendfsync", "always", "--port", &port.to_string()]);
    let mut child = command
        .arg("--dir")
        .arg(place)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let is_ready = lines.any(|line| line.unwrap().contains("Ready to accept connections"));
    assert!(is_ready, "the server ended");
    // It goes on speaking, and must be heard.
    std::thread::spawn(move || lines.count());
    child
}

#[test]
fn two_gateways_notice_what_is_lost_and_nothing_else() {
    let Some(mut server) = Server::start() else { return };
    let folder = Folder::new();
    let scene = Scene::new(&folder, "").through(format!("redis://127.0.0.1:{}", server.port));
    let (one, other) = (scene.gateway(), scene.gateway());
    let first = one.answer(&pay("first"));
    assert_eq!(first.status, 201);
    for (number, signal) in [Signal::TERM, Signal::KILL, Signal::TERM].into_iter().enumerate() {
        server.end_and_start(signal);
        let written = pay(&format!("written-{number}"));
        let made = other.answer_when(&written, |answer| answer.status != 503);
        assert_eq!(made.status, 201, "{signal:?}");
        let replayed = one.answer_when(&written, |answer| answer.status != 503);
        assert_eq!(said(&replayed), said(&made), "{signal:?}");
        let new = format!("new-{number}");
        assert_eq!(one.answer(&pay(&new)).status, 201, "{signal:?}: nothing is missing");
        assert_eq!(scene.effects_of(&new).len(), 1);
    }
    assert_eq!(said(&other.answer(&pay("first"))), said(&first));

    server.tell("FLUSHALL");
    for gateway in [&other, &one] {
        let refused = gateway.answer(&pay("first"));
        assert_eq!(refused.status, 409, "{refused:?}");
    }
    assert_eq!(scene.effects_of("first").len(), 1, "it ran twice");
}
