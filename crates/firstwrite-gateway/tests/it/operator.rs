//! What an operator asks, and what no client can.

use tokio::io::AsyncWriteExt as _;

use crate::client::{Client, ask};
use crate::gateway::rules;
use crate::scrape::Watched;
use crate::upstream::Script;
use crate::upstream::{Upstream, answer};

#[tokio::test]
async fn only_the_operators_listener_tells() {
    let upstream = Upstream::start().await;
    upstream.does(Script::Answer(answer("200 OK", "", "the API's own page")));
    let watched = Watched::start(rules(&[&upstream])).await;
    for path in ["/metrics", "/healthz", "/readyz"] {
        let request = format!("GET {path} HTTP/1.1\r\nhost: shop.example\r\n\r\n");
        assert_eq!(watched.ask(&request).await.text(), "the API's own page");
        assert_eq!(watched.operator(path).await.status(), 200, "{path}");
    }
    let metrics = watched.operator("/metrics").await;
    let content_type = metrics.header("content-type").unwrap();
    assert!(content_type.starts_with("application/openmetrics-text"), "{content_type}");
    assert_eq!(watched.operator("/pay").await.status(), 404);
    let request = "POST /metrics HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n";
    let refused = ask(watched.operator.address(), request).await;
    assert_eq!((refused.status(), refused.header("allow")), (405, Some("GET, HEAD")));
    assert_eq!(upstream.seen().len(), 3);
}

#[tokio::test]
async fn readiness_follows_the_store() {
    let upstream = Upstream::start().await;
    let watched = Watched::start(rules(&[&upstream])).await;
    assert_eq!(watched.operator("/readyz").await.status(), 200);
    watched.store.goes_away();
    let answer = watched.ready_until(503).await;
    assert_eq!(answer.text(), "the store cannot be reached\n");
    assert_eq!(watched.operator("/healthz").await.status(), 200, "alive all the same");
    watched.store.comes_back();
    watched.ready_until(200).await;
}

#[tokio::test]
async fn a_gateway_that_drains_is_not_ready_and_is_alive() {
    let upstream = Upstream::start().await;
    let watched = Watched::start(rules(&[&upstream])).await;
    watched.operator.drain();
    let answer = watched.operator("/readyz").await;
    assert_eq!((answer.status(), answer.text().as_str()), (503, "stopping\n"));
    assert_eq!(watched.operator("/healthz").await.status(), 200);
}

#[tokio::test]
async fn one_connection_is_one_request_and_a_head_has_an_end() {
    let upstream = Upstream::start().await;
    let watched = Watched::start(rules(&[&upstream])).await;
    let mut client = Client::connect(watched.operator.address()).await;
    let answer = client.ask("GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(client.is_closed().await);
    let mut client = Client::connect(watched.operator.address()).await;
    let endless = format!("GET /healthz HTTP/1.1\r\nx: {}", "x".repeat(64 * 1024));
    // It may be closed before all of it is written.
    drop(client.0.write_all(endless.as_bytes()).await);
    let refused = client.read().await;
    assert!(refused.is_none_or(|refused| refused.status() == 431));
}
