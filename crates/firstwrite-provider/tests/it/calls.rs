//! What a call for a payment gets when nothing is the matter but the call.

use firstwrite_provider::Behaviour;
use serde_json::json;

use crate::client::{get, pay, post, put};
use crate::stand::Stand;

#[tokio::test]
async fn a_payment_is_answered_with_everything_about_it() {
    let stand = Stand::new(Behaviour::default()).await;
    let answer = pay("k-1", 1250).send(stand.address()).await;
    assert_eq!(answer.status, 201);
    let told = json!({
        "id": "pay_00000001",
        "amount": 1250,
        "currency": "EUR",
        "reference": "order",
        "idempotency_key": "k-1",
        "created_at": "2026-03-01T12:00:00.000Z",
    });
    assert_eq!(answer.json(), told);
    assert_eq!(stand.provider.requests().create, 1);
}

#[tokio::test]
async fn a_payment_needs_neither_key_nor_reference() {
    let stand = Stand::new(Behaviour::default()).await;
    let call = post("/v1/payments", r#"{"amount":5,"currency":"EUR"}"#);
    let first = call.send(stand.address()).await.json();
    assert_eq!((&first["reference"], &first["idempotency_key"]), (&json!(null), &json!(null)));
    assert_eq!(call.send(stand.address()).await.status, 201);
    assert_eq!(stand.count(), 2);
}

#[tokio::test]
async fn a_call_that_makes_no_sense_is_refused_and_pays_nothing() {
    let stand = Stand::new(Behaviour::default()).await;
    let long = format!(r#"{{"reference":"{}"}}"#, "x".repeat(70_000));
    for (call, status, code) in [
        (post("/v1/payments", "nonsense"), 400, "body-invalid"),
        (pay("k", 0), 400, "field-invalid"),
        (pay("k", 5).key(""), 400, "key-invalid"),
        (pay("k", 5).key(&"k".repeat(256)), 400, "key-invalid"),
        (post("/v1/payments", long), 413, "body-too-large"),
        (pay("k", 666), 402, "declined"),
        (get("/v2/payments"), 404, "route-unknown"),
        (put("/v1/payments", ""), 405, "method-not-allowed"),
    ] {
        let answer = call.send(stand.address()).await;
        assert_eq!((answer.status, &answer.json()["code"]), (status, &json!(code)));
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    }
    assert_eq!(stand.count(), 0);
}
