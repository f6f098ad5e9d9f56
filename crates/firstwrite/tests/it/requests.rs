//! What a client sees, request by request.

use std::sync::Arc;

use firstwrite::memory_store;
use http::{HeaderValue, Request};

use crate::app::{App, payment, to};

async fn app() -> App {
    App::over(Arc::new(memory_store())).await
}

#[tokio::test]
async fn first_replay_mismatch_and_another_tenant() {
    let app = app().await;
    let first = app.send(payment("k", "{\"amount\":1}")).await;
    assert_eq!(first.summary(), "201 acme 1 12 bytes");
    assert!(first.headers.contains_key("set-cookie"));
    let again = app.send(payment("\"k\"", "{\"amount\":1}")).await;
    assert_eq!(again.summary(), "201 acme 1 12 bytes again");
    assert_eq!(again.headers["location"], "/payments/1");
    assert!(!again.headers.contains_key("set-cookie"));
    assert_eq!(again.headers["content-length"], first.headers["content-length"]);
    let different = app.send(payment("k", "{\"amount\":2}")).await;
    assert_eq!(different.summary(), "422 key-reused");
    assert_eq!(different.json()["differing"], serde_json::json!(["/amount"]));
    let mut other = payment("k", "{\"amount\":2}");
    other.headers_mut().insert("authorization", HeaderValue::from_static("Bearer globex"));
    assert_eq!(app.send(other).await.summary(), "201 globex 2 12 bytes");
    assert_eq!(app.effects.count(), 2);
}

#[tokio::test]
async fn the_same_json_in_another_spelling_is_the_same_request() {
    let app = app().await;
    let check = async |key, first, second, expected: &str| {
        assert_eq!(app.send(payment(key, first)).await.status, 201);
        let second = app.send(payment(key, second)).await;
        let said = if second.status == 201 { "replay".to_owned() } else { second.summary() };
        assert_eq!(said, expected, "{key}");
    };
    check("order", r#"{"a":1,"b":2}"#, r#"{ "b": 2, "a": 1 }"#, "replay").await;
    check("escape", r#"{"a":"A"}"#, r#"{"a":"\u0041"}"#, "replay").await;
    check("big", r#"{"a":9007199254740993}"#, r#"{"a":9007199254740992}"#, "422 key-reused").await;
    check("twice", r#"{"a":1,"a":2}"#, r#"{"a":2,"a":1}"#, "422 key-reused").await;
    check("normal-form", "{\"a\":\"\u{e9}\"}", "{\"a\":\"e\u{301}\"}", "422 key-reused").await;
    check("broken", "{\"a\":", "{\"a\": ", "422 key-reused").await;
    check("mark", "\u{feff}{}", "{}", "422 key-reused").await;
}

#[tokio::test]
async fn what_is_not_protected_needs_neither_key_nor_credentials() {
    let app = app().await;
    let get = |path: &str| Request::get(path).body(http_body_util::Full::default()).unwrap();
    assert_eq!(app.send(get("/health")).await.summary(), "200 well");
    let mut keyed = get("/payments");
    keyed.headers_mut().insert("idempotency-key", HeaderValue::from_static("k"));
    assert_eq!(app.send(keyed).await.summary(), "200 payments");
    for _ in 0..2 {
        let mut echo = to("/echo", "k", "hello");
        echo.headers_mut().remove("authorization");
        assert_eq!(app.send(echo).await.summary(), "200 hello");
    }
}

#[tokio::test]
async fn the_status_resource_is_reached_through_the_router() {
    let app = app().await;
    app.send(payment("a/b", "{}")).await;
    let ask = |credentials: &str| {
        Request::get("/.firstwrite/operations/a%2Fb")
            .header("authorization", credentials)
            .body(http_body_util::Full::default())
            .unwrap()
    };
    let status = app.send(ask("Bearer acme")).await;
    assert_eq!(status.json()["state"], "completed");
    assert_eq!(status.json()["operation"], "POST /payments");
    assert_eq!(app.send(ask("Bearer globex")).await.status, 404);
    assert_eq!(app.send(ask("none")).await.summary(), "401 tenant-unknown");
}

#[tokio::test]
async fn an_operation_that_no_table_names_goes_by_the_routers_pattern() {
    let app = app().await;
    app.effects.leave.add_permits(1);
    assert_eq!(app.send(to("/slow?verbose=1", "k", "{}")).await.summary(), "201 slow 1");
    let ask = Request::get("/.firstwrite/operations/k")
        .header("authorization", "Bearer acme")
        .body(http_body_util::Full::default())
        .unwrap();
    assert_eq!(app.send(ask).await.json()["operation"], "POST /slow");
}
