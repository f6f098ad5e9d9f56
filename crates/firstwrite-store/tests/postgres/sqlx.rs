//! Handlers with `sqlx` transactions: the suite that defines a store, in every configuration.

use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::{BoxError, BoxFuture, Store, StoreError};
use firstwrite_store::sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use firstwrite_store::sqlx::{AssertSqlSafe, PgPool, query};
use firstwrite_store::{PostgresOptions, SqlxPostgresStore, SqlxTx};
use firstwrite_testkit::{Script, ScriptReport, Subject, conformance, play_held};

use crate::server::{Database, Way, on_database};
use crate::subject::PostgresSubject;

#[derive(Debug)]
pub(crate) struct SqlxSubject {
    inner: PostgresSubject,
    pool: PgPool,
}

impl SqlxSubject {
    pub(crate) async fn new(database: &Database, options: PostgresOptions) -> Self {
        let inner = PostgresSubject::new(database, options).await;
        let url = inner.url().split('?').next().unwrap();
        let mut options: PgConnectOptions = url.parse().unwrap();
        if database.pooled_url.is_some() {
            options = options.statement_cache_capacity(0).extra_float_digits(None);
        }
        let pool = PgPoolOptions::new().max_connections(16).connect_with(options).await.unwrap();
        Self { inner, pool }
    }

    pub(crate) fn postgres(&self) -> &PostgresSubject {
        &self.inner
    }

    pub(crate) fn sqlx(&self) -> SqlxPostgresStore {
        SqlxPostgresStore::new(self.inner.postgres(), self.pool.clone())
    }
}

impl Subject for SqlxSubject {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.sqlx())
    }

    fn advance(&self, by: Duration) -> BoxFuture<'_, ()> {
        self.inner.advance(by)
    }

    fn transact(&self, script: Script) -> BoxFuture<'_, Result<ScriptReport, StoreError>> {
        Box::pin(async move {
            play_held(
                &self.sqlx(),
                script,
                |tx, name, value| put(tx, self.inner.schema(), name, value),
                |tx, message| {
                    let enqueued = tx.enqueue(&message).map_err(Into::into);
                    Box::pin(async { enqueued })
                },
            )
            .await
        })
    }

    fn row<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Option<String>> {
        self.inner.row(name)
    }

    fn message_keys(&self) -> BoxFuture<'_, Vec<String>> {
        self.inner.message_keys()
    }

    fn reopen(&self) -> Option<BoxFuture<'_, ()>> {
        self.inner.reopen()
    }
}

pub(crate) fn put<'t>(
    tx: &'t mut SqlxTx,
    schema: &str,
    name: String,
    value: String,
) -> BoxFuture<'t, Result<(), BoxError>> {
    let sql = format!(
        "INSERT INTO {schema}.rows VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = $2"
    );
    Box::pin(async move {
        let asked = query(AssertSqlSafe(sql)).bind(name).bind(value).persistent(false);
        asked.execute(&mut **tx).await.map(drop).map_err(Into::into)
    })
}

async fn conforms(database: Database) {
    let report = conformance::assert_conforms(|| {
        let database = database.clone();
        Box::pin(async move {
            let options = PostgresOptions::default();
            Arc::new(SqlxSubject::new(&database, options).await) as Arc<dyn Subject>
        })
    })
    .await;
    assert!(report.passed.iter().any(|name| name.contains("transaction")), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlx_transactions_conform() {
    on_database(Way::Direct, &[], conforms).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlx_transactions_conform_behind_a_transaction_pooler() {
    on_database(Way::Pooler, &[], conforms).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlx_transactions_conform_where_they_are_repeatable_read() {
    let settings = ["default_transaction_isolation = 'repeatable read'"];
    on_database(Way::Direct, &settings, conforms).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlx_transactions_conform_where_they_are_serializable() {
    let settings = ["default_transaction_isolation = 'serializable'"];
    on_database(Way::Direct, &settings, conforms).await;
}
