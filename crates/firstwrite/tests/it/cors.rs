//! Pages of another origin: tower-http's layer outside of the layer, as the guide shows it.

use axum::body::Body;
use http::{HeaderMap, Request, StatusCode};
use tower::ServiceExt as _;

use crate::quickstarts::axum_cors;

const SHOP: &str = "https://shop.example";

fn pay(key: Option<&str>, origin: &str, body: &str) -> Request<Body> {
    let mut request = Request::post("/payments")
        .header("origin", origin)
        .header("content-type", "application/json");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    request.body(Body::from(body.to_owned())).unwrap()
}

/// The origin that may read an answer, and the headers that it may read.
fn permission(headers: &HeaderMap) -> (Option<&str>, Vec<String>) {
    let value = |name| headers.get(name).map(|value| value.to_str().unwrap());
    let exposed = value("access-control-expose-headers").unwrap_or_default();
    let exposed = exposed.split(',').map(|name| name.trim().to_owned()).collect();
    (value("access-control-allow-origin"), exposed)
}

#[tokio::test]
async fn a_page_may_read_the_first_answer_the_replay_and_every_refusal() {
    let app = axum_cors::service().unwrap();
    for (key, body, status, is_replay) in [
        (Some("order-1"), "{\"amount\":1}", StatusCode::CREATED, false),
        (Some("order-1"), "{\"amount\":1}", StatusCode::CREATED, true),
        (Some("order-1"), "{\"amount\":2}", StatusCode::UNPROCESSABLE_ENTITY, false),
        (Some(""), "{}", StatusCode::BAD_REQUEST, false),
        (None, "{}", StatusCode::BAD_REQUEST, false),
    ] {
        let answered = app.clone().oneshot(pay(key, SHOP, body)).await.unwrap();
        assert_eq!(answered.status(), status);
        assert_eq!(answered.headers().contains_key("idempotent-replayed"), is_replay);
        let (origin, exposed) = permission(answered.headers());
        assert_eq!(origin, Some(SHOP), "{status}");
        for name in [
            firstwrite::IDEMPOTENT_REPLAYED,
            firstwrite::IDEMPOTENCY_EXPIRES,
            firstwrite::IDEMPOTENCY_INTERIM,
            firstwrite::IDEMPOTENCY_OUTCOME,
            http::header::RETRY_AFTER,
            http::header::DATE,
        ] {
            assert!(exposed.iter().any(|exposed| exposed == name.as_str()), "{name}: {exposed:?}");
        }
    }
}

#[tokio::test]
async fn the_permission_is_of_the_exchange_and_not_of_the_record() {
    let app = axum_cors::service().unwrap();
    let first = app.clone().oneshot(pay(Some("k"), SHOP, "{}")).await.unwrap();
    assert_eq!(permission(first.headers()).0, Some(SHOP));
    let other = app.clone().oneshot(pay(Some("k"), "https://other.example", "{}")).await.unwrap();
    assert!(other.headers().contains_key("idempotent-replayed"));
    assert_eq!(permission(other.headers()).0, None);
}

#[tokio::test]
async fn a_preflight_is_answered_without_a_key() {
    let app = axum_cors::service().unwrap();
    let preflight = Request::options("/payments")
        .header("origin", SHOP)
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "content-type, idempotency-key, prefer")
        .body(Body::empty())
        .unwrap();
    let answered = app.oneshot(preflight).await.unwrap();
    assert_eq!(answered.status(), StatusCode::OK);
    let value = |name| answered.headers()[name].to_str().unwrap();
    assert_eq!(value("access-control-allow-origin"), SHOP);
    assert_eq!(value("access-control-allow-methods"), "POST");
    assert_eq!(value("access-control-allow-headers"), "content-type,idempotency-key,prefer");
}
