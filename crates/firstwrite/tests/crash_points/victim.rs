//! The victim: the real layer over a real store, one request, one line of answer.

use std::convert::Infallible;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, post};
use bytes::Bytes;
use firstwrite::store::mysql_async::prelude::Queryable as _;
use firstwrite::store::{MysqlStore, PostgresStore, SqliteOptions, SqliteStore, rusqlite};
use firstwrite::{
    Atomic, Attempt, IdempotencyLayer, Mode, OnLostAnswer, Policy, Store, Tenant, Transaction, json,
};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use crate::task::{Answer, Flaw, Role, Task};
use crate::{delivery, places, upkeep};

/// Whose requests they are.
pub(crate) const TENANT: &str = "shop";

/// A store under its own type, which handlers need.
enum Opened {
    Sqlite(SqliteStore),
    Postgres(PostgresStore),
    Mysql(MysqlStore),
}

/// What a handler knows.
#[derive(Clone)]
struct App<S> {
    store: S,
    task: Arc<Task>,
}

/// Does what `task` says, unless it is killed.
///
/// On several threads: what one of them is told too early, it acts on before another one dies.
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
pub(crate) async fn run(task: Task) {
    let opened = open(&task).await;
    let store: Arc<dyn Store> = match &opened {
        Opened::Sqlite(store) => Arc::new(store.clone()),
        Opened::Postgres(store) => Arc::new(store.clone()),
        Opened::Mysql(store) => Arc::new(store.clone()),
    };
    match task.role {
        Role::Prepare => upkeep::prepare(&*store).await,
        Role::Worker => upkeep::work(&*store, task.flaw).await,
        Role::Enqueue => delivery::prepare(&*store, &task.key).await,
        Role::Deliver => delivery::work(Arc::clone(&store), task.to.as_ref().unwrap()).await,
        Role::Atomic | Role::Uncertain | Role::Resend => answer(&send(&opened, task).await),
    }
    // What was put off until after the answer is done now, and passes its points.
    drop(store);
    match opened {
        Opened::Sqlite(store) => store.close().await,
        Opened::Postgres(store) => store.close().await,
        Opened::Mysql(store) => store.close().await,
    }
}

async fn open(task: &Task) -> Opened {
    let now = task.now();
    if let Some(path) = task.store.strip_prefix("sqlite:") {
        // A store that was open meanwhile has seen the time pass.
        let file = rusqlite::Connection::open(path).unwrap();
        file.execute("UPDATE firstwrite_time SET at = ?1, wall = ?1", [now.as_millis()]).unwrap();
        drop(file);
        let mut options = SqliteOptions::default();
        options.clock = Some(Arc::new(move || now));
        return Opened::Sqlite(SqliteStore::open_with(path, options).unwrap());
    }
    if task.store.starts_with("mysql:") {
        places::set_clock(&task.store, now).await;
        return Opened::Mysql(MysqlStore::connect(&task.store).await.unwrap());
    }
    let clock = format!("-c%20test.now={}", now.as_millis());
    let url = format!("{}&application_name={}&options={clock}", task.store, task.key);
    Opened::Postgres(PostgresStore::connect(&url).await.unwrap())
}

/// Sends one request through the layer.
async fn send(opened: &Opened, task: Task) -> Answer {
    let (mode, on_lost_answer) = match task.role {
        Role::Uncertain => (Mode::Reserved, OnLostAnswer::Uncertain),
        Role::Resend => (Mode::Reserved, OnLostAnswer::Resend),
        Role::Atomic | Role::Prepare | Role::Worker | Role::Enqueue | Role::Deliver => {
            (Mode::Atomic, OnLostAnswer::Uncertain)
        }
    };
    let policy = Policy::default().mode(mode).on_lost_answer(on_lost_answer);
    let task = Arc::new(task);
    let (layer, router) = match opened {
        Opened::Sqlite(store) => {
            let pay = match mode {
                Mode::Atomic => post(pay_in_closure),
                Mode::Reserved => post(pay_outside),
            };
            let app = App { store: store.clone(), task: Arc::clone(&task) };
            (IdempotencyLayer::atomic(store.clone()), route(pay, app))
        }
        Opened::Postgres(store) => {
            let pay = match mode {
                Mode::Atomic => post(pay_in_transaction),
                Mode::Reserved => post(pay_outside),
            };
            let app = App { store: store.clone(), task: Arc::clone(&task) };
            (IdempotencyLayer::atomic(store.clone()), route(pay, app))
        }
        Opened::Mysql(store) => {
            let pay = match mode {
                Mode::Atomic => post(pay_in_mysql),
                Mode::Reserved => post(pay_outside),
            };
            let app = App { store: store.clone(), task: Arc::clone(&task) };
            (IdempotencyLayer::atomic(store.clone()), route(pay, app))
        }
    };
    let layer = layer.policy(policy).unwrap().single_tenant(Tenant::new(TENANT).unwrap());
    let request = Request::post("/payments")
        .header("idempotency-key", &task.key)
        .header("content-type", "application/json")
        .body(Body::from(r#"{"amount":1200}"#))
        .unwrap();
    let response = router.layer(layer).oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    Answer { status, body: String::from_utf8(body.to_vec()).unwrap() }
}

fn route<S: Clone + Send + Sync + 'static>(pay: MethodRouter<App<S>>, app: App<S>) -> Router {
    Router::new().route("/payments", pay).with_state(app)
}

/// Tells the judge what the client was told.
fn answer(answer: &Answer) {
    println!("{}", serde_json::to_string(answer).unwrap());
    std::io::stdout().flush().unwrap();
}

/// An answer that no other run of a handler gives.
fn paid() -> http::Response<Bytes> {
    json(StatusCode::CREATED, &serde_json::json!({ "payment": fastrand::u64(..) }))
}

const RECEIPT: &[u8] = b"{}";

const INSERT: &str = "INSERT INTO payments (key) VALUES (?1)";

/// The effect is a row in the transaction that the store runs.
async fn pay_in_closure(
    State(App { store, task }): State<App<SqliteStore>>,
    atomic: Atomic<SqliteStore>,
) -> Response {
    let (key, is_apart) = (task.key.clone(), task.flaw == Some(Flaw::RowApart));
    if is_apart {
        let key = key.clone();
        store.write(move |connection| connection.execute(INSERT, [key])).await.unwrap();
    }
    let answered = atomic.run(move |tx, attempt| {
        if !is_apart {
            tx.execute(INSERT, [key]).unwrap();
        }
        let receipt = attempt.message("receipt", "mailer", Bytes::from_static(RECEIPT)).unwrap();
        tx.enqueue(&receipt).unwrap();
        Ok::<_, Infallible>(paid())
    });
    answered.await.unwrap().into_response()
}

/// The effect is a row in the transaction that the handler holds.
async fn pay_in_transaction(
    State(App { store, task }): State<App<PostgresStore>>,
    mut tx: Transaction<PostgresStore>,
) -> Response {
    let insert = format!("INSERT INTO {}.payments (key) VALUES ($1)", store.schema_name());
    if task.flaw == Some(Flaw::RowApart) {
        let own = store.pool().get().await.unwrap();
        own.execute(&insert, &[&task.key]).await.unwrap();
    } else {
        tx.execute(&insert, &[&task.key]).await.unwrap();
    }
    let receipt = tx.attempt().message("receipt", "mailer", Bytes::from_static(RECEIPT)).unwrap();
    tx.enqueue(&receipt).unwrap();
    tx.commit(paid()).await.into_response()
}

/// The same on a server of the other family.
async fn pay_in_mysql(
    State(App { store, task }): State<App<MysqlStore>>,
    mut tx: Transaction<MysqlStore>,
) -> Response {
    let insert = "INSERT INTO payments (`key`) VALUES (?)";
    if task.flaw == Some(Flaw::RowApart) {
        let mut own = store.own_pool().get_conn().await.unwrap();
        own.exec_drop(insert, (&task.key,)).await.unwrap();
    } else {
        tx.exec_drop(insert, (&task.key,)).await.unwrap();
    }
    let receipt = tx.attempt().message("receipt", "mailer", Bytes::from_static(RECEIPT)).unwrap();
    tx.enqueue(&receipt).unwrap();
    tx.commit(paid()).await.into_response()
}

/// The effect is a line in a file that outlives the process: one for each time it happened, with the
/// key by which a repetition is recognised.
async fn pay_outside<S: Send + Sync>(
    State(App { store: _, task }): State<App<S>>,
    attempt: Attempt,
) -> Response {
    let mut effects = OpenOptions::new().create(true).append(true).open(&task.effects).unwrap();
    writeln!(effects, "{}", attempt.derived_key("payment")).unwrap();
    effects.sync_all().unwrap();
    let (parts, body) = paid().into_parts();
    if task.flaw == Some(Flaw::AnswersFirst) {
        let body = String::from_utf8(body.to_vec()).unwrap();
        answer(&Answer { status: parts.status.as_u16(), body });
    }
    (parts, body).into_response()
}
