//! The quickstarts among the examples, run; and the guide, which shows their code.

use std::path::Path;

use axum::Router;
use axum::body::Body;
use http::Request;
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use crate::app::{App, Effects};

#[cfg(feature = "axum")]
#[expect(dead_code, reason = "its main is for people")]
#[path = "../../examples/axum_cors.rs"]
pub(crate) mod axum_cors;
#[cfg(feature = "sqlite")]
#[expect(dead_code, reason = "its main is for people")]
#[path = "../../examples/axum_sqlite.rs"]
mod axum_sqlite;
#[cfg(all(feature = "http-destination", feature = "sqlx"))]
#[expect(dead_code, reason = "its main is for people")]
#[path = "../../examples/axum_sqlx.rs"]
mod axum_sqlx;
#[expect(dead_code, reason = "its main is for people")]
#[path = "../../examples/hyper_plain.rs"]
mod hyper_plain;

/// Sends an order and tells the answer, or, without one, asks for the total.
async fn ask(router: &Router, amount: Option<u32>) -> String {
    let request = match amount {
        Some(amount) => Request::post("/payments")
            .header("idempotency-key", "order-1")
            .header("content-type", "application/json")
            .body(Body::from(format!("{{\"amount\":{amount}}}"))),
        None => Request::get("/total").body(Body::empty()),
    };
    let answer = router.clone().oneshot(request.unwrap()).await.unwrap();
    let (status, is_replay) =
        (answer.status().as_u16(), answer.headers().contains_key("idempotent-replayed"));
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let again = if is_replay { " again" } else { "" };
    match status {
        422 => "422".to_owned(),
        _ => format!("{status} {}{again}", String::from_utf8_lossy(&body)),
    }
}

async fn check_payments(router: &Router) {
    assert_eq!(ask(router, Some(7)).await, r#"201 {"amount":7,"payment":1}"#);
    assert_eq!(ask(router, Some(7)).await, r#"201 {"amount":7,"payment":1} again"#);
    assert_eq!(ask(router, Some(8)).await, "422");
    assert_eq!(ask(router, None).await, "200 7");
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn the_service_on_sqlite_pays_once() {
    let folder = tempfile::tempdir().unwrap();
    let (router, ..) = axum_sqlite::service(&folder.path().join("payments.db")).await.unwrap();
    check_payments(&router).await;
}

#[cfg(all(feature = "http-destination", feature = "sqlx"))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_on_sqlx_pays_once_and_delivers_its_receipt() {
    use std::sync::{Arc, Mutex};

    use axum::routing::post;
    use firstwrite::carrier::http::HttpDestination;

    crate::postgres::on_bare_database(async |url| {
        let receipts = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&receipts);
        let take = post(async move |body: String| taken.lock().unwrap().push(body));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mailer = format!("http://{}/receipts", listener.local_addr().unwrap());
        let router = Router::new().route("/receipts", take);
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });

        axum_sqlx::prepare(&url).await.unwrap();
        let mailer = HttpDestination::new(&mailer).allow_network("127.0.0.1".parse().unwrap());
        let service = axum_sqlx::service(&url, mailer).await.unwrap();
        check_payments(&service.router).await;
        let counts = service.deliver.run_until_idle().await.unwrap();
        assert_eq!(counts.delivered, 1, "{counts:?}");
        assert_eq!(*receipts.lock().unwrap(), [r#"{"amount":7,"payment":1}"#]);
    })
    .await;
}

#[tokio::test]
async fn the_service_on_hyper_pays_once() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let app = App { address: listener.local_addr().unwrap(), effects: Effects::default() };
    tokio::spawn(async move { hyper_plain::serve(listener).await.unwrap() });
    let order = || Request::post("/payments").header("idempotency-key", "order-1");
    let first = app.send(order().body("{}".into()).unwrap()).await;
    let again = app.send(order().body("{}".into()).unwrap()).await;
    assert_eq!((first.status.as_u16(), again.status.as_u16()), (201, 201));
    assert_eq!(again.headers["idempotent-replayed"], "true");
}

/// A block of the guide that begins with the name of an example is a part of that example.
#[test]
fn the_guide_shows_the_code_that_is_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = std::fs::read_to_string(root.join("docs/guide.md")).unwrap();
    let mut shown = Vec::new();
    for block in guide.split("```rust,ignore\n// crates/").skip(1) {
        let (name, rest) = block.split_once('\n').unwrap();
        let code = rest.split("```").next().unwrap();
        let example = std::fs::read_to_string(root.join("crates").join(name)).unwrap();
        assert!(example.contains(code), "{name} does not have what the guide shows:\n{code}");
        shown.push(name.rsplit('/').next().unwrap().to_owned());
    }
    shown.dedup();
    assert_eq!(shown, ["axum_sqlite.rs", "axum_sqlx.rs", "hyper_plain.rs", "axum_cors.rs"]);
}
