//! The suite that defines a store, and recorded histories, on every kind of server.

use std::sync::Arc;

use firstwrite_store::MysqlOptions;
use firstwrite_store::mysql_async::prelude::Queryable as _;
use firstwrite_testkit::history::{HistoryOptions, HistoryReport, check_store};
use firstwrite_testkit::{Subject, conformance};

use crate::server::{Database, Which, client, on_database};
use crate::subject::{MysqlSubject, Tables};

/// `store` is what the table of guarantees calls it.
pub(crate) async fn conforms(store: &str, database: Database) {
    let tables = Tables::new(&database).await;
    let report = conformance::assert_conforms(|| {
        let tables = tables.clone();
        Box::pin(async move {
            let options = MysqlOptions::default();
            let limit = options.statement_timeout;
            let subject: Arc<dyn Subject> = Arc::new(tables.subject(options).await);
            assert_eq!(subject.store().capabilities().answers_within, Some(limit));
            subject
        })
    })
    .await;
    println!("{report}");
    assert!(report.passed.len() > 150 && report.skipped.is_empty(), "{report}");
    let version: Option<String> =
        client(&database.url).await.query_first("SELECT VERSION()").await.unwrap();
    let version = version.unwrap();
    let kind = if version.contains("MariaDB") { "MariaDB" } else { "MySQL" };
    report.keep(store, &format!("{kind} {}", version.split('-').next().unwrap()));
}

pub(crate) async fn histories_are_explained(database: Database) {
    let fresh = firstwrite_testkit::seed();
    let mut sum = HistoryReport::default();
    let subject = MysqlSubject::new(&database, MysqlOptions::default()).await;
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
async fn mariadb_conforms() {
    on_database(Which::MariaDb, |database| conforms("mariadb", database)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_histories_on_mariadb_are_explained() {
    on_database(Which::MariaDb, histories_are_explained).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_conforms() {
    on_database(Which::MySql, |database| conforms("mysql", database)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_histories_on_mysql_are_explained() {
    on_database(Which::MySql, histories_are_explained).await;
}
