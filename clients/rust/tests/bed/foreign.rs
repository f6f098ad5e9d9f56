//! Servers that others wrote, with answers that are lost on the way: `cargo xtask clients --peers FOLDER`.
//!
//! Each peer is a folder with a `run.sh PORT`. Two of them keep keys; localstripe ignores them, and stands behind the
//! gateway.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use firstwrite_client::transport::{Failure, HyperTransport, Reply};
use firstwrite_client::{
    Ask, BoxError, BoxFuture, Client, Clock as _, Dialect, End, EndKind, FileStorage, Intent,
    SystemClock, Transport,
};
use futures_util::future::{join_all, select};
use futures_util::stream::{self, StreamExt as _};
use http::{HeaderMap, HeaderValue, Method, Request};
use serde_json::{Value, json};

use crate::victim::FastClock;

/// The folder of the peers, for those who have them.
const PEERS: &str = "FIRSTWRITE_PEERS";
/// The program of the gateway.
const BINARY: &str = "FIRSTWRITE_BINARY";
/// Set, the two above must be; so must they where every suite has to run.
const REQUIRE: &str = "FIRSTWRITE_TEST_FOREIGN";
const REQUIRE_ALL: &str = "FIRSTWRITE_TEST_REQUIRE";

const INTENTS: u32 = 20;
const AT_ONCE: usize = 10;
/// Peers install what they need when they start for the first time.
const START_MAX: Duration = Duration::from_mins(4);
/// An attempt may be given up so often while a peer says 5xx for a key that it holds.
const RESUMPTIONS_MAX: u32 = 1000;

/// Returns the value of a variable. Without it there is nothing to test against: `cargo xtask` leaves these tests out
/// then, and says so.
fn given(variable: &str) -> Option<PathBuf> {
    let value = std::env::var_os(variable).map(PathBuf::from);
    let is_required = std::env::var_os(REQUIRE).is_some()
        || std::env::var_os(REQUIRE_ALL).is_some_and(|required| required == "all");
    assert!(value.is_some() || !is_required, "{variable} is not set");
    value
}

/// A server, and the folder it lies in; both are gone with this.
struct Server {
    process: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Server {
    /// Starts a copy of a peer.
    async fn peer(peers: &Path, name: &str, probe: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut copy = Command::new("cp");
        copy.arg("-r").args([peers.join(name), peers.join("lib.sh")]).arg(folder.path());
        assert!(copy.status().unwrap().success());
        let port = free_port();
        let mut command = Command::new("bash");
        command.args(["run.sh", &port.to_string()]).current_dir(folder.path().join(name));
        Self::start(command, port, folder, probe).await
    }

    /// Starts our gateway in front of a server.
    async fn gateway(binary: &Path, upstream: u16) -> Self {
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let mut command = Command::new(binary);
        command.args(["gateway", "--listen", &format!("127.0.0.1:{port}")]);
        command.args(["--upstream", &format!("http://127.0.0.1:{upstream}")]);
        command.args(["--tenants", "authorization", "--create", "--store"]);
        command.arg(format!("sqlite:{}/keys.db", folder.path().display()));
        Self::start(command, port, folder, "/v1/customers").await
    }

    async fn start(
        mut command: Command,
        port: u16,
        folder: tempfile::TempDir,
        probe: &str,
    ) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().unwrap();
        let server = Self { process, port, _folder: folder };
        let clock = SystemClock::new();
        while get(&server.url(probe)).await.is_err() {
            assert!(clock.elapsed() < START_MAX, "{command:?} does not serve");
            clock.wait(Duration::from_millis(200)).await;
        }
        server
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A script ends what it started when it is told to.
        let pid = i32::try_from(self.process.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        }
        drop(self.process.wait());
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

async fn get(url: &str) -> Result<Value, Failure> {
    let mut request = Request::new(Bytes::new());
    *request.uri_mut() = url.parse().unwrap();
    *request.headers_mut() = token(url);
    let reply = HyperTransport::plain().send(request, 1 << 24).await?;
    Ok(serde_json::from_slice(&reply.body).unwrap_or_default())
}

/// localstripe's account.
fn token(_: &str) -> HeaderMap {
    let token = HeaderValue::from_static("Basic c2tfdGVzdF8xMjM0NTo=");
    HeaderMap::from_iter([(http::header::AUTHORIZATION, token)])
}

async fn credentials(ask: Ask) -> Result<HeaderMap, BoxError> {
    Ok(token(&ask.url.to_string()))
}

/// Loses requests and answers, by a seed.
struct Cutting {
    inner: HyperTransport<hyper_util::client::legacy::connect::HttpConnector>,
    drawn: AtomicU64,
    faults: Mutex<BTreeMap<&'static str, u32>>,
}

impl Transport for Cutting {
    fn send(
        &self,
        request: Request<Bytes>,
        answer_bytes_max: usize,
    ) -> BoxFuture<'_, Result<Reply, Failure>> {
        let number = self.drawn.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let fault = match (number ^ (number >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 32 {
            draw if draw % 100 < 10 => "cut-before",
            draw if draw % 100 < 35 => "cut-after",
            draw if draw % 100 < 50 => "cut-early",
            _ => "ok",
        };
        *self.faults.lock().unwrap().entry(fault).or_default() += 1;
        let lost = || Err(Failure::Lost(fault.into()));
        Box::pin(async move {
            if fault == "cut-before" {
                return lost();
            }
            let sent = self.inner.send(request, answer_bytes_max);
            if fault == "cut-early" {
                // The connection is closed while the server works, or a little later.
                let moment = SystemClock::new().wait(Duration::from_millis(15));
                drop(select(sent, moment).await);
                return lost();
            }
            let answer = sent.await;
            if fault == "cut-after" { lost() } else { answer }
        })
    }
}

/// A client that loses half of everything, and its folder.
fn client(dialect: Dialect) -> (Client, std::sync::Arc<Cutting>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let cutting = std::sync::Arc::new(Cutting {
        inner: HyperTransport::plain(),
        drawn: AtomicU64::new(1),
        faults: Mutex::default(),
    });
    let storage = FileStorage::open(folder.path().join("intents")).unwrap();
    let builder = Client::builder(storage, std::sync::Arc::clone(&cutting)).dialect(dialect);
    let client = builder.credentials(credentials).clock(FastClock::default()).build();
    (client, cutting, folder)
}

/// Sends until it is known how it ended.
async fn settle(intent: &Intent) -> End {
    const WAIT: Duration = Duration::from_hours(1);
    let mut end = intent.send_for(WAIT).await;
    for _ in 0..RESUMPTIONS_MAX {
        match end {
            Ok(End::Unknown(_)) => end = intent.resume().await,
            Err(error) if error.pending().is_some() => end = intent.send_for(WAIT).await,
            other => return other.unwrap(),
        }
    }
    panic!("{intent:?} does not end")
}

fn id(end: &End) -> String {
    end.answer().unwrap().json::<Value>().unwrap()["id"].to_string()
}

/// Returns what was seen.
async fn check_keyed(peers: &Path, name: &str) -> String {
    let server = Server::peer(peers, name, "/count").await;
    let (client, cutting, _folder) = client(Dialect::Draft07);
    let pay = |number: String| {
        let (client, url) = (client.clone(), server.url("/charge?sleep=20"));
        async move {
            // One of these peers replays by the body too, so it names the action.
            let draft = client.intent(&number).post_json(&url, &json!({"customer": number}));
            settle(&draft.open().await.unwrap()).await
        }
    };
    let names = (0..INTENTS).map(|number| pay(format!("{name}/{number}")));
    let ends: Vec<End> = stream::iter(names).buffer_unordered(AT_ONCE).collect().await;
    assert!(ends.iter().all(|end| end.kind() == EndKind::Done), "{ends:?}");
    let effects = get(&server.url("/count")).await.unwrap()["n"].as_u64().unwrap();
    assert_eq!(effects, u64::from(INTENTS));
    assert_eq!(ends.iter().map(id).collect::<BTreeSet<_>>().len(), ends.len());
    // One intent, ten at once.
    let together = join_all((0..AT_ONCE).map(|_| pay(format!("{name}/one")))).await;
    assert_eq!(together.iter().map(id).collect::<BTreeSet<_>>().len(), 1);
    assert_eq!(get(&server.url("/count")).await.unwrap()["n"], effects + 1);
    let faults = cutting.faults.lock().unwrap().clone();
    format!("{name}: {} effects of {} intents, {faults:?}", effects + 1, INTENTS + 1)
}

#[tokio::test]
async fn idemkit_has_one_effect_for_each_intent() {
    let Some(peers) = given(PEERS) else { return };
    println!("{}", check_keyed(&peers, "py-idemkit").await);
}

#[tokio::test]
async fn express_idempotency_has_one_effect_for_each_intent() {
    let Some(peers) = given(PEERS) else { return };
    println!("{}", check_keyed(&peers, "express-idempotency").await);
}

#[tokio::test]
async fn localstripe_behind_the_gateway_has_one_effect_for_each_intent() {
    let (Some(peers), Some(binary)) = (given(PEERS), given(BINARY)) else { return };
    let stripe = Server::peer(&peers, "localstripe", "/v1/customers").await;
    let gateway = Server::gateway(&binary, stripe.port).await;
    for (word, dialect) in [("draft-07", Dialect::Draft07), ("stripe", Dialect::Stripe)] {
        let (client, cutting, _folder) = client(dialect);
        let create = |name: String| {
            let (client, url) = (client.clone(), gateway.url("/v1/customers"));
            async move {
                let draft = client.intent(&name).request(Method::POST, &url);
                let body = format!("description={name}");
                let draft = draft.body(body, "application/x-www-form-urlencoded");
                settle(&draft.open().await.unwrap()).await
            }
        };
        let names = (0..INTENTS).map(|number| create(format!("{word}-{number}")));
        let ends: Vec<End> = stream::iter(names).buffer_unordered(AT_ONCE).collect().await;
        assert!(ends.iter().all(|end| end.kind() == EndKind::Done), "{ends:?}");
        let page = get(&stripe.url("/v1/customers?limit=100")).await.unwrap();
        let made = page["data"].as_array().unwrap().iter();
        let made = made.filter_map(|customer| customer["description"].as_str());
        let made: Vec<&str> = made.filter(|name| name.starts_with(word)).collect();
        let faults = cutting.faults.lock().unwrap().clone();
        println!("{word}: {} effects of {INTENTS} intents, {faults:?}", made.len());
        assert_eq!(made.len(), usize::try_from(INTENTS).unwrap());
        assert_eq!(made.iter().collect::<BTreeSet<_>>().len(), made.len());
    }
}
