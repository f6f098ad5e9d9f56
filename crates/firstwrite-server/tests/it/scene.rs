//! A gateway, as a process, between a test and an API that counts.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use crate::http::{Request, Response, post};
use crate::process::{Demo, Folder, firstwrite};
use crate::upstream::{Effect, Upstream};

/// Everything but the gateway, which tests start and end as they like.
pub(crate) struct Scene<'a> {
    pub(crate) folder: &'a Folder,
    pub(crate) upstream: Upstream,
    /// Where the store is; the folder's own, unless something stands in between.
    store: String,
}

/// What a crash blocks a key for. Shorter ones can be over before a busy machine has acknowledged them.
pub(crate) const SHORT_LEASE: &str = "[gateway.default]\nlease = '2s'\n";

/// Somebody who can be asked, and whose "no" is believed soon.
pub(crate) const PROBE: &str = "answer_within = '3s'\n[gateway.default]\nlease = '2s'\n\
    on_lost_answer = { probe = { url = '/payments?key={key}', list = '/data', key = '/key', made = 'all', at = 'none', status = 201, \
    empty_is_absent = true, grace = '4s' } }\n";

/// Enough for a lease to run out many times.
const ASKED_MAX: usize = 500;

const PAYMENT: &str = r#"{"amount":4990,"currency":"EUR"}"#;

/// A request that costs money.
pub(crate) fn pay(key: &str) -> Request {
    pay_at("/payments", key)
}

pub(crate) fn pay_at(path: &str, key: &str) -> Request {
    post(path, PAYMENT).acme().key(key).header("Host", "api.example")
}

/// What an answer says, without how it came about.
pub(crate) fn said(answer: &Response) -> (u16, &[u8]) {
    (answer.status, &answer.body)
}

impl<'a> Scene<'a> {
    pub(crate) fn new(folder: &'a Folder, settings: &str) -> Self {
        Self::before(folder, Upstream::start(), settings)
    }

    /// Before an API of one's own. `settings`: what the file says beyond where it is.
    pub(crate) fn before(folder: &'a Folder, upstream: Upstream, settings: &str) -> Self {
        let named = format!("[gateway]\nupstreams = ['http://{}']\n{settings}", upstream.address);
        fs::write(folder.path().join("gateway.toml"), named).unwrap();
        Self { folder, upstream, store: folder.store().to_owned() }
    }

    /// With a store that is reached another way.
    pub(crate) fn through(self, store: String) -> Self {
        Self { store, ..self }
    }

    /// A gateway on a free port.
    pub(crate) fn gateway(&self) -> Demo {
        self.gateway_at("127.0.0.1:0")
    }

    /// A gateway where another one was.
    pub(crate) fn gateway_again(&self, address: SocketAddr) -> Demo {
        self.gateway_at(&address.to_string())
    }

    fn gateway_at(&self, listen: &str) -> Demo {
        Demo::start(self.command(listen).args(["--log", "off"]))
    }

    /// What starts a gateway.
    pub(crate) fn command(&self, listen: &str) -> Command {
        let mut command = firstwrite(self.folder);
        command.args(["gateway", "--create", "--config", "gateway.toml", "--listen", listen]);
        command.args(["--tenants", "authorization"]);
        command.args(["--store", &self.store]);
        command
    }

    /// What the API did under a client's key.
    pub(crate) fn effects_of(&self, key: &str) -> Vec<Effect> {
        let effects = self.upstream.effects().into_iter();
        effects.filter(|effect| effect.client_key() == key).collect()
    }

    /// Waits until the leases of so many have run out, and takes a worker's turn then: a gateway does so too, but
    /// only every few seconds. On SQLite, no gateway may be running, and one that was started meanwhile has swept
    /// what was there then and may have settled it.
    pub(crate) fn wait_uncertain(&self, count: usize) {
        for _ in 0..ASKED_MAX {
            let turn = self.folder.run(&["worker", "--once", "--store", self.folder.store()]);
            assert!(turn.status.success(), "{turn:?}");
            if self.records("uncertain").len() == count || self.records("reserved").is_empty() {
                return;
            }
        }
        panic!("not all became uncertain: {:?}", self.records("uncertain"));
    }

    /// The records in a state, as an operator sees them.
    pub(crate) fn records(&self, state: &str) -> Vec<serde_json::Value> {
        self.list(&["--state", state, "--limit", "1000"])
    }

    fn list(&self, more: &[&str]) -> Vec<serde_json::Value> {
        let list = ["keys", "list", "--format", "json", "--store", self.folder.store()];
        let listed = self.folder.run(&[&list[..], more].concat());
        let page: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
        page["records"].as_array().unwrap().clone()
    }

    /// Says that a request was not carried out. On SQLite, no gateway may be running.
    pub(crate) fn settle_as_not_happened(&self, key: &str) {
        // All of these requests are one tenant's.
        let record = self.list(&["--limit", "1"]).remove(0);
        let tenant = record["tenant"].as_str().unwrap();
        let words = ["keys", "settle", tenant, key, "--not-happened", "--force", "--yes"];
        let why =
            ["--reason", "nothing was made", "--actor", "ada", "--store", self.folder.store()];
        let settled = self.folder.run(&[&words[..], &why].concat());
        assert!(settled.status.success(), "{settled:?}");
    }
}
