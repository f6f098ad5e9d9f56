//! The suite that defines a store, and recorded histories, on every kind of server.

use std::sync::Arc;

use firstwrite_testkit::history::{HistoryOptions, HistoryReport, check_store};
use firstwrite_testkit::{Subject, conformance};

use crate::server::{Which, address, client, new_prefix};
use crate::subject::RedisSubject;

/// What there is no claim to: transactions, and what is written in them.
const NOT_CLAIMED: [&str; 6] = [
    "transaction/",
    "outbox",
    "documents/",
    "findings/",
    "inbox",
    "durable/a_committed_transaction_survives",
];

/// `server` names no prefix yet: each case gets its own. `store` is what the table of guarantees calls it.
pub(crate) async fn conforms(store: &str, server: &str) {
    let report = conformance::assert_conforms(|| {
        let url = format!("{server}?prefix={}", new_prefix());
        Box::pin(async move {
            let subject: Arc<dyn Subject> = Arc::new(RedisSubject::new(&url).await);
            assert!(subject.store().capabilities().answers_within.is_some(), "it names its limit");
            subject
        })
    })
    .await;
    println!("{report}");
    for case in &report.skipped {
        assert!(
            NOT_CLAIMED.iter().any(|not| case.starts_with(not)),
            "{case} was skipped\n{report}"
        );
    }
    assert!(report.passed.len() > 80, "{report}");
    report.keep(store, &version(server).await);
}

/// A Valkey tells the Redis it is compatible with, too.
async fn version(server: &str) -> String {
    let mut client = client(server).await;
    let info: String = redis::cmd("INFO").arg("server").query_async(&mut client).await.unwrap();
    let member = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
    match (member("valkey_version:"), member("redis_version:")) {
        (Some(version), _) => format!("Valkey {version}"),
        (None, version) => format!("Redis {}", version.unwrap()),
    }
}

pub(crate) async fn histories_are_explained(server: &str) {
    let fresh = firstwrite_testkit::seed();
    let mut sum = HistoryReport::default();
    let subject = RedisSubject::new(&format!("{server}?prefix={}", new_prefix())).await;
    for seed in (0..60).chain([fresh]) {
        let report = check_store(subject.store(), seed, HistoryOptions::default()).await;
        let report = report.unwrap_or_else(|violation| panic!("{violation}"));
        sum.operations += report.operations;
        sum.written += report.written;
    }
    println!("{sum:?}");
    assert!(sum.operations > 3_000 && sum.written > 900, "{sum:?}");
}

async fn on(store: &str, which: Which) {
    let Some(url) = address(which) else { return };
    let server = url.split('?').next().unwrap();
    conforms(store, server).await;
    histories_are_explained(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_conforms_and_its_histories_are_explained() {
    on("redis", Which::Redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newest_redis_conforms_and_its_histories_are_explained() {
    on("redis-newest", Which::Newest).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn valkey_conforms_and_its_histories_are_explained() {
    on("valkey", Which::Valkey).await;
}
