//! Payments on axum, with an sqlx pool and PostgreSQL: the payment, its receipt's message and the answer in one
//! commit; a worker that delivers receipts over HTTP.
//!
//! ```text
//! cargo run -p firstwrite --features http-destination,sqlx --example axum_sqlx -- \
//!     postgres://postgres@127.0.0.1/shop https://mailer.example/receipts
//! curl -i localhost:3000/payments -H 'Idempotency-Key: order-1' \
//!     -H 'Content-Type: application/json' -d '{"amount":1200}'
//! ```
//!
//! Send the request again and nothing is paid twice; send another amount under the same key and it is
//! refused. `tests/it/quickstarts.rs` drives the same service without a socket.

use std::sync::Arc;

use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use firstwrite::carrier::http::HttpDestination;
use firstwrite::outbox::Terms;
use firstwrite::store::sqlx::{PgPool, query, query_scalar};
use firstwrite::store::{PostgresOptions, PostgresStore, SqlxPostgresStore};
use firstwrite::worker::{Deliver, Destination, Schedule, Worker};
use firstwrite::{BoxError, IdempotencyLayer, Policies, Policy, Response, Tenant, Transaction};
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::json;

/// A failure on our side: everything is rolled back, and a retry runs afresh.
pub(crate) struct Failure(BoxError);

#[derive(Deserialize)]
struct Order {
    amount: i64,
}

/// A body that is not an order is answered by axum's own 422, which is kept as well.
async fn pay(
    mut tx: Transaction<SqlxPostgresStore>,
    Json(order): Json<Order>,
) -> Result<Response, Failure> {
    let insert = "INSERT INTO payments (amount) VALUES ($1) RETURNING id";
    let id: i64 = query_scalar(insert).bind(order.amount).fetch_one(&mut **tx).await?;
    let receipt = json!({ "payment": id, "amount": order.amount });
    let message = tx.attempt().message("receipt", "mailer", receipt.to_string().into())?;
    tx.enqueue(&message)?;
    Ok(tx.commit((StatusCode::CREATED, Json(receipt))).await)
}

async fn total(State(store): State<SqlxPostgresStore>) -> Result<String, Failure> {
    let sum = "SELECT coalesce(sum(amount), 0)::bigint FROM payments";
    let total: i64 = query_scalar(sum).fetch_one(store.pool()).await?;
    Ok(total.to_string())
}

/// The parts of the service, which `main` runs and a test drives.
pub(crate) struct Service {
    pub(crate) router: Router,
    pub(crate) layer: IdempotencyLayer,
    pub(crate) deliver: Deliver,
    pub(crate) store: SqlxPostgresStore,
}

pub(crate) async fn service(url: &str, mailer: HttpDestination) -> Result<Service, BoxError> {
    let store =
        SqlxPostgresStore::new(PostgresStore::connect(url).await?, PgPool::connect(url).await?);

    let policies =
        Policies::new().without_default().operation(Method::POST, "/payments", Policy::atomic());
    // One tenant for everybody; a real service takes it from verified credentials.
    let layer = IdempotencyLayer::atomic(store.clone())
        .policies(policies)?
        .single_tenant(Tenant::new("shop")?);
    let routes = [(Method::POST, "/payments", post(pay)), (Method::GET, "/total", get(total))];
    // A route that changes something and has no policy ends the start here.
    layer.check_routes(routes.iter().map(|(method, path, _)| (method.clone(), *path)))?;
    let router = routes
        .into_iter()
        .fold(Router::new(), |router, (_, path, handler)| router.route(path, handler))
        .layer(layer.clone())
        .with_state(store.clone());

    let mailer = Destination::new("mailer", Terms::default(), Arc::new(mailer.build()?));
    let deliver = Deliver::new(Arc::new(store.clone()), vec![mailer])?;
    Ok(Service { router, layer, deliver, store })
}

pub(crate) async fn prepare(url: &str) -> Result<(), BoxError> {
    // A real service is deployed after `firstwrite migrate`, and has no right to do it itself.
    PostgresStore::migrate(url, PostgresOptions::default()).await?;
    let table = "CREATE TABLE IF NOT EXISTS payments (
                     id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, amount bigint NOT NULL)";
    query(table).execute(&PgPool::connect(url).await?).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("name the server: postgres://USER@HOST/DATABASE")?;
    let mailer = arguments.next().ok_or("name the mailer: https://HOST/PATH")?;
    prepare(&url).await?;
    let Service { router, layer, deliver, store } =
        service(&url, HttpDestination::new(&mailer)).await?;

    let worker = Worker::start(Arc::new(store), Schedule::default()).delivering(deliver);
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
