//! A real browser, with a page on one origin and the gateway on another: whatever the gateway answers, the page
//! can read.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::network::Reach;
use crate::process::Folder;
use crate::scene::Scene;
use crate::tools::installed;
use crate::upstream::{Moment, Upstream, answer, made};

/// The browser's program.
const CHROMIUM: &str = "FIRSTWRITE_TEST_CHROMIUM";

/// Far longer than a browser takes to start on a busy machine; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_mins(2);

/// A browser without a screen; ended when dropped.
struct Browser {
    child: Child,
    _profile: TempDir,
}

/// What the page tells the test, and how it learns that it was done.
struct Told {
    what: String,
    body: Vec<u8>,
    stream: TcpStream,
}

#[test]
fn a_page_of_another_origin_reads_whatever_the_gateway_answers() {
    let Some(chromium) = installed(CHROMIUM) else { return };
    let seen = look(&chromium, true);
    for (name, status) in [
        ("first", 201),
        ("replay", 201),
        ("mismatch", 422),
        ("conflict", 409),
        ("unavailable", 503),
    ] {
        assert_eq!(seen[name]["status"], status, "{name}: {seen:#}");
    }
    assert_eq!(seen["first"]["body"], seen["replay"]["body"], "{seen:#}");
    let header = |name: &str, header: &str| seen[name]["headers"][header].clone();
    assert_eq!(header("first", "idempotent-replayed"), Value::Null);
    assert_eq!(header("replay", "idempotent-replayed"), "true");
    assert!(header("replay", "idempotency-expires").is_string(), "{seen:#}");
    assert_eq!(header("replay", "location"), "/payments/1");
    for name in ["conflict", "unavailable"] {
        let (said, body) = (header(name, "retry-after"), &seen[name]["body"]["retry_after"]);
        assert!(body.is_u64() && said == body.to_string().as_str(), "{name}: {seen:#}");
    }
    for name in ["first", "replay", "mismatch", "conflict", "unavailable", "doubt"] {
        assert!(header(name, "date").is_string(), "{name}: {seen:#}");
    }
    assert_eq!(seen["doubt"]["status"], 502, "{seen:#}");
    assert_eq!(header("doubt", "idempotency-outcome"), "unknown", "{seen:#}");
    for (name, code) in [
        ("mismatch", "key-reused"),
        ("conflict", "in-progress"),
        ("unavailable", "store-unavailable"),
    ] {
        assert_eq!(seen[name]["body"]["code"], code, "{seen:#}");
    }
    assert_eq!(seen["slow"]["status"], 201, "{seen:#}");
}

/// Without the section nothing can be read, so the browser does ask for permission.
#[test]
fn a_page_reads_nothing_that_is_not_permitted() {
    let Some(chromium) = installed(CHROMIUM) else { return };
    let seen = look(&chromium, false);
    for name in ["first", "replay", "mismatch", "conflict", "unavailable"] {
        assert!(seen[name]["unreadable"].is_string(), "{name}: {seen:#}");
    }
}

/// Shows the page to a browser, does what it asks for, and returns what it saw.
fn look(chromium: &Path, is_permitted: bool) -> Value {
    let (page, told) = serve();
    let folder = Folder::new();
    let mut reach = Reach::of(&folder);
    let headers = "content-type: application/json\r\nlocation: /payments/1\r\n";
    let upstream = Upstream::answering(move |effect| {
        let is_lost = effect.key.contains("order-lost");
        let status = if is_lost { "502 Bad Gateway" } else { "201 Created" };
        answer(status, headers, made(effect).as_bytes())
    });
    let cors = format!("[gateway.cors]\norigins = ['http://{page}']\n");
    let settings = if is_permitted { &*cors } else { "" };
    let scene = Scene::before(&folder, upstream, settings);
    let gateway = scene.gateway();
    let _browser = Browser::open(chromium, &format!("http://{page}/"));
    loop {
        let Told { what, body, stream } =
            told.recv_timeout(PATIENCE).expect("the browser says nothing");
        let mut shown = String::new();
        match what.as_str() {
            "" => {
                shown = include_str!("page.html")
                    .replace("GATEWAY", &format!("http://{}", gateway.address));
            }
            // Without permission nothing but the question for it arrives, and nobody answers that late.
            "hold" if is_permitted => scene.upstream.hold(Moment::Head),
            "wait-held" if is_permitted => scene.upstream.wait_held(),
            "release" => scene.upstream.release(),
            "take-away" => reach.take_away(),
            "give-back" => reach.give_back(),
            "report" => {
                answer_page(stream, "");
                return serde_json::from_slice(&body).unwrap();
            }
            _ => {}
        }
        answer_page(stream, &shown);
    }
}

/// The server of the page: it hands every request over, and whoever takes it answers.
fn serve() -> (SocketAddr, Receiver<Told>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let sender = sender.clone();
            // A browser opens connections that it may never use.
            thread::spawn(move || read(stream, &sender));
        }
    });
    (address, receiver)
}

fn read(stream: TcpStream, sender: &Sender<Told>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let what = head.split(' ').nth(1)?.trim_start_matches('/').to_owned();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap_or(0))
    });
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    sender.send(Told { what, body, stream: stream.into_inner() }).ok()
}

fn answer_page(mut stream: TcpStream, page: &str) {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        page.len()
    );
    // A browser that has gone away is noticed by what it does not say.
    drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(page.as_bytes())));
}

impl Browser {
    fn open(chromium: &Path, url: &str) -> Self {
        let profile = TempDir::new().unwrap();
        let mut command = Command::new(chromium);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"]);
        command.args(["--disable-dev-shm-usage", "--no-first-run", "--disable-sync"]);
        command.args(["--disable-background-networking", "--disable-component-update"]);
        // A machine's own proxy cannot reach our loopback. The port keeps the program from ending by itself.
        command.args(["--no-proxy-server", "--remote-debugging-port=0"]);
        command.arg(format!("--user-data-dir={}", profile.path().display())).arg(url);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self { child: command.spawn().unwrap(), _profile: profile }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
