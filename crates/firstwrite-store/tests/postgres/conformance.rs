//! The suite that defines a store, in every configuration, and recorded histories.

use std::sync::Arc;

use firstwrite_store::PostgresOptions;
use firstwrite_testkit::conformance::Report;
use firstwrite_testkit::history::{HistoryOptions, HistoryReport, check_store};
use firstwrite_testkit::{Subject, conformance};

use crate::server::{Database, Way, client, on_database};
use crate::subject::{PostgresSubject, Tables};

async fn conforms(database: Database, options: PostgresOptions) -> Report {
    let tables = Tables::new(&database).await;
    let report = conformance::assert_conforms(|| {
        let (tables, options) = (tables.clone(), options.clone());
        Box::pin(async move {
            let limit = options.statement_timeout;
            let subject: Arc<dyn Subject> = Arc::new(tables.subject(options).await);
            assert_eq!(subject.store().capabilities().answers_within, Some(limit));
            subject
        })
    })
    .await;
    println!("{report}");
    assert!(report.passed.len() > 80, "{report}");
    report
}

/// What is run for the table of guarantees, under the name it has there.
async fn shows(store: &str, database: Database, options: PostgresOptions) {
    let admin = client(&database.url).await;
    let version: String = admin.query_one("SHOW server_version", &[]).await.unwrap().get(0);
    let version = format!("PostgreSQL {}", version.split(' ').next().unwrap());
    conforms(database, options).await.keep(store, &version);
}

fn without_cache() -> PostgresOptions {
    let mut options = PostgresOptions::default();
    options.cache_bytes_max = 0;
    options
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_conforms() {
    let shows = |database| shows("postgres", database, PostgresOptions::default());
    on_database(Way::Direct, &[], shows).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_conforms_behind_a_transaction_pooler() {
    let shows = |database| shows("postgres-pgbouncer", database, without_cache());
    on_database(Way::Pooler, &[], shows).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newest_postgres_conforms() {
    let shows = |database| shows("postgres-newest", database, PostgresOptions::default());
    on_database(Way::Newest, &[], shows).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_conforms_where_transactions_are_repeatable_read_by_default() {
    let settings = ["default_transaction_isolation = 'repeatable read'"];
    on_database(Way::Direct, &settings, async |database| {
        drop(conforms(database, without_cache()).await);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_conforms_where_transactions_are_serializable_by_default() {
    let settings = ["default_transaction_isolation = 'serializable'"];
    on_database(Way::Direct, &settings, async |database| {
        drop(conforms(database, PostgresOptions::default()).await);
    })
    .await;
}

async fn histories_are_explained(database: Database, options: PostgresOptions) {
    let fresh = firstwrite_testkit::seed();
    let mut sum = HistoryReport::default();
    let subject = PostgresSubject::new(&database, options).await;
    for seed in (0..60).chain([fresh]) {
        let report = check_store(subject.store(), seed, HistoryOptions::default()).await;
        let report = report.unwrap_or_else(|violation| panic!("{violation}"));
        sum.operations += report.operations;
        sum.written += report.written;
    }
    println!("{sum:?}");
    assert!(sum.operations > 3_000 && sum.written > 900, "{sum:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_histories_on_postgres_are_explained() {
    on_database(Way::Direct, &[], |database| {
        histories_are_explained(database, PostgresOptions::default())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_histories_on_the_newest_postgres_are_explained() {
    on_database(Way::Newest, &[], |database| {
        histories_are_explained(database, PostgresOptions::default())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_histories_behind_a_pooler_are_explained() {
    on_database(Way::Pooler, &["default_transaction_isolation = 'serializable'"], |database| {
        histories_are_explained(database, without_cache())
    })
    .await;
}
