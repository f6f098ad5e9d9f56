//! One effect, however many callers ask for it at once.

use std::sync::Arc;

use firstwrite::{Store, memory_store};

use crate::app::{App, payment, to};

/// Sends a thousand identical requests over as many connections at once; says how many got the
/// first answer. All others must be conflicts that say when to come back.
async fn thousand(app: &App) -> usize {
    let mut answers = Vec::new();
    for _ in 0..1000 {
        let mut client = app.connect().await;
        answers.push(tokio::spawn(async move { client.send(payment("k", "{}")).await }));
    }
    let mut first = 0;
    for answer in answers {
        let answer = answer.await.unwrap();
        match answer.status.as_u16() {
            201 => {
                assert_eq!(answer.body, "acme 1 2 bytes");
                first += 1;
            }
            409 => assert!(answer.headers.contains_key("retry-after")),
            other => panic!("neither the first answer nor a conflict: {other} {answer:?}"),
        }
    }
    first
}

async fn check(store: Arc<dyn Store>) {
    let app = App::over(store).await;
    assert!(thousand(&app).await >= 1);
    assert_eq!(app.effects.count(), 1);
    assert_eq!(app.send(payment("k", "{}")).await.summary(), "201 acme 1 2 bytes again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_at_once_in_memory() {
    check(Arc::new(memory_store())).await;
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_at_once_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let store =
        firstwrite::store::SqliteStore::open_or_create(folder.path().join("records.db")).unwrap();
    check(Arc::new(store)).await;
}

#[tokio::test]
async fn while_the_first_is_in_flight_others_are_told_to_come_back() {
    let app = App::over(Arc::new(memory_store())).await;
    let first = {
        let app = app.clone();
        tokio::spawn(async move { app.send(to("/slow", "k", "{}")).await })
    };
    app.effects.entered.acquire().await.unwrap().forget();
    for _ in 0..100 {
        let duplicate = app.send(to("/slow", "k", "{}")).await;
        assert_eq!(duplicate.summary(), "409 in-progress");
        assert_eq!(duplicate.headers["retry-after"], "1");
    }
    assert_eq!(app.send(to("/slow", "k", "[]")).await.summary(), "422 key-reused");
    app.effects.leave.add_permits(1);
    assert_eq!(first.await.unwrap().summary(), "201 slow 1");
}

#[cfg(feature = "sqlite")]
mod atomic {
    use axum::Router;
    use axum::response::IntoResponse;
    use axum::routing::post;
    use bytes::Bytes;
    use firstwrite::store::{SqliteStore, rusqlite};
    use firstwrite::{Atomic, IdempotencyLayer, Policy, Response, Tenant, json};
    use http::StatusCode;

    use super::{App, payment};
    use crate::app::Effects;

    struct Failure;

    impl IntoResponse for Failure {
        fn into_response(self) -> axum::response::Response {
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }

    impl From<rusqlite::Error> for Failure {
        fn from(_: rusqlite::Error) -> Self {
            Self
        }
    }

    async fn pay(atomic: Atomic<SqliteStore>, body: Bytes) -> Result<Response, Failure> {
        atomic
            .run(move |tx, attempt| {
                tx.execute("INSERT INTO payments (key) VALUES (?1)", [attempt.key().as_str()])?;
                if body.as_ref() == b"fail" {
                    return Err(Failure);
                }
                Ok(json(StatusCode::CREATED, &tx.last_insert_rowid()))
            })
            .await
    }

    async fn app(store: &SqliteStore) -> App {
        let layer = IdempotencyLayer::atomic(store.clone())
            .policy(Policy::atomic())
            .unwrap()
            .single_tenant(Tenant::new("acme").unwrap());
        let router = Router::new().route("/payments", post(pay)).layer(layer);
        App::serve(router, Effects::default()).await
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn two_processes_over_one_file_commit_one_row_per_key() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open_or_create(folder.path().join("payments.db")).unwrap();
        let table = "CREATE TABLE payments (id INTEGER PRIMARY KEY, key TEXT NOT NULL)";
        store.write(move |connection| connection.execute_batch(table)).await.unwrap();
        // Two layers do not know of each other's attempts, as two processes do not.
        let apps = [app(&store).await, app(&store).await];
        let mut answers = Vec::new();
        for number in 0..200 {
            let (app, key) = (apps[number % 2].clone(), format!("k{}", number % 10));
            answers.push(tokio::spawn(async move { app.send(payment(&key, "{}")).await }));
        }
        for answer in answers {
            let answer = answer.await.unwrap();
            assert!([201, 409].contains(&answer.status.as_u16()), "{answer:?}");
        }
        assert_eq!(apps[0].send(payment("failing", "fail")).await.status, 500);
        let count = "SELECT count(*), count(DISTINCT key) FROM payments";
        let rows = store
            .read(move |connection| {
                connection.query_row(count, [], |row| Ok((row.get(0)?, row.get(1)?)))
            })
            .await;
        assert_eq!(rows.unwrap(), (10, 10));
        for number in 0..10 {
            let again = apps[number % 2].send(payment(&format!("k{number}"), "{}")).await;
            assert!(again.summary().ends_with(" again"), "{again:?}");
        }
    }
}
