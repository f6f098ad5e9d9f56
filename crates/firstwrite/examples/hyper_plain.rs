//! The layer around a handler on plain hyper, without a framework. Try it:
//!
//! ```text
//! cargo run --example hyper_plain
//! curl -i 127.0.0.1:3000/payments -H 'Idempotency-Key: order-1' -d '{"amount":1}'
//! ```

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use firstwrite::{IdempotencyLayer, RequestBody, Tenant, memory_store};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tower::{BoxError, Layer, ServiceExt, service_fn};

/// What the layer protects: it would take money, and must not take it twice.
async fn pay(_request: Request<RequestBody>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::from("paid\n"));
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stderr, reason = "an example shows what it does")]
async fn main() -> Result<(), BoxError> {
    let protected = IdempotencyLayer::new(Arc::new(memory_store()))
        .single_tenant(Tenant::new("acme")?)
        .layer(service_fn(pay));
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
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
                eprintln!("a connection ended: {error}");
            }
        });
    }
}
