//! gRPC over HTTP/2: calls that are not protected pass with their trailers, protected ones are refused.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use firstwrite::Policy;
use firstwrite_gateway::{Calling, Gateway, OperationExtras, Operations, Rules, Target};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Version};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};

use crate::client::{ask, keyed};
use crate::gateway::{rules, start};
use crate::upstream::Upstream;

/// What a service was asked: its path, and the trailers of the request.
type Asked = Arc<Mutex<Vec<(String, HeaderMap)>>>;

/// Trailers of an answer: of the first the gateway has nothing to say.
const TRAILERS: [&str; 9] = [
    "grpc-status",
    "idempotent-replayed",
    "idempotency-expires",
    "firstwrite-effect",
    "firstwrite-any",
    "access-control-allow-origin",
    "set-cookie",
    "content-type",
    "connection-any",
];

/// A service that answers with a message, and with its status in trailers.
async fn service() -> (SocketAddr, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Asked::default();
    let noted = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let noted = Arc::clone(&noted);
            let answering = service_fn(move |request: Request<Incoming>| {
                let noted = Arc::clone(&noted);
                async move {
                    let path = request.uri().path().to_owned();
                    let whole = request.into_body().collect().await.unwrap();
                    let trailers = whole.trailers().cloned().unwrap_or_default();
                    noted.lock().unwrap().push((path, trailers));
                    let mut status = HeaderMap::new();
                    for name in TRAILERS {
                        status.insert(name, HeaderValue::from_static("0"));
                    }
                    let frames =
                        [Frame::data(Bytes::from_static(b"paid")), Frame::trailers(status)];
                    let frames = futures_util::stream::iter(frames.map(Ok::<_, Infallible>));
                    let response = Response::builder().header("content-type", "application/grpc");
                    Ok::<_, Infallible>(response.body(StreamBody::new(frames)).unwrap())
                }
            });
            tokio::spawn(
                hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), answering),
            );
        }
    });
    (address, asked)
}

/// Calls a method as gRPC clients do, with a trailer of its own and some that are not its to send.
async fn call(gateway: &Gateway, path: &str) -> (Response<()>, Bytes, Option<HeaderMap>) {
    let stream = TcpStream::connect(gateway.address()).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let mut trailers = HeaderMap::new();
    for (name, value) in [
        ("x-sum", "1"),
        ("firstwrite-tenant", "victim"),
        ("x_forwarded_for", "6.6.6.6"),
        ("authorization", "Bearer stolen"),
        ("firstwrite-any", "1"),
        ("via", "1.1 other"),
        ("traceparent", "00-1-1-00"),
        ("content-encoding", "gzip"),
        ("origin", "https://evil.example"),
        ("prefer", "respond-async"),
        ("expect", "100-continue"),
    ] {
        trailers.insert(name, HeaderValue::from_static(value));
    }
    let frames = [Frame::data(Bytes::from_static(b"pay")), Frame::trailers(trailers)];
    let frames = futures_util::stream::iter(frames.map(Ok::<_, Infallible>));
    let request = Request::post(format!("http://shop.example{path}"))
        .version(Version::HTTP_2)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(StreamBody::new(frames))
        .unwrap();
    let (parts, body) = sender.send_request(request).await.unwrap().into_parts();
    let whole = body.collect().await.unwrap();
    let trailers = whole.trailers().cloned();
    (Response::from_parts(parts, ()), whole.to_bytes(), trailers)
}

fn names(trailers: &HeaderMap) -> Vec<&str> {
    let mut names: Vec<&str> = trailers.keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    names
}

fn before(service: SocketAddr, operations: Operations, usual: Rules) -> Rules {
    Rules {
        upstreams: vec![Target::new(&format!("http://{service}")).unwrap()],
        calling: Calling { http2: true, ..usual.calling },
        operations: Arc::new(operations),
        ..usual
    }
}

#[tokio::test]
async fn a_call_that_is_not_protected_passes_with_its_trailers() {
    let (address, asked) = service().await;
    let nobody = Upstream::start().await;
    let operations = Operations::new(Policy::default(), OperationExtras::default());
    let operations = operations.unprotected(Method::POST, "/shop.Payments/{method}", "gRPC");
    let gateway = start(before(address, operations, rules(&[&nobody]))).await;
    let (response, body, trailers) = call(&gateway, "/shop.Payments/Pay").await;
    assert_eq!((response.status().as_u16(), body), (200, Bytes::from_static(b"paid")));
    assert_eq!(names(&trailers.unwrap()), ["connection-any", "grpc-status"]);
    let asked = asked.lock().unwrap();
    let (path, trailers) = &asked[0];
    assert_eq!(path, "/shop.Payments/Pay");
    assert_eq!(names(trailers), ["x-sum"]);
}

#[tokio::test]
async fn a_protected_call_is_refused_in_trailers_before_anything_is_reserved() {
    let (address, asked) = service().await;
    let nobody = Upstream::start().await;
    let operations = Operations::new(Policy::default(), OperationExtras::default());
    let gateway = start(before(address, operations, rules(&[&nobody]))).await;
    let (response, body, trailers) = call(&gateway, "/shop.Payments/Pay").await;
    assert_eq!((response.status().as_u16(), body.len(), trailers), (200, 0, None));
    let headers = response.headers();
    assert_eq!(
        (&headers["content-type"], &headers["grpc-status"]),
        (&HeaderValue::from_static("application/grpc"), &HeaderValue::from_static("12"),)
    );
    let message = headers["grpc-message"].to_str().unwrap();
    assert!(message.contains("operation = \"POST /shop.Payments/Pay\""), "{message}");
    assert!(message.contains("unprotected = "), "{message}");
    assert_eq!(asked.lock().unwrap().len(), 0);
}

/// A service without gRPC whose answers have trailers.
#[tokio::test]
async fn an_answer_of_plain_http_keeps_its_trailers_over_http2() {
    let (address, _) = service().await;
    let nobody = Upstream::start().await;
    let gateway = start(before(address, Operations::only_named(), rules(&[&nobody]))).await;
    let stream = TcpStream::connect(gateway.address()).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let request = Request::get("http://shop.example/feed").body(Full::new(Bytes::new())).unwrap();
    let response = sender.send_request(request).await.unwrap();
    let trailers = response.into_body().collect().await.unwrap().trailers().cloned();
    assert_eq!(trailers.unwrap()["grpc-status"], "0");
}

#[tokio::test]
async fn a_call_to_an_upstream_that_is_not_spoken_to_in_http2_is_refused() {
    let upstream = Upstream::start().await;
    let operations = Operations::new(Policy::default(), OperationExtras::default());
    let operations = operations.unprotected(Method::POST, "/shop.Payments/{method}", "gRPC");
    let operations = Arc::new(operations);
    let gateway = start(Rules { operations, ..rules(&[&upstream]) }).await;
    let (response, body, _) = call(&gateway, "/shop.Payments/Pay").await;
    let headers = response.headers();
    assert_eq!((response.status().as_u16(), body.len()), (200, 0));
    assert_eq!(headers.get("grpc-status").unwrap(), "12");
    let message = headers["grpc-message"].to_str().unwrap();
    assert!(message.contains("http2 = true"), "{message}");
    let plain = keyed("/shop.Payments/Pay", "k", "content-type: application/grpc\r\n", "{}");
    let refused = ask(gateway.address(), &plain).await;
    assert_eq!((refused.status(), refused.code().as_str()), (415, "grpc-unsupported"));
    assert!(refused.text().contains("http2 = true"), "{}", refused.text());
    assert_eq!(upstream.seen().len(), 0);
    // gRPC-Web has its trailers in the body.
    let web = keyed("/shop.Payments/Pay", "k", "content-type: application/grpc-web\r\n", "{}");
    assert_eq!(ask(gateway.address(), &web).await.status(), 201);
}
