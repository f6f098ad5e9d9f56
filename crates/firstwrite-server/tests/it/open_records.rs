//! Records that a service without transactions may leave behind, and the commands that look at them.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::protocol::{self, Reserved};
use firstwrite_core::{
    Fingerprint, FingerprintRules, Key, OnLostAnswer, Parts, Policy, RecordId, Request, Store,
    Tenant,
};
use firstwrite_store::Access;
use serde_json::Value;

use crate::process::{Folder, firstwrite, stderr, stdout};

/// Runs `firstwrite keys …` on the folder's store.
pub(crate) fn keys(folder: &Folder, arguments: &[&str]) -> Output {
    let command = &mut firstwrite(folder);
    command.args(["keys", "--store", folder.store()]).args(arguments).output().unwrap()
}

/// Runs `firstwrite keys …` on a terminal of this width, on which `typed` is typed; returns what it shows.
pub(crate) fn on_terminal(
    folder: &Folder,
    columns: usize,
    arguments: &[&str],
    typed: &str,
) -> String {
    let words = arguments.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let binary = env!("CARGO_BIN_EXE_firstwrite");
    let line = format!("stty cols {columns}; '{binary}' keys --store '{}' {words}", folder.store());
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    command.current_dir(folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
    stdout(&child.wait_with_output().unwrap())
}

pub(crate) fn json(folder: &Folder, arguments: &[&str]) -> Value {
    document(&keys(folder, &[arguments, &["--format", "json"]].concat()))
}

/// The document that a command printed.
pub(crate) fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {}", stdout(output), stderr(output)))
}

/// Leaves a reserved record behind, under the key `held`, and an uncertain one, under `lost`.
pub(crate) fn leave_open_records(folder: &Folder) {
    let policy = Policy::default().lease(Duration::from_hours(1));
    with_store(folder, async |store| {
        for key in ["held", "lost"] {
            let reserved = protocol::reserve(&*store, &request(key), &policy, 7).await.unwrap();
            let Reserved::Granted(reservation) = reserved else { panic!("{key} is taken") };
            if key == "lost" {
                protocol::mark_uncertain(&*store, reservation, "no answer").await.unwrap();
            }
        }
    });
}

/// Leaves reserved records behind whose leases have run out: so many of each kind.
pub(crate) fn leave_lapsed_records(folder: &Folder, count: usize) {
    with_store(folder, async |store| {
        for on_lost_answer in [OnLostAnswer::Resend, OnLostAnswer::Uncertain] {
            let policy =
                Policy::default().lease(Duration::from_millis(1)).on_lost_answer(on_lost_answer);
            for number in 0..count {
                let request = request(&format!("{on_lost_answer:?}-{number}"));
                let reserved = protocol::reserve(&*store, &request, &policy, 7).await.unwrap();
                assert!(matches!(reserved, Reserved::Granted(_)), "{reserved:?}");
            }
        }
        // By the store's own clock, so that nothing depends on how fast the machine is.
        let last = store.now().await.unwrap().plus(Duration::from_millis(2));
        while store.now().await.unwrap() < last {
            tokio::task::yield_now().await;
        }
    });
}

/// Opens the folder's store, tables included, uses it and closes it.
pub(crate) fn with_store(folder: &Folder, work: impl AsyncFnOnce(Arc<dyn Store>)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let url = match folder.store().strip_prefix("sqlite:") {
        Some(file) => format!("sqlite:{}", folder.path().join(file).display()),
        None => folder.store().to_owned(),
    };
    runtime.block_on(async {
        firstwrite_store::create(&url).await.unwrap();
        let store = firstwrite_store::open(&url, Access::Write).await.unwrap();
        work(store).await;
    });
}

pub(crate) fn request(key: &str) -> Request {
    let (tenant, key) = (Tenant::new("acme").unwrap(), Key::new(key).unwrap());
    let id = RecordId::of(&tenant, &key);
    let parts = Parts {
        method: &axum::http::Method::POST,
        authority: "localhost",
        path: "/payments",
        query: None,
        headers: &axum::http::HeaderMap::new(),
        body: b"{}",
    };
    let fingerprint = Fingerprint::of(&parts, &FingerprintRules::default(), None, &id);
    Request { id, tenant, key, operation: Arc::from("POST /payments"), fingerprint }
}
