//! The official Stripe libraries take every refusal of ours for the error it is.
//!
//! They read a JSON answer for its member `error`; one without it was taken for a payment that was made.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;

use firstwrite_core::{Rejection, RejectionKind};
use serde_json::{Value, json};

use crate::network::Reach;
use crate::process::{Folder, stderr, stdout};
use crate::scene::Scene;
use crate::tools::installed;
use crate::upstream::{Moment, Upstream, answer};

/// Where `npm` has put the library for Node.
const NODE: &str = "FIRSTWRITE_TEST_STRIPE_NODE";
/// A Python that has the library.
const PYTHON: &str = "FIRSTWRITE_TEST_STRIPE_PYTHON";

/// One of the libraries, installed.
enum Library {
    Node(PathBuf),
    Python(PathBuf),
}

/// Longer than a body may be here.
const LONG: usize = 3000;

/// What stands in every one of these gateways' settings.
const SETTINGS: &str = "answer_within = '2s'\n\
    [gateway.tenants]\n\
    anonymous = true\n\
    [[gateway.tenants.sources]]\n\
    kind = 'authorization'\n\
    [gateway.default]\n\
    request_bytes_max = 2000\n";

#[test]
fn the_library_for_node_raises_on_every_refusal() {
    let Some(folder) = installed(NODE) else { return };
    raises_on_every_refusal(&Library::Node(folder));
}

#[test]
fn the_library_for_python_raises_on_every_refusal() {
    let Some(python) = installed(PYTHON) else { return };
    raises_on_every_refusal(&Library::Python(python));
}

fn raises_on_every_refusal(library: &Library) {
    let folder = Folder::new();
    let mut reach = Reach::of(&folder);
    let upstream = Upstream::answering(|effect| {
        let body = format!(r#"{{"id":"pi_{}","object":"payment_intent"}}"#, effect.number);
        answer("200 OK", "content-type: application/json\r\n", body.as_bytes())
    });
    let scene = Scene::before(&folder, upstream, SETTINGS);
    let gateway = scene.gateway();
    let at = gateway.address;
    let call = |key: &str, description: &str| library.call(at, key, description);

    // What is no refusal is no error, replays included: otherwise the rest would show nothing.
    assert_eq!(call("order-1", "tea"), json!({"answered": "pi_1"}));
    assert_eq!(call("order-1", "tea"), json!({"answered": "pi_1"}));

    refused(&call("order-1", "coffee"), 422);
    refused(&call(&"k".repeat(300), "tea"), 400);
    refused(&call("order-2", &"x".repeat(LONG)), 413);
    // Late: nobody knows how it ended. Then: somebody must find out.
    scene.upstream.hold(Moment::Head);
    refused(&call("order-3", "tea"), 504);
    refused(&call("order-3", "tea"), 409);
    scene.upstream.release();
    reach.take_away();
    refused(&call("order-4", "tea"), 503);
    reach.give_back();
    refused(&library.call(before_nobody(), "order-5", "tea"), 502);

    // Every other kind, as it would be sent: what a client does with it goes by the document alone.
    let stub = Upstream::answering(|effect| document(effect.client_key()));
    for kind in RejectionKind::ALL {
        let ended = library.call(stub.address, kind.code(), "tea");
        refused(&ended, Rejection::new(kind).status().as_u16());
    }
}

/// The refusal whose code is the request's key, as bytes of HTTP.
fn document(code: &str) -> Vec<u8> {
    let kind = RejectionKind::ALL.into_iter().find(|kind| kind.code() == code).unwrap();
    let (parts, body) = Rejection::new(kind).to_response().into_parts();
    let status = format!("{} {}", parts.status.as_u16(), code);
    let headers = parts
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {}\r\n", value.to_str().unwrap()));
    answer(&status, &headers.collect::<String>(), &body)
}

/// A gateway before a server that is not there. It lives as long as the test's process needs it.
fn before_nobody() -> SocketAddr {
    let folder = Box::leak(Box::new(Folder::new()));
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let scene = Scene::new(folder, SETTINGS);
    let named = format!("[gateway]\nupstreams = ['http://{closed}']\n{SETTINGS}");
    std::fs::write(folder.path().join("gateway.toml"), named).unwrap();
    let gateway = Box::leak(Box::new(scene.gateway()));
    gateway.address
}

fn refused(ended: &Value, status: u16) {
    assert!(ended["raised"].is_string(), "the library took a refusal for a payment: {ended}");
    assert_eq!(ended["status"], status, "{ended}");
}

impl Library {
    fn call(&self, gateway: SocketAddr, key: &str, description: &str) -> Value {
        let scripts = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/stripe");
        let mut command = match self {
            Self::Node(folder) => {
                let mut command = Command::new("node");
                command.arg(scripts.join("call.cjs")).env("NODE_PATH", folder.join("node_modules"));
                command
            }
            Self::Python(python) => {
                let mut command = Command::new(python);
                command.arg(scripts.join("call.py"));
                command
            }
        };
        // A machine's own proxy cannot reach our loopback.
        for name in ["http_proxy", "https_proxy", "all_proxy"] {
            command.env_remove(name).env_remove(name.to_ascii_uppercase());
        }
        let ended =
            command.args([&format!("http://{gateway}"), key, description]).output().unwrap();
        serde_json::from_slice(&ended.stdout)
            .unwrap_or_else(|error| panic!("{error}: {} {}", stdout(&ended), stderr(&ended)))
    }
}
