//! A gateway that is told to stop more than once.

use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};

use crate::process::{Folder, firstwrite};

/// A gateway with an attempt under way, whose upstream does not answer until it is told to.
struct Busy {
    gateway: Child,
    log: Lines<BufReader<ChildStderr>>,
    upstream: TcpStream,
    client: TcpStream,
}

impl Busy {
    fn start(folder: &Folder) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let api = format!("http://{}", listener.local_addr().unwrap());
        let mut command = firstwrite(folder);
        command.args(["gateway", "--create", "--tenants", "single", "--listen", "127.0.0.1:0"]);
        command.args(["--store", folder.store(), "--upstream", &api]);
        let mut gateway = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(gateway.stdout.take().unwrap()).lines().map(Result::unwrap);
        let address = said.find_map(|line| Some(line.split_once("http://")?.1.to_owned())).unwrap();
        let log = BufReader::new(gateway.stderr.take().unwrap()).lines();
        let mut client = TcpStream::connect(address).unwrap();
        client
            .write_all(
                b"POST /pay HTTP/1.1\r\nhost: shop\r\nidempotency-key: k\r\ncontent-length: 2\r\n\r\n{}",
            )
            .unwrap();
        let (upstream, _) = listener.accept().unwrap();
        let mut arrived = [0; 4];
        (&upstream).read_exact(&mut arrived).unwrap();
        assert_eq!(&arrived, b"POST");
        Self { gateway, log, upstream, client }
    }

    fn signal(&self, signal: &str) {
        let process = self.gateway.id().to_string();
        assert!(Command::new("kill").args([signal, &process]).status().unwrap().success());
    }

    /// Reads the log up to a line with these words.
    fn logs(&mut self, words: &str) -> String {
        let mut lines = self.log.by_ref().map(Result::unwrap);
        lines.find(|line| line.contains(words)).unwrap_or_else(|| panic!("no line says {words}"))
    }
}

/// It may have ended by itself.
impl Drop for Busy {
    fn drop(&mut self) {
        drop(self.gateway.kill());
        drop(self.gateway.wait());
    }
}

#[test]
fn a_second_sigterm_cuts_nothing_off() {
    let folder = Folder::new();
    let mut busy = Busy::start(&folder);
    busy.signal("-TERM");
    busy.logs("stopping");
    busy.signal("-TERM");
    busy.logs("changes nothing");
    busy.upstream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 4\r\n\r\nmade").unwrap();
    let mut answer = String::new();
    busy.client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201") && answer.ends_with("made"), "{answer}");
    assert_eq!(busy.gateway.wait().unwrap().code(), Some(0));
}

#[test]
fn ctrl_c_while_it_ends_cuts_off_and_says_how_much() {
    for first in ["-TERM", "-INT"] {
        let folder = Folder::new();
        let mut busy = Busy::start(&folder);
        busy.signal(first);
        busy.logs("stopping");
        busy.signal("-INT");
        let cut_off = busy.logs("cut off");
        assert!(cut_off.contains("WARN") && cut_off.contains("attempts=1"), "{cut_off}");
        assert_eq!(busy.gateway.wait().unwrap().code(), Some(130));
    }
}
