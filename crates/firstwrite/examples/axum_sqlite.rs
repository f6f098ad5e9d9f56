//! Payments on axum and SQLite: the payment, its receipt's message and the outcome in one commit.
//!
//! ```text
//! cargo run -p firstwrite --example axum_sqlite
//! curl -i localhost:3000/payments -H 'Idempotency-Key: order-1' \
//!     -H 'Content-Type: application/json' -d '{"amount":1200}'
//! ```
//!
//! Send it again and nothing is paid twice; send another amount under the same key and it is
//! refused.

use std::path::Path;
use std::sync::Arc;

use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use firstwrite::store::SqliteStore;
use firstwrite::worker::{Schedule, Worker};
use firstwrite::{Atomic, BoxError, IdempotencyLayer, Policy, Response, Tenant};
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

/// A failure on our side: everything is rolled back, and a retry runs afresh.
pub(crate) struct Failure(BoxError);

#[derive(Deserialize)]
struct Order {
    amount: i64,
}

/// A body that is not an order is answered by axum's own 422, which is kept as well.
async fn pay(atomic: Atomic<SqliteStore>, Json(order): Json<Order>) -> Result<Response, Failure> {
    atomic
        .run(move |tx, attempt| {
            tx.execute("INSERT INTO payments (amount) VALUES (?1)", [order.amount])?;
            let receipt = json!({ "payment": tx.last_insert_rowid(), "amount": order.amount });
            let message = attempt.message("receipt", "mailer", receipt.to_string().into())?;
            tx.enqueue(&message)?;
            Ok((StatusCode::CREATED, Json(receipt)))
        })
        .await
}

async fn total(State(store): State<SqliteStore>) -> Result<String, Failure> {
    let sum = "SELECT coalesce(sum(amount), 0) FROM payments";
    let total: i64 =
        store.read(move |connection| connection.query_row(sum, [], |row| row.get(0))).await?;
    Ok(total.to_string())
}

/// The parts of the service, which `main` runs and a test drives.
pub(crate) async fn service(
    file: &Path,
) -> Result<(Router, IdempotencyLayer, SqliteStore), BoxError> {
    let store = SqliteStore::open_or_create(file)?;
    let table = "CREATE TABLE IF NOT EXISTS payments (id INTEGER PRIMARY KEY, amount INTEGER)";
    store.write(move |connection| connection.execute_batch(table)).await?;
    // One tenant for everybody; a real service takes it from verified credentials.
    let layer = IdempotencyLayer::atomic(store.clone())
        .policy(Policy::atomic())?
        .single_tenant(Tenant::new("shop")?);
    let router = Router::new()
        .route("/payments", post(pay))
        .route("/total", get(total))
        .layer(layer.clone())
        .with_state(store.clone());
    Ok((router, layer, store))
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let (router, layer, store) = service(Path::new("payments.db")).await?;
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

impl<E: Into<BoxError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}
