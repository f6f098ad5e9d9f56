//! Payments on axum and SQLite: the payment, its receipt's message and the outcome in one commit.
//!
//! ```text
//! cargo run -p firstwrite --example axum_sqlite
//! curl -i localhost:3000/payments -H 'Idempotency-Key: order-1' -d '{"amount":1200}'
//! ```
//!
//! Send it again and nothing is paid twice; send another amount under the same key and it is
//! refused.

use axum::Router;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use bytes::Bytes;
use firstwrite::store::{SqliteStore, rusqlite};
use firstwrite::worker::{Schedule, Worker};
use firstwrite::{
    Atomic, IdempotencyLayer, MessageError, Policies, Policy, Response, StoreError, Tenant, json,
};
use http::{Method, StatusCode};
use std::sync::Arc;

/// What went wrong on our side: everything is rolled back, and a retry runs afresh.
struct Failure(firstwrite::BoxError);

async fn pay(atomic: Atomic<SqliteStore>, body: Bytes) -> Result<Response, Failure> {
    let order = serde_json::from_slice::<serde_json::Value>(&body);
    let amount = order.ok().and_then(|order| order["amount"].as_i64());
    atomic
        .run(move |tx, attempt| {
            let Some(amount) = amount else {
                // Kept as well: the same wrong request gets the same answer.
                return Ok(json(StatusCode::UNPROCESSABLE_ENTITY, &"an amount is missing"));
            };
            tx.execute("INSERT INTO payments (amount) VALUES (?1)", [amount])?;
            let id = tx.last_insert_rowid();
            let receipt = Bytes::from(format!("{{\"payment\":{id}}}"));
            tx.enqueue(&attempt.message("receipt", "mailer", receipt)?)?;
            Ok(json(StatusCode::CREATED, &serde_json::json!({ "id": id, "amount": amount })))
        })
        .await
}

async fn total(State(store): State<SqliteStore>) -> Result<String, Failure> {
    let sum = "SELECT coalesce(sum(amount), 0) FROM payments";
    let total: i64 =
        store.read(move |connection| connection.query_row(sum, [], |row| row.get(0))).await?;
    Ok(total.to_string())
}

#[tokio::main]
async fn main() -> Result<(), firstwrite::BoxError> {
    let store = SqliteStore::open_or_create("payments.db")?;
    let table = "CREATE TABLE IF NOT EXISTS payments (id INTEGER PRIMARY KEY, amount INTEGER)";
    store.write(move |connection| connection.execute_batch(table)).await?;

    let policies = Policies::new().operation(Method::POST, "/payments", Policy::atomic());
    // One tenant for everybody; a real service takes it from verified credentials.
    let layer = IdempotencyLayer::atomic(store.clone())
        .policies(policies)?
        .single_tenant(Tenant::new("shop")?);
    let router = Router::new()
        .route("/payments", post(pay))
        .route("/total", get(total))
        .layer(layer.clone())
        .with_state(store.clone());

    let worker = Worker::start(Arc::new(store), Schedule::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    let stopped = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(listener, router).with_graceful_shutdown(stopped).await?;
    layer.drained().await;
    worker.stop().await;
    Ok(())
}

impl IntoResponse for Failure {
    fn into_response(self) -> axum::response::Response {
        tracing::error!(error = %self.0, "a payment failed");
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self(error.into())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self(error.into())
    }
}

impl From<MessageError> for Failure {
    fn from(error: MessageError) -> Self {
        Self(error.into())
    }
}
