//! The layer around a plain tower service, without a framework: first call, replay, mismatch.

use std::sync::Arc;

use bytes::Bytes;
use firstwrite::{IdempotencyLayer, Tenant, memory_store};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tower::{BoxError, Layer, ServiceExt, service_fn};

/// What the layer protects: it would take money, and must not take it twice.
async fn pay(_request: Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, BoxError> {
    let mut response = Response::new(Full::from("paid"));
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "an example shows what it does")]
async fn main() -> Result<(), BoxError> {
    let service = IdempotencyLayer::new(Arc::new(memory_store()))
        .single_tenant(Tenant::new("acme")?)
        .layer(service_fn(pay));

    for body in [r#"{"amount":1}"#, r#"{"amount":1}"#, r#"{"amount":2}"#] {
        let request = Request::post("/payments")
            .header("idempotency-key", "order-1")
            .header("content-type", "application/json")
            .body(Full::from(body))?;
        let response = service.clone().oneshot(request).await?;
        let (status, replayed) =
            (response.status(), response.headers().contains_key("idempotent-replayed"));
        let answer = response.into_body().collect().await?.to_bytes();
        println!("{body} → {status}, replayed: {replayed}\n  {}", String::from_utf8_lossy(&answer));
    }
    Ok(())
}
