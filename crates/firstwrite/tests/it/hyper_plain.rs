//! A handler on plain hyper, whose body cannot be made of bytes, under the layer.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use firstwrite::{IdempotencyLayer, RequestBody, Tenant, memory_store};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{DuplexStream, duplex};
use tower::{Layer as _, ServiceExt as _, service_fn};

/// Larger than anything that is said here.
const PIPE_BYTES: usize = 64 * 1024;

#[tokio::test]
async fn a_service_on_plain_hyper_is_protected() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&runs);
    let pay = move |request: Request<RequestBody>| {
        let counting = Arc::clone(&counting);
        async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let run = counting.fetch_add(1, Ordering::SeqCst) + 1;
            let text = format!("{run}: {}", String::from_utf8_lossy(&body));
            let mut response = Response::new(Full::<Bytes>::from(text));
            *response.status_mut() = StatusCode::CREATED;
            Ok::<_, Infallible>(response)
        }
    };
    let protected = IdempotencyLayer::new(Arc::new(memory_store()))
        .single_tenant(Tenant::new("acme").unwrap())
        .layer(service_fn(pay));
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        protected.clone().oneshot(RequestBody::wrap(request))
    });
    let (here, there) = duplex(PIPE_BYTES);
    let serving = hyper::server::conn::http1::Builder::new();
    tokio::spawn(async move {
        // It ends when the client goes away.
        drop(serving.serve_connection(TokioIo::new(there), service).await);
    });
    let answers = ask(here, &["1", "1", "2"]).await;
    let made = || (201, "1: 1".to_owned());
    assert_eq!(answers[..2], [made(), made()], "the handler reads what was sent, and runs once");
    assert_eq!(answers[2].0, 422);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// Sends each body under one key, over one connection.
async fn ask(stream: DuplexStream, bodies: &[&'static str]) -> Vec<(u16, String)> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut answers = Vec::new();
    for body in bodies {
        let request = Request::post("/payments")
            .header("host", "api.example")
            .header("idempotency-key", "order-1")
            .body(Full::<Bytes>::from(*body))
            .unwrap();
        sender.ready().await.unwrap();
        let answer = sender.send_request(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        answers.push((status, String::from_utf8_lossy(&body).into_owned()));
    }
    answers
}
