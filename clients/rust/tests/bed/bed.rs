//! Beds: one that tests share, and others for tests that set its faults or kill its demo. They end with this program.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use bytes::Bytes;
use firstwrite_client::Transport as _;
use firstwrite_client::transport::HyperTransport;
use http::{Method, Request};
use serde_json::Value;

/// Addresses of a bed, and its process.
#[derive(Debug)]
pub(crate) struct Bed {
    /// Through the proxy.
    pub(crate) proxy: String,
    /// Nobody listens there.
    pub(crate) refused: String,
    /// Its standard input is open as long as this program lives.
    _process: Child,
}

/// The command that starts a bed, for whoever has one that is built already.
const COMMAND: &str = "FIRSTWRITE_TEST_BED";
/// Larger than any page of the log.
const BYTES_MAX: usize = 1 << 30;

/// The bed that tests share, started at the first call.
pub(crate) fn bed() -> &'static Bed {
    static BED: OnceLock<Bed> = OnceLock::new();
    BED.get_or_init(Bed::start)
}

impl Bed {
    /// Starts one.
    pub(crate) fn start() -> Self {
        let mut command = if let Some(given) = std::env::var_os(COMMAND) {
            let mut command = Command::new("sh");
            command.args(["-c", "exec $0", given.to_str().unwrap()]);
            command
        } else {
            let mut command = Command::new(env!("CARGO"));
            command.args(["run", "--quiet", "--package", "xtask", "--", "client-bed"]);
            command
        };
        command.current_dir(env!("CARGO_MANIFEST_DIR"));
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starting the bed");
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).expect("the bed prints one line of JSON");
        let address = |name: &str| told[name].as_str().unwrap().to_owned();
        let (proxy, refused) = (address("proxy"), address("refused"));
        Self { proxy, refused, _process: process }
    }

    /// The address of the payments, through the proxy.
    pub(crate) fn payments(&self) -> String {
        format!("{}/payments", self.proxy)
    }

    /// Asks something of the bed itself.
    pub(crate) async fn ask(&self, method: Method, path: &str, body: &str) -> Value {
        let mut request = Request::new(Bytes::from(body.to_owned()));
        *request.method_mut() = method;
        *request.uri_mut() = format!("{}/_bed/{path}", self.proxy).parse().unwrap();
        let reply = HyperTransport::plain().send(request, BYTES_MAX).await.unwrap();
        let told = String::from_utf8(reply.body.to_vec()).unwrap();
        assert_eq!(reply.status, 200, "{path}: {told}");
        serde_json::from_str(&told).unwrap()
    }

    /// The number of payments of each customer whose name begins so.
    pub(crate) async fn effects(&self, begins: &str) -> BTreeMap<String, u64> {
        let told = self.ask(Method::GET, "effects", "").await;
        let counts = told["counts"].as_object().unwrap().iter();
        counts
            .filter(|(customer, _)| customer.starts_with(begins))
            .map(|(customer, count)| (customer.clone(), count.as_u64().unwrap()))
            .collect()
    }

    /// The number of the next request that comes.
    pub(crate) async fn next(&self) -> u64 {
        let told = self.ask(Method::GET, &format!("log?since={}", u32::MAX), "").await;
        told["next"].as_u64().unwrap()
    }

    /// Everything that came for customers whose name begins so, in order.
    pub(crate) async fn log(&self, begins: &str) -> Vec<Value> {
        self.log_since(begins, 0).await
    }

    /// The same, from the request of this number on.
    pub(crate) async fn log_since(&self, begins: &str, since: u64) -> Vec<Value> {
        let told = self.ask(Method::GET, &format!("log?since={since}"), "").await;
        assert_eq!(told["full"], false, "a full log proves nothing");
        let is_meant = |entry: &&Value| {
            entry["customer"].as_str().is_some_and(|name| name.starts_with(begins))
        };
        told["entries"].as_array().unwrap().iter().filter(is_meant).cloned().collect()
    }
}
