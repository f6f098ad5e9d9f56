//! Payments on axum and PostgreSQL: the payment, its receipt's message and the outcome in one
//! commit, in a transaction that the handler holds.
//!
//! ```text
//! cargo run -p firstwrite --features postgres --example axum_postgres -- \
//!     --store postgres://postgres@127.0.0.1/shop
//! curl -i localhost:3000/payments -H 'Idempotency-Key: order-1' \
//!     -H 'Content-Type: application/json' -d '{"amount":1200}'
//! ```
//!
//! Without `--store`, the address is taken from `FIRSTWRITE_TEST_POSTGRES`. Send the request again
//! and nothing is paid twice; send another amount under the same key and it is refused.

use std::sync::Arc;

use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use firstwrite::BoxError;
use firstwrite::store::{PostgresOptions, PostgresStore};
use firstwrite::worker::{Schedule, Worker};
use firstwrite::{IdempotencyLayer, Policies, Policy, Response, Tenant, Transaction};
use http::{Method, StatusCode};
use serde::Deserialize;

/// What went wrong on our side: everything is rolled back, and a retry runs afresh.
struct Failure(BoxError);

#[derive(Deserialize)]
struct Order {
    amount: i64,
}

/// A body that is not an order is answered by axum's own 422, which is kept as well.
async fn pay(
    mut tx: Transaction<PostgresStore>,
    Json(order): Json<Order>,
) -> Result<Response, Failure> {
    let sql = "INSERT INTO payments (amount) VALUES ($1) RETURNING id";
    let id: i64 = tx.query_one(sql, &[&order.amount]).await?.try_get(0)?;
    let receipt = Bytes::from(format!("{{\"payment\":{id}}}"));
    let receipt = tx.attempt().message("receipt", "mailer", receipt)?;
    tx.enqueue(&receipt)?;
    let paid = serde_json::json!({ "id": id, "amount": order.amount });
    Ok(tx.commit((StatusCode::CREATED, Json(paid))).await)
}

async fn total(State(store): State<PostgresStore>) -> Result<String, Failure> {
    let sql = "SELECT coalesce(sum(amount), 0)::bigint FROM payments";
    let total: i64 = store.pool().get().await?.query_one(sql, &[]).await?.try_get(0)?;
    Ok(total.to_string())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--store").skip(1);
    let given = arguments.next().or_else(|| std::env::var("FIRSTWRITE_TEST_POSTGRES").ok());
    let url = given.ok_or("name the server: --store postgres://USER@HOST/DATABASE")?;
    // A real service is deployed after `firstwrite migrate`, and has no right to do it itself.
    PostgresStore::migrate(&url, PostgresOptions::default()).await?;
    let store = PostgresStore::connect(&url).await?;
    let table = "CREATE TABLE IF NOT EXISTS payments (
                     id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, amount bigint NOT NULL)";
    store.pool().get().await?.batch_execute(table).await?;

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

    let worker = Worker::start(Arc::new(store.clone()), Schedule::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    let stopped = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(listener, router).with_graceful_shutdown(stopped).await?;
    layer.drained().await;
    worker.stop().await;
    store.close().await;
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
