//! What transactions that handlers hold promise beyond the suite, with each driver.

mod crashes;
mod pipelined_begin;
mod rivals;
mod unacknowledged;

use std::sync::Arc;

use bytes::Bytes;
use firstwrite_core::{
    AsyncTransactionalStore, BeginResult, Draft, Fence, Found, Message, OnLostAnswer, Policy,
    RecordId, Request, Store as _, StoreError, Transacted, Write,
};
use firstwrite_store::{PostgresOptions, PostgresStore, PostgresTx};
use firstwrite_testkit::sample;

use crate::server::{Database, Way, on_database};
use crate::subject::{PostgresSubject, put};

/// A store whose handlers write rows.
trait Handlers: AsyncTransactionalStore + Clone {
    async fn open(subject: &PostgresSubject) -> Self;

    async fn connect(url: &str, options: PostgresOptions) -> Self;

    /// Writes a business row; the error's text if it cannot.
    async fn put(tx: &mut Self::Tx, schema: &str, name: &str) -> Result<(), String>;

    /// Makes a statement fail.
    async fn stumble(tx: &mut Self::Tx);

    fn enqueue(tx: &mut Self::Tx, message: &Message) -> Result<(), StoreError>;
}

impl Handlers for PostgresStore {
    async fn open(subject: &PostgresSubject) -> Self {
        subject.rival().await
    }

    async fn connect(url: &str, options: PostgresOptions) -> Self {
        Self::connect_with(url, options).await.unwrap()
    }

    async fn put(tx: &mut PostgresTx, schema: &str, name: &str) -> Result<(), String> {
        let put = put(tx, schema, name.to_owned(), "written".to_owned()).await;
        put.map_err(|error| error.to_string())
    }

    async fn stumble(tx: &mut PostgresTx) {
        tx.batch_execute("SELECT 1 / 0").await.unwrap_err();
    }

    fn enqueue(tx: &mut PostgresTx, message: &Message) -> Result<(), StoreError> {
        tx.enqueue(message)
    }
}

#[cfg(feature = "sqlx")]
impl Handlers for firstwrite_store::SqlxPostgresStore {
    async fn open(subject: &PostgresSubject) -> Self {
        let url = subject.url().split('?').next().unwrap();
        let pool = sqlx::PgPool::connect(url).await.unwrap();
        Self::new(subject.rival().await, pool)
    }

    async fn connect(url: &str, options: PostgresOptions) -> Self {
        let pool = sqlx::PgPool::connect(url).await.unwrap();
        Self::new(PostgresStore::connect_with(url, options).await.unwrap(), pool)
    }

    async fn put(tx: &mut Self::Tx, schema: &str, name: &str) -> Result<(), String> {
        let put = crate::sqlx::put(tx, schema, name.to_owned(), "written".to_owned()).await;
        put.map_err(|error| error.to_string())
    }

    async fn stumble(tx: &mut Self::Tx) {
        sqlx::query("SELECT 1 / 0").execute(&mut **tx).await.unwrap_err();
    }

    fn enqueue(tx: &mut Self::Tx, message: &Message) -> Result<(), StoreError> {
        tx.enqueue(message)
    }
}

/// Runs `$test` with each driver.
macro_rules! with_each_driver {
    ($($test:ident),+ $(,)?) => {$(
        mod $test {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn tokio_postgres() {
                crate::transactions::on_shop(|shop| async move {
                    super::$test::<firstwrite_store::PostgresStore>(shop).await;
                })
                .await;
            }

            #[cfg(feature = "sqlx")]
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlx() {
                crate::transactions::on_shop(|shop| async move {
                    super::$test::<firstwrite_store::SqlxPostgresStore>(shop).await;
                })
                .await;
            }
        }
    )+};
}
use with_each_driver;

/// A schema with a stopped clock, and words for what is done in it.
#[derive(Clone)]
struct Shop {
    subject: Arc<PostgresSubject>,
}

async fn on_shop<F, T>(test: F)
where
    F: FnOnce(Shop) -> T + Send + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    on_database(Way::Direct, &[], |database: Database| async move {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        test(Shop { subject: Arc::new(subject) }).await;
    })
    .await;
}

impl Shop {
    fn schema(&self) -> &str {
        self.subject.schema()
    }

    /// How many rows, messages and records there are.
    async fn counts(&self) -> [i64; 3] {
        let sql = "SELECT (SELECT count(*) FROM rows), (SELECT count(*) FROM messages),
                          (SELECT count(*) FROM records)";
        let row = self.subject.admin().query_one(sql, &[]).await.unwrap();
        [row.get(0), row.get(1), row.get(2)]
    }

    async fn run(&self, sql: &str) {
        self.subject.admin().batch_execute(sql).await.unwrap();
    }

    async fn found(&self, key: &str) -> Found {
        self.subject.postgres().get(id(key)).await.unwrap().unwrap()
    }

    /// Reserves a key for an attempt that may be taken over.
    async fn reserve(&self, key: &str) -> Draft {
        let policy = sample::policy(OnLostAnswer::Resend);
        let draft = sample::reserved(&request(key), &policy, Fence::first(9));
        self.subject.postgres().insert(&draft).await.unwrap();
        draft
    }
}

fn request(key: &str) -> Request {
    sample::request(&sample::tenant("acme"), &sample::key(key), 1)
}

fn id(key: &str) -> RecordId {
    request(key).id
}

/// What an attempt with this fence concludes with.
fn outcome(key: &str, fence: Fence) -> Box<Draft> {
    let outcome = sample::outcome(201, &format!("{fence}"));
    Box::new(sample::completed(&request(key), &Policy::default(), fence, outcome))
}

fn message(key: &str, step: &str) -> Message {
    let (tenant, key) = (sample::tenant("acme"), sample::key(key));
    Message::new(&tenant, &key, step, "warehouse", Bytes::from_static(b"{}")).unwrap()
}

async fn begin<S: Handlers>(store: &S, key: &str) -> (S::Tx, Option<Box<Found>>) {
    match store.begin(id(key)).await.unwrap() {
        BeginResult::Open(tx, found) => (tx, found),
        BeginResult::Stands(_) => panic!("{key} was in memory"),
        BeginResult::Busy => panic!("{key} is locked"),
    }
}

/// A transaction with a row and a message in it.
async fn at_work<S: Handlers>(shop: &Shop, store: &S, key: &str) -> S::Tx {
    let (mut tx, _) = begin(store, key).await;
    S::put(&mut tx, shop.schema(), key).await.unwrap();
    S::enqueue(&mut tx, &message(key, "pack")).unwrap();
    tx
}

/// Whose record stood in the way.
fn rival(ended: Result<Transacted<()>, StoreError>) -> Box<Found> {
    match ended.unwrap() {
        Transacted::Rival(found) => found,
        Transacted::Done(..) => panic!("there was a rival"),
    }
}

fn done(ended: Result<Transacted<()>, StoreError>) -> firstwrite_core::Timestamp {
    match ended.unwrap() {
        Transacted::Done((), now) => now,
        Transacted::Rival(found) => panic!("{found:?}"),
    }
}

async fn rows_messages_and_record_share_a_commit<S: Handlers>(shop: Shop) {
    let store = S::open(&shop.subject).await;
    let mut tx = at_work(&shop, &store, "k").await;
    S::enqueue(&mut tx, &message("k", "bill").delayed_by(std::time::Duration::from_secs(9)))
        .unwrap();
    let again = S::enqueue(&mut tx, &message("k", "pack")).unwrap_err();
    assert!(again.to_string().contains("apart"), "{again}");
    assert_eq!(shop.counts().await, [0, 0, 0], "nothing is seen before the commit");
    let now = done(store.conclude(tx, Write::All(outcome("k", Fence::first(1)))).await);
    assert_eq!(shop.counts().await, [1, 2, 1]);
    assert_eq!(shop.found("k").await.record.created_at, now);
    let sql = "SELECT string_agg(derived_key || ' ' || (not_before - created_at), ', '
                                 ORDER BY message),
                      bool_and(id = (SELECT id FROM records) AND payload = '{}'
                               AND content_type = 'application/json' AND tenant = 'acme'
                               AND created_at = (SELECT created_at FROM records))
               FROM messages";
    let row = shop.subject.admin().query_one(sql, &[]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), "k:pack 00:00:00, k:bill 00:00:09");
    assert!(row.get::<_, bool>(1));
}

async fn one_message_alone_is_written_too<S: Handlers>(shop: Shop) {
    let store = S::open(&shop.subject).await;
    let tx = at_work(&shop, &store, "k").await;
    done(store.conclude(tx, Write::All(outcome("k", Fence::first(1)))).await);
    assert_eq!(shop.counts().await, [1, 1, 1]);
}

async fn a_client_error_keeps_the_record_even_where_a_statement_failed<S: Handlers>(shop: Shop) {
    let store = S::open(&shop.subject).await;
    let mut tx = at_work(&shop, &store, "k").await;
    S::stumble(&mut tx).await;
    done(store.conclude(tx, Write::RecordOnly(outcome("k", Fence::first(1)))).await);
    assert_eq!(shop.counts().await, [0, 0, 1]);
}

async fn an_answer_that_ignores_a_failed_statement_is_not_kept<S: Handlers>(shop: Shop) {
    let store = S::open(&shop.subject).await;
    let mut tx = at_work(&shop, &store, "k").await;
    S::stumble(&mut tx).await;
    let error = store.conclude(tx, Write::All(outcome("k", Fence::first(1)))).await.unwrap_err();
    assert_eq!(error.certainty(), firstwrite_core::Certainty::Definite, "{error}");
    assert_eq!(shop.counts().await, [0, 0, 0]);
    let tx = at_work(&shop, &store, "k").await;
    done(store.conclude(tx, Write::All(outcome("k", Fence::first(2)))).await);
    assert_eq!(shop.counts().await, [1, 1, 1]);
}

async fn keys_that_are_not_known_are_refused_while_in_doubt<S: Handlers>(shop: Shop) {
    let store = S::open(&shop.subject).await;
    shop.reserve("known").await;
    shop.run("INSERT INTO history_losses (noticed_at, detail) VALUES (now(), 'lost')").await;
    let error = store.begin(id("unknown")).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), firstwrite_core::StoreErrorKind::HistoryLost);
    let (tx, found) = begin(&store, "known").await;
    assert!(found.is_some());
    done(store.conclude(tx, Write::Nothing).await);
}

with_each_driver!(
    rows_messages_and_record_share_a_commit,
    one_message_alone_is_written_too,
    a_client_error_keeps_the_record_even_where_a_statement_failed,
    an_answer_that_ignores_a_failed_statement_is_not_kept,
    keys_that_are_not_known_are_refused_while_in_doubt,
);

/// What records have in common is written by the first that needs it, while handlers hold every
/// connection of the pool.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_of_an_operation_needs_no_second_connection_of_the_pool() {
    on_database(Way::Direct, &[], |database: Database| async move {
        let mut options = PostgresOptions::default();
        options.pool_size_max = 2;
        let subject = PostgresSubject::new(&database, options).await;
        let store = subject.postgres();
        let mut open = Vec::new();
        for key in ["one", "two"] {
            let BeginResult::Open(tx, None) = store.begin(id(key)).await.unwrap() else {
                panic!("{key} is free")
            };
            open.push((key, tx));
        }
        let conclusions = open
            .into_iter()
            .map(|(key, tx)| store.conclude(tx, Write::All(outcome(key, Fence::first(1)))));
        for concluded in futures_util::future::join_all(conclusions).await {
            assert!(matches!(concluded, Ok(Transacted::Done((), _))), "{concluded:?}");
        }
    })
    .await;
}
