//! A service that pages of another origin may call: tower-http's layer for CORS outside of the layer. Try it:
//!
//! ```text
//! cargo run -p firstwrite --example axum_cors
//! curl -i 127.0.0.1:3000/payments -X OPTIONS -H 'Origin: https://shop.example' \
//!     -H 'Access-Control-Request-Method: POST' -H 'Access-Control-Request-Headers: idempotency-key'
//! curl -i 127.0.0.1:3000/payments -H 'Origin: https://shop.example' -H 'Idempotency-Key: order-1' -d '{"amount":1}'
//! ```

use std::sync::Arc;

use axum::Router;
use axum::routing::post;
use firstwrite::{
    BoxError, IDEMPOTENCY_EXPIRES, IDEMPOTENCY_INTERIM, IDEMPOTENCY_OUTCOME, IDEMPOTENT_REPLAYED,
    IdempotencyLayer, Tenant, memory_store,
};
use http::header::{CONTENT_TYPE, DATE, LOCATION, RETRY_AFTER};
use http::{HeaderName, Method, StatusCode};
use tokio::net::TcpListener;
use tower_http::cors::CorsLayer;

/// The protected handler: it would take money, and must not take it twice.
async fn pay() -> (StatusCode, &'static str) {
    (StatusCode::CREATED, "paid")
}

pub(crate) fn service() -> Result<Router, BoxError> {
    let idempotency =
        IdempotencyLayer::new(Arc::new(memory_store())).single_tenant(Tenant::new("shop")?);
    let sent = ["idempotency-key", "prefer"].map(HeaderName::from_static);
    let cors = CorsLayer::new()
        .allow_origin(["https://shop.example".parse::<http::HeaderValue>()?])
        .allow_methods([Method::POST])
        .allow_headers([&[CONTENT_TYPE], &sent[..]].concat())
        .expose_headers([
            DATE,
            IDEMPOTENT_REPLAYED,
            IDEMPOTENCY_EXPIRES,
            IDEMPOTENCY_INTERIM,
            IDEMPOTENCY_OUTCOME,
            RETRY_AFTER,
            LOCATION,
        ]);
    // The layer that is added last is the outermost: a replay and a refusal pass it like a first answer.
    Ok(Router::new().route("/payments", post(pay)).layer(idempotency).layer(cors))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    Ok(axum::serve(listener, service()?).await?)
}
