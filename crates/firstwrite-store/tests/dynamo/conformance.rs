//! The suite that defines a store, and recorded histories, on every emulator.

use std::sync::Arc;

use firstwrite_core::BoxFuture;
use firstwrite_testkit::conformance::Report;
use firstwrite_testkit::history::{HistoryOptions, HistoryReport, check_store};
use firstwrite_testkit::{Subject, conformance};

use crate::emulator::{Tables, Which, on_tables};
use crate::subject::{DynamoSubject, make_business};

/// Cases in which several write at the same time. Where a transaction of moto's is refused it puts whole tables back
/// as they were before, and what others wrote meanwhile is gone, though it was acknowledged.
const RACES: [&str; 4] = [
    "findings/many_runs_at_once_note_one_finding",
    "outbox/many_workers_at_once_claim_each_message_once",
    "outbox/one_worker_makes_the_trial",
    "transaction/of_many_at_once_one_is_kept",
];

async fn run(tables: Tables) -> Report {
    make_business(&tables).await;
    let fresh = || -> BoxFuture<'static, Arc<dyn Subject>> {
        let tables = tables.clone();
        Box::pin(async move {
            let subject: Arc<dyn Subject> = Arc::new(DynamoSubject::new(&tables).await);
            assert!(subject.store().capabilities().answers_within.is_some(), "it names its limit");
            subject
        })
    };
    let report = conformance::run_all(fresh, "").await;
    println!("{report}");
    report
}

fn passes_all(report: &Report) {
    assert!(report.failed.is_empty() && report.skipped.is_empty(), "{report}");
    assert!(report.passed.len() > 160, "{report}");
}

async fn histories_are_explained(tables: Tables) {
    let fresh = firstwrite_testkit::seed();
    let mut sum = HistoryReport::default();
    let subject = DynamoSubject::new(&tables).await;
    for seed in (0..20).chain([fresh]) {
        let report = check_store(subject.store(), seed, HistoryOptions::default()).await;
        let report = report.unwrap_or_else(|violation| panic!("{violation}"));
        sum.operations += report.operations;
        sum.written += report.written;
    }
    println!("{sum:?}");
    assert!(sum.operations > 1_000 && sum.written > 300, "{sum:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ministack_conforms() {
    on_tables(Which::Ministack, async |tables| {
        let report = run(tables).await;
        passes_all(&report);
        report.keep("dynamodb", "ministack, an emulator");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_histories_on_ministack_are_explained() {
    on_tables(Which::Ministack, histories_are_explained).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moto_conforms() {
    on_tables(Which::Moto, async |tables| {
        let mut report = run(tables).await;
        report.failed.retain(|(name, _)| !RACES.contains(name));
        passes_all(&report);
    })
    .await;
}
