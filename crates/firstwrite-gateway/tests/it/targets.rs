//! Targets that an API could read as another path than the gateway did, and the gateway's own paths.

use std::sync::Arc;

use firstwrite::Policy;
use firstwrite_gateway::{Gateway, OperationExtras, Operations};
use http::Method;

use crate::client::{ask, keyed};
use crate::frames::{END_HEADERS, END_STREAM, Frames, HEADERS, block, frame};
use crate::gateway::{rules, start};
use crate::upstream::Upstream;

/// A transfer needs a key, and pictures of accounts do not.
async fn started() -> (Upstream, Gateway) {
    let upstream = Upstream::start().await;
    let mut rules = rules(&[&upstream]);
    let operations = Operations::new(Policy::default(), OperationExtras::default())
        .protected(
            Method::PUT,
            "/accounts/{id}/transfer",
            Policy::default(),
            OperationExtras::default(),
        )
        .unprotected(Method::POST, "/avatars/{id}/image", "replaces a picture");
    rules.operations = Arc::new(operations);
    let gateway = start(rules).await;
    (upstream, gateway)
}

fn request(method: &str, target: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n")
}

/// Paths that some servers change before they look at them.
const MISREAD: [&str; 22] = [
    "/x/../accounts/1/transfer",
    "/accounts/1/x/../transfer",
    "/./accounts/1/transfer",
    "/accounts/1/./transfer",
    "/accounts/1/transfer/.",
    "/accounts/1/transfer/x/..",
    "/accounts/1/transfer/%2e",
    "/x/%2e%2e/accounts/1/transfer",
    "/x/.%2E/accounts/1/transfer",
    "/x/..;/accounts/1/transfer",
    "/x/..;a=b/accounts/1/transfer",
    "/x/%2e%2e%3b/accounts/1/transfer",
    "/accounts\\1/transfer",
    "/accounts/1\\transfer",
    "/accounts%5c1/transfer",
    "/accounts/1%5Ctransfer",
    "/accounts/1/transfer%00",
    "/accounts/1/transfer%0d%0a",
    "/accounts/1/transfer%7f",
    "/avatars/..%2f..%2fpay%3f/image",
    "/avatars/a%2f../image",
    "/avatars/%2e%2e%2Fpay%3f/image",
];

#[tokio::test]
async fn a_path_that_others_read_as_another_is_refused() {
    let (upstream, gateway) = started().await;
    for path in MISREAD {
        for request in [
            request("PUT", path),
            request("GET", path),
            request("PUT", &format!("http://a{path}?q")),
            keyed(path, "k", "", "{}"),
        ] {
            let refused = ask(gateway.address(), &request).await;
            let found = (refused.status(), refused.code());
            assert_eq!(found, (400, "request-malformed".to_owned()), "{request}");
        }
        let mut connection = Frames::connect(gateway.address()).await;
        let head = [(":method", "PUT"), (":scheme", "http"), (":path", path), (":authority", "a")];
        connection.send(&[&frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(&head))]).await;
        connection.came(1).await;
    }
    assert_eq!(upstream.seen().len(), 0);
}

#[tokio::test]
async fn an_escaped_slash_is_refused_where_it_hides_another_operation() {
    let (upstream, gateway) = started().await;
    for (method, target, status) in [
        ("PUT", "/accounts%2f1/transfer", 400),
        ("PUT", "/accounts/1%2Ftransfer", 400),
        ("PUT", "/accounts/1%2f2/transfer", 400),
        ("POST", "/avatars/a%2fb/image", 400),
        ("PUT", "/files/a%2fb", 201),
        ("GET", "/accounts%2f1/transfer", 201),
        ("PUT", "/files?of=../a%2fb%00\\", 201),
    ] {
        let answered = ask(gateway.address(), &request(method, target)).await;
        assert_eq!(answered.status(), status, "{method} {target}");
    }
    let keyed = keyed("/files/a%2fb", "k", "", "{}");
    assert_eq!(ask(gateway.address(), &keyed).await.status(), 201);
    assert_eq!(upstream.seen().len(), 4);
}

#[tokio::test]
async fn other_spellings_pass_as_they_are() {
    let (upstream, gateway) = started().await;
    for target in [
        "/a//b",
        "/a/",
        "/a;b=c",
        "/.well-known/x",
        "/a...b",
        "/...",
        "/a.",
        "/%61",
        "/a%20b",
        "/a%",
        "/a%zz",
        "/caf\u{e9}",
    ] {
        assert_eq!(ask(gateway.address(), &request("PUT", target)).await.status(), 201, "{target}");
        let seen = upstream.seen().pop().unwrap();
        assert_eq!(seen.start, format!("PUT {target} HTTP/1.1"));
    }
}

#[tokio::test]
async fn nothing_below_the_gateways_own_path_is_passed_on() {
    let (upstream, gateway) = started().await;
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\n";
    for (method, path, status) in [
        ("PATCH", "/.firstwrite/operations/secret", 405),
        ("POST", "/.firstwrite/operations/secret", 405),
        ("GET", "/.firstwrite/operations/..%2f..%2fetc%5cpasswd", 404),
        ("GET", "/.firstwrite/operations/secret", 404),
        ("GET", "/.firstwrite/elsewhere/secret", 404),
        ("PATCH", "/.firstwrite/elsewhere/secret", 404),
        ("POST", "/.firstwrite/", 404),
        ("PUT", "/.firstwrite/../accounts/1/transfer", 404),
        ("PATCH", "/%2efirstwrite/operations/secret", 404),
    ] {
        for headers in ["", upgrade, "idempotency-key: k\r\n"] {
            let request = request(method, path)
                .replace("content-length", &format!("{headers}authorization: a\r\ncontent-length"));
            let answered = ask(gateway.address(), &request).await;
            assert_eq!(answered.status(), status, "{request}");
            assert_eq!(answered.header("content-type"), Some("application/problem+json"));
        }
    }
    assert_eq!(upstream.connections(), 0);
}
