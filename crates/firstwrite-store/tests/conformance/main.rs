//! The suite that defines a store, run on `SQLite`.
#![cfg(feature = "sqlite")]
#![expect(clippy::unwrap_used, reason = "what prepares a test may fail it")]

mod sqlite;

use std::sync::Arc;

use firstwrite_testkit::history::{HistoryOptions, HistoryReport, check_store};
use firstwrite_testkit::{Subject, conformance};

use sqlite::SqliteSubject;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_conforms() {
    let report = conformance::assert_conforms(|| {
        Box::pin(async { Arc::new(SqliteSubject::new().await) as Arc<dyn Subject> })
    })
    .await;
    println!("{report}");
    assert!(report.skipped.is_empty(), "everything is claimed: {:?}", report.skipped);
    report.keep("sqlite", &format!("SQLite {}", rusqlite::version()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_histories_on_sqlite_are_explained() {
    let fresh = firstwrite_testkit::seed();
    let mut sum = HistoryReport::default();
    for seed in (0..60).chain([fresh]) {
        let subject = SqliteSubject::new().await;
        let report = check_store(subject.store(), seed, HistoryOptions::default()).await;
        let report = report.unwrap_or_else(|violation| panic!("{violation}"));
        sum.operations += report.operations;
        sum.written += report.written;
    }
    println!("{sum:?}");
    assert!(sum.operations > 3_000 && sum.written > 900, "{sum:?}");
}
