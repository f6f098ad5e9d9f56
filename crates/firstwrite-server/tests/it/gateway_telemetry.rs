//! What a gateway tells operators, and what it tells nobody: keys, credentials and bodies.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use serde_json::Value;

use crate::database::on_every_store;
use crate::http::{Request, Response, get, post};
use crate::process::{Demo, Folder, firstwrite, stderr};

on_every_store! {
    no_key_credential_or_body_is_in_metrics_or_in_any_log_line,
    the_operators_listener_is_named_in_the_file_and_outlives_a_reload,
}

pub(crate) const KEY: &str = "canary-key-5b1d0c";
const BEARER: &str = "canary-bearer-77aa01";
const CARD: &str = "4242424242424242";
const ANSWER: &str = "canary-answer-90e3";

/// What must be seen nowhere.
pub(crate) const CANARIES: [&str; 5] =
    ["canary-key", "canary-body", "canary-bearer", CARD, "canary-answer"];

/// An API that answers by the path it is asked for, with what it was sent.
pub(crate) struct Api {
    pub(crate) address: SocketAddr,
    /// A word for each request that arrived.
    arrived: Receiver<()>,
    /// Lets a slow answer go.
    release: Sender<()>,
}

impl Api {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (arrives, arrived) = channel();
        let (release, released) = channel();
        thread::spawn(move || {
            // One at a time, but for the slow one, whose answer waits in a thread of its own.
            let mut released = Some(released);
            while let Ok((stream, _)) = listener.accept() {
                let mut stream = BufReader::new(stream);
                let Some((path, sent)) = read(&mut stream) else { continue };
                // Whoever waits for it may be gone.
                if arrives.send(()).is_err() {
                    return;
                }
                let mut stream = stream.into_inner();
                match path.as_str() {
                    "/hang-up" => {}
                    "/slow" => {
                        let released: Receiver<()> = released.take().unwrap();
                        thread::spawn(move || {
                            released.recv().unwrap();
                            respond(&mut stream, "200 OK", &sent);
                        });
                    }
                    "/fail" => respond(&mut stream, "500 Internal Server Error", &sent),
                    "/refuse" => respond(&mut stream, "401 Unauthorized", &sent),
                    _ => respond(&mut stream, "201 Created", &sent),
                }
            }
        });
        Self { address, arrived, release }
    }

    /// How often it was asked since it was last asked about.
    pub(crate) fn asked(&self) -> usize {
        self.arrived.try_iter().count()
    }
}

/// The path, and all that was sent; none if the connection was opened for nothing.
fn read(stream: &mut BufReader<TcpStream>) -> Option<(String, String)> {
    let (head, body) = read_request(stream)?;
    let path = head.split(' ').nth(1)?.to_owned();
    Some((path, head + &String::from_utf8_lossy(&body)))
}

/// The head and the body of a request.
pub(crate) fn read_request(stream: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let lower = head.to_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).ok()?;
    Some((head, body))
}

/// Repeats all that was sent, and adds a word of its own.
fn respond(stream: &mut TcpStream, status: &str, sent: &str) {
    let body = format!("{ANSWER} {sent}");
    let head = format!(
        "HTTP/1.1 {status}\r\nlocation: /{ANSWER}\r\nset-cookie: s={ANSWER}\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    // The caller may be gone.
    drop(stream.write_all((head + &body).as_bytes()));
}

/// What a gateway's file says of its callers: each `Authorization` value is a tenant, and those without one
/// are another.
pub(crate) const ANYBODY: &str =
    "tenants = { anonymous = true, sources = [{ kind = 'authorization' }] }";

/// A gateway whose log lines are in `gateway.log`, and where its operator listens.
pub(crate) fn gateway(folder: &Folder, arguments: &[&str]) -> (Demo, SocketAddr) {
    let log = File::create(folder.path().join("gateway.log")).unwrap();
    let mut command = firstwrite(folder);
    command.args(["gateway", "--listen", "127.0.0.1:0", "--create", "--store", folder.store()]);
    if !arguments.contains(&"--config") {
        command.args(["--tenants", "authorization"]);
    }
    let mut gateway = Demo::logging_to(command.args(arguments), log);
    let lines = gateway.lines_until(|line| line.starts_with("operator:"));
    let line = lines.last().unwrap().strip_prefix("operator: http://").unwrap();
    let operator = line.split('/').next().unwrap().parse().unwrap();
    (gateway, operator)
}

pub(crate) fn pay(path: &str, key: &str) -> Request {
    let body = format!("{{\"card\":\"{CARD}\",\"note\":\"canary-body\"}}");
    post(path, &body).key(key).header("Authorization", &format!("Bearer {BEARER}"))
}

pub(crate) fn metrics(operator: SocketAddr) -> String {
    let answer: Response = get("/metrics").send(operator).unwrap();
    String::from_utf8(answer.body).unwrap()
}

/// Sends the canaries through every kind of answer; the statuses.
pub(crate) fn every_answer(gateway: &Demo, api: &Api) -> Vec<u16> {
    let other = |path: &str, key: &str| {
        post(path, "{\"other\":1}").key(key).header("Authorization", &format!("Bearer {BEARER}"))
    };
    let status = |request: &Request| gateway.answer(request).status;
    let mut statuses: Vec<u16> = Vec::new();
    for path in ["/pay", "/pay", "/fail", "/refuse", "/refuse", "/hang-up", "/hang-up"] {
        statuses.push(status(&pay(path, &format!("{KEY}{}", path.replace('/', "-")))));
    }
    statuses.push(status(&other("/pay", &format!("{KEY}-pay"))));
    statuses.push(status(&pay("/pay", &format!("{KEY} {KEY}"))));
    statuses.push(status(&pay("/pay", KEY).header("Idempotency-Key", &format!("{KEY}-2"))));
    statuses.push(status(&pay("/pay", KEY).header("Transfer-Encoding", "chunked")));
    while api.arrived.try_recv().is_ok() {}
    let slow = pay("/slow", &format!("{KEY}-slow")).start(gateway.address);
    api.arrived.recv().unwrap();
    statuses.push(status(&pay("/slow", &format!("{KEY}-slow"))));
    drop(slow);
    api.release.send(()).unwrap();
    let status_page = format!("/.firstwrite/operations/{KEY}-pay");
    let bearer = format!("Bearer {BEARER}");
    statuses.push(status(&get(&status_page).header("Authorization", &bearer)));
    statuses.push(status(&get("/things").header("Authorization", &bearer)));
    statuses
}

fn no_key_credential_or_body_is_in_metrics_or_in_any_log_line(folder: &Folder) {
    let api = Api::start();
    let upstream = format!("http://{}", api.address);
    let (gateway, operator) = gateway(
        folder,
        &[
            "--upstream",
            &upstream,
            "--operator",
            "127.0.0.1:0",
            "--log",
            "trace",
            "--log-format",
            "json",
        ],
    );
    let statuses = every_answer(&gateway, &api);
    let expected = [201, 201, 500, 401, 401, 504, 409, 422, 400, 400, 400, 409, 200, 201];
    assert_eq!(statuses, expected);
    let metrics = metrics(operator);
    for how in ["ran", "replayed", "key-reused", "key-invalid", "outcome-unknown", "in-progress"] {
        assert!(metrics.contains(&format!("how=\"{how}\"")), "{how}: {metrics}");
    }
    gateway.terminate();
    assert!(gateway.end().success());
    let log = fs::read_to_string(folder.path().join("gateway.log")).unwrap();
    assert!(log.lines().count() > 10, "{log}");
    for line in log.lines() {
        let entry: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        assert!(entry["level"].is_string(), "{line}");
    }
    for canary in CANARIES {
        assert!(!metrics.contains(canary), "{canary} is in the metrics: {metrics}");
        let line = log.lines().find(|line| line.contains(canary));
        assert!(line.is_none(), "{canary} is in the log: {line:?}");
    }
}

fn the_operators_listener_is_named_in_the_file_and_outlives_a_reload(folder: &Folder) {
    let api = Api::start();
    let file = format!(
        "[gateway]\n{ANYBODY}\noperator = '127.0.0.1:0'\nmetrics_tenants_max = 0\n\
         upstreams = ['http://{}']\n[[gateway.operations]]\noperation = 'POST /pay'\n",
        api.address
    );
    let path = folder.path().join("gateway.toml");
    fs::write(&path, &file).unwrap();
    let (gateway, operator) = gateway(folder, &["--config", "gateway.toml"]);
    assert_eq!(get("/readyz").send(operator).unwrap().status, 200);
    assert_eq!(gateway.answer(&pay("/pay", "a")).status, 201);
    assert_eq!(gateway.answer(&pay("/later", "b")).status, 201);
    let count = |operation: &str, count: u32| {
        let labels = format!("how=\"ran\",operation=\"{operation}\",tenant=\"other\"");
        format!("firstwrite_requests_total{{{labels}}} {count}\n")
    };
    let before = metrics(operator);
    assert!(before.contains(&count("POST /pay", 1)), "{before}");
    assert!(before.contains(&count("other", 1)), "{before}");
    fs::write(&path, file.replace("POST /pay", "POST /later")).unwrap();
    gateway.signal("-HUP");
    // Counts go on; what has a name from now on is counted under it.
    let mut number = 0;
    while !metrics(operator).contains(&count("POST /later", 1)) {
        number += 1;
        assert!(number < 30_000, "the reload was never seen");
        assert_eq!(gateway.answer(&pay("/later", &format!("b{number}"))).status, 201);
    }
    assert!(metrics(operator).contains(&count("POST /pay", 1)));
    gateway.terminate();
    assert!(gateway.end().success());
}

#[test]
fn an_operators_address_that_makes_no_sense_is_refused() {
    let folder = Folder::new();
    let upstream = [
        "gateway",
        "--tenants",
        "single",
        "--upstream",
        "http://127.0.0.1:1",
        "--operator",
        "9464",
    ];
    let refused = folder.refuse(&upstream);
    assert_eq!(refused.status.code(), Some(2));
    let complaint = stderr(&refused);
    assert!(complaint.contains("--operator: an address and a port are needed"), "{complaint}");
}
