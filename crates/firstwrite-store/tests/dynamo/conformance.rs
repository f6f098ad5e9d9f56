//! The suite that defines a store, and recorded histories, on every emulator.

use std::sync::Arc;

use firstwrite_testkit::conformance::Report;
use firstwrite_testkit::history::{HistoryOptions, HistoryReport, check_store};
use firstwrite_testkit::{Subject, conformance};

use crate::emulator::{Tables, Which, on_tables};
use crate::subject::{DynamoSubject, make_business};

async fn conforms(tables: Tables) -> Report {
    make_business(&tables).await;
    let report = conformance::assert_conforms(|| {
        let tables = tables.clone();
        Box::pin(async move { Arc::new(DynamoSubject::new(&tables).await) as Arc<dyn Subject> })
    })
    .await;
    println!("{report}");
    assert!(report.passed.len() > 140 && report.skipped.is_empty(), "{report}");
    report
}

async fn histories_are_explained(tables: Tables) {
    let fresh = fastrand::u64(..);
    println!("fresh seed {fresh}");
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
        conforms(tables).await.keep("dynamodb", "ministack, an emulator");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_histories_on_ministack_are_explained() {
    on_tables(Which::Ministack, histories_are_explained).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moto_conforms() {
    on_tables(Which::Moto, async |tables| drop(conforms(tables).await)).await;
}
