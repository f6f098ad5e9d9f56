//! Handlers that hold transactions of a real PostgreSQL server, over sockets.

use std::env;
use std::panic::resume_unwind;
use std::sync::Arc;

use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Json, Router};
use bytes::Bytes;
use firstwrite::store::tokio_postgres::{Client, NoTls, connect};
use firstwrite::store::{PostgresOptions, PostgresStore};
use firstwrite::{Attempt, IdempotencyLayer, Policy, Response, Tenant, Transaction, json};
use firstwrite_core::{AsyncTransactionalStore, BoxError};
use http::{HeaderValue, StatusCode};
use serde_json::Value;

use crate::app::{App, Effects, payment, to};

const ADDRESS: &str = "FIRSTWRITE_TEST_POSTGRES";

struct Failure(BoxError);

impl IntoResponse for Failure {
    fn into_response(self) -> axum::response::Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.0.to_string()).into_response()
    }
}

impl<E: Into<BoxError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

/// Runs `test` with the address of a database of its own, which is empty; drops it however the test ends. Skipped where no server is named, unless everything is required.
#[expect(clippy::print_stdout, reason = "what was skipped is named")]
pub(crate) async fn on_bare_database<T>(test: impl FnOnce(String) -> T)
where
    T: Future<Output = ()> + Send + 'static,
{
    let Ok(server) = env::var(ADDRESS) else {
        let is_required = env::var("FIRSTWRITE_TEST_REQUIRE").is_ok_and(|value| value == "all");
        assert!(!is_required, "{ADDRESS} is not set and everything is required");
        println!("skipped: postgres ({ADDRESS} is not set)");
        return;
    };
    let name = format!("firstwrite_layer_{:016x}", fastrand::u64(..));
    let admin = client(&server).await;
    admin.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
    let url = format!("{}/{name}", server.rsplit_once('/').unwrap().0);
    let ended = tokio::spawn(test(url)).await;
    admin.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await.unwrap();
    if let Err(failed) = ended {
        resume_unwind(failed.into_panic());
    }
}

/// The same, with our tables and a table of payments.
async fn on_database<T>(test: impl FnOnce(String) -> T + Send + 'static)
where
    T: Future<Output = ()> + Send + 'static,
{
    on_bare_database(async move |url| {
        let table = "CREATE TABLE payments (
                         id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text NOT NULL)";
        client(&url).await.batch_execute(table).await.unwrap();
        PostgresStore::migrate(&url, PostgresOptions::default()).await.unwrap();
        test(url).await;
    })
    .await;
}

async fn client(url: &str) -> Client {
    let (client, connection) = connect(url, NoTls).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    client
}

/// How many payments, distinct keys among them, and messages there are.
async fn effects(url: &str) -> (i64, i64, i64) {
    let count = "SELECT count(*), count(DISTINCT key),
                        (SELECT count(*) FROM firstwrite.messages) FROM payments";
    let row = client(url).await.query_one(count, &[]).await.unwrap();
    (row.get(0), row.get(1), row.get(2))
}

const INSERT: &str = "INSERT INTO payments (key) VALUES ($1) RETURNING id";

async fn pay(
    mut tx: Transaction<PostgresStore>,
    Json(order): Json<Value>,
) -> Result<axum::response::Response, Failure> {
    let attempt = tx.attempt().clone();
    let id: i64 = tx.query_one(INSERT, &[&attempt.key().as_str()]).await?.try_get(0)?;
    tx.enqueue(&attempt.message("receipt", "mailer", Bytes::from_static(b"{}"))?)?;
    let answer = match order["outcome"].as_str() {
        Some("error") => return Err(Failure("a test".into())),
        Some("panic") => panic!("a test"),
        Some("refused") => tx.commit(json(StatusCode::PAYMENT_REQUIRED, &"no money")).await,
        Some("forgotten") => return Ok(StatusCode::CREATED.into_response()),
        _ => tx.commit(json(StatusCode::CREATED, &id)).await,
    };
    Ok(answer.into_response())
}

async fn slow(State(effects): State<Effects>, tx: Transaction<PostgresStore>) -> Response {
    let key = tx.attempt().key().as_str().to_owned();
    tx.query_one(INSERT, &[&key]).await.unwrap();
    effects.happen();
    effects.entered.add_permits(1);
    effects.leave.acquire().await.unwrap().forget();
    tx.commit(json(StatusCode::CREATED, &"slow")).await
}

async fn serve<S: AsyncTransactionalStore + Clone>(store: &S, router: Router<Effects>) -> App {
    let layer = IdempotencyLayer::atomic(store.clone())
        .policy(Policy::atomic())
        .unwrap()
        .single_tenant(Tenant::new("acme").unwrap());
    let effects = Effects::default();
    App::serve(router.layer(layer).with_state(effects.clone()), effects).await
}

async fn app(store: &PostgresStore) -> App {
    serve(store, Router::new().route("/payments", post(pay)).route("/slow", post(slow))).await
}

/// Sends ten keys twenty times, by turns to two applications that do not know of each other.
async fn check_one_effect(url: &str, apps: [App; 2]) {
    let mut answers = Vec::new();
    for number in 0..200 {
        let (app, key) = (apps[number % 2].clone(), format!("k{}", number % 10));
        answers.push(tokio::spawn(async move { app.send(payment(&key, "{}")).await }));
    }
    for answer in answers {
        let answer = answer.await.unwrap();
        assert!([201, 409].contains(&answer.status.as_u16()), "{answer:?}");
    }
    assert_eq!(effects(url).await, (10, 10, 10));
    for number in 0..10 {
        let again = apps[number % 2].send(payment(&format!("k{number}"), "{}")).await;
        assert!(again.summary().ends_with(" again"), "{again:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_over_one_database_commit_one_row_per_key() {
    on_database(async |url| {
        let stores = [
            PostgresStore::connect(&url).await.unwrap(),
            PostgresStore::connect(&url).await.unwrap(),
        ];
        check_one_effect(&url, [app(&stores[0]).await, app(&stores[1]).await]).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_committed_is_undone_and_the_key_is_free_at_once() {
    on_database(async |url| {
        let store = PostgresStore::connect(&url).await.unwrap();
        let app = app(&store).await;
        for outcome in ["error", "panic", "forgotten"] {
            let body = format!("{{\"outcome\":\"{outcome}\"}}");
            for _ in 0..3 {
                let failed = app.send(payment(outcome, &body)).await;
                assert_eq!(failed.status, 500, "{outcome}: {failed:?}");
            }
            assert_eq!(effects(&url).await, (0, 0, 0), "{outcome}");
        }
        let refused = r#"{"outcome":"refused"}"#;
        for again in ["", " again"] {
            let answer = app.send(payment("refused", refused)).await;
            assert_eq!(answer.summary(), format!("402 \"no money\"{again}"));
        }
        for again in [false, true] {
            let unread = app.send(payment("unread", "not json")).await;
            assert_eq!(unread.status, 400, "{unread:?}");
            assert_eq!(unread.headers.contains_key("idempotent-replayed"), again, "{unread:?}");
        }
        assert_eq!(effects(&url).await, (0, 0, 0));
        let open = "SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
        let left: i64 = client(&url).await.query_one(open, &[]).await.unwrap().get(0);
        assert_eq!(left, 0, "a transaction was left open");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rival_in_another_process_is_told_at_once_and_later_gets_the_answer() {
    on_database(async |url| {
        let (one, other) = (
            PostgresStore::connect(&url).await.unwrap(),
            PostgresStore::connect(&url).await.unwrap(),
        );
        let (first, second) = (app(&one).await, app(&other).await);
        let running = {
            let first = first.clone();
            tokio::spawn(async move { first.send(to("/slow", "k", "{}")).await })
        };
        first.effects.entered.acquire().await.unwrap().forget();
        assert_eq!(second.send(to("/slow", "k", "{}")).await.summary(), "409 in-progress");
        first.effects.leave.add_permits(1);
        assert_eq!(running.await.unwrap().summary(), "201 \"slow\"");
        assert_eq!(second.send(to("/slow", "k", "{}")).await.summary(), "201 \"slow\" again");
        assert_eq!((first.effects.count(), second.effects.count()), (1, 0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_history_was_lost_known_keys_are_answered_and_others_refused() {
    on_database(async |url| {
        let before = PostgresStore::connect(&url).await.unwrap();
        assert_eq!(app(&before).await.send(payment("known", "{}")).await.status, 201);
        before.close().await;
        let doubt = "INSERT INTO firstwrite.history_losses (noticed_at, detail)
                     VALUES (firstwrite.now(), 'a test')";
        client(&url).await.batch_execute(doubt).await.unwrap();
        let store = PostgresStore::connect(&url).await.unwrap();
        let app = app(&store).await;
        assert_eq!(app.send(payment("known", "{}")).await.summary(), "201 1 again");
        let refused = app.send(payment("unknown", "{}")).await;
        assert_eq!(refused.summary(), "409 outcome-unknown");
        assert_eq!(refused.json()["safe_new_key"], false);
        assert_eq!(effects(&url).await, (1, 1, 1));
        store.clear_history_losses("ada", "nothing is missing").await.unwrap();
        assert_eq!(app.send(payment("unknown", "{}")).await.status, 201);
    })
    .await;
}

/// Rolls back and frees its key by SQL, as an application behind a gateway does. Its answer is lost on the way, so
/// that only the record can tell.
async fn give_up(State(url): State<String>, attempt: Attempt) -> StatusCode {
    let release = "SELECT firstwrite.release('acme', $1, $2, 503)";
    let fence = attempt.fence().unwrap().as_u64().cast_signed();
    let key = attempt.key().as_str();
    let row = client(&url).await.query_one(release, &[&key, &fence]).await.unwrap();
    assert!(row.get::<_, bool>(0));
    StatusCode::GATEWAY_TIMEOUT
}

#[tokio::test]
async fn whoever_polls_learns_of_an_attempt_that_was_released_by_sql() {
    on_database(async |url| {
        let store = Arc::new(PostgresStore::connect(&url).await.unwrap());
        let layer = IdempotencyLayer::new(store).single_tenant(Tenant::new("acme").unwrap());
        let router = Router::new().route("/payments", post(give_up)).layer(layer);
        let app = App::serve(router.with_state(url.clone()), Effects::default()).await;
        let mut early = payment("k", "{}");
        early.headers_mut().insert("prefer", HeaderValue::from_static("respond-async"));
        let early = app.send(early).await;
        assert_eq!(early.status, 202);
        let mut ask = to("/.firstwrite/operations/k?wait=10s", "k", "");
        *ask.method_mut() = http::Method::GET;
        let told = app.send(ask).await;
        assert_eq!((told.status.as_u16(), &told.json()["state"]), (200, &"released".into()));
        assert_eq!(told.json()["status"], 503);
    })
    .await;
}

#[cfg(feature = "sqlx")]
mod with_sqlx {
    use firstwrite::store::sqlx::{PgPool, Row, query};
    use firstwrite::store::{PostgresStore, SqlxPostgresStore};

    use super::*;

    async fn pay(mut tx: Transaction<SqlxPostgresStore>) -> Result<Response, Failure> {
        let attempt = tx.attempt().clone();
        let row = query(INSERT).bind(attempt.key().as_str()).fetch_one(&mut **tx).await?;
        tx.enqueue(&attempt.message("receipt", "mailer", Bytes::from_static(b"{}"))?)?;
        let id: i64 = row.try_get(0)?;
        Ok(tx.commit(json(StatusCode::CREATED, &id)).await)
    }

    async fn app(url: &str) -> App {
        let store = PostgresStore::connect(url).await.unwrap();
        let pool = PgPool::connect(url).await.unwrap();
        let store = SqlxPostgresStore::new(store, pool);
        serve(&store, Router::new().route("/payments", post(pay))).await
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn two_processes_over_one_database_commit_one_row_per_key() {
        on_database(async |url| {
            check_one_effect(&url, [app(&url).await, app(&url).await]).await;
        })
        .await;
    }
}
