//! The layer around a handler on plain hyper, without a framework. Try it:
//!
//! ```text
//! cargo run -p firstwrite --no-default-features --example hyper_plain
//! curl -i 127.0.0.1:3000/payments -H 'Idempotency-Key: order-1' -d '{"amount":1}'
//! ```

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use firstwrite::{BoxError, IdempotencyLayer, RequestBody, Tenant, memory_store};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tower::{Layer, ServiceExt, service_fn};

/// The protected handler: it would take money, and must not take it twice.
async fn pay(_request: Request<RequestBody>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::from("paid\n"));
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

pub(crate) async fn serve(listener: TcpListener) -> Result<Infallible, BoxError> {
    let protected = IdempotencyLayer::new(Arc::new(memory_store()))
        .single_tenant(Tenant::new("acme")?)
        .layer(service_fn(pay));
    loop {
        let (stream, _) = listener.accept().await?;
        let protected = protected.clone();
        // Hyper's own body cannot be made of bytes that were read before; this one can.
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            protected.clone().oneshot(RequestBody::wrap(request))
        });
        tokio::spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new();
            if let Err(error) = connection.serve_connection(TokioIo::new(stream), service).await {
                tracing::warn!(%error, "a connection ended");
            }
        });
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let never = serve(TcpListener::bind("127.0.0.1:3000").await?).await?;
    match never {}
}
